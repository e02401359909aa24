"""Gets the checkpoints from which attempts go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.pacing.backoff import pause_seconds
from kestrelctl.errors import FileDamaged, FileExpired, KestrelError, NoSpace
from kestrelctl.files.archive import unpack
from kestrelctl.files.whole_work import to_its_end
from kestrelctl.worker.discovery import disk_for_tasks_bytes
from kestrelctl.worker.own_files import OwnDirectory
from kestrelctl.worker.run.executor import AttemptRefused
from kestrelctl.worker.trash import Trash

log = logging.getLogger(__name__)

#: The most that are fetched at a time.
MOST_AT_ONCE = 4
#: How long a fetch that fails is tried again while the server is there.
GIVE_UP_SECONDS = 600.0
LONGEST_PAUSE_SECONDS = 30.0

Get = Callable[[StoredFile, Path], Awaitable[None]]


class CheckpointGone(KestrelError):
    """A checkpoint is lost for good, or damaged: its task begins anew."""


class CheckpointRefused(AttemptRefused):
    """A checkpoint cannot be had here and now."""


class CheckpointFetch:
    """Fetches and unpacks checkpoints, each into a directory of its attempt's own.

    Args:
        directory: for them, on the file system of the scratch directories; it is emptied.
        get: gets a file from the share.
        is_online: whether there is a connection to the XMPP server.
        now: seconds of a steady clock.
        sleep: pauses for so many seconds.
        random: spreads over time what many workers do.
    """

    def __init__(
        self,
        directory: Path,
        get: Get,
        *,
        is_online: Callable[[], bool],
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self._directory = OwnDirectory(directory)
        self._trash = Trash(directory / "trash")
        for name in os.listdir(self._directory.fd):
            if name != "trash":
                self._trash.discard(name, self._directory.fd)
        self._get = get
        self._is_online = is_online
        self._now = now
        self._sleep = sleep
        self._random = random or Random()
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def fetch(self, number: int, stored: StoredFile) -> Path:
        """Returns a directory with the files of a checkpoint, which are the caller's.

        Args:
            number: of the attempt; `forget` it afterwards.

        Raises:
            CheckpointGone: the share does not have it any more, or it is damaged.
            CheckpointRefused: it cannot be had here, for this reason.
        """
        archive = self._directory.path / f"{number}.tar"
        place = self._directory.path / str(number)
        try:
            async with self._places:
                self._directory.renew()
                await self._get_in_time(stored, archive)
                await self._unpacked(archive, place)
        except (FileExpired, FileDamaged) as error:
            raise CheckpointGone(error.message, cause=error.cause) from error
        except NoSpace as error:
            raise CheckpointRefused(
                EndKind.NO_SPACE, "no room for the checkpoint of the task"
            ) from error
        except KestrelError as error:
            cause = f": {error.cause}" if error.cause else ""
            why = f"it cannot be fetched: {error.message}{cause}"
            raise CheckpointRefused(EndKind.CHECKPOINT_FAILED, why) from error
        finally:
            for each in (archive, archive.with_name(f"{archive.name}.part")):
                with contextlib.suppress(OSError):
                    each.unlink()
        return place

    def forget(self, number: int) -> None:
        """Removes what is left of an attempt's checkpoint here."""
        try:
            self._trash.discard(str(number), self._directory.fd)
        except OSError as error:
            log.warning("the checkpoint of attempt %d is not removed: %s", number, error)

    async def close(self) -> None:
        """Gives everything back; nothing is under way any more."""
        await self._trash.close()
        self._directory.close()

    async def _unpacked(self, archive: Path, place: Path) -> None:
        """Unpacks an archive. The unpacking has ended when this returns, also by a cancel."""
        try:
            await to_its_end(_unpack, archive, place)
        except asyncio.CancelledError:
            shutil.rmtree(place, ignore_errors=True)
            raise

    async def _get_in_time(self, stored: StoredFile, target: Path) -> None:
        left_seconds, failures = GIVE_UP_SECONDS, 0
        while True:
            began = self._now()
            try:
                await self._get(stored, target)
                return
            except (FileExpired, FileDamaged, NoSpace):
                raise
            except KestrelError as error:
                failures += 1
                pause = pause_seconds(failures, self._random.random(), LONGEST_PAUSE_SECONDS)
                if self._is_online():
                    left_seconds -= self._now() - began + pause
                if left_seconds <= 0:
                    raise
                log.warning("a checkpoint is fetched again: %s", error)
            await self._sleep(pause)


def _unpack(archive: Path, place: Path) -> None:
    place.mkdir(mode=0o700)
    unpack(archive, place, disk_for_tasks_bytes(place))
