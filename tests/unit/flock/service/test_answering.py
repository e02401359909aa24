"""What users are answered about the flock, and what of it is durable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from answered_flock_twin import AnsweredFlockTwin
from managerkit import PlayedManager, settled

from kestrelctl.core.effects import SettingChanged
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import StoreFull
from kestrelctl.flock.service.answered_flock import AnsweredFlock
from kestrelctl.flock.service.flock_answering import MOST_LOANS, FlockAnswering
from kestrelctl.flock.service.kept_flock import FRESH_SECONDS, KeptFlock
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import NeighbourAnswer
from kestrelctl.protocol.views import FlockView, LoanView, NeighbourView

ADA, ROOT = "ada@users.pool/x", "root@users.pool/x"
EVE = FlockRule(name="eve", direction="lend", action="deny", users=("eve",))
Flock = tuple[PlayedManager, AnsweredFlockTwin]


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], PlayedManager]:
    return lambda: PlayedManager(tmp_path)


@pytest.fixture
async def flock(start: Callable[[], PlayedManager]) -> Flock:
    manager, desk = start(), AnsweredFlockTwin()
    held: AnsweredFlock = desk
    manager.dispatcher.serve_flock(FlockAnswering(held).handlers(), lambda job: [])
    return manager, desk


async def said(manager: PlayedManager, request: rq.Request, whom: str = ROOT) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


REQUESTS: list[rq.Request] = [
    rq.AskFlock(),
    rq.ListNeighbours(),
    rq.ListFlockRules(),
    rq.JoinFlock(domain="b.test"),
    rq.ForgetPool(domain="b.test"),
    rq.LeaveFlock(),
    rq.PingPool(domain="b.test"),
    rq.SetFlockRule(rule=EVE),
    rq.RemoveFlockRule(name="eve"),
]
FOR_ALL = (rq.AskFlock, rq.ListNeighbours, rq.ListFlockRules)


def test_all_requests_are_tried() -> None:
    assert {type(request) for request in REQUESTS} == set(get_args(rq.FlockRequest))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
async def test_a_manager_without_a_flock_says_so(
    start: Callable[[], PlayedManager], request_: rq.Request
) -> None:
    answer = await said(start(), request_)
    assert isinstance(answer, an.Failed)
    assert (answer.code, answer.message) == ("not-found", "this pool is in no flock")


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
async def test_everybody_may_see_and_admins_change(flock: Flock, request_: rq.Request) -> None:
    manager, desk = flock
    desk.round_trips["b.test"] = 0.25
    await said(manager, rq.SetFlockRule(rule=EVE))
    answer = await said(manager, request_, ADA)
    if isinstance(request_, FOR_ALL):
        assert not isinstance(answer, an.Failed)
    else:
        assert isinstance(answer, an.Failed)
        assert answer.code == "not-allowed"
        assert desk.calls == []
    assert not isinstance(await said(manager, request_, ROOT), an.Failed)


async def test_what_an_admin_wants_is_done_in_his_name(flock: Flock) -> None:
    manager, desk = flock
    desk.view = FlockView(pool="pool", member=True, joined_through=["b.test"])
    assert await said(manager, rq.JoinFlock(domain="B.test")) == an.Changed(id="", what=["b.test"])
    forgotten = await said(manager, rq.ForgetPool(domain="B.test"))
    assert forgotten == an.Changed(id="", what=["b.test"])
    assert await said(manager, rq.LeaveFlock()) == an.Changed(id="", what=["b.test"])
    assert desk.calls == [
        ("join", "b.test", ROOT),
        ("forget", "b.test", ROOT),
        ("leave", ROOT),
    ]


async def test_a_ping_tells_how_long_it_took_or_that_there_was_no_answer(flock: Flock) -> None:
    manager, desk = flock
    desk.round_trips["b.test"] = 0.25
    pong = await said(manager, rq.PingPool(domain="B.test"))
    assert pong == an.FlockPong(id="", pool="b.test", seconds=0.25)
    failed = await said(manager, rq.PingPool(domain="c.test"))
    assert isinstance(failed, an.Failed)
    assert failed.code == "timed-out"


async def test_a_rule_with_a_mistake_is_not_put_in_force(flock: Flock) -> None:
    manager, _ = flock
    bad = FlockRule(name="r", direction="lend", action="allow", isolation="vm")
    answer = await said(manager, rq.SetFlockRule(rule=bad))
    assert isinstance(answer, an.Failed)
    assert (answer.code, answer.message) == ("usage", "rule r is refused")
    assert answer.cause.startswith("there is no isolation 'vm'")
    assert manager.service.pool.settings(FlockRule) == []


async def test_rules_come_in_the_order_in_which_they_are_asked(flock: Flock) -> None:
    manager, desk = flock
    for name, direction, order in (("a", "borrow", 1), ("b", "lend", 9), ("c", "lend", 2)):
        action = "allow" if name == "a" else "deny"
        made = FlockRule(name=name, direction=direction, action=action, order=order)  # type: ignore[arg-type]
        desk.the_rules.append(made)
    found = await said(manager, rq.ListFlockRules(), ADA)
    assert isinstance(found, an.FlockRules)
    assert [each.name for each in found.rules] == ["c", "b", "a"]
    assert found.rest == {"lend": True, "borrow": False}


async def test_pools_come_in_pages(flock: Flock) -> None:
    manager, desk = flock
    names = [f"p{n:03}.test" for n in range(450)]
    desk.neighbours = [NeighbourView(pool=name, state="silent") for name in reversed(names)]
    got: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await said(manager, rq.ListNeighbours(after=after, limit=1_000), ADA)
        assert isinstance(page, an.Neighbours)
        assert len(page.pools) <= 200
        got += [view.pool for view in page.pools]
        after = page.after
    assert got == names
    assert await said(manager, rq.ListNeighbours(limit=0)) == an.Neighbours(
        id="", pools=[NeighbourView(pool=names[0], state="silent")], after=names[0]
    )


async def test_of_many_loans_those_with_the_most_tasks_are_shown(flock: Flock) -> None:
    manager, desk = flock
    loans = [
        LoanView(pool=f"p{n}", loan="0" * 12, running=n, since=0.0, until=9.0)
        for n in range(MOST_LOANS + 5)
    ]
    desk.view = FlockView(pool="pool", member=True, given=loans, taken=loans[:3])
    answer = await said(manager, rq.AskFlock(), ADA)
    assert isinstance(answer, an.FlockStatus)
    given = answer.flock.given
    assert (len(given), given[0].running) == (MOST_LOANS, MOST_LOANS + 4)
    assert [loan.running for loan in answer.flock.taken] == [2, 1, 0]


async def test_why_tasks_wait_names_the_neighbours(start: Callable[[], PlayedManager]) -> None:
    manager = start()
    near = [NeighbourAnswer(pool=f"p{n}.test", reason="full") for n in range(150)]
    asked: list[int] = []
    await manager.ask(ADA, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    before = await said(manager, rq.ExplainJob(job="1"), ADA)
    assert isinstance(before, an.JobExplanation)
    assert before.neighbours == []

    def told(job: object) -> list[NeighbourAnswer]:
        asked.append(job.id)  # type: ignore[attr-defined]
        return near

    manager.dispatcher.serve_flock({}, told)
    after = await said(manager, rq.ExplainJob(job="1"), ADA)
    assert isinstance(after, an.JobExplanation)
    assert after.neighbours == near[:100]
    assert asked == [1]


class TestKept:
    async def test_a_rule_is_in_force_when_it_is_durable(
        self, start: Callable[[], PlayedManager]
    ) -> None:
        manager = start()
        kept = KeptFlock(manager.service, manager.dispatcher.pending)
        assert kept.policy.may_lend_to("b.test").allowed
        manager.dispatcher.serve_flock({}, lambda job: [])
        told: list[SettingChanged] = []
        manager.service.listen(SettingChanged, told.append)
        rule = FlockRule(name="no", direction="lend", action="deny")
        done = await said(manager, rq.SetFlockRule(rule=rule))
        assert done == an.Changed(id="", what=["no"])
        assert told == [SettingChanged(kind=FlockRule)]
        assert manager.store.open().settings == kept.rules() == [rule]
        assert not kept.policy.may_lend_to("b.test").allowed
        await said(manager, rq.RemoveFlockRule(name="no"))
        assert kept.policy.may_lend_to("b.test").allowed
        gone = await said(manager, rq.RemoveFlockRule(name="no"))
        assert isinstance(gone, an.Failed)
        assert (gone.code, gone.message) == ("not-found", "there is no rule 'no'")

    async def test_while_nothing_can_be_stored_nothing_changes(
        self, start: Callable[[], PlayedManager]
    ) -> None:
        manager = start()
        kept = KeptFlock(manager.service, manager.dispatcher.pending)
        manager.store.full = True
        await manager.ask(ADA, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
        with pytest.raises(StoreFull):
            await kept.join_through("b.test", ROOT)
        assert kept.peers() == []

    async def test_a_later_manager_finds_the_flock_again(
        self, start: Callable[[], PlayedManager], tmp_path: Path
    ) -> None:
        manager = start()
        kept = KeptFlock(manager.service, manager.dispatcher.pending, "plain")
        kept.remember({"c.test": 5.0, "d.test": 9.0})
        await kept.join_through("b.test", ROOT)
        manager.dispatcher.serve_flock({}, lambda job: [])
        await said(manager, rq.SetFlockRule(rule=EVE))
        later = PlayedManager(tmp_path, store=manager.store)
        found = KeptFlock(later.service, later.dispatcher.pending, "plain")
        assert [peer.pool for peer in found.peers()] == ["b.test", "d.test", "c.test"]
        assert [peer.through for peer in found.peers()] == [True, False, False]
        assert found.policy.rules() == [EVE]
        assert found.policy.limits("lend", "b.test").isolation == "plain"
        await found.forget_all(ROOT)
        assert later.store.open().flock_peers == []

    async def test_little_news_of_a_pool_is_not_written(
        self, start: Callable[[], PlayedManager]
    ) -> None:
        manager = start()
        kept = KeptFlock(manager.service, manager.dispatcher.pending)
        await kept.join_through("b.test", ROOT)
        at = kept.peers()[0].heard_at
        kept.remember({"b.test": at + FRESH_SECONDS - 1})
        await settled()
        assert manager.store.open().flock_peers[0].heard_at == at
        kept.remember({"b.test": at + FRESH_SECONDS})
        await settled()
        [peer] = manager.store.open().flock_peers
        assert (peer.heard_at, peer.through) == (at + FRESH_SECONDS, True)
