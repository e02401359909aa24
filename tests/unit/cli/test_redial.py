"""A request whose answer is lost: what is sent again, over which connection, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.cli import redial
from kestrelctl.client import upload
from kestrelctl.errors import (
    KestrelError,
    NotFound,
    StoreFull,
    TimedOut,
    Undelivered,
    Unreachable,
    UsageError,
)
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

LOST = Unreachable("the connection to the pool was lost")
SILENT = TimedOut("the pool did not answer within 30 s")
AWAY = Undelivered("the manager does not answer")
CHANGED = an.Changed(id="", what=["7"])


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redial, "PAUSES_SECONDS", (0.0, 0.0, 0.0))


def in_turn(*answers: an.AnyAnswer | KestrelError) -> Callable[[Any], an.AnyAnswer]:
    """Answers one after the other, the last one for ever."""
    left = list(answers)

    def answer(_request: rq.AnyRequest) -> an.AnyAnswer:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, KestrelError):
            raise found
        return found

    return answer


def submissions(pool: FakePool) -> list[rq.SubmitJob]:
    return [request for request in pool.asked if isinstance(request, rq.SubmitJob)]


# -- submissions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [LOST, SILENT])
def test_a_submission_without_an_answer_is_sent_again_over_a_fresh_connection(
    lost: KestrelError,
) -> None:
    known = an.Submitted(id="", job_id=7, tasks=1, repeated=True)
    pool = FakePool(SubmitJob=in_turn(lost, AWAY, known))
    result = run(pool, "submit", "--", "x", briefly=False)
    assert result.exit_code == 0
    assert result.stdout == "job 7: 1 task\n"
    assert f"warning: no answer came: {lost.message}\nhint: it is sent again" in result.stderr
    assert "job 7 is there already" in result.stderr
    assert len(pool.opened) == 3
    [key] = {request.key for request in submissions(pool)}
    assert key


def test_why_no_answer_came_and_what_helps_is_told_each_time() -> None:
    away = Unreachable("the file share is away", cause="broken pipe", hint="is there room?")
    result = run(FakePool(SubmitJob=in_turn(away)), "submit", "--", "x")
    assert result.exit_code == away.exit_status
    warning = "warning: no answer came: the file share is away\ncause: broken pipe\nhint: it is"
    assert result.stderr.count(warning) == len(redial.PAUSES_SECONDS)
    hints = [line for line in result.stderr.splitlines() if line.startswith("hint: ")]
    assert len(hints) == len(redial.PAUSES_SECONDS) + 1
    assert all(line.endswith("; is there room?") for line in hints)


def test_each_submission_has_a_key_of_its_own() -> None:
    pool = FakePool()
    run(pool, "submit", "--", "x")
    run(pool, "submit", "--", "x")
    assert len({request.key for request in submissions(pool)}) == 2


def test_a_script_may_give_a_key() -> None:
    pool = FakePool()
    assert run(pool, "submit", "--key", "nightly 2026-11-22", "--", "x").exit_code == 0
    assert pool.last(rq.SubmitJob).key == "nightly 2026-11-22"


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_that_is_none_is_refused_before_anything_is_sent(key: str) -> None:
    """A script whose variable is empty must not submit anew each time."""
    pool = FakePool()
    result = run(pool, "submit", "--key", key, "--", "x")
    assert result.exit_code == 2
    assert not pool.asked


def test_trying_again_has_an_end_and_leaves_the_key() -> None:
    pool = FakePool(SubmitJob=SILENT)
    result = run(pool, "submit", "--key", "my key", "--", "x")
    assert result.exit_code == 6
    assert len(submissions(pool)) == 1 + len(redial.PAUSES_SECONDS)
    assert "cause: it may have been done all the same" in result.stderr
    assert "hint: the same command with --key 'my key'" in result.stderr


def test_a_full_disk_leaves_the_key_too() -> None:
    """The manager tries to store what it has until it can: it may become a job later."""
    pool = FakePool(SubmitJob=StoreFull("the manager cannot store this now"))
    result = run(pool, "submit", "--key", "k", "--", "x")
    assert result.exit_code == 8
    assert "hint: free space there; the same command with --key k" in result.stderr
    assert len(submissions(pool)) == 1


def test_nothing_is_sent_again_that_surely_did_not_arrive() -> None:
    pool = FakePool(SubmitJob=AWAY)
    result = run(pool, "submit", "--", "x")
    assert result.exit_code == 5
    assert "may have been" not in result.stderr
    assert len(submissions(pool)) == 1


def test_a_refusal_is_no_reason_to_send_again() -> None:
    pool = FakePool(SubmitJob=in_turn(LOST, UsageError("the key belongs to job 3")))
    result = run(pool, "submit", "--key", "k", "--", "x", briefly=False)
    assert result.exit_code == 2
    assert len(submissions(pool)) == 2


def test_items_that_were_sent_ahead_are_sent_again_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session that they belonged to is gone."""
    monkeypatch.setattr(upload, "INLINE_BYTES", 10)
    (tmp_path / "names").write_text("one\ntwo\nthree\n")
    held = an.Changed(id="", what=["u"], tasks=3)
    answered = an.Submitted(id="", job_id=7, tasks=3)
    pool = FakePool(UploadItems=in_turn(LOST, held), SubmitJob=in_turn(LOST, answered))
    result = run(pool, "submit", "--each-line", str(tmp_path / "names"), "--", "x", "{}")
    assert result.exit_code == 0
    uploads = [request for request in pool.asked if isinstance(request, rq.UploadItems)]
    assert [upload.lines for upload in uploads] == [["one", "two", "three"]] * 3
    assert len({upload.upload for upload in uploads}) == 3
    assert [request.upload for request in submissions(pool)] == [
        upload.upload for upload in uploads[1:]
    ]


# -- other changes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind", "sent"),
    [
        ("job cancel 7", rq.CancelJobs, 2),
        ("job cancel last", rq.CancelJobs, 1),
        ("job cancel all", rq.CancelJobs, 1),
        ("job hold 7", rq.HoldJobs, 2),
        ("job hold all", rq.HoldJobs, 1),
        ("job release 7", rq.ReleaseJobs, 2),
        ("job release --name n*", rq.ReleaseJobs, 1),
        ("job forget 3,5-9", rq.ForgetJobs, 2),
        ("job forget last", rq.ForgetJobs, 1),
        ("job retry 7", rq.RetryJobs, 1),
        ("worker drain w1", rq.DrainWorkers, 2),
        ("worker resume w1", rq.ResumeWorkers, 2),
        ("worker revoke w1", rq.RevokeWorkers, 1),
    ],
)
def test_what_is_safe_is_sent_again_and_nothing_else(line: str, kind: type, sent: int) -> None:
    pool = FakePool(**{kind.__name__: in_turn(LOST, CHANGED)})
    result = run(pool, *line.split())
    assert pool.count(kind) == len(pool.opened) == sent
    assert result.exit_code == (0 if sent > 1 else 5)
    assert ("may have been done all the same" in result.stderr) == (sent == 1)


def test_a_second_try_that_finds_nothing_says_why() -> None:
    pool = FakePool(ForgetJobs=in_turn(LOST, NotFound("there is no job 7")))
    result = run(pool, "job", "forget", "7")
    assert result.exit_code == 7
    assert "cause: an earlier try, whose answer was lost, may have done it" in result.stderr
