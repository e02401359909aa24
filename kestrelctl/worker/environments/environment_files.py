"""What environments of one kind have on disk.

prepared/DIGEST      a link to what was made after a recipe
made/DIGEST-WORD/    where that is; no link leads to what was never finished
running/NAME/        of one environment: its token, its home, what it has said

What is made stays where it was made, because a virtual environment knows its own path. What puts it
in place is the link, which is renamed into existence.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from kestrelctl.environments.worker_command import TOKEN_FILE
from kestrelctl.errors import KestrelError, UsageError


class EnvironmentFiles:
    """The directory of one driver.

    Args:
        root: it need not be there yet.

    Raises:
        UsageError: mounts cannot name it.
    """

    def __init__(self, root: Path) -> None:
        if any(letter in str(root.absolute()) for letter in ":,\n"):
            raise UsageError(
                f"environments cannot be kept in {root}", cause="its path has a colon or a comma"
            )
        self._root = root.absolute()
        self._making = asyncio.Lock()

    # ---- what is made once

    async def prepared(self, digest: str, make: Callable[[Path], Awaitable[None]]) -> Path:
        """What was made under that digest; it is made now if it is not there.

        Args:
            make: is given a new directory to fill.
        """
        link = self._root / "prepared" / digest
        async with self._making:
            if not link.exists():
                await self._make(link, make)
        return link.resolve()

    async def _make(self, link: Path, make: Callable[[Path], Awaitable[None]]) -> None:
        place = made_in(self._root) / f"{link.name}-{secrets.token_hex(4)}"
        draft = place.with_suffix(".link")
        try:
            place.mkdir(mode=0o755, parents=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            await make(place)
            draft.symlink_to(place)
            draft.rename(link)
        except OSError as error:
            raise KestrelError("an environment cannot be prepared", cause=str(error)) from error
        finally:
            if not link.exists():
                await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def sweep_unfinished(self) -> None:
        """Removes what a killed process was making, and what no link leads to any more."""
        async with self._making:
            used = {link.resolve() for link in (self._root / "prepared").glob("*")}
            for place in made_in(self._root).glob("*"):
                if place.is_symlink():
                    place.unlink()
                elif place not in used:
                    await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    # ---- what runs

    def own(self, name: str) -> Path:
        """The directory of one environment."""
        return self._root / "running" / name

    def names(self) -> list[str]:
        """The environments that have a directory."""
        return sorted(place.name for place in (self._root / "running").glob("*"))

    def make_own(self, name: str, token: str) -> Path:
        """Makes the directory of an environment, for its owner alone.

        Raises:
            UsageError: there is one of that name.
            KestrelError: it cannot be written.
        """
        place = self.own(name)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir(mode=0o700)
            descriptor = os.open(place / TOKEN_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(token)
        except FileExistsError:
            raise UsageError(f"there is an environment {name} already") from None
        except OSError as error:
            raise KestrelError(f"{place} cannot be written", cause=error.strerror) from error
        return place

    async def drop_own(self, name: str) -> None:
        """Removes it, with all that is in it."""
        await asyncio.to_thread(shutil.rmtree, self.own(name), ignore_errors=True)


def made_in(root: Path) -> Path:
    """Where what is made after recipes is in the directory of a driver."""
    return root / "made"


def read_recipe(recipe: str) -> bytes:
    """What is in the file of a class; nothing if the class names none.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return Path(recipe).read_bytes() if recipe else b""
    except OSError as error:
        raise UsageError(f"the recipe {recipe} cannot be read", cause=error.strerror) from None
