"""Runs what other pools have handed over: as jobs of the pool itself, behind those of its users."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from kestrelctl.core import events as ev
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.end_reason import CANCELLED, NO_REASON, EndKind, ReasonText
from kestrelctl.core.model.job.guest import owner_of_guest
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.flock.service.files_home import has_files
from kestrelctl.flock.service.guest_jobs import completion_of, held_of
from kestrelctl.manager.service import Service
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec, Completion

log = logging.getLogger(__name__)

#: Pause before the store is asked again for the end of a guest.
AGAIN_SECONDS = 1.0
#: The index of the only task of such a job.
ONLY = 0


class GuestExecutor:
    """An `Executor` for the attempts of one loan.

    Args:
        service: of the own pool.
        by: the name in which jobs are submitted and cancelled.
        on_completion: called with each `Completion`.
        make: makes the job that runs an attempt; a text says why none runs, as the reason of its
            end.
        on_submitted, on_ended: called with each guest, for the audit.
        on_ran: called with an attempt that has ended, the worker that ran it, and its number there.
        carrier: brings what an ended guest has left to its home.
        holders: takes, by the id of each guest's job here, whom to tell of its end: this one.
    """

    def __init__(
        self,
        service: Service,
        by: str,
        on_completion: Callable[[Completion], None],
        make: Callable[[CommandSpec], JobSpec | ReasonText],
        on_submitted: Callable[[JobSpec, int], None],
        on_ended: Callable[[JobSpec, int, Completion], None],
        on_ran: Callable[[int, str, int], None],
        carrier: Callable[[Completion], Awaitable[Completion]],
        holders: dict[int, GuestExecutor],
    ) -> None:
        self._holders = holders
        self._on_ran = on_ran
        self._carrier = carrier
        self._carrying: dict[int, asyncio.Future[Completion]] = {}
        self._closed = False
        self._looking: set[asyncio.Task[None]] = set()
        self.start_seconds = Histogram(START_BOUNDS)
        self.most_ahead = 0
        self._service = service
        self._by = by
        self._on_completion = on_completion
        self._make = make
        self._on_submitted = on_submitted
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        #: attempt number -> id of the job that runs it here
        self.job_of: dict[int, int] = {}
        #: job id -> attempt number, and the job
        self._guests: dict[int, tuple[int, JobSpec]] = {}
        #: Jobs that were active when this process began: (id, job).
        self._left: dict[int, tuple[int, JobSpec]] = {}
        self._why: dict[int, ReasonText] = {}

    # -- what an earlier process has begun ---------------------------------------------------------

    def remember(self, job_id: int, spec: JobSpec) -> None:
        """Notes a job that an earlier process has begun; called before the loan is opened."""
        held = held_of(spec)
        if held is not None:
            self._left[held.number] = (job_id, spec)

    def left(self) -> list[CommandSpec]:
        """The attempts that an earlier process has begun and whose end is still to be reported."""
        found: list[CommandSpec] = []
        for number, (_, spec) in self._left.items():
            found.append(CommandSpec(number, spec.program, spec.program.env, held=held_of(spec)))
        return found

    # -- Executor ----------------------------------------------------------------------------------

    def start(self, command: CommandSpec) -> None:
        """Hands an attempt to the own pool, or goes on with one that it has already."""
        if command.number in self.job_of:
            raise ValueError(f"attempt {command.number} is here already")
        left = self._left.pop(command.number, None)
        if left is not None:
            self._take(command.number, *left)
            if self._service.pool.job(left[0]) is None:
                looking = self._loop.create_task(self._report_end(left[0]))
                self._looking.add(looking)
                looking.add_done_callback(self._looking.discard)
            return
        spec = self._make(command)
        if isinstance(spec, str):
            self._loop.call_soon(self._on_completion, Completion(command.number, reason=spec))
            return
        job_id = self._service.pool.next_job_id
        event = ev.Submit(
            at=self._service.now(),
            cause=self._by,
            request=f"guest {job_id}",
            owner=owner_of_guest(spec.guest) if spec.guest is not None else "",
            spec=spec,
        )
        self._service.handle(event)
        job = self._service.pool.job(job_id)
        if job is None:
            reason = EndKind.NO_RESOURCES.text("the lender takes no more of this user's tasks")
            self._loop.call_soon(self._on_completion, Completion(command.number, reason=reason))
            return
        self._take(command.number, job_id, spec)
        self._on_submitted(spec, job_id)

    def _take(self, number: int, job_id: int, spec: JobSpec) -> None:
        self.job_of[number] = job_id
        self._guests[job_id] = (number, spec)
        self._holders[job_id] = self

    async def _report_end(self, job_id: int) -> None:
        """Reports how a job has ended before this process looked."""
        while True:
            try:
                found = await self._service.store.ask(lambda read: read.tasks(job_id, limit=1))
                break
            except KestrelError as error:
                log.warning("the end of guest job %d is not known yet: %s", job_id, error)
                await asyncio.sleep(AGAIN_SECONDS)
        self.ended(found[0] if found else _never_begun(job_id))

    def begin(self, number: int) -> None:
        """Does nothing: no attempt waits here."""

    def withdraw(self, number: int) -> None:
        """Does nothing: no attempt waits here."""

    def kill(self, number: int, reason: ReasonText = CANCELLED) -> bool:
        """Has an attempt ended; its completion follows."""
        left = self._left.pop(number, None)
        if left is not None:  # nobody has gone on with it
            self._cancel(left[0])
            return True
        carrying = self._carrying.get(number)
        if carrying is not None:
            return carrying.cancel()
        job_id = self.job_of.get(number)
        if job_id is None:
            return False
        self._why[job_id] = reason
        self._cancel(job_id)
        return True

    def _cancel(self, job_id: int) -> None:
        self._service.handle(
            ev.Cancel(
                at=self._service.now(),
                cause=self._by,
                request=f"guest {job_id} ends",
                job_id=job_id,
            )
        )

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        """Does nothing: jobs with checkpoints stay at home."""

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        """The use of attempts that run at own workers, as these have reported it."""
        found: dict[int, tuple[float, int]] = {}
        for number in numbers:
            job = self.job(number)
            task = job.live.get(ONLY) if job is not None else None
            attempt = task.attempt if task is not None else None
            if attempt is None:
                continue
            worker = self._service.pool.workers.get(attempt.worker)
            use = worker.uses.get(attempt.number) if worker is not None else None
            if use is not None:
                found[number] = (use[1].cpu_seconds, use[1].memory_bytes)
        return found

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """Raises NotFound: a worker has the output, and the loan asks there."""
        raise NotFound(f"the {stream} of attempt {number} is at a worker")

    async def close(self) -> None:
        """Forgets all: the jobs go on, and the next process reports them."""
        self._closed = True
        for looking in self._looking:
            looking.cancel()
        for carrying in list(self._carrying.values()):
            carrying.cancel()
        await asyncio.gather(*self._carrying.values(), return_exceptions=True)
        self.job_of.clear()
        for job_id in self._guests:
            self._holders.pop(job_id, None)
        self._guests.clear()

    # -- the own pool ------------------------------------------------------------------------------

    def job(self, number: int) -> Job | None:
        """The job that runs an attempt; None if it has ended."""
        job_id = self.job_of.get(number)
        return self._service.pool.job(job_id) if job_id is not None else None

    def is_waiting(self, number: int) -> bool:
        """Whether no worker here has an attempt yet."""
        job = self.job(number)
        return job is not None and not job.running

    def ended(self, record: TaskRecord) -> None:
        """Reports the end of a task of the own pool if it is one of this loan."""
        guest = self._guests.pop(record.job_id, None)
        if guest is None:
            return
        number, spec = guest
        self._holders.pop(record.job_id, None)
        del self.job_of[number]
        end = completion_of(number, record, self._why.pop(record.job_id, NO_REASON), spec)
        self._on_ended(spec, record.job_id, end)
        if record.result is not None:
            self._on_ran(number, record.worker, record.result.number)
        if has_files(end):
            carrying = self._carrying[number] = asyncio.ensure_future(self._carrier(end))
            carrying.add_done_callback(lambda carrying: self._carried(end, carrying))
        else:
            self._on_completion(end)

    def _carried(self, end: Completion, carrying: asyncio.Future[Completion]) -> None:
        """Tells the end of a guest whose files were to go home, whether they have gone or not."""
        del self._carrying[end.number]
        if carrying.cancelled():
            if self._closed:
                return
            end = Completion(end.number, reason=CANCELLED)
        elif (slip := carrying.exception()) is not None:  # its place must not stay taken for that
            log.error("the files of attempt %d do not go home", end.number, exc_info=slip)
            why = EndKind.OUTPUTS_FAILED.text("the lender failed at them")
            end = replace(end, outputs=None, stdout_stored=None, stderr_stored=None, reason=why)
        else:
            end = carrying.result()
        self._on_completion(end)

    def closed(self, record: JobRecord) -> None:
        """Reports the end of a job that was cancelled before it began: it has no task to report."""
        if record.job_id in self._guests:
            self.ended(_never_begun(record.job_id))


def _never_begun(job_id: int) -> TaskRecord:
    return TaskRecord(job_id, ONLY, TaskState.CANCELLED, 0, 0, "", None)
