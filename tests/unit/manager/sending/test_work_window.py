"""Only so much work waits in the manager's connection, and answers overtake the rest."""

from __future__ import annotations

import asyncio
from typing import Any

from neighbourskit import on_its_own_clock

from kestrelctl.manager.sending.outbox import Outbox
from kestrelctl.manager.sending.paced_session import PacedSession
from kestrelctl.manager.sending.work_window import LOOK_SECONDS, MOST_BYTES, WorkWindow

POOL, JOBS = "pool@p", "jobs@p"
#: As of a task with large arguments.
WORK = "x" * 100_000
FIT = MOST_BYTES // len(WORK) + 1


class Connection:
    """A connection that holds what it is given until the server deals with it."""

    online = True
    refused = None
    link = "connected"

    def __init__(self) -> None:
        self.sent: list[tuple[str | None, str]] = []
        self.held_bytes = 0
        self.stopped = False

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        self.sent.append((sender, to))
        self.held_bytes += len(payload)

    send_body = send

    def backlog_bytes(self) -> int:
        return self.held_bytes

    async def stop(self) -> None:
        self.stopped = True


def window() -> tuple[WorkWindow, Connection]:
    connection: Any = Connection()
    return WorkWindow(connection, POOL), connection


def hand_out(session: WorkWindow | PacedSession, workers: int) -> None:
    for number in range(workers):
        session.send(WORK, f"w{number}", POOL)


@on_its_own_clock
async def test_an_answer_waits_for_little_work_however_much_is_handed_out() -> None:
    session, connection = window()
    hand_out(session, 900)
    assert connection.held_bytes <= MOST_BYTES + len(WORK)
    session.send("answer", "ada", JOBS)
    assert connection.sent[-1] == (JOBS, "ada")
    assert len(connection.sent) == FIT + 1


@on_its_own_clock
async def test_work_goes_on_in_its_order_as_the_server_deals_with_it() -> None:
    session, connection = window()
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
    session, connection = window()
    outbox = Outbox(lambda: session, JOBS, lambda: None)
    hand_out(session, 900)
    connection.held_bytes = 0
    assert session.backlog_bytes() == 0
    outbox.put("ada", "answer", typed=False)
    assert connection.sent[-1] == (JOBS, "ada")


@on_its_own_clock
async def test_work_that_waits_when_the_connection_is_lost_is_never_sent() -> None:
    session, connection = window()
    hand_out(session, 50)
    session.forget_waiting()
    connection.held_bytes = 0
    session.send("hello again", "w0", POOL)
    await asyncio.sleep(1)
    assert len(connection.sent) == FIT + 1


@on_its_own_clock
async def test_at_the_end_all_work_that_waits_is_sent() -> None:
    session, connection = window()
    hand_out(session, 50)
    await session.stop()
    assert len(connection.sent) == 50
    assert connection.stopped


@on_its_own_clock
async def test_a_pool_with_limits_on_what_it_sends_holds_work_back_as_well() -> None:
    inner, connection = window()
    session = PacedSession(inner, {}, asyncio.get_running_loop().time)
    hand_out(session, 900)
    assert len(connection.sent) == FIT
