"""Containers of podman or docker: both take the same words."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from kestrelctl.core.environments import driver_commands as words
from kestrelctl.core.environments.environment_class import EnvironmentClass, recipe_digest
from kestrelctl.core.environments.names import PREFIX, EnvironmentOwner
from kestrelctl.core.environments.worker_command import INSIDE, TOKEN_FILE, reading
from kestrelctl.errors import KestrelError, MissingTool
from kestrelctl.worker.environments.control_groups import enforceable
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.environment_files import EnvironmentFiles, read_recipe
from kestrelctl.worker.environments.led_processes import GRACE_SECONDS
from kestrelctl.worker.environments.one_making import OneMaking
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
        self._making = OneMaking[str]()

    async def prepare(self, wanted: EnvironmentClass) -> str:
        if not wanted.recipe:
            return await self._there(wanted.image, words.image_pull(self._engine, wanted.image))
        digest = recipe_digest(wanted, read_recipe(wanted.recipe))
        self._files.note_use(digest)
        image, context = _image_of(digest), str(Path(wanted.recipe).absolute().parent)
        build = words.image_build(self._engine, image, wanted.recipe, context)
        return await self._making.of(image, lambda: self._there(image, build))

    async def _there(self, image: str, bring: Sequence[str]) -> str:
        """Returns the image; pulls or builds it unless it is there."""
        if not await self._has(image):
            await self._call(bring, self._prepare_seconds)
        return image

    async def _has(self, image: str) -> bool:
        try:
            await self._call(words.image_check(self._engine, image))
        except MissingTool:
            raise
        except KestrelError:
            return False
        return True

    async def collect(self, in_use: Collection[str]) -> list[str]:
        removed: list[str] = []
        for note in self._files.long_unused():
            image = _image_of(note.name)
            if image in in_use or not await self._removes(image):
                continue
            note.unlink()
            removed.append(note.name)
        return removed

    async def _removes(self, image: str) -> bool:
        """Removes an image; returns whether it has gone. KestrelError if the engine is away."""
        try:
            await self._call(words.image_remove(self._engine, image))
        except KestrelError:  # it is used, or somebody has removed it, or the engine is away
            await self._listed()
            return not await self._has(image)
        return True

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        own = self._files.make_own(name, token)
        held_to = replace(wanted, resources=enforceable(wanted.resources))
        inside = reading(f"{INSIDE}/{TOKEN_FILE}", command)
        try:
            await self._call(
                words.container_start(
                    self._engine, held_to, prepared, self._owner, name, str(own), inside
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


def _image_of(digest: str) -> str:
    """The name of the image that is built after a recipe."""
    return f"localhost/{PREFIX}-environment:{digest}"
