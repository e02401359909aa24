"""Environments that share a root tree, which none of them writes: nspawn and bubblewrap."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from kestrelctl.core.environments.driver_commands import chroot_start, nspawn_start
from kestrelctl.core.environments.environment_class import EnvironmentClass, recipe_digest
from kestrelctl.core.environments.worker_command import INSIDE, TOKEN_FILE, reading
from kestrelctl.errors import UsageError
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.environment_files import EnvironmentFiles, read_recipe
from kestrelctl.worker.environments.led_processes import end_leader, start_leader, status_of_leader
from kestrelctl.worker.environments.tool_run import run_tool

#: Directories for mounts inside; a tree that is not written to must have them.
_NEEDED = ("dev", "proc", "run", "sys", "tmp", "var/tmp")


class TreeDriver:
    """The common part of both kinds.

    Args:
        root: where the environments of one owner are kept.
    """

    #: How far below the leader the environment's own first process is.
    levels = 2

    def __init__(self, root: Path, *, prepare_seconds: float = 1800.0) -> None:
        self._files = EnvironmentFiles(root)
        self._prepare_seconds = prepare_seconds

    def command(self, root: str, name: str, own: str, inside: Sequence[str]) -> tuple[str, ...]:
        """Returns what to start for a command in the tree."""
        raise NotImplementedError

    async def prepare(self, wanted: EnvironmentClass) -> str:
        if wanted.image:
            if not os.path.isdir(wanted.image):
                raise UsageError(f"the image {wanted.image} is no directory")
            return wanted.image
        await self._files.sweep_unfinished()
        recipe = read_recipe(wanted.recipe)

        async def make(place: Path) -> None:
            program = os.path.abspath(wanted.recipe)
            await run_tool((program, str(place)), limit_seconds=self._prepare_seconds)
            for each in _NEEDED:
                (place / each).mkdir(parents=True, exist_ok=True)

        return str(await self._files.prepared(recipe_digest(wanted, recipe), make))

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        own = self._files.make_own(name, token)
        inside = reading(f"{INSIDE}/{TOKEN_FILE}", command)
        await start_leader(own, self.command(prepared, name, str(own), inside), os.environ)

    async def collect(self, in_use: Collection[str]) -> list[str]:
        return await self._files.collect(in_use)

    async def status(self) -> dict[str, EnvironmentStatus]:
        return {name: status_of_leader(self._files.own(name)) for name in self._files.names()}

    async def stop(self, name: str) -> None:
        await end_leader(self._files.own(name), levels=self.levels)
        await self._files.drop_own(name)


class NspawnDriver(TreeDriver):
    """Kind `nspawn`; for root alone."""

    def command(self, root: str, name: str, own: str, inside: Sequence[str]) -> tuple[str, ...]:
        return nspawn_start(root, name, own, inside)


class ChrootDriver(TreeDriver):
    """Kind `chroot`."""

    def command(self, root: str, name: str, own: str, inside: Sequence[str]) -> tuple[str, ...]:
        resolver = os.path.isfile(f"{root}/etc/resolv.conf")
        return chroot_start(root, own, inside, resolver=resolver)
