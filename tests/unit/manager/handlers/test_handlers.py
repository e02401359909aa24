"""Handlers are told of events: each in its own line, some at once, again if need be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from managerkit import FarStore, PlayedManager, settled
from neighbourskit import on_its_own_clock
from storekit import QuickStore

from kestrelctl.core import events as ev
from kestrelctl.core.membership.handler_definition import read_handlers
from kestrelctl.core.membership.handler_words import ToldEvent, variables
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import Unreachable, UsageError
from kestrelctl.manager.handlers import service
from kestrelctl.manager.handlers.channels import HandlerFailed
from kestrelctl.manager.handlers.files import read_all_handlers
from kestrelctl.manager.handlers.letter import MOST_LINES, event_letter
from kestrelctl.manager.handlers.service import (
    AGAIN_SECONDS,
    GATHER_SECONDS,
    MOST_TRIES,
    HandlerService,
)

W1 = "w1@workers.pool/a"
LINES = """
[all]
on = *
run = /bin/true

[bad]
on = failed, leave
run = /bin/true
"""


class Way:
    """Takes what it is told, or fails."""

    def __init__(self, together: int = 1) -> None:
        self.together = together
        self.told: list[list[int]] = []
        self.events: list[ToldEvent] = []
        self.failures: list[Exception] = []
        self.takes_seconds = 0.0

    async def tell(self, told: Sequence[ToldEvent]) -> None:
        await asyncio.sleep(self.takes_seconds)
        if self.failures:
            raise self.failures.pop(0)
        self.told.append([each.number for each in told])
        self.events += told


def event(number: int, **more: Any) -> ToldEvent:
    return ToldEvent(
        pool="pool", handler="h", number=number, at=5.0, event="failed", worker=W1, **more
    )


class Line:
    """The only handler of a manager, and its way."""

    def __init__(self, store: QuickStore | FarStore, way: Way) -> None:
        self.played = PlayedManager(Path(), store=store)
        one = read_handlers("[h]\non = *\nrun = /bin/true\n", "handlers.ini")
        self.desk = HandlerService(self.played.service, one, {"h": way})
        self.line = self.desk.lines["h"]

    async def hears(self, *numbers: int) -> None:
        for number in numbers:
            self.desk.put(event(number))
        await settled()

    async def runs(self, seconds: float) -> None:
        task = asyncio.ensure_future(self.desk.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await settled()


@on_its_own_clock
async def test_one_is_told_after_the_other_and_together_what_goes_together(
    quick_store: QuickStore,
) -> None:
    one, all_ = Way(), Way(together=100)
    for way in (one, all_):
        line = Line(quick_store, way)
        await line.hears(1, 2, 3)
        await line.runs(2 * GATHER_SECONDS)
    assert one.told == [[1], [2], [3]]
    assert all_.told == [[1, 2, 3]]


@on_its_own_clock
async def test_one_that_comes_and_goes_fills_no_mailbox(quick_store: QuickStore) -> None:
    way = Way(together=10_000)
    line = Line(quick_store, way)
    running = asyncio.ensure_future(line.desk.run())
    for number in range(600):
        await line.hears(number)
        await asyncio.sleep(1.0)
    assert [len(each) for each in way.told] == [5, *[60] * 9], "five seconds, then each minute"
    await asyncio.sleep(3_600.0)
    told = len(way.told)
    await line.hears(600)
    await asyncio.sleep(GATHER_SECONDS + 1.0)
    assert way.told[told:] == [[600]], "after a pause it is told soon again"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@on_its_own_clock
async def test_what_may_succeed_later_is_tried_again_and_the_rest_is_dropped(
    quick_store: QuickStore,
) -> None:
    way = Way()
    way.failures = [HandlerFailed("away", again=True)] * 2 + [HandlerFailed("no", again=False)]
    line = Line(quick_store, way)
    await line.hears(1, 2)
    await line.runs(10 * AGAIN_SECONDS)
    assert way.told == [[2]], "the third try was the last one of the first"
    assert (line.line.done, line.line.failed, line.line.dropped) == (1, 3, 1)


@on_its_own_clock
async def test_a_slip_ends_nothing_and_nothing_is_tried_for_ever(quick_store: QuickStore) -> None:
    way = Way()
    way.failures = [ValueError("a slip"), *[HandlerFailed("away", again=True)] * MOST_TRIES]
    line = Line(quick_store, way)
    await line.hears(1, 2, 3)
    await line.runs(86_400.0)
    assert way.told == [[3]]
    assert line.line.dropped == 2


@on_its_own_clock
async def test_of_too_many_the_oldest_are_dropped(quick_store: QuickStore) -> None:
    way = Way()
    way.takes_seconds = 1.0
    line = Line(quick_store, way)
    await line.hears(*range(service.MOST_WAITING + 2))
    await line.runs(1.5)
    assert way.told == [[2]]
    assert line.line.dropped == 2


@on_its_own_clock
async def test_what_waits_is_told_by_the_next_manager_and_what_was_told_is_not(
    quick_store: QuickStore,
) -> None:
    way = Way()
    way.failures = [HandlerFailed("away", again=True)] * MOST_TRIES
    first = Line(quick_store, way)
    await first.hears(1)
    await first.runs(1.0)
    await first.hears(2)
    way.failures = []
    second = Line(quick_store, way)
    await second.runs(1.0)
    assert way.told == [[1], [2]]
    third = Line(quick_store, way)
    await third.hears(3)
    await third.runs(1.0)
    assert way.told == [[1], [2], [3]]


@on_its_own_clock
async def test_nothing_is_told_before_it_is_durable_and_all_of_it_after(
    quick_store: QuickStore,
) -> None:
    way = Way()
    line = Line(quick_store, way)
    quick_store.full = True
    await line.hears(1, 2)
    await line.runs(10.0)
    assert way.told == []
    quick_store.full = False
    await line.runs(10.0)
    assert way.told == [[1], [2]]


@on_its_own_clock
async def test_one_that_is_gone_for_a_while_begins_anew(quick_store: QuickStore) -> None:
    way = Way()
    first = Line(quick_store, way)
    await first.hears(1)
    other = read_handlers(LINES, "handlers.ini")
    between = PlayedManager(Path(), store=quick_store)
    HandlerService(between.service, other, {"all": Way(), "bad": Way()})
    await settled()
    back = Line(quick_store, way)
    await back.runs(1.0)
    assert way.told == []


class Pool:
    """A manager with two handlers."""

    def __init__(self, store: QuickStore) -> None:
        self.played = PlayedManager(Path(), store=store)
        self.ways = {"all": Way(), "bad": Way()}
        self.desk = HandlerService(
            self.played.service, read_handlers(LINES, "handlers.ini"), self.ways
        )

    async def happens(self, kind: type[Any], **fields: Any) -> None:
        self.played.service.handle(kind(at=self.played.now, worker=W1, **fields))
        await settled()


async def test_each_is_told_what_it_asks_for_and_a_slow_one_delays_nothing_but_itself(
    quick_store: QuickStore,
) -> None:
    pool = Pool(quick_store)
    pool.ways["bad"].takes_seconds = 3600.0
    running = asyncio.ensure_future(pool.desk.run())
    ad = WorkerAd(tags=("gpu",), host="crow", assets={"cpus": 4.0})
    await pool.happens(ev.Joined, incarnation="one", ad=ad, holds=[])
    await pool.happens(ev.Lost, cause="silent")
    await pool.happens(ev.Joined, incarnation="one", ad=ad, holds=[])
    assert [each.event for each in pool.ways["all"].events] == ["join", "failed", "join"]
    assert pool.ways["bad"].told == []
    join = pool.ways["all"].events[0]
    assert (join.pool, join.handler, join.worker) == ("pool", "all", W1)
    assert (join.host, join.tags, join.assets) == ("crow", ("gpu",), {"cpus": 4.0})
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_none_is_told_what_it_does_not_ask_for(quick_store: QuickStore) -> None:
    pool = Pool(quick_store)
    running = asyncio.ensure_future(pool.desk.run())
    await pool.happens(ev.Joined, incarnation="one", ad=WorkerAd(), holds=[])
    await pool.happens(ev.Lost, cause="silent")
    assert [each.event for each in pool.ways["bad"].events] == ["failed"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_variables_tell_the_same_and_hold_nothing_that_cannot_be_printed() -> None:
    told = event(7, reason="it\nfell\x1b[2J", groups=("a", "b"), host="crow", assets={"cpus": 0.5})
    assert variables(told) == {
        "KESTREL_POOL": "pool",
        "KESTREL_HANDLER": "h",
        "KESTREL_NUMBER": "7",
        "KESTREL_TIME": "5.000",
        "KESTREL_EVENT": "failed",
        "KESTREL_WORKER": W1,
        "KESTREL_GROUPS": "a,b",
        "KESTREL_REASON": "it fell [2J",
        "KESTREL_HOST": "crow",
        "KESTREL_TAGS": "",
        "KESTREL_CPUS": "0.5",
        "KESTREL_MEMORY": "0",
    }


def test_a_mail_has_a_line_for_each_event_and_is_the_same_when_sent_again() -> None:
    told = [event(1, host="crow", reason="it fell silent"), event(2)]
    letter = event_letter(told, pool="lab", sender="kestrel@pool", to="root@example.org", now=9.0)
    assert letter["Subject"] == "lab: 2 failed"
    assert letter["To"] == "root@example.org"
    assert letter.get_content().splitlines() == [
        f"1970-01-01 00:00:05Z failed {W1} on crow: it fell silent",
        f"1970-01-01 00:00:05Z failed {W1}",
        "",
        "all of them: kestrelctl --pool lab pool events",
    ]
    again = event_letter(told, pool="lab", sender="kestrel@pool", to="r@e", now=99.0)
    assert again["Message-ID"] == letter["Message-ID"]
    other = event_letter(told[1:], pool="lab", sender="kestrel@pool", to="r@e", now=9.0)
    assert other["Message-ID"] != letter["Message-ID"]
    assert other["Subject"] == "lab: failed w1"


def test_what_a_worker_says_makes_no_line_or_header_of_a_mail() -> None:
    told = [event(1, host="a\r\nBcc: x@y.z", reason="b\nc")]
    letter = event_letter(told, pool="lab", sender="kestrel@pool", to="root@example.org", now=9.0)
    assert len(letter.get_content().splitlines()) == 3
    events = [event(n) for n in range(MOST_LINES + 3)]
    many = event_letter(events, pool="lab", sender="k@p", to="r@e", now=9.0)
    assert "and 3 events more" in many.get_content()


def test_files_are_read_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one.ini", tmp_path / "two.ini"
    one.write_text(LINES)
    two.write_text("[mail]\non = failed\nmail = root@example.org\n")
    assert len(read_all_handlers([one, two], with_mail=True)) == 3
    with pytest.raises(UsageError, match="no server takes any"):
        read_all_handlers([two], with_mail=False)
    with pytest.raises(UsageError, match="all is defined twice"):
        read_all_handlers([one, one], with_mail=True)
    with pytest.raises(UsageError, match="cannot be read"):
        read_all_handlers([tmp_path / "none"], with_mail=True)


@on_its_own_clock
async def test_a_store_that_is_away_for_a_while_ends_no_handler(quick_store: QuickStore) -> None:
    way, store = Way(), FarStore(quick_store)
    line = Line(store, way)
    store.trouble = Unreachable("the database does not answer")
    running = asyncio.ensure_future(line.desk.run())
    await line.hears(1)
    await asyncio.sleep(3 * AGAIN_SECONDS)
    assert way.told == []
    store.trouble = None
    await asyncio.sleep(2 * AGAIN_SECONDS)
    assert way.told == [[1]]
    running.cancel()
