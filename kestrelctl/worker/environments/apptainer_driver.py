"""Containers of Apptainer, which need neither root nor a service."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from kestrelctl.core.environments.driver_commands import apptainer_build, apptainer_start
from kestrelctl.core.environments.environment_class import EnvironmentClass, recipe_digest
from kestrelctl.core.environments.worker_command import INSIDE, TOKEN_FILE, reading
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.environment_files import EnvironmentFiles, read_recipe
from kestrelctl.worker.environments.led_processes import end_leader, start_leader, status_of_leader
from kestrelctl.worker.environments.tool_run import run_tool

_IMAGE_FILE = "image.sif"


class ApptainerDriver:
    """Kind `apptainer`: takes a file on this machine as it is, and makes all else into one first.

    Args:
        root: where the environments of one owner are kept.
    """

    def __init__(self, root: Path, *, prepare_seconds: float = 1800.0) -> None:
        self._files = EnvironmentFiles(root)
        self._prepare_seconds = prepare_seconds

    async def prepare(self, wanted: EnvironmentClass) -> str:
        if wanted.image.startswith("/"):
            return wanted.image
        await self._files.sweep_unfinished()
        recipe = read_recipe(wanted.recipe)

        async def make(place: Path) -> None:
            command = apptainer_build(str(place / _IMAGE_FILE), wanted.image or wanted.recipe)
            await run_tool(command, limit_seconds=self._prepare_seconds)

        place = await self._files.prepared(recipe_digest(wanted, recipe), make)
        return str(place / _IMAGE_FILE)

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        own = self._files.make_own(name, token)
        inside = reading(f"{INSIDE}/{TOKEN_FILE}", command)
        await start_leader(own, apptainer_start(wanted, prepared, str(own), inside), os.environ)

    async def collect(self, in_use: Collection[str]) -> list[str]:
        return await self._files.collect(in_use)

    async def status(self) -> dict[str, EnvironmentStatus]:
        return {name: status_of_leader(self._files.own(name)) for name in self._files.names()}

    async def stop(self, name: str) -> None:
        await end_leader(self._files.own(name), levels=1)
        await self._files.drop_own(name)
