"""What the manager makes of what it hears: which event, or none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kestrelctl.core import events as ev
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.manager.access import Access
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.chat.profile_workers import ProfileWorkers
from kestrelctl.manager.listener import GONE, ManagerListener
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.other_pools import NoOtherPools
from kestrelctl.manager.sending.outbox import Outbox
from kestrelctl.manager.sending.turns import USER_LINES, Turns
from kestrelctl.metrics.stanzas import StanzaCounts
from kestrelctl.protocol import answers, codec, directions, requests, workers

POOL, JOBS = "pool@pool", "jobs@pool"
WORKER, USER = "w1@workers.pool/1", "ada@users.pool/1"


class Told:
    """A manager's ears, with doubles behind them.

    Attributes:
        events: what the core is told.
        sent: (text, to) of what is sent to users.
        replies: what is to be answered to whatever is asked.
        out_of_reach: from where the flock has messages back.
    """

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.sent: list[tuple[str, str]] = []
        self.replies: list[answers.Reply] = []
        self.out_of_reach: list[str] = []
        others = NoOtherPools()
        others.on_bounce = lambda sender, _: self.out_of_reach.append(sender)  # type: ignore[method-assign]
        service = SimpleNamespace(
            now=lambda: 1000.0,
            handle=self.events.append,
            stanzas=StanzaCounts(),
            domain="pool",
            is_contested=False,
            listen=lambda kind, listener: None,
            profiles=ProfileWorkers(
                lambda *_: None, lambda *_: None, lambda _: Claim({}), lambda: 1000.0
            ),
        )
        nobody = SimpleNamespace(revoked_by=lambda worker: "")
        session = SimpleNamespace(
            send=lambda text, to, sender: self.sent.append((text, to)), backlog_bytes=lambda: 0
        )
        outbox = Outbox(lambda: session, JOBS, lambda: None)  # type: ignore[arg-type, return-value]
        dispatcher = SimpleNamespace(
            enrollment=nobody,
            serve=self._serve,
            outbox=outbox,
            turns=Turns(service.now, USER_LINES),
            forget=lambda jid: 0,
        )
        options = ManagerOptions(domain="pool", secret_file=Path("s"), data_dir=Path("d"))
        parts: list[Any] = [service, dispatcher, Access(options), "pool", others]
        self.manager = ManagerListener(*parts)
        self.manager.session = session  # type: ignore[assignment]

    def _serve(self, caller: Caller, request: requests.Request) -> None:
        for reply in self.replies:
            caller.reply(reply)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.mark.parametrize("condition", GONE)
def test_a_message_that_finds_nobody_means_that_the_worker_is_gone(
    told: Told, condition: str
) -> None:
    told.manager.on_bounce(WORKER, condition)
    assert told.events == [ev.Bounced(at=1000.0, cause=WORKER, worker=WORKER)]


@pytest.mark.parametrize("condition", ["resource-constraint", "policy-violation", "not-acceptable"])
def test_one_that_was_refused_does_not(told: Told, condition: str) -> None:
    told.manager.on_bounce(WORKER, condition)
    assert told.events == []


@pytest.mark.parametrize("account", ["flock@near.example", "pool@near.example"])
def test_a_message_that_does_not_reach_a_pool_comes_back_to_the_flock(
    told: Told, account: str
) -> None:
    told.manager.on_bounce(account, GONE[-1])
    assert told.out_of_reach == [account]


@pytest.mark.parametrize("account", [WORKER, USER, "eve@elsewhere.example/1", "near.example", POOL])
def test_one_that_does_not_reach_a_worker_or_user_says_nothing_of_pools(
    told: Told, account: str
) -> None:
    told.manager.on_bounce(account, GONE[0])
    assert told.out_of_reach == []


async def test_only_a_worker_can_be_gone(told: Told) -> None:
    told.manager.on_bounce(USER, GONE[0])
    told.manager.on_presence(USER, POOL, "unavailable")
    told.manager.on_presence(WORKER, JOBS, "unavailable")
    told.manager.on_presence(WORKER, POOL, "available")
    assert told.events == []
    told.manager.on_presence(WORKER, POOL, "unavailable")
    assert told.events == [ev.Lost(at=1000.0, worker=WORKER, cause="unavailable")]


def test_a_hello_is_told_with_all_that_it_says(told: Told) -> None:
    hello = workers.Hello(
        version=workers.VERSION,
        incarnation="one",
        greeting=3,
        at=999.0,
        ad=WorkerAd(),
        holds=[(7, 1, 0, 0)],
        claims=[{"cpus": 500}],
    )
    told.manager.on_payload(WORKER, POOL, codec.encode(hello))
    [event] = told.events
    assert isinstance(event, ev.Joined)
    assert (event.worker, event.incarnation, event.greeting) == (WORKER, "one", 3)
    assert (event.said_at, event.holds, event.claims) == (999.0, hello.holds, hello.claims)


def test_an_answer_that_is_too_large_is_not_sent_but_told_of(told: Told) -> None:
    told.replies = [answers.Log(id="l", data=b"x" * codec.MAX_PAYLOAD_BYTES, size_bytes=1)]
    told.manager.on_payload(USER, JOBS, codec.encode(requests.PoolStatus(id="l")))
    [(text, to)] = told.sent
    assert to == USER
    answer = directions.answers.decode(text)
    assert isinstance(answer, answers.Failed)
    assert (answer.id, answer.code) == ("l", "usage")
