"""`job logs -f`: the output of tasks while they run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli_fake_pool import ENDED_JOB, FakePool, job_with, run
from msgspec.structs import replace

from kestrelctl.cli.show import follow
from kestrelctl.errors import Busy, KestrelError, Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import AttemptOutput, FollowedLog

ONE = an.Jobs(id="", jobs=[job_with(replace(ENDED_JOB, tasks=1, ids="4"), first=4)])
THREE = an.Jobs(id="", jobs=[job_with(replace(ENDED_JOB, tasks=3, ids="4-6"), first=4)])
W1, W2 = "w1@workers.example.org/k3bW0", "w2@workers.example.org/x"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "INTERVAL_SECONDS", 0.001)
    monkeypatch.setattr(follow, "_MORE_SECONDS", 0.0)


def said(state: str, piece: AttemptOutput | None = None) -> FollowedLog:
    return FollowedLog(id="", state=state, piece=piece)


def one_after_the_other(
    *answers: FollowedLog | KestrelError,
) -> Callable[[rq.FollowLogs], FollowedLog]:
    left = list(answers)

    def answer(_request: rq.FollowLogs) -> FollowedLog:
        found = left.pop(0)
        if isinstance(found, KestrelError):
            raise found
        return found

    return answer


def followed(*answers: FollowedLog | KestrelError) -> FakePool:
    return FakePool(FollowLogs=one_after_the_other(*answers), ListJobs=ONE)


def test_a_task_is_followed_to_its_end() -> None:
    pool = followed(
        said("waiting"),
        said("waiting"),
        said("running", AttemptOutput(attempt=7, worker=W1, data=b"one\xff", more=True)),
        said("running", AttemptOutput(attempt=7, worker=W1, data=b"two")),
        said("done", AttemptOutput(attempt=7, worker=W1, data=b"\n", over="exit code 0")),
    )
    result = run(pool, "job", "logs", "-f", "7")
    assert result.stdout_bytes == b"one\xfftwo\n"
    assert result.stderr == "task 4 waits: nothing of it has run yet\n"
    assert result.exit_code == 0
    asked = [r for r in pool.asked if isinstance(r, rq.FollowLogs)]
    assert [(r.task_id, r.attempt, r.offset) for r in asked] == [
        (4, 0, 0), (4, 0, 0), (4, 0, 0), (4, 7, 4), (4, 7, 7),
    ]  # fmt: skip


def test_after_an_attempt_that_is_lost_the_next_is_followed_from_its_beginning() -> None:
    pool = followed(
        said("running", AttemptOutput(attempt=7, worker=W1, data=b"one\n", count=1)),
        said("waiting", AttemptOutput(attempt=7, over="given up")),
        said("waiting"),
        said("running", AttemptOutput(attempt=9, worker=W2, data=b"one\ntwo\n", count=2)),
        said("failed", AttemptOutput(attempt=9, worker=W2, over="exit code 3")),
    )
    result = run(pool, "job", "logs", "-f", "7")
    assert result.stdout == "one\none\ntwo\n"
    assert result.stderr == (
        "task 4: the attempt on w1 is over: given up\n"
        "task 4: attempt 2 runs on w2, from its beginning:\n"
        "task 4 failed: exit code 3\n"
    )
    asked = [r for r in pool.asked if isinstance(r, rq.FollowLogs)]
    assert [(r.attempt, r.offset, r.besides) for r in asked] == [
        (0, 0, 0), (7, 4, 0), (0, 0, 7), (0, 0, 7), (9, 8, 7),
    ]  # fmt: skip


def test_an_attempt_that_survived_goes_on_where_it_was_read_to() -> None:
    pool = followed(
        said("running", AttemptOutput(attempt=7, worker=W1, data=b"one\n")),
        said("waiting", AttemptOutput(attempt=7, over="given up")),
        said("running", AttemptOutput(attempt=7, worker=W1, data=b"one\ntwo\n")),
        said("done", AttemptOutput(attempt=7, worker=W1, data=b"two\n", over="exit code 0")),
    )
    result = run(pool, "job", "logs", "-f", "7")
    assert result.stdout == "one\ntwo\n"
    assert "task 4: the earlier attempt on w1 goes on after all\n" in result.stderr


def test_of_several_tasks_each_line_has_its_task_before_it() -> None:
    of_task = {
        4: one_after_the_other(
            said("running", AttemptOutput(attempt=7, worker=W1, data=b"a\nb")),
            said("done", AttemptOutput(attempt=7, worker=W1, data=b"c", over="exit code 0")),
        ),
        6: one_after_the_other(
            said("done", AttemptOutput(attempt=9, worker=W2, data=b"d\n", over="exit code 0")),
        ),
    }
    pool = FakePool(FollowLogs=lambda request: of_task[request.task_id](request), ListJobs=THREE)
    result = run(pool, "job", "logs", "-f", "7", "4,6,4", "--stderr")
    assert sorted(result.stdout.splitlines()) == ["[4] a", "[4] bc", "[6] d"]
    assert {r.stream for r in pool.asked if isinstance(r, rq.FollowLogs)} == {"stderr"}


def test_a_line_without_end_is_written_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_LONGEST_LINE_BYTES", 3)
    pieces = [AttemptOutput(attempt=7, worker=W1, data=b"ab") for _ in range(2)]
    answers = [said("running", piece) for piece in pieces]
    over = said("done", AttemptOutput(attempt=7, worker=W1, over="exit code 0"))
    pool = FakePool(
        FollowLogs=lambda request: answers.pop(0) if request.task_id == 4 and answers else over,
        ListJobs=THREE,
    )
    assert run(pool, "job", "logs", "-f", "7", "4-5").stdout == "[4] abab\n"


def test_without_tasks_all_are_followed_if_they_are_few() -> None:
    pool = FakePool(ListJobs=THREE)
    assert run(pool, "job", "logs", "-f", "7").exit_code == 0
    assert {r.task_id for r in pool.asked if isinstance(r, rq.FollowLogs)} == {4, 5, 6}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("-f 7", "at most 16 tasks"),
        ("-f 7 1-17", "at most 16 tasks"),
        ("-f 7 --all", "--all stands alone"),
        ("-f 7 1 -o json", "whole ones"),
        ("7 1,2", "one task at a time"),
    ],
)
def test_what_cannot_be_followed_is_refused(words: str, why: str) -> None:
    result = run(FakePool(), "job", "logs", *words.split())
    assert result.exit_code == 2
    assert why in result.stderr


def test_a_pool_that_is_away_for_a_while_is_waited_for() -> None:
    pool = followed(
        said("running", AttemptOutput(attempt=7, worker=W1, data=b"one\n")),
        Unreachable("gone"),
        Busy("being written"),
        said("done", AttemptOutput(attempt=7, worker=W1, data=b"two\n", over="exit code 0")),
    )
    assert run(pool, "job", "logs", "-f", "7").stdout == "one\ntwo\n"


def test_a_pool_that_stays_away_is_not_followed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PATIENCE_SECONDS", 0.0)
    result = run(followed(Unreachable("gone")), "job", "logs", "-f", "7")
    assert result.exit_code == Unreachable.exit_status


def test_what_is_missing_is_told_where_it_is_and_in_the_end() -> None:
    piece = AttemptOutput(
        attempt=7, worker=W1, data=b"end\n", skipped_bytes=5, why_missing="it is away", over="x"
    )
    result = run(followed(said("done", piece)), "job", "logs", "-f", "7")
    assert (result.stdout, result.exit_code) == ("end\n", 13)
    assert "warning: 5 bytes of task 4 are missing here" in result.stderr
    assert "cause: it is away" in result.stderr
