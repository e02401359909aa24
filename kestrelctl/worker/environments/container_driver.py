"""Containers of podman or docker: both take the same words."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from kestrelctl.environments import driver_commands as words
from kestrelctl.environments.environment_class import EnvironmentClass, recipe_digest
from kestrelctl.environments.environment_names import PREFIX, EnvironmentOwner
from kestrelctl.environments.worker_command import INSIDE, TOKEN_FILE, reading
from kestrelctl.errors import KestrelError, MissingTool
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.environment_files import EnvironmentFiles, read_recipe
from kestrelctl.worker.environments.led_processes import GRACE_SECONDS
from kestrelctl.worker.environments.tool_run import run_tool

_CALL_SECONDS = 60.0


class ContainerDriver:
    """Kinds `podman` and `docker`.

    Args:
        engine: the program.
        root: where the environments' own directories are kept.
        before: what is put before each call of the engine.
    """

    def __init__(
        self,
        engine: str,
        root: Path,
        owner: EnvironmentOwner,
        *,
        before: Sequence[str] = (),
        prepare_seconds: float = 1800.0,
    ) -> None:
        self._engine = engine
        self._files = EnvironmentFiles(root)
        self._owner = owner
        self._before = tuple(before)
        self._prepare_seconds = prepare_seconds

    async def prepare(self, wanted: EnvironmentClass) -> str:
        recipe = read_recipe(wanted.recipe)
        digest = recipe_digest(wanted, recipe)
        image = wanted.image or f"localhost/{PREFIX}-environment:{digest}"
        try:
            await self._call(words.image_check(self._engine, image))
        except MissingTool:
            raise
        except KestrelError:
            context = str(Path(wanted.recipe).absolute().parent)
            await self._call(
                words.image_build(self._engine, image, wanted.recipe, context)
                if wanted.recipe
                else words.image_pull(self._engine, image),
                self._prepare_seconds,
            )
        return image

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        own = self._files.make_own(name, token)
        inside = reading(f"{INSIDE}/{TOKEN_FILE}", command)
        try:
            await self._call(
                words.container_start(
                    self._engine, wanted, prepared, self._owner, name, str(own), inside
                )
            )
        except KestrelError:  # the engine may have made one all the same
            with contextlib.suppress(KestrelError):
                await self._call(words.container_remove(self._engine, name))
            await self._files.drop_own(name)
            raise

    async def status(self) -> dict[str, EnvironmentStatus]:
        here = {name: EnvironmentStatus(False) for name in self._files.names()}
        return here | await self._listed()

    async def stop(self, name: str) -> None:
        if name in await self._listed():
            with contextlib.suppress(KestrelError):  # removing it says what is the matter
                await self._call(words.container_stop(self._engine, name, int(GRACE_SECONDS)))
            await self._call(words.container_remove(self._engine, name))
        await self._files.drop_own(name)

    async def _listed(self) -> dict[str, EnvironmentStatus]:
        listed = await self._call(words.container_list(self._engine, self._owner))
        pairs = [line.split(maxsplit=1) for line in listed.splitlines() if line.strip()]
        return {name: EnvironmentStatus(state.startswith("Up")) for name, state in pairs}

    async def _call(self, argv: Sequence[str], limit_seconds: float = _CALL_SECONDS) -> str:
        return await run_tool((*self._before, *argv), limit_seconds=limit_seconds)
