"""Who is told how the pool and its jobs are, and when."""

from __future__ import annotations

import pytest

from kestrelctl.core.pacing import presence
from kestrelctl.core.pacing.presence import PresenceTable, Shown, job_shown, pool_shown

ADA = "ada@users.pool/desk"
WAITING, RUNNING = Shown("away", "0 of 2 done"), Shown("chat", "0 of 2 done, 1 running")


def told(board: PresenceTable, shown: Shown, now: float = 10.0) -> list[str]:
    return [each.account for each in board.look(now, lambda contact, last: shown)]


def test_who_watches_is_told_of_a_change_and_once() -> None:
    board = PresenceTable()
    assert board.watch("job-1@pool", ADA, WAITING, 0.0)
    assert told(board, WAITING) == []
    assert told(board, RUNNING) == ["ada@users.pool"]
    assert told(board, RUNNING) == []


def test_who_is_away_is_told_nothing() -> None:
    board = PresenceTable()
    board.watch("jobs@pool", ADA, WAITING, 0.0)
    board.watch("jobs@pool", "ada@users.pool/phone", WAITING, 0.0)
    board.leave("jobs@pool", ADA)
    assert told(board, RUNNING) == ["ada@users.pool"]
    board.leave("jobs@pool", "ada@users.pool/phone")
    assert told(board, WAITING) == []
    assert len(board) == 0


def test_a_session_that_is_not_known_by_name_goes_with_the_first_that_is() -> None:
    board = PresenceTable()
    board.watch("jobs@pool", "ada@users.pool", WAITING, 0.0)
    board.watch("jobs@pool", ADA, WAITING, 0.0)
    board.leave("jobs@pool", ADA)
    assert len(board) == 0


def test_an_account_watches_so_many_and_no_more() -> None:
    board = PresenceTable()
    watched = [board.watch(f"job-{n}@pool", ADA, WAITING, 0.0) for n in range(1_000)]
    assert sum(watched) == presence.MOST_OF_ACCOUNT
    assert board.watch("job-1@pool", "bob@users.pool/desk", WAITING, 0.0)
    board.leave("job-1@pool", ADA)
    assert board.watch("job-2000@pool", ADA, WAITING, 0.0)


def test_all_together_watch_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "MOST_TOGETHER", 3)
    board = PresenceTable()
    found = [board.watch("jobs@pool", f"u{n}@users.pool/x", WAITING, 0.0) for n in range(5)]
    assert found == [True, True, True, False, False]
    assert len(board) == 3


def test_a_look_tells_so_many_and_the_others_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "MOST_TOLD", 2)
    board = PresenceTable()
    for number in range(3):
        board.watch("jobs@pool", f"u{number}@users.pool/x", WAITING, 0.0)
    assert told(board, RUNNING, 10.0) == ["u0@users.pool", "u1@users.pool"]
    assert told(board, WAITING, 13.0) == ["u0@users.pool", "u1@users.pool"]
    board.look(16.0, lambda contact, last: RUNNING)
    assert told(board, RUNNING, 19.0) == ["u1@users.pool"]


@pytest.mark.parametrize(
    ("state", "numbers", "shown"),
    [
        ("active", (9, 0, 0, 0, 0), Shown("away", "0 of 9 done")),
        ("active", (4, 5, 0, 0, 0), Shown("chat", "0 of 9 done, 5 running")),
        ("cancelling", (0, 1, 0, 0, 8), Shown("dnd", "0 of 9 done, 8 cancelled, 1 running")),
        ("cancelled", (0, 0, 0, 0, 9), Shown("dnd", "0 of 9 done, 9 cancelled", final=True)),
        ("failed", (0, 0, 7, 2, 0), Shown("xa", "7 of 9 done, 2 failed", final=True)),
        ("done", (0, 0, 9, 0, 0), Shown("xa", "9 of 9 done", final=True)),
    ],
)
def test_a_job_shows_itself(
    state: str, numbers: tuple[int, int, int, int, int], shown: Shown
) -> None:
    waiting, running, done, bad, cancelled = numbers
    assert shown == job_shown(
        state, 9, waiting=waiting, running=running, done=done, bad=bad, cancelled=cancelled
    )


def test_the_pool_shows_itself() -> None:
    assert pool_shown(40, 12, 1203) == Shown("", "12 of 40 workers busy; 1,203 tasks waiting")
    assert pool_shown(0, 0, 1) == Shown("away", "no workers; 1 task waiting")
    assert pool_shown(4, 0, 0, "no space") == Shown("dnd", "no space")
