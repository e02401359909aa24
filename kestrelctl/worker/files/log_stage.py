"""Stores what tasks printed beyond the tails that are reported, before the report."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from pathlib import Path

from msgspec.structs import replace

from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.errors import KestrelError, Unreachable
from kestrelctl.worker.files.output_stage import Uploader
from kestrelctl.worker.run.executor import Completion
from kestrelctl.worker.run.output import KeptOutputs

log = logging.getLogger(__name__)

#: The longest that a result waits. After that, what a task printed stays on the worker.
LONGEST_SECONDS = 60.0
#: The most attempts at a time; the time of the others runs, too.
MOST_AT_ONCE = 4
#: How long a share that was away is left alone: not each of many tasks is to wait for it.
PAUSE_SECONDS = 60.0
#: The unit of times in results: less would say that nothing was to be stored.
_SHORTEST_SECONDS = 1e-6


class LogStage:
    """Uploads what attempts printed, a few at a time.

    Args:
        uploader: where it goes.
        longest_seconds: what an attempt takes at most, with the time that it waits for others.
        pause_seconds: how long nothing is tried after the share was away.
    """

    def __init__(
        self,
        uploader: Uploader,
        *,
        longest_seconds: float = LONGEST_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._uploader = uploader
        self._longest_seconds = longest_seconds
        self._pause_seconds = pause_seconds
        self._paused_until = 0.0
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def store(self, completion: Completion, kept: KeptOutputs) -> Completion:
        """Stores the streams of an attempt that are longer than their tails.

        Args:
            kept: where they are, and stay.

        Returns:
            The same end, with what could be stored.
        """
        number, began = completion.number, time.monotonic()
        uploading_since = math.inf
        stored: dict[str, StoredFile] = {}
        try:
            async with asyncio.timeout(self._longest_seconds), self._places:
                uploading_since = time.monotonic()
                if uploading_since < self._paused_until:
                    _log_why(number, "the file share was away a moment ago")
                else:
                    for stream in long_streams(completion):
                        stored[stream] = await self._upload(number, stream, kept)
        except TimeoutError:
            _log_why(number, f"it took longer than {self._longest_seconds:g} seconds")
            if time.monotonic() - uploading_since > self._longest_seconds / 2:
                self._pause()  # it is the share, and not those before in the queue
        except KestrelError as error:
            _log_why(number, f"{error.message}: {error.cause}" if error.cause else error.message)
            if isinstance(error, Unreachable):
                self._pause()
        except Exception:
            log.exception("attempt %d: what it printed is not stored", number)
        took_seconds = max(_SHORTEST_SECONDS, time.monotonic() - began)
        return replace(
            completion,
            stdout_stored=stored.get("stdout"),
            stderr_stored=stored.get("stderr"),
            stored_seconds=completion.stored_seconds + took_seconds,
        )

    def _pause(self) -> None:
        self._paused_until = time.monotonic() + self._pause_seconds

    async def _upload(self, number: int, stream: str, kept: KeptOutputs) -> StoredFile:
        """Uploads the very file that is open here, whatever becomes of its name meanwhile."""
        file = kept.open(number, stream)
        try:
            return await self._uploader.put(Path(f"/proc/self/fd/{file}"))
        finally:
            os.close(file)


def long_streams(completion: Completion) -> list[str]:
    """The streams that are longer than their tails."""
    sizes = {"stdout": completion.stdout_bytes, "stderr": completion.stderr_bytes}
    return [stream for stream, size_bytes in sizes.items() if size_bytes > TAIL_BYTES]


def _log_why(number: int, why: str) -> None:
    log.warning("attempt %d: what it printed stays on this worker: %s", number, why)
