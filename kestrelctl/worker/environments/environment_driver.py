"""The port to drivers: each makes environments of one kind on this machine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from kestrelctl.core.environments.environment_class import EnvironmentClass


@dataclass(frozen=True)
class EnvironmentStatus:
    """The state of an environment.

    Attributes:
        running: False if it has ended by itself, and is there until it is stopped.
        said: the end of what one that has ended has printed, if the driver keeps that.
    """

    running: bool
    said: str = ""


class EnvironmentDriver(Protocol):
    """Environments of one kind, of one owner. All errors are KestrelErrors."""

    async def prepare(self, wanted: EnvironmentClass) -> str:
        """Makes what all environments of the class share, unless it is there.

        Returns:
            What `start` is to be given: a directory, or the name of an image.
        """

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        """Starts a command in an environment of that name; returns when `status` finds it.

        Args:
            token: what the command reads from standard input; empty for nothing.
        """

    async def collect(self, in_use: Collection[str]) -> list[str]:
        """Removes what was prepared and was not used for long; returns what that was.

        Args:
            in_use: what `prepare` has returned, and has to stay.
        """
        ...

    async def status(self) -> dict[str, EnvironmentStatus]:
        """Returns all environments of this owner, those of an earlier process too, by name."""

    async def stop(self, name: str) -> None:
        """Asks it to end, ends it, and removes all that it leaves; no error if there is none."""


async def sweep(driver: EnvironmentDriver) -> list[str]:
    """Stops what an earlier process of the owner has left. Returns the names."""
    left = sorted(await driver.status())
    for name in left:
        await driver.stop(name)
    return left
