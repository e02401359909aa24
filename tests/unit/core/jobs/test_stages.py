"""What the pool does with tasks that have stages."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.attempt import Attempt
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.stage import Stage, StageRun
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import WorkerAd

W = "w1@workers/1"
SETUP = Stage(name="setup", argv=("prepare",))
IN = Stage(name="in", argv=("get",))
OUT = Stage(name="out", argv=("put",))
ALL = (SETUP, IN, OUT)


def driver(*workers: str, **more: object) -> PoolDriver:
    found = PoolDriver(Config(backoff_seconds=1.0))
    found.join(*(workers or (W,)), tags=("stages",), **more)  # type: ignore[arg-type]
    return found


def last_row(pool: PoolDriver) -> TaskRecord:
    return [record for record in pool.records if isinstance(record, TaskRecord)][-1]


def attempt_at(pool: PoolDriver, worker: str = W) -> Attempt:
    [task] = pool.worker(worker).held.values()
    assert task.attempt is not None
    return task.attempt


def say(pool: PoolDriver, *stages: tuple[int, str], worker: str = W) -> None:
    pool.tell(ev.Staged(at=pool.now, worker=worker, stages=list(stages)))


@pytest.mark.parametrize("how", ["exit code 3", "time-limit", "no-space: the disk is full"])
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNABLE])
def test_a_computation_never_runs_again_because_the_stage_after_it_failed(
    how: str, outcome: int
) -> None:
    pool = driver(W, "w2@workers/1")
    pool.submit(max_failures=9, stages=ALL, retry_memory_bytes=(1 << 30,), memory_bytes=0)
    who = W if pool.worker(W).held else "w2@workers/1"
    pool.report(who, outcome=outcome, reason=f"stage out: {how}")
    assert last_row(pool).state is TaskState.FAILED
    assert last_row(pool).failures == 1
    assert pool.ended == [1]


def test_whoever_wants_it_again_has_it_run_from_the_start() -> None:
    pool = driver()
    job_id = pool.submit(stages=ALL)
    pool.fail(W, reason="stage out: exit code 3")
    pool.retry(job_id)
    pool.report(W)
    assert last_row(pool).state is TaskState.DONE


@pytest.mark.parametrize("name", ["setup", "in"])
@pytest.mark.parametrize("rules", [{}, {"retry_on": ((75, 75),)}, {"no_retry_on": ((0, 255),)}])
def test_what_fails_before_the_computation_is_tried_elsewhere_whatever_exits_are(
    name: str, rules: dict[str, object]
) -> None:
    pool = driver()
    pool.submit(max_failures=2, stages=ALL, **rules)
    pool.fail(W, reason=f"stage {name}: exit code 3")
    assert (last_row(pool).state, last_row(pool).failures) == (TaskState.WAITING, 1)
    assert not pool.worker(W).held  # it pauses
    pool.wait(2.0)
    pool.fail(W, reason=f"stage {name}: exit code 3")
    assert (last_row(pool).state, last_row(pool).failures) == (TaskState.FAILED, 2)


def test_a_job_without_stages_has_none_that_failed() -> None:
    """A worker says what it likes; a job without stages goes by its own rules."""
    pool = driver()
    pool.submit(max_failures=2)
    pool.fail(W, reason="stage out: exit code 3")
    assert last_row(pool).state is TaskState.WAITING


def test_a_worker_alone_at_which_setups_fail_is_set_aside() -> None:
    pool = driver(W, "w2@workers/1", cpus=1)
    pool.submit(200, max_failures=200, stages=ALL, backoff_seconds=0.01)
    for _ in range(60):
        pool.now += 0.2
        if pool.worker(W).held:
            pool.fail(W, seconds=0.0, reason="stage setup: exit code 1")
        pool.report("w2@workers/1", seconds=0.1)
        pool.wait(0.05)
    assert pool.worker(W).quarantined_until > pool.now
    assert pool.worker("w2@workers/1").quarantined_until == 0.0


def test_a_worker_whose_setups_take_long_and_fail_is_not_too_fast() -> None:
    pool = driver()
    pool.submit(3, max_failures=3, stages=ALL)
    pool.fail(W, seconds=0.0, reason="stage setup: time-limit", stages=(StageRun("setup", 600.0),))
    assert pool.worker(W).streak == 0


def test_a_workers_word_says_in_which_stage_a_task_is() -> None:
    pool = driver()
    pool.submit(stages=(SETUP, OUT))
    number = attempt_at(pool).number
    assert attempt_at(pool).stage == ""
    say(pool, (number, "setup"))
    assert attempt_at(pool).stage == "setup"
    say(pool, (number, "run"))
    assert attempt_at(pool).stage == "run"


def test_what_a_liar_says_of_stages_changes_nothing() -> None:
    pool = driver(W, "w2@workers/1", cpus=1)
    pool.submit(2, stages=(SETUP,))
    mine, other = attempt_at(pool).number, attempt_at(pool, "w2@workers/1").number
    say(pool, (other, "setup"), (77, "setup"), (mine, "paint"), (mine, "out"), (mine, "in"))
    say(pool, (mine, "setup"), worker="stranger@workers/1")
    assert (attempt_at(pool).stage, attempt_at(pool, "w2@workers/1").stage) == ("", "")


def test_a_job_without_stages_is_in_none() -> None:
    pool = driver()
    pool.submit()
    say(pool, (attempt_at(pool).number, "run"))
    assert attempt_at(pool).stage == ""


def test_a_hello_says_in_which_stage_a_task_is() -> None:
    """It is the only word of it where the manager, or the way to it, has been away."""
    pool = driver()
    pool.submit(stages=ALL)
    held = pool.held(W)
    pool.restart()
    pool.tell(
        ev.Joined(
            at=pool.now,
            worker=W,
            incarnation="one",
            ad=WorkerAd(assets={"cpus": 1.0}, tags=("stages",)),
            holds=[(*held[0], 0)],
            claims=[{"cpus": 1000}],
            seals=pool.seals(W, held),
            stages=[(held[0][0], "out"), (5, "out")],
        )
    )
    assert attempt_at(pool).stage == "out"


def test_to_say_in_which_stage_a_task_is_renews_a_lease() -> None:
    pool = driver()
    pool.submit(stages=ALL)
    number, until = attempt_at(pool).number, pool.worker(W).lease_until
    pool.now += 1.0
    say(pool, (number, "setup"))
    assert pool.worker(W).lease_until == until + 1.0


def test_stages_are_counted_with_what_they_took() -> None:
    pool = driver(cpus=3)
    pool.submit(3, stages=ALL)
    runs = (StageRun("setup", 0.5, 2), StageRun("run", 1.0), StageRun("out", 0.25))
    pool.report(W, stages=runs)
    pool.fail(W, reason="stage setup: exit code 1", stages=runs[:1])
    pool.fail(W, exit_code=1, stages=runs[:2])
    seconds = pool.pool.totals.stage_seconds
    assert {name: (each.count, each.sum) for name, each in seconds.items()} == {
        "setup": (3, 1.5),
        "in": (0, 0.0),
        "run": (2, 2.0),
        "out": (1, 0.25),
    }
    assert pool.pool.totals.stage_failures == {"setup": 1, "in": 0, "run": 1, "out": 0}


def test_the_time_of_stages_is_not_what_dispatch_added() -> None:
    pool = driver()
    pool.submit(stages=ALL)
    pool.now += 10.0
    pool.report(W, seconds=3.0, stages=(StageRun("setup", 6.0), StageRun("run", 3.0)))
    assert pool.pool.totals.dispatches.sum == pytest.approx(1.0)


def test_without_a_worker_that_runs_stages_it_waits_and_says_why() -> None:
    pool = PoolDriver()
    pool.join(W)
    job_id = pool.submit(stages=ALL)
    found = pool.pool.explain(pool.pool.state.jobs[job_id], pool.now)
    assert not pool.of(fx.Run)
    assert not found.ever
    assert "STAGES" in found.groups[0].refusal.wanted
