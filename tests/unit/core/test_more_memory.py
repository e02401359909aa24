"""Tasks that ran out of memory ask for more, in a line of their own."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core.model.job.ending_rules import problem_with_endings
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import PolicyRecord, TaskRecord
from kestrelctl.core.model.refusal import Reason

GIB = 1 << 30
OUT_OF_MEMORY = "memory-limit: killed by the kernel"


def run_out(driver: PoolDriver, name: str) -> None:
    """The oldest attempt of a worker takes more memory than it may."""
    driver.fail(name, reason=OUT_OF_MEMORY, signal=9)


def last(driver: PoolDriver) -> TaskRecord:
    return [record for record in driver.records if isinstance(record, TaskRecord)][-1]


def claimed_gib(driver: PoolDriver, name: str) -> list[float]:
    """What each attempt at a worker is charged of memory."""
    held = driver.worker(name).held.values()
    return [task.attempt.claim.amounts["memory"] / 1000 / GIB for task in held if task.attempt]


def test_a_task_asks_for_each_amount_once_and_then_it_has_failed() -> None:
    driver = PoolDriver()
    driver.join("w", memory_bytes=8 * GIB)
    driver.submit(memory_bytes=GIB, retry_memory_bytes=(2 * GIB, 4 * GIB))
    asked = []
    for _ in range(3):
        asked += claimed_gib(driver, "w")
        [run] = driver.of(fx.Run)
        assert run.claims[0]["memory"] == asked[-1] * GIB * 1000, "the worker limits it to that"
        run_out(driver, "w")
    assert asked == [1, 2, 4]
    assert (last(driver).state, last(driver).failures) == (TaskState.FAILED, 1)


def test_where_a_policy_charges_less_the_limit_is_still_what_the_line_asks_for() -> None:
    driver = PoolDriver()
    driver.join("w", memory_bytes=8 * GIB)
    text = "ConsumptionMemory = 0.5 * TARGET.RequestMemory"
    driver.put(PolicyRecord("half", "true", text))
    driver.submit(memory_bytes=GIB, retry_memory_bytes=(4 * GIB,))
    limits = driver.of(fx.Run)[0].limits
    run_out(driver, "w")
    limits += driver.of(fx.Run)[0].limits
    assert limits == [(0, {"memory": GIB * 1000}), (0, {"memory": 4 * GIB * 1000})]
    assert claimed_gib(driver, "w") == [2]


def test_who_runs_out_of_memory_has_not_failed_and_does_not_pause() -> None:
    driver = PoolDriver()
    driver.join("w", memory_bytes=8 * GIB)
    driver.submit(memory_bytes=GIB, retry_memory_bytes=(2 * GIB,))
    run_out(driver, "w")
    assert claimed_gib(driver, "w") == [2], "at once"
    assert last(driver).failures == 0
    assert driver.pool.totals.attempts_failed == 0
    assert driver.worker("w").streak == 0
    [run] = driver.of(fx.Run)
    assert run.counts == [(run.spans[0][0], 2)], "to the user it is the second attempt"


def test_other_failures_ask_for_no_more() -> None:
    driver = PoolDriver()
    driver.join("w", memory_bytes=8 * GIB)
    driver.submit(memory_bytes=GIB, retry_memory_bytes=(2 * GIB,))
    driver.fail("w", reason="disk-limit: too much")
    assert last(driver).state is TaskState.FAILED


def test_what_waits_with_more_memory_keeps_nobody_of_its_job_waiting() -> None:
    driver = PoolDriver()
    driver.join("small", memory_bytes=GIB)
    job = driver.submit(3, memory_bytes=GIB, retry_memory_bytes=(2 * GIB,), max_running=1)
    run_out(driver, "small")
    assert [index for _, _, index in driver.held("small")] == [1], "the others go on"
    driver.report("small")
    driver.report("small")
    assert driver.held("small") == [], "the small worker does not get it"
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now)
    assert not found.ever
    [group] = found.groups
    assert (group.refusal.reason, group.refusal.wanted) == (Reason.TOO_SMALL, "2048 MiB memory")
    [reason] = found.job_reasons
    assert (reason.reason, reason.found) == (Reason.MORE_MEMORY, "1 task")
    assert driver.pool.census(driver.now).waiting[Reason.TOO_SMALL] == 1
    driver.join("large", memory_bytes=2 * GIB)
    assert claimed_gib(driver, "large") == [2]


def test_lines_of_a_job_share_its_limit() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, memory_bytes=8 * GIB)
    driver.submit(6, memory_bytes=GIB, retry_memory_bytes=(2 * GIB,), max_running=2)
    driver.hold_back()
    run_out(driver, "w")
    run_out(driver, "w")
    driver.let_go()
    assert len(driver.held("w")) == 2
    for _ in range(6):
        driver.report("w")
        assert len(driver.held("w")) <= 2
    assert driver.ended == [1]


def test_a_restart_of_the_manager_forgets_no_larger_request() -> None:
    driver = PoolDriver()
    driver.join("small", memory_bytes=GIB)
    driver.submit(memory_bytes=GIB, retry_memory_bytes=(2 * GIB, 3 * GIB))
    run_out(driver, "small")
    driver.restart()
    driver.live(10.0)
    driver.join("small", memory_bytes=GIB)
    driver.join("large", memory_bytes=4 * GIB)
    driver.live(5.0)
    assert driver.held("small") == []
    assert claimed_gib(driver, "large") == [2]
    run_out(driver, "large")
    assert claimed_gib(driver, "large") == [3]


def test_a_cancelled_task_asks_for_nothing() -> None:
    driver = PoolDriver()
    driver.join("small", memory_bytes=GIB)
    job = driver.submit(2, memory_bytes=GIB, retry_memory_bytes=(2 * GIB,))
    run_out(driver, "small")
    driver.cancel(job)
    run_out(driver, "small")
    assert driver.ended == [job]
    assert last(driver).state is TaskState.CANCELLED


def test_a_lost_task_keeps_its_larger_request() -> None:
    driver = PoolDriver()
    driver.join("w", memory_bytes=4 * GIB)
    driver.submit(memory_bytes=GIB, retry_memory_bytes=(2 * GIB,))
    run_out(driver, "w")
    driver.lose("w")
    driver.join("w", memory_bytes=4 * GIB, incarnation="two")
    driver.live(8.0)
    assert claimed_gib(driver, "w") == [2]


@pytest.mark.parametrize(
    ("memory_bytes", "steps", "word"),
    [
        (0, (GIB,), "without a request"),
        (2 * GIB, (GIB,), "larger than the one before"),
        (GIB, (2 * GIB, 2 * GIB), "larger than the one before"),
        (GIB, (1 << 60,), "2^60"),
        (1, tuple(range(2, 19)), "at most 16 times"),
    ],
)
def test_amounts_that_do_not_rise_are_refused(
    memory_bytes: int, steps: tuple[int, ...], word: str
) -> None:
    request = {"cpus": 1.0, "memory": float(memory_bytes)}
    spec = JobSpec(program=Program(argv=("true",)), request=request, retry_memory_bytes=steps)
    assert word in (problem_with_endings(spec) or "")


def test_a_larger_request_stays_one_when_expressions_ask_for_something_else() -> None:
    driver = PoolDriver()
    driver.join("small", memory_bytes=GIB)
    driver.submit(memory_bytes=GIB, retry_memory_bytes=(2 * GIB,))
    run_out(driver, "small")
    driver.join("picky", memory_bytes=GIB, start="JobPrio > 7")
    driver.pool.check()
    assert not driver.held("picky"), "it has too little for the second attempt"
    driver.join("large", memory_bytes=4 * GIB)
    assert claimed_gib(driver, "large") == [2]
