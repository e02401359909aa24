"""What a bench plans, how it keeps what it has measured, and when it gives a run up."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from benchkit import a_run
from cli_fake_pool import WORKER

from kestrelctl.bench import machine as bench_machine
from kestrelctl.bench import run as running
from kestrelctl.bench.bounds import Sleep
from kestrelctl.bench.collected_runs import CollectedRuns
from kestrelctl.bench.estimate import Expectation
from kestrelctl.bench.pool_size import PoolSize, suited
from kestrelctl.bench.report.page import Named, page
from kestrelctl.bench.result import BenchRun
from kestrelctl.bench.run import BenchPlan, bench, check
from kestrelctl.bench.spawn_rate import task_environment
from kestrelctl.bench.stall import STALL_SECONDS, Stall
from kestrelctl.bench.sweep import sweep
from kestrelctl.errors import MissingTool, TimedOut, UsageError
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import Ended, Jobs, JobView, Submitted, Workers
from kestrelctl.xmpp.user import UserConnection

CORES = len(os.sched_getaffinity(0))
RUNS_OF_2009 = ("0:917", "1:910", "10:914", "0-10:902")


class Machine:
    """Stands in for this machine: pools are made of nothing, and its bare rates are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rates: float) -> None:
        self.log: list[str] = []
        self._rates = list(rates)
        self._workers = 0
        monkeypatch.setattr(running, "bare_rate", self._bare_rate)
        monkeypatch.setattr(running, "measured_pool", self._pool)
        monkeypatch.setattr(running, "one_run", self._run)

    async def _bare_rate(self) -> float:
        self.log.append("bare")
        return self._rates.pop(0) if self._rates else 1000.0

    @contextlib.asynccontextmanager
    async def _pool(
        self, plan: BenchPlan, size: PoolSize | None, pool: object
    ) -> AsyncIterator[tuple[None, None]]:
        self._workers = size.slots if size else 10
        self.log.append(f"up {size}")
        yield None, None
        self.log.append("down")

    async def _run(self, plan: BenchPlan, sleep: Sleep, *_: Any) -> BenchRun:
        self.log.append(f"sleep {sleep}")
        return a_run(str(sleep), workers=self._workers)


def test_each_sleep_time_may_have_workers_of_its_own() -> None:
    planned = check(BenchPlan(sleeps=(*RUNS_OF_2009, "5"), workers=20))
    assert [(str(run.sleep), run.workers) for run in planned] == [
        ("0", 917), ("1", 910), ("10", 914), ("0-10", 902), ("5", 20),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "spec", ["1:", "1:0", "1:x", "1:-3", "1:2:3", "1:²", ":5", f"1:{'9' * 5000}"]
)
def test_what_is_no_number_of_workers_is_refused(spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(BenchPlan(sleeps=(spec,)))
    assert caught.value.hint


def test_a_plan_without_a_sleep_time_is_refused() -> None:
    with pytest.raises(UsageError, match="no sleep time is given"):
        check(BenchPlan(sleeps=()))


async def test_runs_on_the_same_number_of_workers_share_a_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    await bench(BenchPlan(sleeps=("0:3", "1:3", "2:4")), CollectedRuns())
    trial, pools = machine.log[:4], [word for word in machine.log[4:] if word != "bare"]
    assert trial == ["bare", f"up {CORES}x8", "sleep 0", "down"]
    assert pools == ["up 3", "sleep 0", "sleep 1", "down", "up 4", "sleep 2", "down"]


async def test_the_bare_rate_is_measured_before_between_and_after_the_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, 177.0, 900.0, 661.0)
    collected = CollectedRuns()
    await bench(BenchPlan(sleeps=("0", "1")), collected)
    assert [word for word in machine.log if word in ("bare", "sleep 0", "sleep 1")] == [
        "bare", "sleep 0", "sleep 0", "bare", "sleep 1", "bare",
    ]  # fmt: skip
    assert collected.spawn_rates_per_second == [177.0, 900.0, 661.0]
    assert collected.spawn_limit_per_second == 900.0, "other load can only lower it"
    assert collected.result(None).spawn_limit_per_second == 900.0


async def test_a_given_pool_may_be_elsewhere_and_has_the_workers_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, pool = Machine(monkeypatch), cast("UserConnection", object())
    collected = CollectedRuns()
    await bench(BenchPlan(sleeps=("0",)), collected, pool)
    assert "bare" not in machine.log
    assert collected.spawn_limit_per_second is None
    with pytest.raises(UsageError, match="a pool that runs has the workers that it has"):
        await bench(BenchPlan(sleeps=("0:9",)), collected, pool)


def test_a_given_pool_needs_no_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_prosody() -> None:
        raise MissingTool("no Prosody found")

    monkeypatch.setattr(bench_machine, "find_prosody", find_prosody)
    collected = CollectedRuns()
    collected.add(a_run("0"))
    result = collected.result(None)
    assert result.machine.prosody == ""
    assert "Prosody" not in page([Named("now", result)]).partition("<dt>Kernel")[2]


def test_a_result_names_the_version_with_which_the_bench_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkout = ["0.3.0.dev0+g1a2b3c4d5"]
    monkeypatch.setattr(bench_machine, "described_version", lambda: checkout[-1])
    collected = CollectedRuns()
    collected.add(a_run("0"))
    checkout.append("0.3.0.dev0+gffffffff0")
    assert collected.result(None).machine.kestrel == checkout[0]


def test_each_run_that_ended_is_told_with_its_number() -> None:
    told: list[tuple[str, int, int]] = []
    collected = CollectedRuns(lambda run, number, of: told.append((run.sleep, number, of)))
    collected.planned_runs = 4
    collected.add(a_run("0"))
    assert told == [], "the bare rate after it is not known yet"
    collected.tell()
    collected.add(a_run("1"))
    collected.tell()
    collected.tell()
    assert told == [("0", 1, 4), ("1", 2, 4)]


async def test_the_workers_that_suit_are_chosen_where_no_number_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, collected = Machine(monkeypatch), CollectedRuns()
    await bench(BenchPlan(sleeps=("0", "1", "1:7")), collected)
    expected = suited(Sleep(1.0, 1.0), a_run("0").tasks_per_second, CORES)
    ups = [word for word in machine.log if word.startswith("up")]
    assert ups == [f"up {CORES}x8", f"up {CORES}x8", f"up {expected}", "up 7"]
    assert [run.chosen for run in collected.runs] == [True, True, False]


async def test_before_the_first_run_it_is_told_what_is_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Expectation | None] = []
    machine = Machine(monkeypatch)
    collected = CollectedRuns(
        on_begin=lambda each: (machine.log.append("told"), told.append(each))[1]
    )
    await bench(BenchPlan(sleeps=("0:3", "1:4")), collected)
    assert machine.log[3:6] == ["down", "told", "up 3"], "after the trial"
    assert told[0] is not None
    assert [str(run.size) for run in told[0].runs] == ["3", "4"]
    await bench(BenchPlan(), collected, cast("UserConnection", object()))
    assert told[1] is None, "a given pool may be elsewhere"


async def test_a_sleep_time_that_is_given_twice_is_swept_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kestrelctl.bench import sweep as sweeping

    rows: list[list[str]] = []

    async def row(plan: object, size: object, sleeps: list[Sleep], *_: object) -> None:
        rows.append([str(sleep) for sleep in sleeps])

    Machine(monkeypatch)
    monkeypatch.setattr(sweeping, "_row", row)
    collected = CollectedRuns()
    await sweep(BenchPlan(sleeps=("1", "0", "1.0")), collected, (5, 9))
    assert rows == [["0", "1"]] * 2
    assert collected.planned_runs == 4


def test_the_bare_rate_is_measured_with_the_environment_of_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_VARIABLE_OF_THE_USER", "x" * 100_000)
    found = task_environment()
    assert "A_VARIABLE_OF_THE_USER" not in found
    assert {"PATH", "KESTREL_JOB_ID", "KESTREL_TASK_ID", "KESTREL_WORKER"} <= found.keys()


# -- when a run is given up ------------------------------------------------------------------------


def job(done: int, running: int = 3) -> JobView:
    return JobView(
        job_id=1, name="", owner="", state="active", tasks=50_000, submitted_at=0.0,
        waiting=50_000 - done - running, running=running, done=done,
    )  # fmt: skip


def test_a_slow_run_is_not_given_up_while_tasks_end() -> None:
    stall = Stall(10.0, now=0.0)
    for minute in range(600):
        stall.seen(job(done=minute), now=60.0 * minute)
        assert stall.reason(60.0 * minute) is None


def test_a_run_in_which_nothing_ends_is_given_up_with_what_was_seen() -> None:
    stall = Stall(10.0, now=0.0)
    for now in (5.0, 100.0, 200.0):
        stall.seen(job(done=4100), now)
    assert stall.reason(5.0 + STALL_SECONDS + 10.0) is None
    assert stall.reason(5.0 + STALL_SECONDS + 10.1) == (
        "no task ended for 310 s: 4,100 of 50,000 had ended, 3 were running, 45,897 waiting"
    )


def test_long_tasks_get_their_length_before_the_first_end_is_missed() -> None:
    stall = Stall(7200.0, now=0.0)
    stall.seen(job(done=0), 1.0)
    assert stall.reason(7200.0) is None
    assert stall.reason(7200.0 + STALL_SECONDS + 1) is not None


def test_a_pool_that_never_answers_is_given_up() -> None:
    assert Stall(0.0, now=0.0).reason(STALL_SECONDS + 1) == "no answer from the pool for 301 s"


class Busy:
    """A connection to a manager that answers the first questions too late."""

    def __init__(self, late: int) -> None:
        self.late = late
        self.asked = 0

    async def pushed(self) -> AsyncIterator[Ended]:
        while self.asked <= self.late:
            await asyncio.sleep(0)
        yield Ended(id="", job=job(done=50_000, running=0))

    async def ask(self, *_: object, **__: object) -> Jobs:
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked <= self.late:
            raise TimedOut
        return Jobs(id="", jobs=[job(done=7)])


async def test_an_answer_that_comes_too_late_does_not_end_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "WATCHED_PAUSE_SECONDS", 0.0)
    shown: list[tuple[str, int, int]] = []
    busy = cast("UserConnection", Busy(late=3))
    ended, _ = await running._ended(busy, 1, Sleep(0.0, 0.0), 0.0, lambda *each: shown.append(each))
    assert ended.done == 50_000
    assert shown[-1] == ("0", 50_000, 50_000), "a bar is full when its run has ended"


async def test_an_end_that_was_told_while_the_way_was_cut_is_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody tells it again."""

    class Cut(Given):
        async def ask(self, request: object, *_: object, **__: object) -> object:
            over = msgspec.structs.replace(job(done=50_000), submitted_at=40.0, ended_at=100.0)
            return Jobs(id="", jobs=[over])

    monkeypatch.setattr(running, "PAUSE_SECONDS", 0.0)
    cut = cast("UserConnection", Cut())
    ended, seconds = await running._ended(cut, 1, Sleep(0.0, 0.0), 0.0, None)
    assert (ended.done, seconds) == (50_000, 60.0)


async def test_runs_of_one_sleep_time_have_a_bar_each(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched(Given):
        async def ask(self, request: object, *_: object, **__: object) -> object:
            if isinstance(request, rq.Watch):
                return Jobs(id="", jobs=[job(done=7)])
            return await super().ask(request)

    monkeypatch.setattr(running, "WATCHED_PAUSE_SECONDS", 0.0)
    shown: asyncio.Queue[str] = asyncio.Queue()
    pool = cast("UserConnection", Watched())
    run = asyncio.ensure_future(
        running.one_run(
            BenchPlan(), Sleep(1.0, 1.0), pool, None, lambda name, *_: shown.put_nowait(name)
        )
    )
    slots = WORKER.assets["cpus"]
    assert await shown.get() == f"1, 1x{slots} workers"
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


class Given:
    """A connection to a pool that stays, in which the job of a bench never ends."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.waiting = asyncio.Event()

    async def pushed(self) -> AsyncIterator[Ended]:
        self.waiting.set()
        await asyncio.Event().wait()
        yield Ended(id="", job=job(done=1))

    async def ask(self, request: object, *_: object, **__: object) -> object:
        self.asked.append(request)
        if isinstance(request, rq.ListWorkers):
            return Workers(id="", workers=[WORKER], after=None)
        return Submitted(id="", job_id=7, tasks=5)


async def test_a_bench_that_is_ended_leaves_no_job_in_a_pool_that_stays() -> None:
    given = Given()
    pool = cast("UserConnection", given)
    run = asyncio.ensure_future(running.one_run(BenchPlan(), Sleep(1.0, 1.0), pool, None, None))
    await given.waiting.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert given.asked[-1] == rq.CancelJobs(jobs="7")
