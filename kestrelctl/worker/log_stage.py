"""Stores what tasks printed beyond the tails that are reported, before that is."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

from msgspec.structs import replace

from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.core.model.stored_file import StoredFile
from kestrelctl.errors import KestrelError
from kestrelctl.worker.executor import Completion
from kestrelctl.worker.output import KeptOutputs
from kestrelctl.worker.output_stage import Uploader

log = logging.getLogger(__name__)

#: No result waits for longer. What a task printed is then where it would be otherwise.
LONGEST_SECONDS = 60.0
#: So many attempts at a time; the time of the others runs, too.
MOST_AT_ONCE = 4


class LogStage:
    """Uploads what attempts printed, a few at a time.

    Args:
        uploader: where it goes.
        longest_seconds: what an attempt takes at most, with the time that it waits for others.
    """

    def __init__(self, uploader: Uploader, *, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._uploader = uploader
        self._longest_seconds = longest_seconds
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def store(self, completion: Completion, kept: KeptOutputs) -> Completion:
        """Stores the streams of an attempt that are longer than their tails.

        Args:
            kept: where they are, and stay.

        Returns:
            The same end, with what could be stored.
        """
        number, began = completion.number, time.monotonic()
        stored: dict[str, StoredFile] = {}
        try:
            async with asyncio.timeout(self._longest_seconds), self._places:
                for stream in long_streams(completion):
                    stored[stream] = await self._upload(number, stream, kept)
        except TimeoutError:
            _log_why(number, f"it took longer than {self._longest_seconds:g} seconds")
        except KestrelError as error:
            _log_why(number, f"{error.message}: {error.cause}" if error.cause else error.message)
        except Exception:
            log.exception("attempt %d: what it printed is not stored", number)
        return replace(
            completion,
            stdout_stored=stored.get("stdout"),
            stderr_stored=stored.get("stderr"),
            stored_seconds=completion.stored_seconds + time.monotonic() - began,
        )

    async def _upload(self, number: int, stream: str, kept: KeptOutputs) -> StoredFile:
        """Uploads the very file that is open here, whatever becomes of its name meanwhile."""
        file = kept.open(number, stream)
        try:
            return await self._uploader.put(Path(f"/proc/self/fd/{file}"))
        finally:
            os.close(file)


def long_streams(completion: Completion) -> list[str]:
    """The streams of which the tail is not all."""
    sizes = {"stdout": completion.stdout_bytes, "stderr": completion.stderr_bytes}
    return [stream for stream, size_bytes in sizes.items() if size_bytes > TAIL_BYTES]


def _log_why(number: int, why: str) -> None:
    log.warning("attempt %d: what it printed stays on this worker: %s", number, why)
