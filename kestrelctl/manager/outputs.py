"""Fetches tasks' output from the workers that ran them, for users who want more than the tail."""

from __future__ import annotations

import asyncio
import itertools

from msgspec.structs import replace

from kestrelctl.core.model.records import TaskRecord
from kestrelctl.protocol import workers
from kestrelctl.protocol.job_answers import Log, TaskOutput

FETCH_SECONDS = 10.0
#: The bytes of a task in a page of outputs besides its output.
_FRAME_BYTES = 120


class Outputs:
    """Requests for output that workers have yet to answer."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._pending: dict[str, tuple[str, asyncio.Future[workers.Output]]] = {}

    def fetch(
        self, worker: str, number: int, stream: str, offset: int
    ) -> tuple[workers.FetchOutput, asyncio.Future[workers.Output]]:
        """Makes a message for the worker, and the future of its answer."""
        request = str(next(self._ids))
        future: asyncio.Future[workers.Output] = asyncio.get_running_loop().create_future()
        self._pending[request] = (worker, future)
        future.add_done_callback(lambda _: self._pending.pop(request, None))
        message = workers.FetchOutput(request=request, number=number, stream=stream, offset=offset)
        return message, future

    def on_output(self, sender: str, message: workers.Output) -> None:
        """Takes in a worker's answer; one from anybody but the worker that was asked is dropped."""
        worker, future = self._pending.get(message.request, ("", None))
        if future is not None and worker == sender and not future.done():
            future.set_result(message)


def tail_log(request_id: str, record: TaskRecord, stream: str, offset: int, why: str = "") -> Log:
    """Returns what the manager itself has of an output: its end.

    Args:
        why: why the rest cannot be had.
    """
    data, size, lost = _tail(record, stream)
    return Log(
        id=request_id,
        data=data[max(0, offset - lost) :],
        size_bytes=max(size, len(data)),
        skipped_bytes=max(0, lost - offset),
        why_missing=why if lost else "",
    )


def stored_log(request_id: str, record: TaskRecord, stream: str) -> Log | None:
    """Tells where all of an output is that was kept; None if it is not in the file share."""
    result = record.result
    if result is None:
        return None
    stored = result.stderr_stored if stream == "stderr" else result.stdout_stored
    if stored is None:
        return None
    log = Log(id=request_id, data=b"", size_bytes=stored.size_bytes, stored=stored)
    return with_what_was_cut(log, size_bytes(record, stream))


def with_what_was_cut(last: Log, whole_bytes: int) -> Log:
    """Adds to the last piece of an output how much was not kept, because there was too much."""
    cut_bytes = whole_bytes - last.size_bytes
    if cut_bytes <= 0:
        return last
    why = f"a worker keeps no more than {last.size_bytes:,} bytes of this output"
    return replace(last, cut_bytes=cut_bytes, why_missing=why)


def task_output(task_id: int, record: TaskRecord, stream: str) -> TaskOutput:
    """Returns what the manager itself has of an output, if that is all of it."""
    data, size, lost = _tail(record, stream)
    if lost:
        return TaskOutput(task_id=task_id, size_bytes=size, more=True)
    return TaskOutput(task_id=task_id, data=data, size_bytes=max(size, len(data)))


def output_bytes(output: TaskOutput) -> int:
    """The most bytes that an output takes in a stanza."""
    return _FRAME_BYTES + 4 * (len(output.data) + 2) // 3


def whole_in_tail(record: TaskRecord, stream: str) -> bool:
    """Whether the stored tail is all there is."""
    return not _tail(record, stream)[2]


def size_bytes(record: TaskRecord, stream: str) -> int:
    """The bytes that a task wrote, as its worker reported."""
    return _tail(record, stream)[1]


def _tail(record: TaskRecord, stream: str) -> tuple[bytes, int, int]:
    """The stored end of an output, the size of the whole, and how many bytes are missing."""
    result = record.result
    if result is None:
        return b"", 0, 0
    if stream == "stderr":
        data, size = result.stderr, result.stderr_bytes
    else:
        data, size = result.stdout, result.stdout_bytes
    return data, size, max(0, size - len(data))
