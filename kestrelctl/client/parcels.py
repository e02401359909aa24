"""Carries large things by the pool's file share, to interpreters on other machines and back."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from kestrelctl.access.share import Share
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.errors import KestrelError, NotFound

log = logging.getLogger(__name__)

#: What a parcel is of: a call or a shared object, and its number.
Key: TypeAlias = tuple[str, int]


class Parcels:
    """Sends to the file share, and fetches from it.

    Args:
        share: opens the pool's file share.
        on_sent: called when something has come there, or cannot.
    """

    def __init__(self, share: Callable[[], Share], on_sent: Callable[[], None]) -> None:
        self._share = share
        self._on_sent = on_sent
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._sent: dict[Key, StoredFile | None] = {}
        self._there_is_one = True

    def send(self, key: Key, data: bytes) -> None:
        """Begins to send something, if that was not done yet."""
        if not self.is_settled(key) and key not in self._tasks:
            task = asyncio.create_task(self._put(key, data))
            self._tasks[key] = task
            task.add_done_callback(lambda _done: self._tasks.pop(key, None))

    def is_settled(self, key: Key) -> bool:
        """Whether something is in the share, or will not be: then it goes another way."""
        return not self._there_is_one or key in self._sent

    def stored(self, key: Key) -> StoredFile | None:
        """Returns where something is in the share; None if it is not there."""
        return self._sent.get(key)

    def forget(self, key: Key) -> None:
        """Forgets something that nobody will want any more; the share keeps it for its time."""
        self._sent.pop(key, None)

    async def fetched(self, stored: StoredFile) -> bytes:
        """Returns what lies in the share, and is what was sent.

        Raises:
            KestrelError: it cannot be had, or is something else.
        """
        with tempfile.TemporaryDirectory(prefix="kestrel-parcel-") as place:
            target = Path(place, "parcel")
            await self._share().get(stored, target)
            return await asyncio.to_thread(target.read_bytes)

    async def close(self) -> None:
        """Ends what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _put(self, key: Key, data: bytes) -> None:
        found: StoredFile | None = None
        try:
            with tempfile.TemporaryDirectory(prefix="kestrel-parcel-") as place:
                source = Path(place, "parcel")
                await asyncio.to_thread(source.write_bytes, data)
                found = await self._share().put(source)
        except NotFound as error:
            log.info("what is large goes through messages: %s", error)
            self._there_is_one = False
        except (KestrelError, OSError) as error:
            log.warning("something large goes through messages: %s", error)
        except Exception:  # calls wait for it
            log.exception("something large goes through messages")
        self._sent[key] = found
        self._on_sent()
