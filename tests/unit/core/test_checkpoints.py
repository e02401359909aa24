"""Checkpoints: kept as they come, given to the next attempt, and what ends to go on later."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from jobkit import changed, job_spec
from poolkit import Attempt, PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.checkpoint import (
    MOST_STORED_BYTES,
    MadeCheckpoint,
    can_be_given,
    problem_with_checkpoints,
)
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import Happening, TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.validate import problem_with_job

SHA256 = "0" * 64
TAGS = ("checkpoints",)


def stored(word: str = "state", pieces: int = 1) -> StoredFile:
    piece = Piece(sha256=SHA256, size_bytes=1, url=f"https://share/{word}")
    return StoredFile(sha256=SHA256, size_bytes=pieces, pieces=(piece,) * pieces)


def made(n: int, word: str = "state") -> MadeCheckpoint:
    return MadeCheckpoint(n, stored(f"{word}-{n}"))


def pool(*workers: str, config: Config | None = None, **spec: Any) -> PoolDriver:
    """Workers that store checkpoints, and a job of one task that makes some."""
    driver = PoolDriver(config)
    driver.join(*workers, tags=TAGS)
    driver.submit(**{"checkpoints": ("state",), "checkpoint_exit": 85} | spec)
    return driver


def tells(driver: PoolDriver, name: str, number: int, n: int, word: str = "state") -> None:
    driver.tell(
        ev.Checkpointed(at=driver.now, cause=name, worker=name, number=number, made=made(n, word))
    )


def leaves(driver: PoolDriver, name: str, n: int, seconds: float = 100.0, **more: Any) -> None:
    """The oldest attempt of a worker ends to go on later."""
    more = {"exit_code": 85, "checkpoint": made(n)} | more
    driver.report(name, outcome=Outcome.GOES_ON, seconds=seconds, **more)


def given(driver: PoolDriver) -> list[int]:
    """Which checkpoints the attempts go on from that were just sent."""
    return [each.n for run in driver.of(fx.Run) for _, each in run.checkpoints]


def sent(driver: PoolDriver, name: str) -> Attempt:
    [attempt] = driver.held(name)
    return attempt


def told(driver: PoolDriver, what: str) -> list[str]:
    happenings = [each for each in driver.records if isinstance(each, Happening)]
    return [each.detail for each in happenings if (each.job_id, each.what) == (1, what)]


def task_row(driver: PoolDriver) -> TaskRecord:
    [row] = driver.store().tasks(1)
    return row


# -- kept and given --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lost", "failed"])
def test_the_next_attempt_goes_on_from_the_latest(how: str) -> None:
    driver = pool("a", max_failures=2)
    [number, *_] = sent(driver, "a")
    assert given(driver) == []
    tells(driver, "a", number, 1)
    tells(driver, "a", number, 2)
    if how == "lost":
        driver.lose("a")
        driver.join("b", tags=TAGS)
    else:
        driver.fail("a", exit_code=1)
        driver.live(2.0)
    found = driver.pool.state.jobs[1].live[0].checkpoint
    assert found is not None
    assert (found.number, found.n, found.stored) == (number, 2, stored("state-2"))
    assert [job.resumed for job in driver.pool.jobs] == [1]
    assert told(driver, "resumed") == ["from checkpoint 2"]


def test_it_survives_a_restart_of_the_manager() -> None:
    driver = pool("a")
    number, *_ = sent(driver, "a")
    tells(driver, "a", number, 3)
    driver.restart()
    driver.join("b", tags=TAGS)
    driver.wait(60.0)
    driver.live(60.0)
    assert [job.resumed for job in driver.pool.jobs] == [1]
    found = driver.pool.state.jobs[1].live[0].checkpoint
    assert found is not None
    assert (found.number, found.n) == (number, 3)


def test_within_an_attempt_the_count_rises() -> None:
    driver = pool("a")
    number, *_ = sent(driver, "a")
    for n in (2, 1, 2):
        tells(driver, "a", number, n, word=f"as-{n}")
    found = driver.pool.state.jobs[1].live[0].checkpoint
    assert found is not None
    assert found.n == 2
    assert sum(isinstance(record, TaskRecord) for record in driver.records) == 1


def test_that_of_an_older_attempt_never_replaces_that_of_a_newer() -> None:
    driver = pool("a")
    old, *_ = first = sent(driver, "a")
    driver.lose("a")
    driver.join("b", tags=TAGS)
    new, *_ = sent(driver, "b")
    tells(driver, "b", new, 1)
    driver.join("a", tags=TAGS, holds=[first])
    assert driver.held("a") == [first], "the earlier one has survived"
    tells(driver, "a", old, 7)
    found = driver.pool.state.jobs[1].live[0].checkpoint
    assert found is not None
    assert (found.number, found.n) == (new, 1)


def test_of_a_worker_that_does_not_have_the_attempt_none_counts() -> None:
    driver = pool("a", "b")
    number, *_ = driver.held("a")[0] if driver.held("a") else driver.held("b")[0]
    other = "b" if driver.held("a") else "a"
    tells(driver, other, number, 1)
    tells(driver, "stranger", number, 1)
    assert driver.pool.state.jobs[1].live[0].checkpoint is None


def test_of_a_job_without_checkpoints_none_counts() -> None:
    driver = pool("a", checkpoints=(), checkpoint_exit=None)
    tells(driver, "a", driver.held("a")[0][0], 1)
    assert driver.pool.state.jobs[1].live[0].checkpoint is None


@pytest.mark.parametrize(
    "bad",
    [
        msgspec.structs.replace(stored(), sha256="no hash"),
        stored("x" * 2000),
        stored("x" * 500, pieces=300),
        stored("&" * 400, pieces=80),
    ],
)
def test_what_cannot_be_given_to_a_worker_is_not_kept(bad: StoredFile) -> None:
    driver = pool("a")
    number, *_ = sent(driver, "a")
    event = ev.Checkpointed(at=driver.now, worker="a", number=number, made=MadeCheckpoint(1, bad))
    driver.tell(event)
    assert driver.pool.state.jobs[1].live[0].checkpoint is None


def test_what_is_given_fits_beside_the_rest_of_a_message() -> None:
    large = stored("x" * 200, pieces=400)
    assert can_be_given(large)
    assert len(msgspec.json.encode(large)) <= MOST_STORED_BYTES


def test_a_users_retry_begins_anew() -> None:
    driver = pool("a")
    number, *_ = sent(driver, "a")
    tells(driver, "a", number, 1)
    driver.fail("a", exit_code=1)
    assert driver.ended == [1]
    driver.retry(1)
    assert given(driver) == []
    assert task_row(driver).checkpoint is None


def test_one_that_cannot_be_had_is_told_and_given_to_nobody_again() -> None:
    driver = pool("a", max_failures=3)
    number, *_ = sent(driver, "a")
    tells(driver, "a", number, 1)
    driver.lose("a")
    driver.join("b", tags=TAGS)
    number, *_ = sent(driver, "b")
    assert given(driver) == [1]
    driver.tell(
        ev.Checkpointed(at=driver.now, worker="b", number=number, problem="checkpoint 1: gone")
    )
    assert told(driver, "began-anew") == ["checkpoint 1: gone"]
    assert task_row(driver).checkpoint is None
    driver.fail("b", exit_code=1)
    driver.live(5.0)
    assert [job.resumed for job in driver.pool.jobs] == [1]


# -- ends to go on later ---------------------------------------------------------------------------


def test_a_task_that_asks_to_go_on_waits_in_line_and_has_not_failed() -> None:
    driver = pool("a")
    leaves(driver, "a", 1)
    assert given(driver) == [1]
    assert driver.pool.totals.attempts_failed == 0
    row = task_row(driver)
    assert (row.state, row.failures, row.losses) == (TaskState.WAITING, 0, 0)
    assert row.result is not None
    assert (row.result.exit_code, row.result.checkpoint) == (85, None)
    assert row.checkpoint is not None
    [detail] = told(driver, "goes-on")
    assert detail == "ran 100.000 s; exit code 85; checkpoint 1"
    driver.report("a")
    assert driver.ended == [1]


def test_one_that_does_nothing_else_is_paced_until_it_ran_for_a_while() -> None:
    driver = pool("a", config=Config(backoff_seconds=2.0, max_backoff_seconds=5.0))
    pauses = []
    for n in range(1, 5):
        leaves(driver, "a", n, seconds=0.1)
        began = driver.now
        while not driver.held("a"):
            driver.live(0.5, 0.5)
        pauses.append(driver.now - began)
    assert pauses == [2.0, 4.0, 5.0, 5.0]
    leaves(driver, "a", 5)
    assert driver.held("a")
    leaves(driver, "a", 6, seconds=0.1)
    driver.live(2.0)
    assert driver.held("a"), "the pauses begin anew"


def test_a_remark_on_its_end_spares_it_no_pause() -> None:
    driver = pool("a", config=Config(backoff_seconds=2.0))
    leaves(driver, "a", 1, seconds=0.1, reason="outputs-incomplete: 'a' is no file")
    assert not driver.held("a")
    [detail] = told(driver, "goes-on")
    assert detail.endswith("exit code 85; outputs-incomplete: 'a' is no file; checkpoint 1")


def test_its_job_says_how_it_is_paced_though_it_has_one_try() -> None:
    driver = pool("a", backoff_seconds=3.0, max_backoff_seconds=6.0)
    pauses = []
    for n in range(1, 4):
        leaves(driver, "a", n, seconds=0.1)
        began = driver.now
        while not driver.held("a"):
            driver.live(0.5, 0.5)
        pauses.append(driver.now - began)
    assert pauses == [3.0, 6.0, 6.0]


@pytest.mark.parametrize("pace", [{"backoff_seconds": 3.0}, {"max_backoff_seconds": 6.0}])
def test_pauses_are_for_what_is_tried_again_or_goes_on(pace: dict[str, Any]) -> None:
    once = job_spec(checkpoints=("state",), **pace)
    assert "raise max_failures, as --max-failures 3" in (problem_with_job(once) or "")
    assert problem_with_job(changed(once, checkpoint_exit=85)) is None
    retried = changed(once, checkpoint_exit=85, retry_on=((3, 3),))
    assert "raise max_failures" in (problem_with_job(retried) or "")


def test_its_attempts_are_counted_on() -> None:
    driver = pool("a")
    leaves(driver, "a", 1)
    [run] = driver.of(fx.Run)
    assert [count for _, count in run.counts] == [2]


def test_without_a_checkpoint_it_has_failed() -> None:
    driver = pool("a")
    leaves(driver, "a", 1, checkpoint=None)
    row = task_row(driver)
    assert (row.state, row.failures) == (TaskState.FAILED, 1)
    assert row.result is not None
    assert row.result.reason.startswith("checkpoint-failed: ")


def test_a_cancelled_one_is_cancelled_however_it_ends() -> None:
    driver = pool("a")
    driver.cancel(1)
    leaves(driver, "a", 1)
    row = task_row(driver)
    assert row.state is TaskState.CANCELLED
    assert driver.ended == [1]


def test_after_a_restart_the_end_of_an_attempt_counts_that_nobody_knows_any_more() -> None:
    driver = pool("a")
    attempt = sent(driver, "a")
    driver.restart()
    leaves_of = {"outcome": Outcome.GOES_ON, "exit_code": 85, "checkpoint": made(1)}
    driver.report("a", attempt, **leaves_of)
    driver.join("b", tags=TAGS)
    driver.live(60.0)
    assert [job.resumed for job in driver.pool.jobs] == [1]


# -- workers that shall be empty -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["drained", "leaving", "comes back"])
def test_a_worker_that_shall_be_empty_stops_what_goes_on_elsewhere(how: str) -> None:
    driver = pool("a")
    attempt = sent(driver, "a")
    if how == "leaving":
        driver.tell(ev.Leaving(at=driver.now, worker="a"))
    else:
        driver.tell(ev.Drain(at=driver.now, worker="a", by="root"))
    if how == "comes back":
        driver.join("a", tags=TAGS, holds=[attempt])
        assert [welcome.kill for welcome in driver.of(fx.Welcome)] == [[]]
    [take] = driver.of(fx.TakeCheckpoints)
    assert (take.worker, take.numbers, take.stop) == ("a", [attempt[0]], [attempt[0]])
    assert driver.of(fx.Kill) == []
    leaves(driver, "a", 1, seconds=0.1, reason="moved")
    driver.join("b", tags=TAGS)
    assert given(driver) == [1], "at once: it was asked to stop"
    assert task_row(driver).failures == 0
    assert driver.pool.totals.losses.total() == 0


def test_one_that_left_nothing_goes_on_from_what_the_pool_has() -> None:
    driver = pool("a")
    number, *_ = sent(driver, "a")
    tells(driver, "a", number, 4)
    driver.tell(ev.Drain(at=driver.now, worker="a", by="root"))
    driver.report("a", outcome=Outcome.KILLED, reason="moved", signal=9)
    driver.join("b", tags=TAGS)
    assert given(driver) == [4]
    assert task_row(driver).failures == 0
    assert told(driver, "moved") == ["it was drained by root"]


def test_without_an_exit_code_it_goes_on_there_and_is_only_stored() -> None:
    driver = pool("a", checkpoint_exit=None)
    number, *_ = sent(driver, "a")
    driver.tell(ev.Drain(at=driver.now, worker="a", by="root"))
    [take] = driver.of(fx.TakeCheckpoints)
    assert (take.numbers, take.stop) == ([number], [])


def test_of_other_jobs_nothing_is_asked() -> None:
    driver = pool("a", checkpoints=(), checkpoint_exit=None)
    driver.tell(ev.Drain(at=driver.now, worker="a", by="root"))
    assert driver.of(fx.TakeCheckpoints) == []


# -- what a job may say ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"checkpoints": (), "checkpoint_exit": 85}, "which files"),
        ({"checkpoints": (), "checkpoint_seconds": 5.0}, "which files"),
        ({"checkpoints": ("../x",)}, "may leave it"),
        ({"checkpoints": ("/x",)}, "relative"),
        ({"checkpoints": ("x",) * 101}, "at most 100"),
        ({"workdir": "/home/ada"}, "scratch directories"),
        ({"service": True}, "a copy of a service"),
        ({"span": 2, "count": 2}, "spans workers"),
        ({"checkpoint_seconds": 0.5}, "1 second"),
        ({"checkpoint_seconds": float("nan")}, "1 second"),
        ({"checkpoint_exit": 0}, "1 to 255"),
        ({"checkpoint_exit": 256}, "1 to 255"),
        ({"checkpoint_exit": 85, "success_exits": ((0, 90),)}, "cannot say both"),
    ],
)
def test_what_contradicts_itself_is_refused(spec: dict[str, Any], why: str) -> None:
    job = job_spec(**{"checkpoints": ("state",)} | spec)
    problem = problem_with_job(job)
    assert problem is not None
    assert why in problem


def test_what_makes_sense_is_not() -> None:
    job = JobSpec(
        program=Program(
            argv=("true",), checkpoints=("a", "b/"), checkpoint_seconds=1.0, checkpoint_exit=85
        ),
    )
    assert problem_with_checkpoints(job.program) is None
    assert problem_with_checkpoints(Program(argv=("true",))) is None


def test_only_workers_get_such_a_task_that_store_checkpoints() -> None:
    driver = PoolDriver()
    driver.join("old")
    driver.submit(checkpoints=("state",))
    assert driver.held("old") == []
    driver.join("new", tags=TAGS)
    assert len(driver.held("new")) == 1
