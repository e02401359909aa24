"""Virtual environments of Python (venv(1) or uv), made after a requirements file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from kestrelctl.core.environments.driver_commands import venv_preparation
from kestrelctl.core.environments.environment_class import EnvironmentClass, recipe_digest
from kestrelctl.core.environments.worker_command import TOKEN_FILE, reading
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.environment_files import EnvironmentFiles, read_recipe
from kestrelctl.worker.environments.led_processes import end_leader, start_leader, status_of_leader
from kestrelctl.worker.environments.tool_run import run_tool
from kestrelctl.worker.environments.venv_variables import VARIABLE, venv_variables
from kestrelctl.worker.run.variables import CONSISTS_OF, INHERIT_MORE

#: The words that call the worker of a virtual environment. It is the host's own, so the environment
#: holds only what its recipe names, is no larger for it, and never has another version.
HOSTS_PROGRAM = (sys.executable, "-P", "-m", "kestrelctl")
#: Links of virtual environments lead here, and not to another virtual environment.
_PYTHON = os.path.realpath(sys.executable)


class VenvDriver:
    """Kind `venv`. What is started finds the environment's programs first, and so do its tasks.

    Args:
        root: where the environments of one owner are kept.
    """

    def __init__(self, root: Path, *, prepare_seconds: float = 600.0) -> None:
        self._files = EnvironmentFiles(root)
        self._prepare_seconds = prepare_seconds

    async def prepare(self, wanted: EnvironmentClass) -> str:
        await self._files.sweep_unfinished()
        recipe = read_recipe(wanted.recipe)

        async def make(place: Path) -> None:
            steps = venv_preparation(
                str(place), wanted.recipe, python=_PYTHON, uv=shutil.which("uv") or ""
            )
            for step in steps:
                await run_tool(step, limit_seconds=self._prepare_seconds)

        digest = recipe_digest(wanted, recipe, f"{_PYTHON} {sys.version}")
        return str(await self._files.prepared(digest, make))

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        own = self._files.make_own(name, token)
        more = [each for each in (os.environ.get(INHERIT_MORE), VARIABLE) if each]
        env = os.environ | {
            **venv_variables(prepared, os.environ),
            INHERIT_MORE: ",".join(more),
            CONSISTS_OF: os.pathsep.join((prepared, sys.base_prefix)),
            "XDG_STATE_HOME": f"{own}/state",
        }
        await start_leader(own, reading(f"{own}/{TOKEN_FILE}", command), env)

    async def collect(self, in_use: Collection[str]) -> list[str]:
        return await self._files.collect(in_use)

    async def status(self) -> dict[str, EnvironmentStatus]:
        return {name: status_of_leader(self._files.own(name)) for name in self._files.names()}

    async def stop(self, name: str) -> None:
        await end_leader(self._files.own(name), levels=0)
        await self._files.drop_own(name)
