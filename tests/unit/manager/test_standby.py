"""A manager that shares its store: it opens it when it leads, and says nothing when it does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from neighbourskit import on_its_own_clock

from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.errors import AnotherLeads, SteppedBack
from kestrelctl.manager import standby
from kestrelctl.manager.standby import keep_leading, opened, serving_standby_metrics
from kestrelctl.metrics.readers import Readers


class Leadership:
    """One that is won as often as it is said to be.

    Attributes:
        problems: what it was told of this manager at each look.
    """

    def __init__(self) -> None:
        self.is_held = True
        self.is_lost = False
        self.won = asyncio.Semaphore(0)
        self.problems: list[str] = []
        self.seen: list[ManagerSeen] = []

    def managers(self) -> list[ManagerSeen]:
        return self.seen

    async def win(self, problem: Callable[[], str]) -> None:
        self.problems.append(problem())
        await self.won.acquire()


class Store:
    """A store that others take first, so many times."""

    def __init__(self, faster: int = 0) -> None:
        self.faster = faster

    def open(self) -> str:
        self.faster -= 1
        if self.faster >= 0:
            raise AnotherLeads("the manager on b leads this pool")
        return "snapshot"


@pytest.fixture
def leadership() -> Leadership:
    return Leadership()


@pytest.fixture
def server() -> Any:
    """A server that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found.getsockname()[:2]


async def test_the_store_is_opened_when_this_manager_leads(
    leadership: Leadership, server: tuple[str, int]
) -> None:
    store: Any = Store(faster=1)
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    opening = asyncio.create_task(opened(store, leadership, server, told))  # type: ignore[arg-type]
    leadership.won.release()
    await turns(lambda: len(leadership.problems) == 2 or opening.done())
    assert not opening.done(), "another one was faster"
    leadership.won.release()
    assert await opening == "snapshot"
    assert leadership.problems == ["", ""]


async def test_one_that_is_told_to_stop_opens_nothing(
    leadership: Leadership, server: tuple[str, int]
) -> None:
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    store: Any = Store()
    opening = asyncio.create_task(opened(store, leadership, server, told))  # type: ignore[arg-type]
    await turns(lambda: leadership.problems)
    told.set_result(None)
    assert await opening is None


async def test_a_server_that_cannot_be_reached_is_a_problem(leadership: Leadership) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        store: Any = Store()
        port = taken.getsockname()[1]
        leadership.won.release()
        await opened(store, leadership, ("127.0.0.1", port), told)  # type: ignore[arg-type]
    [problem] = leadership.problems
    assert problem.startswith(f"the XMPP server at 127.0.0.1:{port} cannot be reached")


async def turns(done: Callable[[], object], most: int = 10_000) -> None:
    """Lets the event loop turn until something is so, or so many times."""
    for _ in range(most):
        if done():
            return
        await asyncio.sleep(0)


class Session:
    """A connection of which it is noted that it fell silent."""

    is_silent = False
    online = True

    def fall_silent(self) -> None:
        self.is_silent = True


class Service:
    """A manager that may give up."""

    def __init__(self) -> None:
        self.broken: list[Exception] = []

    def give_up(self, error: Exception) -> None:
        self.broken.append(error)


async def test_one_that_does_not_lead_falls_silent_and_ends_when_another_does(
    leadership: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "LOOK_SECONDS", 0.0)
    service, session = Service(), Session()
    keeping = asyncio.create_task(keep_leading(leadership, service, session))  # type: ignore[arg-type]
    await turns(lambda: session.is_silent, most=10)
    assert not session.is_silent
    leadership.is_held = False
    await turns(lambda: session.is_silent)
    assert session.is_silent
    assert service.broken == [], "nobody else leads, as far as is known"
    leadership.is_lost = True
    await turns(keeping.done)
    [error] = service.broken
    await keeping
    assert isinstance(error, SteppedBack)


@on_its_own_clock
async def test_one_without_the_server_makes_room_for_one_that_has_it(
    leadership: Leadership,
) -> None:
    service, session = Service(), Session()
    keeping = asyncio.create_task(keep_leading(leadership, service, session))  # type: ignore[arg-type]
    session.online = False
    leadership.seen = [ManagerSeen(host="b", version="1", leads=False, problem="no server either")]
    await asyncio.sleep(10 * standby.OFFLINE_SECONDS)
    session.online = True
    await asyncio.sleep(standby.LOOK_SECONDS)
    leadership.seen = [ManagerSeen(host="b", version="1", leads=False)]
    session.online = False
    await asyncio.sleep(standby.OFFLINE_SECONDS - 2 * standby.LOOK_SECONDS)
    assert service.broken == [], "a server that restarts is waited for"
    await asyncio.sleep(3 * standby.LOOK_SECONDS)
    [error] = service.broken
    assert isinstance(error, SteppedBack)
    await keeping


async def test_a_store_of_one_machine_is_led_by_nobody() -> None:
    await keep_leading(None, Service(), Session())  # type: ignore[arg-type]


async def test_one_that_stands_by_says_so_to_whoever_watches() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    async with serving_standby_metrics(listening, Readers(())):
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        page = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
    assert "kestrel_leads 0.0" in page
    listening.getsockname()  # the one that leads goes on with it
    listening.close()
    async with serving_standby_metrics(None, Readers(())):
        pass
