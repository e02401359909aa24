"""Moves what a guest has left, and what it printed, from the own file share to that of its home."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from kestrelctl.core.model.end_reason import NO_REASON, EndKind
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.pacing.backoff import pause_seconds
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, UsageError
from kestrelctl.files.share import FileShare
from kestrelctl.metrics.flock_families import FilesHomeCounts
from kestrelctl.protocol.upload_slots import Slot
from kestrelctl.worker.run.executor import Completion

log = logging.getLogger(__name__)

#: The time for which a file that cannot be sent is tried again.
GIVE_UP_SECONDS = 600.0
LONGEST_PAUSE_SECONDS = 30.0
#: The most files that are under way at a time.
MOST_AT_ONCE = 4


class Carrier(Protocol):
    """Brings the files of ended guests home.

    Attributes:
        counts: what became of them.
    """

    counts: FilesHomeCounts

    async def carry(self, home: str, end: Completion) -> Completion:
        """Returns the same end with addresses at its home; one that says why if that cannot be."""
        ...


class NoCarrier:
    """The carrier of a pool where guests leave no files."""

    def __init__(self) -> None:
        self.counts = FilesHomeCounts()

    async def carry(self, home: str, end: Completion) -> Completion:
        """Returns the end as it is."""
        return end


class FilesHome:
    """The `Carrier` of a manager.

    Args:
        directory: for files under way, which is emptied.
        slots: asks a pool for a place in its share: (pool, size in bytes, file name).
        ca_file: whom to trust when files are read and sent; None for the system's authorities.
        now: seconds of a steady clock.
        random: spreads tries, 0 to 1.
    """

    def __init__(
        self,
        directory: Path,
        slots: Callable[[str, int, str], Coroutine[Any, Any, Slot]],
        *,
        ca_file: Path | None,
        now: Callable[[], float],
        random: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._directory = directory
        self._slots = slots
        self._ca_file = ca_file
        self._now = now
        self._random = random
        self._sleep = sleep
        self.counts = FilesHomeCounts()
        self._names = itertools.count()
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._own = FileShare(ca_file=ca_file)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in directory.iterdir():
            old.unlink()

    async def carry(self, home: str, end: Completion) -> Completion:
        """Returns the same end with addresses at its home; one that says why if that cannot be."""
        began = self._now()
        moved: dict[str, StoredFile | None] = {}
        problem = NO_REASON
        for name in ("outputs", "stdout_stored", "stderr_stored"):
            stored = getattr(end, name)
            if stored is None:
                continue
            try:
                moved[name] = await self._move(home, stored)
            except (KestrelError, OSError) as error:
                self.counts.failed += 1
                moved[name] = None
                if name == "outputs":  # what is printed beyond the tail may be missing
                    why = error.message if isinstance(error, KestrelError) else error.strerror
                    problem = EndKind.OUTPUTS_FAILED.text(f"{why}")
        seconds = end.stored_seconds + self._now() - began
        found = replace(end, stored_seconds=seconds, **moved)
        return replace(found, reason=problem) if problem else found

    async def _move(self, home: str, stored: StoredFile) -> StoredFile:
        until = self._now() + GIVE_UP_SECONDS
        failures = 0
        async with self._places:
            path = self._directory / f"{next(self._names)}"
            try:
                while True:
                    try:
                        await self._own.get(stored, path)
                        share = FileShare(partial(self._slots, home), ca_file=self._ca_file)
                        found = await share.put(path)
                        self.counts.moved += 1
                        self.counts.moved_bytes += found.size_bytes
                        return found
                    except (NotAllowed, NotFound, UsageError):
                        raise  # another try would end the same
                    except KestrelError as error:
                        failures += 1
                        pause = pause_seconds(failures, self._random(), LONGEST_PAUSE_SECONDS)
                        if self._now() + pause > until:
                            raise
                        self.counts.retries += 1
                        log.warning("what a guest of %s left is sent again: %s", home, error)
                        await self._sleep(pause)
            finally:
                path.unlink(missing_ok=True)


def has_files(end: Completion) -> bool:
    """Whether something of an ended attempt lies in a file share."""
    return bool(end.outputs or end.stdout_stored or end.stderr_stored)
