"""The files that environments of one kind have on disk.

prepared/DIGEST      a link to what was made after a recipe
made/DIGEST-WORD/    where that is; no link leads to what was never finished
running/NAME/        of one environment: its token, its home, what it has said

What is made stays where it was made, because a virtual environment knows its own path. The link
puts it in place; it is renamed into existence. The directory's modification time says when it was
used last: what was not used for long is removed; what was not used of late, when the disk is full.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from kestrelctl import clock
from kestrelctl.core.environments.worker_command import TOKEN_FILE
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.worker.environments.one_making import OneMaking

#: What was not used for this long is not kept any longer.
UNUSED_SECONDS = 30 * 86400.0
#: What was used within this time is kept, however full the disk is: somebody may yet start in it.
FRESH_SECONDS = 900.0
#: What should be free on the disk: this part of it, but no more than these bytes.
FREE_PART = 0.1
FREE_BYTES = 10 << 30
#: A disk with less free than this is full, which is said of what fails there.
FULL_BYTES = 64 << 20


class EnvironmentFiles:
    """The directory of one driver.

    Args:
        root: it need not be there yet.

    Raises:
        UsageError: mounts cannot name it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()  # what the links in `prepared` lead to is below this very path
        if any(letter in str(self._root) for letter in ":,\n"):
            raise UsageError(
                f"environments cannot be kept in {root}", cause="its path has a colon or a comma"
            )
        self._making = OneMaking[Path]()

    # ---- what is made once

    async def prepared(self, digest: str, make: Callable[[Path], Awaitable[None]]) -> Path:
        """Returns where something was made under that digest; makes it now if it is not there.

        It is made to the end even if the caller gives up: the next one finds it.

        Args:
            make: is given a new directory to fill.
        """
        link = self._root / "prepared" / digest
        if digest in self._making or not link.exists():
            return await self._making.of(digest, lambda: self._make(link, make))
        place = link.resolve()
        os.utime(place)
        return place

    async def _make(self, link: Path, make: Callable[[Path], Awaitable[None]]) -> Path:
        place = made_in(self._root) / f"{link.name}-{secrets.token_hex(4)}"
        draft = place.with_suffix(".link")
        try:
            place.mkdir(mode=0o755, parents=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            await make(place)
            os.utime(place)
            draft.symlink_to(place)
            draft.rename(link)
        except OSError as error:
            raise KestrelError("an environment cannot be prepared", cause=str(error)) from error
        except KestrelError as error:
            free = shutil.disk_usage(self._root).free
            if free < FULL_BYTES:  # A tool's last words need not say so.
                words = f"its disk is full, but for {free >> 20} MiB"
                error.cause = f"{words}: {error.cause}" if error.cause else words
            raise
        finally:
            if not link.exists():
                await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        return place

    async def sweep_unfinished(self) -> None:
        """Removes what a killed process was making, and what no link leads to any more."""
        for place in list(made_in(self._root).glob("*")):
            digest = place.name.rpartition("-")[0]
            if digest in self._making or (self._root / "prepared" / digest).resolve() == place:
                continue
            if place.is_symlink():
                place.unlink()
            else:
                await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def collect(self, in_use: Collection[str]) -> list[str]:
        """Removes what was not used for long; while the disk is nearly full, all that is not fresh.

        Args:
            in_use: what `prepare` has returned, and stays whatever its age.

        Returns:
            What was removed, by its digest.
        """
        removed: list[str] = []
        kept = [(place.stat().st_mtime, link, place) for link, place in self._whole()]
        for _, link, place in sorted(kept):
            unused_seconds = clock.unused_seconds(place.stat().st_mtime)
            is_used = any(Path(each).is_relative_to(place) for each in in_use)
            if is_used or unused_seconds < FRESH_SECONDS:
                continue
            if unused_seconds < UNUSED_SECONDS and not self._disk_is_full():
                continue
            link.unlink()
            gone = place.with_name(f"{place.name}.gone")
            place.rename(gone)  # At once: nobody starts in what is being removed.
            await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)
            removed.append(link.name)
        return removed

    def note_use(self, digest: str) -> None:
        """Notes that something is used now that is kept elsewhere under that digest."""
        note = self._root / "prepared" / digest
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()

    def long_unused(self) -> list[Path]:
        """The notes of what was not used for long."""
        notes = list((self._root / "prepared").glob("*"))
        unused = clock.unused_seconds
        return [each for each in notes if unused(each.stat().st_mtime) >= UNUSED_SECONDS]

    def _whole(self) -> list[tuple[Path, Path]]:
        links = (self._root / "prepared").glob("*")
        return [(link, link.resolve()) for link in links if link.exists()]

    def _disk_is_full(self) -> bool:
        disk = shutil.disk_usage(self._root)
        return disk.free < min(disk.total * FREE_PART, FREE_BYTES)

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
        """Removes the directory of an environment, with all that is in it."""
        await asyncio.to_thread(shutil.rmtree, self.own(name), ignore_errors=True)


def made_in(root: Path) -> Path:
    """The directory of what is made after recipes, in the directory of a driver."""
    return root / "made"


def read_recipe(recipe: str) -> bytes:
    """Reads the file of a class; returns nothing if the class names none.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return Path(recipe).read_bytes() if recipe else b""
    except OSError as error:
        raise UsageError(f"the recipe {recipe} cannot be read", cause=error.strerror) from None
