"""Gives a pool the tasks of a trace, each at its moment, and reads what came of them.

All goes over one connection that is kept. A submission that is not acknowledged is sent again with
the same key, so that no task is submitted twice if a manager or server is killed meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from kestrel_experiments.flock.record import PoolRecords, RanHere, TracedTask, lender_of
from kestrel_experiments.flock_simulation.trace import LONGEST, Arrival
from kestrelctl.bench.stall import STALL_SECONDS
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import Busy, TimedOut, Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import UsedByUsers
from kestrelctl.xmpp.user import UserConnection

#: Pause between two questions about a pool's progress; they cost the machine little beside what it
#: runs.
PAUSE_SECONDS = 0.5
#: How long one try of a request may take. A killed server is back sooner.
TRY_SECONDS = 5.0
#: The most questions for tasks that are under way at a time.
_AT_A_TIME = 16
#: A task that is lost with its worker is tried again as often as it takes.
_MOST_LOSSES = 1000


class TraceDriver:
    """The user of one pool.

    Args:
        connection: the user's connection.
        pool: the letter of the pool, with which the keys of the tasks begin.
        user: the user's address.
        tasks: the tasks of the trace.
        unit_seconds: how long a unit of the trace is.
        requires: the tag that each task needs of its worker; empty if none needs any.

    Attributes:
        late_seconds: for each submission, how long after its moment it was sent.
    """

    def __init__(
        self,
        connection: UserConnection,
        pool: str,
        user: str,
        tasks: Sequence[Arrival],
        unit_seconds: float,
        requires: Sequence[str] = (),
    ) -> None:
        self._connection = connection
        self._pool = pool
        self._user = user
        self._tasks = tasks
        self._unit_seconds = unit_seconds
        self._requires = requires
        self._began_at = 0.0
        self.late_seconds: list[float] = []

    @property
    def expected(self) -> dict[str, float]:
        """The seconds that each task sleeps, by the key of its submission."""
        return {self.key(n): self._sleep_seconds(task) for n, task in enumerate(self._tasks)}

    async def submit_all(self, begin: float) -> None:
        """Submits each task at its moment; returns when all are acknowledged.

        Args:
            begin: the moment 0 of the trace, on the clock of the event loop.

        Raises:
            KestrelError: one was refused, or nobody has answered for long.
        """
        clock = asyncio.get_running_loop().time
        self._began_at = time.time() + begin - clock()
        try:
            async with asyncio.TaskGroup() as submissions:
                for number, task in enumerate(self._tasks):
                    due = begin + task.at * self._unit_seconds
                    await asyncio.sleep(max(0.0, due - clock()))
                    self.late_seconds.append(max(0.0, clock() - due))
                    submissions.create_task(self._submit(number, task))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def all_ended(self) -> None:
        """Returns when no task is left.

        Raises:
            TimedOut: no task has ended for long.
        """
        clock = asyncio.get_running_loop().time
        patience_seconds = STALL_SECONDS + LONGEST * self._unit_seconds
        moved_at, left = clock(), -1
        while True:
            answer = await self._ask(rq.ListJobs(owner=self._user, states=["active"], limit=1))
            assert isinstance(answer, an.Jobs)
            if not answer.total:
                return
            if answer.total != left:
                moved_at, left = clock(), answer.total
            if clock() - moved_at > patience_seconds:
                raise TimedOut(
                    f"pool {self._pool} made no progress and was given up",
                    cause=f"no task ended for {patience_seconds:,.0f} s; {left:,} are left",
                    hint="is the machine overloaded, or its disk full?",
                )
            await asyncio.sleep(PAUSE_SECONDS)

    async def records(self, domain: str, admin: UserConnection) -> PoolRecords:
        """Asks the pool for all tasks that were submitted to it or ran on its machines.

        Args:
            admin: the connection of an admin, who sees guests, too.
        """
        tasks = [
            _traced_task(job, task)
            for job, task in await self._told(self._connection, rq.ListJobs(owner=self._user))
        ]
        guests = [
            RanHere(
                worker=task.worker,
                started_at=task.started_at,
                ended_at=task.started_at + task.wall_seconds,
                key=job.name,
                home=job.guest_of,
            )
            for job, task in await self._told(admin, rq.ListJobs())
            if job.guest_of and task.started_at is not None and task.wall_seconds is not None
        ]
        own = [
            RanHere(
                worker=task.worker,
                started_at=task.started_at,
                ended_at=task.ended_at,
                key=task.key,
            )
            for task in tasks
            if task.started_at and lender_of(task.worker) is None
        ]
        return PoolRecords(
            pool=self._pool,
            domain=domain,
            tasks=sorted(tasks, key=lambda task: task.submitted_at),
            accepted_results=await self._accepted_results(),
            ran_here=own + guests,
        )

    def key(self, number: int) -> str:
        """Returns the key of a task's submission, by its place in the trace."""
        return f"{self._pool}-{number + 1}"

    def _sleep_seconds(self, task: Arrival) -> float:
        return round(task.seconds * self._unit_seconds, 6)

    def _tags(self, number: int) -> tuple[str, ...]:
        return (self._requires[number].upper(),) if self._requires else ()

    async def _submit(self, number: int, task: Arrival) -> None:
        key = self.key(number)
        argv = ("/bin/sleep", f"{self._sleep_seconds(task):g}")
        spec = JobSpec(
            name=key,
            program=Program(argv=argv),
            max_losses=_MOST_LOSSES,
            requires=self._tags(number),
        )
        await self._ask(rq.SubmitJob(spec=spec, key=f"{key} {self._began_at:.6f}"))

    async def _ask(
        self, request: rq.AnyRequest, connection: UserConnection | None = None
    ) -> an.Reply:
        """Asks until there is an answer: a manager or a server may be away.

        Raises:
            TimedOut: there was none for long.
            KestrelError: the pool refused it.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            try:
                return await (connection or self._connection).ask(request, TRY_SECONDS)
            except (Unreachable, TimedOut, Busy):
                if clock() - began > STALL_SECONDS:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)

    async def _told(
        self, connection: UserConnection, wanted: rq.ListJobs
    ) -> list[tuple[an.JobView, an.TaskView]]:
        """Asks for all tasks of the jobs that are wanted, with their jobs."""
        jobs: list[an.JobView] = []
        before: int | None = None
        while True:
            request = msgspec.structs.replace(wanted, limit=0, before=before, used=True)
            page = await self._ask(request, connection)
            assert isinstance(page, an.Jobs)
            jobs += page.jobs
            before = page.before
            if before is None:
                break
        found: list[tuple[an.JobView, an.TaskView]] = []
        for first in range(0, len(jobs), _AT_A_TIME):
            some = jobs[first : first + _AT_A_TIME]
            pages = await asyncio.gather(
                *(self._ask(rq.ListTasks(job=str(job.job_id)), connection) for job in some)
            )
            for job, answer in zip(some, pages, strict=True):
                assert isinstance(answer, an.Tasks)
                found += [(job, task) for task in answer.tasks]
        return found

    async def _accepted_results(self) -> int:
        answer = await self._ask(rq.UserUsage(user=self._user, since=self._began_at))
        assert isinstance(answer, UsedByUsers)
        return sum(line.tasks for line in answer.users)


def _traced_task(job: an.JobView, task: an.TaskView) -> TracedTask:
    return TracedTask(
        key=job.name,
        job_id=job.job_id,
        submitted_at=job.submitted_at,
        state=str(task.state),
        accepted=job.done,
        attempts=job.attempts or 0,
        exit_code=task.exit_code,
        worker=task.worker,
        started_at=task.started_at or 0.0,
        wall_seconds=task.wall_seconds or 0.0,
    )
