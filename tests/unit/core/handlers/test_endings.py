"""Which ends of a task are a success, which are tried again, after what pause."""

from __future__ import annotations

import pytest
from jobkit import job_spec
from poolkit import PoolDriver

from kestrelctl.core.model.job.ending_rules import is_success
from kestrelctl.core.model.job.exits import exits_text
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.errors import UsageError
from kestrelctl.grammar.job_options import parse_exits, parse_stop_signal


def spec(**rules: object) -> JobSpec:
    return job_spec(**rules)


def after_a_failure(driver: PoolDriver, how: dict[str, int | str], **rules: object) -> str:
    """What becomes of a task of which an attempt failed so."""
    driver.submit(max_failures=3, **rules)
    driver.fail("w", **how)
    return [r for r in driver.records if isinstance(r, TaskRecord)][-1].state


# HTCondor: "success_exit_code: The exit code that is considered successful for this job."
@pytest.mark.parametrize(
    ("exits", "code", "fine"),
    [((), 0, True), ((), 3, False), (((0, 0), (3, 3)), 3, True), (((3, 3),), 0, False)],
)
def test_the_named_exit_codes_are_the_successes(
    exits: tuple[tuple[int, int], ...], code: int, fine: bool
) -> None:
    assert is_success(exits, code) is fine


@pytest.mark.parametrize(
    ("rules", "how", "state"),
    [
        ({}, {"exit_code": 75}, TaskState.WAITING),
        ({"retry_on": ((75, 75),)}, {"exit_code": 75}, TaskState.WAITING),
        ({"retry_on": ((75, 75),)}, {"exit_code": 1}, TaskState.FAILED),
        ({"retry_on": ((-9, -9),)}, {"signal": 9}, TaskState.WAITING),
        ({"retry_on": ((9, 9),)}, {"signal": 9}, TaskState.FAILED),
        ({"retry_on": ((0, 255),)}, {"reason": "time-limit"}, TaskState.FAILED),
        (
            {"retry_on": ((75, 75),)},
            {"exit_code": 75, "reason": "cleanup-failed: exit code 1"},
            TaskState.WAITING,
        ),
        (
            {"no_retry_on": ((64, 78),)},
            {"exit_code": 70, "reason": "cleanup-failed: exit code 1"},
            TaskState.FAILED,
        ),
        # HTCondor: "retry_until … prevents further retries from taking place".
        ({"no_retry_on": ((64, 78),)}, {"exit_code": 70}, TaskState.FAILED),
        ({"no_retry_on": ((64, 78),)}, {"exit_code": 1}, TaskState.WAITING),
        ({"no_retry_on": ((0, 255),)}, {"reason": "time-limit"}, TaskState.WAITING),
    ],
)
def test_rules_say_which_failures_are_tried_again(
    rules: dict[str, object], how: dict[str, int | str], state: TaskState
) -> None:
    driver = PoolDriver()
    driver.join("w")
    assert after_a_failure(driver, how, **rules) == state


def pauses(driver: PoolDriver, n: int) -> list[float]:
    found = []
    for _ in range(n):
        driver.fail("w")
        failed_at = driver.now
        while not driver.held("w"):
            driver.live(0.5, step=0.5)
        found.append(driver.now - failed_at)
    return found


def test_a_job_has_pauses_of_its_own() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(max_failures=9, backoff_seconds=5.0, max_backoff_seconds=12.0)
    assert pauses(driver, 4) == [5.0, 10.0, 12.0, 12.0]


def test_a_first_pause_above_the_pools_longest_is_the_longest() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(max_failures=9, backoff_seconds=90.0)
    assert pauses(driver, 2) == [90.0, 90.0]


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ({"retry_on": ((75, 75),)}, "max_failures"),
        ({"no_retry_on": ((2, 2),)}, "max_failures"),
        ({"backoff_seconds": 5.0}, "max_failures"),
        ({"max_failures": 2, "retry_on": ((1, 9),), "no_retry_on": ((2, 2),)}, "both at once"),
        ({"max_failures": 2, "retry_on": ((1, 9),), "success_exits": ((3, 3),)}, "code 3 is a"),
        ({"max_failures": 2, "retry_on": ((5, 1),)}, "is empty"),
        ({"max_failures": 2, "retry_on": ((1, 256),)}, "0 to 255"),
        ({"max_failures": 2, "retry_on": ((-9, 3),)}, "0 to 255"),
        ({"max_failures": 2, "retry_on": ((-99, -99),)}, "0 to 255"),
        ({"success_exits": ((-9, -9),)}, "SIGKILL is a signal"),
        ({"success_exits": tuple((i, i) for i in range(65))}, "at most 64"),
        ({"max_failures": 2, "backoff_seconds": float("nan")}, "7 days"),
        ({"max_failures": 2, "max_backoff_seconds": 1e9}, "7 days"),
        ({"max_failures": 2, "backoff_seconds": 9.0, "max_backoff_seconds": 3.0}, "longer than"),
        ({"stop_signal": "CHLD"}, "not 'CHLD'"),
        ({"stop_grace_seconds": 0.0}, "1 hour"),
        ({"stop_grace_seconds": 4000.0}, "1 hour"),
    ],
)
def test_rules_that_cannot_be_are_refused(rules: dict[str, object], word: str) -> None:
    assert word in (problem_with_job(spec(**rules)) or "")


def test_exits_are_read_and_shown_alike() -> None:
    read = parse_exits("0, 3,64-78 sigkill")
    assert read == ((0, 0), (3, 3), (64, 78), (-9, -9))
    assert parse_exits(exits_text(read)) == read
    assert parse_stop_signal("SIGINT") == parse_stop_signal("int") == "INT"


@pytest.mark.parametrize("text", ["x", "1-", "-1", "KILL", "SIGNOPE", "1000", "SIG_DFL"])
def test_what_is_no_exit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not an exit code"):
        parse_exits(text)


@pytest.mark.parametrize("text", ["SIGSTOP", "9", "CHLD"])
def test_what_asks_nobody_to_end_is_no_stop_signal(text: str) -> None:
    with pytest.raises(UsageError, match="not a stop signal"):
        parse_stop_signal(text)
