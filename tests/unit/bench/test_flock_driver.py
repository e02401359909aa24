"""The user of a pool: each task in its turn, none twice, and what became of all of them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kestrel_experiments.flock import driver as flock_driver
from kestrel_experiments.flock.driver import TraceDriver
from kestrel_experiments.flock_simulation.trace import Arrival
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import KestrelError, NotAllowed, Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import UsedByUsers, UserLine
from kestrelctl.xmpp.user import UserConnection

USER = "ada@users.d.kestrel.localhost"
OWN = "w1@workers.d.kestrel.localhost/host"
LOAN = "flock@a.kestrel.localhost/0123456789ab"
TASKS = [Arrival(1.0, 2.0), Arrival(1.5, 4.0), Arrival(9.0, 1.0)]
UNIT_SECONDS = 0.001


class OnePool:
    """A pool that takes jobs, has them end at once, and tells of them a few at a time."""

    def __init__(self, *troubles: KestrelError) -> None:
        self.troubles = list(troubles)  #: instead of the answers to the next submissions
        self.submitted: list[rq.SubmitJob] = []
        self.jobs: dict[str, an.JobView] = {}
        self.active = 0

    async def ask(self, request: rq.AnyRequest, timeout_seconds: float) -> an.AnyAnswer:
        await asyncio.sleep(0)
        if isinstance(request, rq.SubmitJob):
            self.submitted.append(request)
            if self.troubles:
                raise self.troubles.pop(0)
            self.add(request.key, request.spec.name)
            return an.Submitted(id="", job_id=self.jobs[request.key].job_id, tasks=1)
        if isinstance(request, rq.ListJobs):
            return self._page(request)
        if isinstance(request, rq.ListTasks):
            return an.Tasks(id="", tasks=[self._task(int(request.job))])
        assert isinstance(request, rq.UserUsage)
        return UsedByUsers(id="", since=0.0, users=[UserLine(user=USER, tasks=len(self.jobs))])

    def add(self, key: str, name: str, **spec: Any) -> None:
        self.jobs.setdefault(
            key,
            an.JobView(
                job_id=len(self.jobs) + 1, name=name, owner=USER, state="done", tasks=1,
                submitted_at=100.0 + len(self.jobs), done=1, attempts=1,
                spec=JobSpec(program=Program(argv=("sleep",)), **spec),
            ),
        )  # fmt: skip

    def _page(self, request: rq.ListJobs) -> an.Jobs:
        if request.states:
            self.active = max(0, self.active - 1)
            return an.Jobs(id="", jobs=[], total=self.active)
        known = sorted(self.jobs.values(), key=lambda job: job.job_id)
        known = [job for job in known if request.before is None or job.job_id < request.before]
        page = known[-2:]
        return an.Jobs(id="", jobs=page, before=page[0].job_id if len(known) > 2 else None)

    def _task(self, job_id: int) -> an.TaskView:
        return an.TaskView(
            index=0, task_id=0, state=TaskState.DONE, worker=LOAN if job_id == 2 else OWN,
            exit_code=0, started_at=200.0 + job_id, wall_seconds=1.0,
        )  # fmt: skip


def driver_of(pool: OnePool) -> TraceDriver:
    return TraceDriver(cast(UserConnection, pool), "D", USER, TASKS, UNIT_SECONDS)


async def submit(driver: TraceDriver) -> None:
    await driver.submit_all(asyncio.get_running_loop().time())


async def test_tasks_are_submitted_in_their_order_and_sleep_as_the_trace_says() -> None:
    pool = OnePool()
    await submit(driver_of(pool))
    specs = [request.spec for request in pool.submitted]
    assert [spec.name for spec in specs] == ["D-1", "D-2", "D-3"]
    assert [spec.program.argv[1] for spec in specs] == ["0.002", "0.004", "0.001"]


async def test_a_task_asks_for_its_tag_and_no_other() -> None:
    pool = OnePool()
    user = cast(UserConnection, pool)
    await submit(TraceDriver(user, "D", USER, TASKS, UNIT_SECONDS, ["gpu", "numpy", "gpu"]))
    specs = [request.spec for request in pool.submitted]
    assert [spec.requires for spec in specs] == [("GPU",), ("NUMPY",), ("GPU",)]


async def test_no_task_is_submitted_before_its_moment() -> None:
    driver = driver_of(OnePool())
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await driver.submit_all(begin)
    assert loop.time() >= begin + TASKS[-1].at * UNIT_SECONDS
    assert len(driver.late_seconds) == 3


async def test_a_submission_without_an_answer_is_sent_again_with_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a manager that has taken it makes no second job of it."""
    monkeypatch.setattr(flock_driver, "PAUSE_SECONDS", 0.0)
    pool = OnePool(Unreachable())
    await submit(driver_of(pool))
    keys = [request.key for request in pool.submitted]
    assert len(keys) == 4
    assert len(set(keys)) == 3
    assert len(pool.jobs) == 3


async def test_a_submission_that_is_refused_ends_the_run() -> None:
    with pytest.raises(NotAllowed):
        await submit(driver_of(OnePool(NotAllowed())))


async def test_two_runs_use_different_keys() -> None:
    """A pool that stays would take the second for the first, sent again."""
    pool = OnePool()
    await submit(driver_of(pool))
    await submit(driver_of(pool))
    assert len(pool.jobs) == 6


async def test_it_waits_until_no_task_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flock_driver, "PAUSE_SECONDS", 0.0)
    pool = OnePool()
    pool.active = 4
    await driver_of(pool).all_ended()
    assert pool.active == 0


async def test_all_pages_are_read_and_guests_are_told_apart() -> None:
    pool, admin = OnePool(), OnePool()
    driver = driver_of(pool)
    await submit(driver)
    admin.jobs = dict(pool.jobs)
    home = GuestOf(pool="c.kestrel.localhost", job_id=7, user="ada", loan="x")
    admin.add("guest", "C-7", guest=home)
    told = await driver.records("d.kestrel.localhost", cast(UserConnection, admin))
    assert [task.key for task in told.tasks] == ["D-1", "D-2", "D-3"]
    assert [task.worker for task in told.tasks] == [OWN, LOAN, OWN]
    assert told.tasks[0].waited_seconds == pytest.approx(101.0)
    assert told.accepted_results == 3
    here = {(each.key, each.home) for each in told.ran_here}
    assert here == {("D-1", ""), ("D-3", ""), ("C-7", "c.kestrel.localhost")}
