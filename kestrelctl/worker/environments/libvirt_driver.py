"""Virtual machines of libvirt, each with a disk that holds what differs from the image."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from kestrelctl.core.environments import driver_commands as words
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.environment_files import EnvironmentFiles
from kestrelctl.worker.environments.tool_run import run_tool

_CALL_SECONDS = 60.0
_SHUTDOWN_SECONDS = 30.0
_LOOK_SECONDS = 0.5


class LibvirtDriver:
    """Kind `libvirt`.

    Args:
        root: where the machines' disks are kept; libvirt's user has to reach it.
        uri: of the libvirt that is asked.
        hypervisor: the type of the machines.
    """

    def __init__(
        self,
        root: Path,
        owner: EnvironmentOwner,
        *,
        uri: str = "qemu:///system",
        hypervisor: str = "kvm",
    ) -> None:
        self._files = EnvironmentFiles(root)
        self._owner = owner
        self._uri = uri
        self._hypervisor = hypervisor

    async def prepare(self, wanted: EnvironmentClass) -> str:
        if not os.path.isfile(wanted.image):
            raise UsageError(f"the image {wanted.image} is no file")
        return wanted.image

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        own = self._files.make_own(name, "")
        disk, definition = str(own / "disk.qcow2"), own / "domain.xml"
        text = words.domain_definition(
            wanted, name, disk, command, token, hypervisor=self._hypervisor
        )
        try:
            definition.touch(mode=0o600)
            definition.write_text(text)
            await self._call(words.disk_overlay(prepared, disk))
            await self._call(words.domain_start(self._uri, str(definition)))
        except KestrelError:
            await self.stop(name)
            raise

    async def collect(self, in_use: Collection[str]) -> list[str]:
        return []  # it makes nothing but disks that go with their machines

    async def status(self) -> dict[str, EnvironmentStatus]:
        here = {name: EnvironmentStatus(False) for name in self._files.names()}
        return here | {name: EnvironmentStatus(True) for name in await self._listed()}

    async def stop(self, name: str) -> None:
        if name in await self._listed():
            with contextlib.suppress(KestrelError, TimeoutError):  # then it is not asked
                await self._call(words.domain_shutdown(self._uri, name))
                async with asyncio.timeout(_SHUTDOWN_SECONDS):
                    while name in await self._listed():
                        await asyncio.sleep(_LOOK_SECONDS)
        if name in await self._listed():
            await self._call(words.domain_destroy(self._uri, name))
        await self._files.drop_own(name)

    async def _listed(self) -> set[str]:
        """The machines of this owner that libvirt knows: it forgets each when it ends."""
        names = (await self._call(words.domain_list(self._uri))).split()
        return {name for name in names if self._owner.number(name) is not None}

    async def _call(self, argv: Sequence[str]) -> str:
        return await run_tool(argv, limit_seconds=_CALL_SECONDS)
