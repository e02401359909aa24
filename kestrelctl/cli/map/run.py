"""Runs a command for inputs as they come: as jobs of a pool, whose tasks are followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias

from kestrelctl.cli.map.reading import InputFeed
from kestrelctl.cli.map.replacement import MappedCommand, MappedInput
from kestrelctl.client.pool import AsyncClient, AsyncJob, EndedTask
from kestrelctl.core.model.job.placeholders import bytes_in
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.objection import MOST_ITEM_BYTES
from kestrelctl.errors import OverQuota, UsageError
from kestrelctl.protocol.job_answers import Jobs
from kestrelctl.protocol.job_requests import CancelJobs, HoldJobs, ListJobs
from kestrelctl.protocol.request import Changed

#: The job of these arguments and items.
MakeJob: TypeAlias = Callable[[tuple[str, ...], tuple[str, ...]], JobSpec]

#: The most tasks of the first job, so that it starts soon, and of each further one.
MOST_AT_FIRST = 500
MOST_IN_A_JOB = 10_000
#: The most tasks that have been submitted and have not come back.
MOST_UNDER_WAY = 30_000
#: How long inputs are gathered for a job, and again for each job under way: the more there are, the
#: larger is the next one, so that inputs that come one by one make no job each.
GATHER_SECONDS = 0.05
#: Between two looks whether tasks still run.
_LOOK_SECONDS = 0.1
#: Why its jobs are on hold until their running tasks have ended.
_HALT = "no more, as --halt says"
#: How long a run that ends early waits for the pool.
_FAREWELL_SECONDS = 10.0


class EndedInput(NamedTuple):
    """An input with its task, which has ended."""

    input: MappedInput
    ended: EndedTask
    job_id: int


class MapRun:
    """The jobs of one map.

    Args:
        make_job: describes a job.
        one_by_one: whether a job is submitted when the one before has ended: their tasks are
            bounded together.
    """

    def __init__(
        self,
        client: AsyncClient,
        command: MappedCommand,
        feed: InputFeed,
        make_job: MakeJob,
        *,
        one_by_one: bool,
    ) -> None:
        self._client = client
        self._command = command
        self._feed = feed
        self._make_job = make_job
        self._one_by_one = one_by_one
        self._jobs: dict[int, AsyncJob] = {}
        self._submissions: set[asyncio.Task[None]] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._arrived: asyncio.Queue[EndedInput | None] = asyncio.Queue()
        self._progress = asyncio.Event()
        self._under_way = 0
        self._submitting: asyncio.Task[None] | None = None

    async def ends(self) -> AsyncIterator[EndedInput]:
        """Yields each input with its task, when that has ended.

        Raises:
            UsageError: an input cannot be read, or is too large.
            KestrelError: the pool refused something, or cannot be reached.
        """
        self._submitting = self._begin(self._submit_all())
        while self._work or not self._arrived.empty():
            found = await self._arrived.get()
            if self._error is not None:
                raise self._error
            if found is not None:
                self._under_way -= 1
                self._progress.set()
                yield found

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
        self._arrived.put_nowait(None)

    # -- submitting --------------------------------------------------------------------------------

    async def _submit_all(self) -> None:
        most = MOST_IN_A_JOB if self._one_by_one else MOST_AT_FIRST
        while True:
            await self._until_room()
            inputs = await self._feed.take(most, GATHER_SECONDS * (1 + len(self._jobs)))
            if not inputs:
                return
            shapes: dict[int, list[MappedInput]] = {}
            for each in inputs:
                shapes.setdefault(len(each.arguments), []).append(each)
            for alike in shapes.values():
                await self._until_room()
                await self._submit(alike)
            most = MOST_IN_A_JOB

    async def _until_room(self) -> None:
        while self._jobs and (self._one_by_one or self._under_way + MOST_IN_A_JOB > MOST_UNDER_WAY):
            await self._next_progress()

    async def _next_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    async def _submit(self, inputs: list[MappedInput]) -> None:
        shape = self._command.shape(len(inputs[0].arguments))
        items = tuple(map(shape.item, inputs))
        for task, item in zip(inputs, items, strict=True):
            _check_size(task, item)
        spec = self._make_job(shape.argv, items)
        self._under_way += len(inputs)
        while True:
            submission = asyncio.create_task(self._submitted(spec, inputs))
            self._submissions.add(submission)
            submission.add_done_callback(self._submissions.discard)
            try:
                await asyncio.shield(submission)  # its job must be known, to be cancelled
                return
            except OverQuota:
                if not self._jobs:
                    raise
                await self._next_progress()

    async def _submitted(self, spec: JobSpec, inputs: list[MappedInput]) -> None:
        job = await self._client.submit_spec(spec)
        self._jobs[job.id] = job
        self._begin(self._follow(job, inputs))

    async def _follow(self, job: AsyncJob, inputs: list[MappedInput]) -> None:
        async for ended in job.outputs():
            self._arrived.put_nowait(EndedInput(inputs[ended.task.index], ended, job.id))
        del self._jobs[job.id]
        self._progress.set()

    # -- ending early ------------------------------------------------------------------------------

    def stop(self, *, now: bool) -> None:
        """Submits and starts nothing more; what ends still comes.

        Args:
            now: whether running tasks are ended, too.
        """
        self._begin(self._stop(now=now))

    async def _stop(self, *, now: bool) -> None:
        await self._submit_no_more()
        if not now:
            ids = self._ids()
            if ids:
                await self._client.ask_patiently(HoldJobs(jobs=ids, reason=_HALT), Changed)
            while await self._running():
                await asyncio.sleep(_LOOK_SECONDS)
        await self._cancel()

    async def _running(self) -> int:
        """Returns how many tasks of all jobs run."""
        if not (ids := self._ids()):
            return 0
        found = await self._client.ask_patiently(ListJobs(jobs=ids, limit=0), Jobs)
        return sum(view.running for view in found.jobs)

    async def _submit_no_more(self) -> None:
        if self._submitting is not None:
            self._submitting.cancel()
        await asyncio.gather(*self._submissions, return_exceptions=True)

    async def _cancel(self) -> None:
        if ids := self._ids():
            await self._client.ask_patiently(CancelJobs(jobs=ids), Changed)

    def _ids(self) -> str:
        return ",".join(map(str, self.job_ids))

    async def abandon(self) -> None:
        """Cancels all jobs that have not ended, without waiting for them.

        Raises:
            TimeoutError, KestrelError: the pool did not do it.
        """
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._submit_no_more()
                await self._cancel()
        finally:
            for task in self._work:
                task.cancel()

    @property
    def job_ids(self) -> list[int]:
        """The jobs that have not ended, as far as is known."""
        return sorted(self._jobs)


def _check_size(task: MappedInput, item: str) -> None:
    if len(item) * 4 <= MOST_ITEM_BYTES:
        return
    size_bytes = bytes_in(item)
    if size_bytes > MOST_ITEM_BYTES:
        raise UsageError(
            f"input {task.number} takes {size_bytes:,} bytes, "
            f"and a program gets at most {MOST_ITEM_BYTES:,}",
            hint="put it into a file that the tasks can read, and its name into the input",
        )
