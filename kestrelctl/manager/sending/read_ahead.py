"""Items and long programs that hand-outs need, or soon will, in so much memory and no more."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from kestrelctl.core.model.job.light_spec import TEXT_BYTES
from kestrelctl.core.model.job.program import Program
from kestrelctl.store.item_window import ItemWindow
from kestrelctl.store.port import CoreStore

#: What is kept of all jobs together takes about so much memory at the most.
MOST_BYTES = 16 << 20
#: The most windows of items that are kept of a job, the latest: that of its array's next tasks, the
#: one after it, and two of tasks that come back.
MOST_WINDOWS = 4


class _OfJob:
    """The windows and the program that are kept of a job."""

    __slots__ = ("program", "windows")

    def __init__(self) -> None:
        self.windows: list[ItemWindow] = []
        self.program: Program | None = None

    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        found = sum(map(_memory_bytes, self.windows))
        if self.program is not None:
            words = [word for _, words in self.program.commands() for word in words]
            env = self.program.env
            found += _texts_bytes((*words, *env, *env.values()))
        return found


class ReadAhead:
    """Reads items from a store by windows, and the next window before it is asked for.

    Args:
        most_bytes: what is used least goes when more is kept; the latest is kept in any case.
    """

    def __init__(self, store: CoreStore, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most_bytes = most_bytes
        #: job -> what is kept of it, and its memory; what was used last comes last
        self._kept: OrderedDict[int, tuple[_OfJob, int]] = OrderedDict()
        self.memory_bytes = 0
        self._coming: dict[int, asyncio.Future[ItemWindow | None]] = {}

    def window(self, job_id: int, index: int) -> ItemWindow | None:
        """The window with the item of a task, if it is there; what follows it is read meanwhile."""
        entry = self._kept.get(job_id)
        if entry is None:
            return None
        found = _covering(entry[0].windows, index)
        if found is not None:
            self._kept.move_to_end(job_id)
            if found.beyond < found.total and not _covering(entry[0].windows, found.beyond):
                self.read(job_id, found.beyond)
        return found

    def read(self, job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        """Reads the window with the item of a task. While another of the job is being read, that
        is the answer: then ask again.
        """
        coming = self._coming.get(job_id)
        if coming is not None:
            return coming
        reading = self._store.items(job_id, index)
        if reading.done():
            self._keep_window(job_id, reading)
        else:
            self._coming[job_id] = reading
            reading.add_done_callback(lambda done: self._arrived(job_id, done))
        return reading

    def program(self, job_id: int) -> Program | None:
        """The program of a job, if it is there."""
        entry = self._kept.get(job_id)
        if entry is None or entry[0].program is None:
            return None
        self._kept.move_to_end(job_id)
        return entry[0].program

    def read_program(self, job_id: int) -> asyncio.Future[Program | None]:
        """Reads the program of a job."""
        reading = self._store.program(job_id)
        if reading.done():
            self._keep_program(job_id, reading)
        else:
            reading.add_done_callback(lambda done: self._keep_program(job_id, done))
        return reading

    def _arrived(self, job_id: int, reading: asyncio.Future[ItemWindow | None]) -> None:
        del self._coming[job_id]
        self._keep_window(job_id, reading)

    def _keep_window(self, job_id: int, reading: asyncio.Future[ItemWindow | None]) -> None:
        if reading.cancelled() or reading.exception() is not None:
            return  # whoever needs it is told; nobody may, if it was read ahead
        window = reading.result()
        if window is not None:
            of_job = self._of_job(job_id)
            of_job.windows = [*of_job.windows, window][-MOST_WINDOWS:]
            self._weigh(job_id, of_job)

    def _keep_program(self, job_id: int, reading: asyncio.Future[Program | None]) -> None:
        if reading.cancelled() or reading.exception() is not None:
            return
        program = reading.result()
        if program is not None:
            of_job = self._of_job(job_id)
            of_job.program = program
            self._weigh(job_id, of_job)

    def _of_job(self, job_id: int) -> _OfJob:
        entry = self._kept.get(job_id)
        return _OfJob() if entry is None else entry[0]

    def _weigh(self, job_id: int, of_job: _OfJob) -> None:
        """Notes how much a job takes now, and lets go of others if all take too much."""
        _, before_bytes = self._kept.pop(job_id, (of_job, 0))
        memory_bytes = of_job.memory_bytes()
        self._kept[job_id] = of_job, memory_bytes
        self.memory_bytes += memory_bytes - before_bytes
        while self.memory_bytes > self._most_bytes and len(self._kept) > 1:
            _, (_, gone_bytes) = self._kept.popitem(last=False)
            self.memory_bytes -= gone_bytes


def _covering(windows: list[ItemWindow], index: int) -> ItemWindow | None:
    return next((window for window in reversed(windows) if window.covers(index)), None)


def _memory_bytes(window: ItemWindow) -> int:
    return _texts_bytes(window.items)


def _texts_bytes(texts: tuple[str, ...]) -> int:
    return sum(map(len, texts)) + TEXT_BYTES * len(texts)
