"""Whoever takes more than his share waits, and nobody else does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kestrelctl.core.pacing.budget import Budget
from kestrelctl.errors import Busy, UsageError
from kestrelctl.manager.requests import jobs as up
from kestrelctl.manager.requests import jobs as wt
from kestrelctl.manager.requests.jobs import Uploads, Watchers
from kestrelctl.manager.sending import outbox as ob
from kestrelctl.manager.sending import turns as tn
from kestrelctl.manager.sending.outbox import Outbox
from kestrelctl.manager.sending.turns import LineBounds, Turns

BOUNDS = LineBounds(most=10, most_bytes=1000, most_bytes_together=1500)


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


class Work:
    """What accounts want done, each piece of which takes some seconds of the manager's time."""

    def __init__(self, bounds: LineBounds = BOUNDS) -> None:
        self.clock = Clock()
        self.done: list[str] = []
        self.may_go_on: Callable[[str], bool] = lambda account: True
        self.turns = Turns(self.clock.now, bounds, lambda account: self.may_go_on(account))

    def want(self, account: str, seconds: float = 0.0, size: int = 1, session: str = "1") -> bool:
        def work() -> None:
            self.done.append(account)
            self.clock.at += seconds

        return self.turns.take(f"{account}/{session}", account, size, work)

    def begin(self, account: str, seconds: float = 0.0) -> asyncio.Event:
        """A request that ends when the event is set."""
        over = asyncio.Event()

        async def serve() -> None:
            self.done.append(account)
            self.clock.at += seconds
            await over.wait()

        self.turns.take(
            f"{account}/1", account, 1, lambda: self.turns.spawn(account, lambda: serve())
        )
        return over


async def turn(times: int = 1) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


# -- budgets ---------------------------------------------------------------------------------------


def test_what_was_spent_runs_off() -> None:
    budget = Budget(per_second=2.0, burst=4.0)
    budget.spend(6.0, 100.0)
    assert not budget.has_room(100.9)
    assert budget.has_room(101.1)
    assert not budget.is_untouched(102.9)
    assert budget.is_untouched(103.0)
    budget.spend(4.0, 50.0)  # a clock that was set back gives nothing
    assert not budget.has_room(50.0)


# -- turns -----------------------------------------------------------------------------------------


async def test_who_took_his_share_waits_and_others_do_not() -> None:
    work = Work()
    for _ in range(3):
        assert work.want("eve", tn.BURST_SECONDS)
    assert work.done == ["eve"]
    assert work.want("bob")
    assert work.done == ["eve", "bob"]
    await turn(4)
    assert work.done == ["eve", "bob", "eve", "eve"]


async def test_lines_take_turns() -> None:
    work = Work()
    for account in ("eve", "mallory"):
        for _ in range(4):
            work.want(account, tn.BURST_SECONDS)
    await turn(10)
    assert work.done[2:] == ["eve", "mallory"] * 3


async def test_what_arrives_meanwhile_goes_before_the_rest_of_a_line() -> None:
    work = Work()
    for _ in range(6):
        work.want("eve", tn.BURST_SECONDS)
    await turn(2)
    before = work.done.count("eve")
    assert before < 6
    work.want("bob")
    assert work.done[-1] == "bob"


async def test_after_a_rest_nobody_waits() -> None:
    work = Work()
    work.want("eve", tn.BURST_SECONDS)
    work.clock.at += tn.BURST_SECONDS / tn.SHARE
    work.want("eve")
    assert work.done == ["eve", "eve"]


async def test_what_an_account_sends_is_done_in_that_order() -> None:
    work = Work()
    done: list[int] = []
    work.want("eve", tn.BURST_SECONDS)
    for number in range(5):
        work.turns.take("eve/1", "eve", 1, lambda number=number: done.append(number))  # type: ignore[misc]
        work.clock.at += 0.2
    await turn(10)
    assert done == [0, 1, 2, 3, 4]


async def test_a_line_that_is_full_refuses() -> None:
    work = Work()
    work.want("eve", tn.BURST_SECONDS)
    assert [work.want("eve") for _ in range(BOUNDS.most + 1)] == [True] * BOUNDS.most + [False]
    assert not work.want("eve", size=BOUNDS.most_bytes)
    assert work.want("bob", tn.BURST_SECONDS)
    assert not work.want("bob", size=BOUNDS.most_bytes + 1)


async def test_when_all_room_is_taken_each_has_his_part() -> None:
    work = Work()
    accounts = ("eve", "mallory", "bob")
    for account in accounts:
        work.want(account, 1.0)
    assert work.want("eve", size=900)
    assert work.want("mallory", size=600)
    assert not work.want("mallory", size=300)
    assert work.want("bob", size=400)
    assert work.turns.waiting_bytes == 1900


async def test_a_request_is_charged_for_its_first_step() -> None:
    work = Work()
    work.begin("eve", tn.BURST_SECONDS)
    await turn(3)
    work.want("eve")
    assert work.done == ["eve"]
    await turn(2)
    assert work.done == ["eve", "eve"]


async def test_a_burst_of_requests_is_not_begun_before_the_first_has_its_price() -> None:
    work = Work()
    for _ in range(5):
        work.begin("eve", tn.BURST_SECONDS)
    await turn()
    assert work.done == ["eve"]
    work.want("bob")
    await turn(20)
    assert work.done == ["eve", "bob", *["eve"] * 4]


async def test_only_so_many_requests_of_an_account_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tn, "MOST_UNFINISHED", 2)
    work = Work()
    over = [work.begin("eve") for _ in range(3)]
    await turn(10)
    assert work.done == ["eve", "eve"]
    over[0].set()
    await turn(10)
    assert work.done == ["eve"] * 3


async def test_who_does_not_take_his_answers_gets_no_more() -> None:
    work = Work()
    work.may_go_on = lambda account: account != "eve"
    work.want("eve")
    work.want("bob")
    await turn(3)
    assert work.done == ["bob"]
    work.may_go_on = lambda account: True
    work.turns.go_on()
    await turn()
    assert work.done == ["bob", "eve"]


async def test_what_a_session_wanted_is_forgotten_with_it() -> None:
    work = Work()
    work.want("eve", tn.BURST_SECONDS)
    work.want("eve", size=100, session="gone")
    work.want("eve", size=10, session="1")
    assert work.turns.drop("eve/gone") == 1
    assert work.turns.waiting_bytes == 10
    await turn(3)
    assert work.done == ["eve", "eve"]
    assert work.turns.drop("nobody/1") == 0


async def test_work_that_fails_does_not_stop_the_lines() -> None:
    work = Work()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    work.want("eve", tn.BURST_SECONDS)
    work.turns.take("eve/1", "eve", 1, lambda: {}["no"])  # type: ignore[arg-type]
    work.want("eve")
    await turn(4)
    assert work.done == ["eve", "eve"]
    assert len(failures) == 1


async def test_accounts_that_are_quiet_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tn, "MANY_ACCOUNTS", 10)
    work = Work()
    for number in range(100):
        work.want(f"worker{number}", 0.01)
        work.clock.at += 1.0
    assert len(work.turns._accounts) <= 11


# -- answers ---------------------------------------------------------------------------------------


class Connection:
    """A connection that holds what it is given until it is drained."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.held = 0
        self.marks: list[Callable[[], None]] = []

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        self.sent.append((to, len(payload)))
        self.held += len(payload)

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        self.send(text, f"{to} from {sender}")

    def when_taken(self, done: Callable[[], None]) -> None:
        self.marks.append(done)

    def backlog_bytes(self) -> int:
        return self.held


class Answers:
    def __init__(self) -> None:
        self.connection = Connection()
        self.drained = 0
        self.outbox = Outbox(lambda: self.connection, "jobs@pool", self._on_drained)

    def _on_drained(self) -> None:
        self.drained += 1

    def put(self, jid: str, size: int) -> bool:
        return self.outbox.put(jid, "x" * size, typed=False)

    def look(self) -> None:
        """The connection has drained."""
        self.connection.held = 0
        self.outbox._look()

    def pass_a_mark(self) -> None:
        """The server has come as far as a mark; as much work as before it waits behind it."""
        self.connection.marks.pop(0)()


LARGE = 200_000


async def test_large_answers_are_written_as_fast_as_the_connection_drains() -> None:
    answers = Answers()
    for _ in range(8):
        assert answers.put("eve/1", LARGE)
    assert len(answers.connection.sent) == 2  # the second while there was room
    assert answers.connection.held < ob.ROOM_BYTES + LARGE
    answers.look()
    assert len(answers.connection.sent) == 4
    for _ in range(3):
        answers.look()
    assert answers.outbox.waiting_bytes() == 0
    assert answers.drained == 4


async def test_an_answer_that_waits_comes_from_the_address_that_was_asked() -> None:
    answers = Answers()
    answers.connection.held = ob.ROOM_BYTES
    assert answers.outbox.put("ada/1", "a", typed=True, sender="job-1@pool")
    assert answers.outbox.put("ada/1", "b", typed=True)
    assert answers.connection.sent == []
    answers.look()
    receivers = [to for to, _ in answers.connection.sent]
    assert receivers == ["ada/1 from job-1@pool", "ada/1 from jobs@pool"]


async def test_a_small_answer_goes_before_a_large_one() -> None:
    answers = Answers()
    for _ in range(4):
        answers.put("eve/1", LARGE)
    answers.put("bob/1", 100)
    answers.connection.held = 0
    answers.put("carol/1", 100)
    assert [to for to, _ in answers.connection.sent] == ["eve/1", "eve/1", "carol/1"]
    answers.look()
    assert answers.connection.sent[3][0] == "bob/1"


async def test_large_answers_take_turns_by_account() -> None:
    answers = Answers()
    for _ in range(6):
        answers.put("eve/1", LARGE)
    answers.put("bob/1", LARGE)
    answers.look()
    assert [to for to, _ in answers.connection.sent][2:] == ["eve/1", "bob/1"]


async def test_answers_wait_no_longer_than_for_the_work_before_them() -> None:
    """However much work follows it: a pool whose tasks are large hands out without a pause."""
    answers = Answers()
    answers.connection.held = 10 * ob.ROOM_BYTES
    answers.put("eve/1", LARGE)
    for name in ("bob", "carol"):
        answers.put(f"{name}/1", 100)
    answers.outbox._look()
    assert answers.connection.sent == []
    answers.pass_a_mark()
    assert [to for to, _ in answers.connection.sent] == ["bob/1", "carol/1", "eve/1"]
    assert answers.outbox.waiting_bytes() == 0


async def test_behind_work_only_a_few_answers_go_at_a_time() -> None:
    answers = Answers()
    answers.connection.held = 10 * ob.ROOM_BYTES
    for _ in range(4):
        answers.put("eve/1", LARGE)
        answers.put("bob/1", LARGE)
    for sent in range(1, 9):
        assert len(answers.connection.marks) == 1, "one mark for all that waits"
        answers.pass_a_mark()
        answers.outbox._look()
        assert len(answers.connection.sent) == sent
    assert [to for to, _ in answers.connection.sent] == ["eve/1", "bob/1"] * 4
    assert answers.connection.marks == []


async def test_a_mark_that_was_lost_with_the_connection_is_set_anew() -> None:
    answers = Answers()
    answers.connection.held = 10 * ob.ROOM_BYTES
    answers.put("eve/1", 100)
    answers.connection.marks.clear()
    answers.look()
    answers.connection.held = 10 * ob.ROOM_BYTES
    answers.put("eve/1", 100)
    answers.pass_a_mark()
    assert len(answers.connection.sent) == 2


async def test_who_takes_nothing_loses_his_answers_and_nobody_elses() -> None:
    answers = Answers()
    put = [answers.put("eve/1", LARGE) for _ in range(60)]
    assert put.count(False) == 60 - 2 - ob.MOST_BYTES // LARGE
    assert answers.outbox.waiting_bytes() <= ob.MOST_BYTES
    assert not answers.outbox.has_room("eve")
    assert answers.outbox.has_room("bob")
    assert answers.put("bob/1", LARGE)
    small = [answers.put("mallory/1", 10) for _ in range(2 * ob.MOST_ANSWERS)]
    assert small.count(True) == ob.MOST_ANSWERS


async def test_answers_to_a_session_that_left_are_dropped() -> None:
    answers = Answers()
    for session in ("1", "1", "1", "1", "2"):
        answers.put(f"eve/{session}", LARGE)
    assert answers.outbox.drop("eve/1") == 2
    assert answers.outbox.waiting_bytes() == LARGE
    assert answers.outbox.drop("eve/2") == 1
    assert answers.outbox.drop("eve/2") == 0
    assert answers.outbox.waiting_bytes() == 0


# -- uploads and watchers --------------------------------------------------------------------------


def test_uploads_of_one_account_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "MOST_BYTES", 1000)
    uploads = Uploads()
    uploads.add("eve@u/1", "a", ["x" * 600], 0.0)
    with pytest.raises(Busy):
        uploads.add("eve@u/2", "b", ["x" * 600], 0.0)
    uploads.add("bob@u/1", "a", ["x" * 600], 0.0)
    with pytest.raises(UsageError):
        uploads.add("eve@u/1", "a", ["x" * 600], 0.0)
    assert uploads.take("bob@u/1", "a") == ["x" * 600]
    assert uploads.bytes == 0


def test_their_number_is_bounded() -> None:
    uploads = Uploads()
    for number in range(up.MOST_UPLOADS):
        uploads.add("eve@u/1", f"{number}", [], 0.0)
    with pytest.raises(Busy):
        uploads.add("eve@u/1", "one more", [], 0.0)
    uploads.add("eve@u/1", "0", ["more of one that is there"], 0.0)


def test_an_upload_that_never_ends_is_dropped() -> None:
    uploads = Uploads()
    at = 0.0
    while at <= up.LONGEST_SECONDS:
        held = uploads.add("eve@u/1", "a", ["x"], at)
        at += 50.0
    assert held > 10
    assert uploads.add("eve@u/1", "a", ["x"], at) == 1


def test_whoever_holds_most_makes_room_for_a_newcomer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "MOST_BYTES_TOGETHER", 1000)
    uploads = Uploads()
    uploads.add("eve@u/1", "old", ["x" * 300], 0.0)
    uploads.add("eve@u/1", "new", ["x" * 300], 1.0)
    uploads.add("bob@u/1", "his", ["x" * 300], 2.0)
    uploads.add("carol@u/1", "hers", ["x" * 200], 3.0)
    for jid, name in (("eve@u/1", "new"), ("bob@u/1", "his"), ("carol@u/1", "hers")):
        assert uploads.take(jid, name)
    uploads.add("eve@u/1", "a", ["x" * 900], 4.0)
    with pytest.raises(Busy):
        uploads.add("eve@u/1", "b", ["x" * 300], 4.0)


class Watcher:
    def __init__(self, jid: str) -> None:
        self.jid = jid


def test_sessions_that_watch_a_job_are_bounded() -> None:
    watchers: Watchers[Watcher] = Watchers()
    watchers.add(7, Watcher("bob@u/1"), 0.0)
    for number in range(100):
        watchers.add(7, Watcher(f"eve@u/{number}"), 0.0)
    told = [watcher.jid for watcher in watchers.pop(7, 1.0)]
    assert len(told) == wt.MOST_SESSIONS + 1
    assert {"bob@u/1", "eve@u/99"} <= set(told)
