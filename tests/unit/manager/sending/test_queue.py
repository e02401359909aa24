"""What the manager sends goes when it may: by its limits, and work while there is room for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from neighbourskit import on_its_own_clock

from kestrelctl.cli.manager.send_limit_option import parse_send_limits
from kestrelctl.core.pacing.send_limit import Bucket, SendKind, SendLimit
from kestrelctl.errors import UsageError
from kestrelctl.manager.sending.outbox import Outbox
from kestrelctl.manager.sending.queue import (
    LOOK_SECONDS,
    MOST_BYTES,
    SHORTEST_PAUSE_SECONDS,
    SendQueue,
)

POOL, JOBS, FLOCK = "pool@p", "jobs@p", "flock@p"
POLL = '{"type":"read_properties"}'


class Connection:
    """Writes down what is sent, and when."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.sent: list[tuple[float, str, str]] = []
        self.taken = 0
        self.stopped = False

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        self.sent.append((self.loop.time() - self.began, str(sender), payload))

    send_body = send

    def when_taken(self, done: Callable[[], None]) -> None:
        self.taken += 1
        done()

    def backlog_bytes(self) -> int:
        return 7

    async def stop(self) -> None:
        self.stopped = True


def paced(**limits: SendLimit) -> tuple[SendQueue, Connection]:
    connection: Any = Connection()
    by_kind: Mapping[SendKind, SendLimit] = {SendKind(kind): n for kind, n in limits.items()}
    return SendQueue(connection, connection.loop.time, by_kind), connection


@on_its_own_clock
async def test_without_a_limit_of_its_kind_a_message_goes_at_once() -> None:
    session, connection = paced(answers=SendLimit(1.0))
    for n in range(100):
        session.send(str(n), "w", POOL)
    assert [text for _, _, text in connection.sent] == [str(n) for n in range(100)]


@on_its_own_clock
async def test_ten_messages_a_second_are_ten_in_each_second() -> None:
    session, connection = paced(all=SendLimit(10.0))
    for n in range(300):
        session.send(str(n), "w", POOL)
    await asyncio.sleep(40)
    assert [text for _, _, text in connection.sent] == [str(n) for n in range(300)]
    seconds = Counter(int(at) for at, _, _ in connection.sent)
    assert max(seconds.values()) <= 11
    # Each may go a millisecond late: the loop is not woken for less.
    assert 29.8 <= connection.sent[-1][0] <= 29.9 + 299 * SHORTEST_PAUSE_SECONDS + 0.01


@on_its_own_clock
async def test_bytes_are_limited_too_and_a_large_message_goes_whole() -> None:
    session, connection = paced(work=SendLimit(bytes_per_second=1000.0))
    for _ in range(5):
        session.send("x" * 5000, "w", POOL)
    await asyncio.sleep(60)
    times = [at for at, _, _ in connection.sent]
    assert times[0] == 0
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([4.9, 5, 5, 5], abs=0.01)


@on_its_own_clock
async def test_after_a_rest_no_more_than_a_tenth_of_a_second_goes_at_once() -> None:
    session, connection = paced(all=SendLimit(100.0))
    await asyncio.sleep(3600)
    for n in range(50):
        session.send(str(n), "w", POOL)
    assert len(connection.sent) == 10


@on_its_own_clock
async def test_work_goes_before_what_has_waited_longer() -> None:
    session, connection = paced(all=SendLimit(10.0))
    for n in range(5):
        session.send(f"answer {n}", "u", JOBS)
        session.send(f"flock {n}", "p", FLOCK)
    session.send("work", "w", POOL)
    assert session.waiting() == {"work": 1, "flock": 5, "answers": 4, "polls": 0}
    await asyncio.sleep(5)
    order = [text.split()[0] for _, _, text in connection.sent]
    assert order == ["answer", "work", *["flock"] * 5, *["answer"] * 4]


@on_its_own_clock
async def test_a_kind_at_its_limit_holds_no_other_back() -> None:
    session, connection = paced(answers=SendLimit(1.0))
    for n in range(10):
        session.send(f"answer {n}", "u", JOBS)
    session.send("work", "w", POOL)
    assert [text for _, _, text in connection.sent] == ["answer 0", "work"]


@on_its_own_clock
async def test_what_waits_holds_back_the_outbox() -> None:
    session, _ = paced(answers=SendLimit(1.0))
    for _ in range(3):
        session.send("x" * 100, "u", JOBS)
    assert session.backlog_bytes() == 7 + 200


@on_its_own_clock
async def test_what_waits_when_the_connection_is_lost_is_never_sent() -> None:
    """A worker that says hello again is told anew what is true then."""
    session, connection = paced(work=SendLimit(1.0), answers=SendLimit(1.0))
    for n in range(5):
        session.send(str(n), "w", POOL)
        session.send(f"answer {n}", "u", JOBS)
    session.forget_waiting()
    assert session.backlog_bytes() == connection.backlog_bytes()
    session.send("new", "w", POOL)
    await asyncio.sleep(10)
    assert [text for _, _, text in connection.sent] == ["0", "answer 0", "new"]


@on_its_own_clock
async def test_what_was_sent_counts_as_taken_only_after_it_went() -> None:
    session, connection = paced(answers=SendLimit(1.0))
    done: list[int] = []
    session.when_taken(lambda: done.append(0))
    session.send("first", "u", JOBS)
    session.send("second", "u", JOBS)
    session.when_taken(lambda: done.append(len(connection.sent)))
    await asyncio.sleep(3)
    assert done == [0, 2]


@on_its_own_clock
async def test_at_the_end_all_that_waits_is_sent() -> None:
    session, connection = paced(work=SendLimit(1.0))
    for n in range(3):
        session.send(str(n), "w", POOL)
    await session.stop()
    assert len(connection.sent) == 3
    assert connection.stopped


def test_what_is_left_never_grows_beyond_a_burst() -> None:
    bucket = Bucket(SendLimit(100.0, 1000.0))
    for _ in range(10):
        assert bucket.pause_seconds(5.0) == 0
        bucket.take(1, 5.0)
    assert bucket.pause_seconds(5.0) == pytest.approx(0.01)
    assert bucket.pause_seconds(1e9) == 0


def test_limits_are_written_with_messages_and_sizes() -> None:
    assert parse_send_limits(("all=10", "work=100,1M", "answers=,200K")) == {
        SendKind.ALL: SendLimit(10.0),
        SendKind.WORK: SendLimit(100.0, 1024.0 * 1024.0),
        SendKind.ANSWERS: SendLimit(bytes_per_second=200.0 * 1024.0),
    }


@pytest.mark.parametrize(
    "text", ["", "all", "all=", "all=,", "all=0", "all=-1", "all=nan", "all=1,0", "none=1", "all=x"]
)
def test_what_is_no_limit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_send_limits((text,))
    assert "all=10" in str(refused.value.hint)


@on_its_own_clock
async def test_what_comes_later_goes_later() -> None:
    """Also if the loop was busy, and has not looked at what may go by now."""
    session, connection = paced(work=SendLimit(10.0))
    session.send("first", "w", POOL)
    session.send("second", "w", POOL)
    loop: Any = asyncio.get_running_loop()
    loop.moment += 1.0
    session.send("third", "w", POOL)
    await asyncio.sleep(1)
    assert [text for _, _, text in connection.sent] == ["first", "second", "third"]


@on_its_own_clock
async def test_polls_of_one_that_has_gone_do_not_wait() -> None:
    session, connection = paced(polls=SendLimit(10.0))
    for number in range(20):
        session.send(POLL, f"w{number}@workers.pool/a", POOL)
    waiting = session.waiting()["polls"]
    assert waiting > 5
    session.forget_polls("w19@workers.pool/a")
    assert session.waiting()["polls"] == waiting - 1
    session.send(POLL, "w19@workers.pool/a", POOL)
    assert session.waiting()["polls"] == waiting
    for number in range(20):
        session.forget_polls(f"w{number}@workers.pool/a")
    assert session.waiting()["polls"] == 0
    assert session.backlog_bytes() == connection.backlog_bytes()


@on_its_own_clock
async def test_polls_have_a_line_of_their_own_in_which_each_waits_once() -> None:
    session, connection = paced(polls=SendLimit(10.0))
    other = '{"type":"read_properties","names":["load"]}'
    for _ in range(6):
        for n in range(300):
            session.send(POLL, f"w{n}", POOL)
        assert session.waiting()["polls"] <= 300
        await asyncio.sleep(10)
    session.send(other, "w0", POOL)
    session.send("work", "w0", POOL)
    assert connection.sent[-1][2] == "work", "work does not wait for polls"
    await asyncio.sleep(60)
    polls = [at for at, _, text in connection.sent if text != "work"]
    assert session.waiting()["polls"] == 0
    assert max(Counter(int(at) for at in polls[1:]).values()) <= 11
    assert 60 * 10 <= len(polls) <= 60 * 10 + 301
    assert other in [text for _, _, text in connection.sent]


# -- room in the connection ------------------------------------------------------------------------

#: As of a task with large arguments.
WORK = "x" * 100_000
FIT = MOST_BYTES // len(WORK) + 1


class SlowConnection:
    """A connection that holds what it is given until the server deals with it."""

    online = True
    refused = None
    link = "connected"

    def __init__(self) -> None:
        self.sent: list[tuple[str | None, str]] = []
        self.held_bytes = 0

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        self.sent.append((sender, to))
        self.held_bytes += len(payload)

    send_body = send

    def backlog_bytes(self) -> int:
        return self.held_bytes

    def when_taken(self, done: Callable[[], None]) -> None:
        done()


def behind_it() -> tuple[SendQueue, SlowConnection]:
    connection: Any = SlowConnection()
    return SendQueue(connection, asyncio.get_running_loop().time), connection


def hand_out(session: SendQueue, workers: int) -> None:
    for number in range(workers):
        session.send(WORK, f"w{number}", POOL)


@on_its_own_clock
async def test_an_answer_waits_for_little_work_however_much_is_handed_out() -> None:
    session, connection = behind_it()
    hand_out(session, 900)
    assert connection.held_bytes <= MOST_BYTES + len(WORK)
    session.send("answer", "ada", JOBS)
    assert connection.sent[-1] == (JOBS, "ada")
    assert len(connection.sent) == FIT + 1


@on_its_own_clock
async def test_work_goes_on_in_its_order_as_the_server_deals_with_it() -> None:
    session, connection = behind_it()
    hand_out(session, 50)
    session.send_body("kill", "w0", POOL)
    for _ in range(60):
        connection.held_bytes = max(0, connection.held_bytes - len(WORK))
        session.send("later", "w49", POOL)
        await asyncio.sleep(LOOK_SECONDS * 1.5)
    order = [to for _, to in connection.sent]
    assert order == [*(f"w{number}" for number in range(50)), "w0", *["w49"] * 60]


@on_its_own_clock
async def test_the_outbox_sees_what_is_before_answers_and_not_the_work_that_waits() -> None:
    session, connection = behind_it()
    outbox = Outbox(lambda: session, JOBS, lambda: None)
    hand_out(session, 900)
    connection.held_bytes = 0
    assert session.backlog_bytes() == 0
    outbox.put("ada", "answer", typed=False)
    assert connection.sent[-1] == (JOBS, "ada")


@on_its_own_clock
async def test_work_that_waits_when_the_connection_is_lost_is_never_sent() -> None:
    session, connection = behind_it()
    hand_out(session, 50)
    session.forget_waiting()
    connection.held_bytes = 0
    session.send("hello again", "w0", POOL)
    await asyncio.sleep(1)
    assert len(connection.sent) == FIT + 1


@on_its_own_clock
async def test_a_mark_behind_an_answer_waits_for_no_work_that_waits() -> None:
    session, _ = behind_it()
    hand_out(session, 900)
    session.send("answer", "ada", JOBS)
    done: list[str] = []
    session.when_taken(lambda: done.append("taken"))
    assert done == ["taken"]
