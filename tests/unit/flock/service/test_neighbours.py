"""Pools that are wired together: what one submits runs at the other, from there and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from neighbourskit import START, Neighbourhood, PoolOfFlock, on_its_own_clock, pass_by

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import TokenRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import Unreachable, UsageError
from kestrelctl.flock.rules.start_text import NEVER
from kestrelctl.flock.service.flock_service import STRANGER, UNASKED, UNREADABLE
from kestrelctl.flock.service.loans import KEEP_SECONDS, LOST_SECONDS
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol.pools import (
    DENIED,
    AskAround,
    Borrow,
    FlockLeft,
    GivenSlot,
    LentClass,
    NotLent,
    PoolAnnouncement,
    PoolPong,
    Repay,
    WantSlot,
)

MINUTE = 60.0
SOME = "0a1b2c3d4e5f"


async def two(
    directory: Path, *, at_home: float = 0.0
) -> tuple[Neighbourhood, PoolOfFlock, PoolOfFlock]:
    """A pool that has machines and one whose users want them, and know each other."""
    around = Neighbourhood(directory)
    lender = around.open("b.test")
    home = around.open("a.test", through="b.test", cpus=at_home)
    await pass_by(5)
    return around, lender, home


def states(pool: PoolOfFlock, job: int) -> list[TaskState]:
    return [record.state for record in pool.ended(job)]


@on_its_own_clock
async def test_a_task_runs_at_a_neighbour_and_its_result_comes_home(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    [command] = lender.hands.started
    assert command.program.argv == ("task", "0")
    lender.hands.end(exit_code=0, stdout=b"hello", stdout_bytes=5)
    await pass_by(5)
    [record] = home.ended(job)
    assert record.state is TaskState.DONE
    assert record.result is not None
    assert (record.result.outcome, record.result.stdout) == (Outcome.DONE, b"hello")
    assert lender.guests() == []


@on_its_own_clock
async def test_it_starts_within_a_tenth_of_a_second_where_machines_are_idle(
    tmp_path: Path,
) -> None:
    _, lender, home = await two(tmp_path)
    home.submit()
    await pass_by(0.1)
    assert len(lender.hands.running) == 1


@on_its_own_clock
async def test_own_workers_come_first(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path, at_home=2)
    home.submit(3)
    await pass_by(1)
    assert (len(home.hands.running), len(lender.hands.running)) == (2, 1)


@on_its_own_clock
async def test_what_only_looks_like_a_placeholder_is_handed_over_as_it_is(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path)
    home.submit(
        argv=("task", "{}"),
        items=("{} {x}",),
        env={"SAY": "{}"},
        cleanup=("tidy", "{}"),
        stages=(Stage(name="in", argv=("get", "{}")),),
        stop_signal="USR1",
        stop_grace_seconds=7.0,
        success_exits=((0, 3),),
        time_limit_seconds=90.0,
    )
    await pass_by(1)
    [command] = lender.hands.started
    told = "{} {x}"
    assert command.program.argv == ("task", told)
    assert command.program.cleanup == ("tidy", told)
    assert [stage.argv for stage in command.program.stages] == [("get", told)]
    assert command.env["SAY"] == "{}"
    assert command.env["KESTREL_ITEM"] == told
    assert command.env["KESTREL_JOB_ID"] == "1"
    assert (command.program.stop_signal, command.program.stop_grace_seconds) == ("USR1", 7.0)
    assert (command.program.time_limit_seconds, command.program.success_exits) == (90.0, ((0, 3),))


@pytest.mark.parametrize(
    ("how", "state"),
    [({"exit_code": 1}, TaskState.FAILED), ({"exit_code": None, "signal": 9}, TaskState.FAILED)],
    ids=["exit code", "signal"],
)
@on_its_own_clock
async def test_a_task_that_fails_there_has_failed(
    tmp_path: Path, how: dict[str, int], state: TaskState
) -> None:
    _, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    lender.hands.end(**how)
    await pass_by(5)
    assert states(home, job) == [state]


@on_its_own_clock
async def test_a_task_that_is_cancelled_at_home_ends_there(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    home.cancel(job)
    await pass_by(2)
    assert lender.hands.running == {}
    assert states(home, job) == [TaskState.CANCELLED]
    assert lender.guests() == []


@on_its_own_clock
async def test_what_falls_idle_is_lent_at_once(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path)
    home.submit(5)
    await pass_by(30)
    assert len(lender.hands.started) == 2
    lender.hands.end()
    await pass_by(0.2)
    assert len(lender.hands.started) == 4


@on_its_own_clock
async def test_what_a_guest_prints_can_be_read_at_home_while_it_runs(tmp_path: Path) -> None:
    _, _, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    attempt = home.job(job).live[0].attempt
    assert attempt is not None
    message, printed = home.dispatcher.outputs.fetch(attempt.worker, attempt.number, "stdout", 3)
    home.service.send_to_worker(attempt.worker, message)
    await pass_by(1)
    assert printed.result().data == b"far"


@on_its_own_clock
async def test_who_joins_hears_at_once_what_those_have_that_were_there(tmp_path: Path) -> None:
    """Not when they would say it again: that is up to a minute later."""
    around = Neighbourhood(tmp_path)
    around.open("b.test")
    around.open("c.test", through="b.test")
    await pass_by(MINUTE / 6)
    home = around.open("a.test", through="b.test", cpus=0)
    await pass_by(MINUTE / 12)
    moment = home.service.now()
    heard = {heard.said.pool: heard.said.willing for heard in home.flock.willing.holding(moment)}
    assert heard == {"b.test": True, "c.test": True}


# -- owners first ----------------------------------------------------------------------------------


@on_its_own_clock
async def test_a_lender_s_own_tasks_get_its_machines_back_and_nothing_fails(
    tmp_path: Path,
) -> None:
    _, lender, home = await two(tmp_path)
    job = home.submit(2, request={"cpus": 1.0, "memory": 1e9})
    await pass_by(1)
    lender.submit(2, argv=("own",))
    await pass_by(MINUTE / 2 - 2)
    assert {command.program.argv[0] for command in lender.hands.running.values()} == {"task"}
    await pass_by(4)
    assert {command.program.argv[0] for command in lender.hands.running.values()} == {"own"}
    assert len(home.job(job).live) == 2
    assert [task.attempt for task in home.job(job).live.values()] == [None, None]
    lender.hands.end()
    await pass_by(10)
    assert {command.program.argv[0] for command in lender.hands.running.values()} == {"task"}
    lender.hands.end()
    await pass_by(10)
    assert states(home, job) == [TaskState.DONE] * 2


@on_its_own_clock
async def test_a_guest_that_is_taken_back_has_its_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is asked to end a second time is ended at once."""
    _, lender, home = await two(tmp_path)
    job = home.submit(stop_grace_seconds=2 * MINUTE)
    await pass_by(1)
    asked: list[int] = []

    def saves(number: int, _reason: str = "") -> bool:
        asked.append(number)
        return True

    monkeypatch.setattr(lender.hands, "kill", saves)
    lender.submit(2, argv=("own",))
    await pass_by(MINUTE)
    assert len(asked) == 1
    monkeypatch.undo()
    lender.hands.end()
    await pass_by(10)
    assert states(home, job) == [TaskState.DONE], "it was done while it had its grace"


@on_its_own_clock
async def test_a_guest_goes_for_a_task_that_has_waited_not_because_one_always_waits(
    tmp_path: Path,
) -> None:
    _, lender, home = await two(tmp_path)
    home.submit(2)
    await pass_by(1)
    waits = lender.submit(argv=("own",))
    for _ in range(4):  # at any moment one waits, and none for half a minute
        await pass_by(MINUTE / 4)
        later = lender.submit(argv=("own",))
        lender.cancel(waits)
        waits = later
    assert len(lender.hands.running) == len(lender.guests()) == 2
    await pass_by(MINUTE / 2 - 2)
    assert len(lender.guests()) == 2
    lender.submit(argv=("own",))
    await pass_by(4)
    left = [command.program.argv[0] for command in lender.hands.running.values()]
    assert sorted(left) == ["own", "task"], "the other has not waited yet"


@on_its_own_clock
async def test_a_guest_may_stay_for_a_while_though_a_task_that_comes_back_is_of_an_old_job(
    tmp_path: Path,
) -> None:
    _, lender, home = await two(tmp_path)
    lender.submit(2, argv=("own",), max_failures=9, backoff_seconds=2.0)
    await pass_by(MINUTE)
    home.submit(2)
    await pass_by(1)
    lender.hands.end(exit_code=1)
    await pass_by(MINUTE / 4)
    left = [command.program.argv[0] for command in lender.hands.running.values()]
    assert left == ["task", "task"]


@on_its_own_clock
async def test_a_guest_may_stay_for_a_while_though_a_task_has_long_waited_for_something_else(
    tmp_path: Path,
) -> None:
    """It has waited for tokens, and not for the place of a guest."""
    _, lender, home = await two(tmp_path)
    lender.submit(2, argv=("own",), request={"cpus": 1.0, "seats": 1.0})
    home.submit(2)
    await pass_by(MINUTE)
    await lender.put(TokenRecord("seats", 2))
    await pass_by(MINUTE / 4)
    left = [command.program.argv[0] for command in lender.hands.running.values()]
    assert left == ["task", "task"]


@on_its_own_clock
async def test_a_guest_whose_machine_has_gone_comes_home_if_there_is_no_other(
    tmp_path: Path,
) -> None:
    around, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    lender.lose_worker()
    await pass_by(1)
    other = around.open("c.test", through="b.test")
    await pass_by(2 * MINUTE)
    assert lender.guests() == []
    assert len(other.hands.running) == 1
    other.hands.end()
    await pass_by(5)
    assert states(home, job) == [TaskState.DONE]


# -- rules -----------------------------------------------------------------------------------------


SHORT = FlockRule(name="short", direction="lend", action="allow", max_seconds=5.0)
OUT_OF_TIME: dict[str, Any] = {"exit_code": None, "signal": 15, "reason": "time-limit"}


@on_its_own_clock
async def test_what_a_lender_ends_for_its_own_limit_has_not_failed_and_is_not_lent_there_again(
    tmp_path: Path,
) -> None:
    _, lender, home = await two(tmp_path)
    await lender.put(SHORT)
    job = home.submit()
    await pass_by(1)
    assert [command.program.time_limit_seconds for command in lender.hands.started] == [5.0]
    lender.hands.end(**OUT_OF_TIME, wall_seconds=5.0)
    await pass_by(3 * MINUTE)
    assert states(home, job) == [TaskState.WAITING]
    task = home.job(job).live[0]
    assert (task.failures, task.losses) == (0, 0)
    assert len(lender.hands.started) == 1
    home.add_worker(1.0)
    await pass_by(1)
    home.hands.end()
    await pass_by(1)
    assert states(home, job) == [TaskState.DONE]


@on_its_own_clock
async def test_a_home_that_starts_again_knows_which_lender_s_limit_a_task_has_reached(
    tmp_path: Path,
) -> None:
    around, lender, home = await two(tmp_path, at_home=0.5)
    await lender.put(SHORT)
    job = home.submit()
    await pass_by(1)
    lender.hands.end(**OUT_OF_TIME, wall_seconds=5.0)
    await pass_by(5)
    home = await around.reopen("a.test")
    await pass_by(3 * MINUTE)
    assert len(lender.hands.started) == 1, "it would be ended there a second time"
    assert home.job(job).live[0].least_seconds > 5.0
    home.add_worker(1.0)
    await pass_by(1)
    home.hands.end()
    await pass_by(1)
    assert states(home, job) == [TaskState.DONE]


@on_its_own_clock
async def test_what_a_lender_ends_for_its_own_limit_goes_on_at_another_that_has_none(
    tmp_path: Path,
) -> None:
    around, lender, home = await two(tmp_path)
    await lender.put(SHORT)
    job = home.submit(3)
    await pass_by(1)
    lender.hands.end(**OUT_OF_TIME, wall_seconds=5.0)
    other = around.open("c.test", through="b.test")
    await pass_by(MINUTE)
    lender.hands.end()
    await pass_by(MINUTE)
    other.hands.end()
    await pass_by(MINUTE)
    other.hands.end()
    await pass_by(5)
    assert states(home, job) == [TaskState.DONE] * 3
    assert all(record.failures == record.losses == 0 for record in home.ended(job))


@on_its_own_clock
async def test_the_limit_of_the_task_itself_ends_it_wherever_it_runs(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path)
    await lender.put(SHORT)
    job = home.submit(time_limit_seconds=4.0)
    await pass_by(1)
    lender.hands.end(**OUT_OF_TIME, wall_seconds=4.0)
    await pass_by(5)
    assert states(home, job) == [TaskState.FAILED]


@on_its_own_clock
async def test_a_task_that_is_known_to_take_longer_is_not_lent(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path)
    await lender.put(SHORT)
    home.submit()
    await pass_by(1)
    long = home.submit(time_limit_seconds=60.0)
    await pass_by(MINUTE)
    assert len(lender.hands.started) == 1
    [answer] = home.flock.explain(home.job(long))
    assert (answer.pool, answer.reason) == ("b.test", "denied")
    assert answer.detail == "its rules ask for ((TARGET.JobSeconds <= 5) =!= false)"


@on_its_own_clock
async def test_who_is_denied_is_told_so_from_the_beginning(tmp_path: Path) -> None:
    around = Neighbourhood(tmp_path)
    lender = around.open("b.test")
    rule = FlockRule(name="eve", direction="lend", action="deny", pools=("a.test",))
    await lender.put(rule)
    home = around.open("a.test", through="b.test", cpus=0)
    await pass_by(5)
    job = home.submit()
    await pass_by(3 * MINUTE)
    [answer] = home.flock.explain(home.job(job))
    assert (answer.pool, answer.reason, answer.detail) == (
        "b.test",
        "denied",
        "rule eve denies it",
    )
    told = around.messages("b.test", "a.test", PoolAnnouncement)
    assert 3 <= len([said for said in told if said.denied]) <= 5


@on_its_own_clock
async def test_what_is_lent_no_more_is_told_as_that_and_not_as_a_small_machine(
    tmp_path: Path,
) -> None:
    _, lender, home = await two(tmp_path)
    home.submit()
    await pass_by(1)
    rule = FlockRule(name="eve", direction="lend", action="deny", pools=("a.test",))
    await lender.put(rule)
    job = home.submit()
    await pass_by(5)
    lender.hands.end()
    await pass_by(5)
    assert lender.hands.running == {}
    found = home.service.pool.explain(home.job(job), home.service.now())
    assert [group.refusal.reason for group in found.groups] == [Reason.UNWILLING]
    [answer] = home.flock.explain(home.job(job))
    assert (answer.reason, answer.detail) == ("denied", "rule eve denies it")


@on_its_own_clock
async def test_whom_a_rule_denies_gets_nothing_and_is_told_why(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    rule = FlockRule(name="eve", direction="lend", action="deny", pools=("a.test",))
    await lender.put(rule)
    home.says("b.test", Borrow(loan="0a1b2c3d4e5f", at_most={"cpus": 1.0}, seconds=60.0))
    home.submit()
    await pass_by(10)
    assert lender.hands.started == []
    refusals = around.messages("b.test", "a.test", NotLent)
    assert {refusal.reason for refusal in refusals} == {DENIED}


@on_its_own_clock
async def test_a_pool_from_which_nothing_may_be_borrowed_is_asked_for_nothing(
    tmp_path: Path,
) -> None:
    around, lender, home = await two(tmp_path)
    rule = FlockRule(name="eve", direction="borrow", action="deny", pools=("b.test",))
    await home.put(rule)
    job = home.submit()
    await pass_by(10)
    assert around.messages("a.test", "b.test", Borrow) == []
    [answer] = home.flock.explain(home.job(job))
    assert (answer.pool, answer.reason) == ("b.test", "policy")
    assert lender.hands.started == []


@on_its_own_clock
async def test_pools_that_one_rule_fits_are_lent_no_more_than_it_says_together(
    tmp_path: Path,
) -> None:
    around = Neighbourhood(tmp_path)
    lender = around.open("b.test", cpus=8)
    rule = FlockRule(
        name="friends", direction="lend", action="allow", pools=("*.test",), max_cpus=3.0
    )
    await lender.put(rule)
    homes = [around.open(domain, through="b.test", cpus=0) for domain in ("a.test", "c.test")]
    lender.submit(8, argv=("own",))
    await pass_by(5)
    for home in homes:
        home.submit(8)
    await pass_by(5)
    lender.hands.end()  # and all is free for both at once
    await pass_by(5)
    assert len(lender.hands.running) == 3


@on_its_own_clock
async def test_a_loan_of_few_seconds_is_renewed_in_time(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path)
    rule = FlockRule(name="short", direction="lend", action="allow", lease_seconds=20.0)
    await lender.put(rule)
    home.submit(200)
    for _ in range(80):
        await pass_by(1)
        assert len(lender.hands.running) == 2
        lender.hands.end()


# -- what does not hold ----------------------------------------------------------------------------


@on_its_own_clock
async def test_a_home_that_cannot_be_reached_finds_its_tasks_again(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    around.cut.add("b.test")
    await pass_by(10)
    lender.hands.end()
    await pass_by(10)
    around.cut.clear()
    await pass_by(5 * MINUTE)
    for _ in range(3):
        lender.hands.end()
        await pass_by(MINUTE)
    assert states(home, job) == [TaskState.DONE]


@on_its_own_clock
async def test_guests_of_a_home_that_has_gone_for_good_are_ended(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    home.submit()
    await pass_by(1)
    around.cut.add("a.test")
    await pass_by(10 * MINUTE)
    assert lender.hands.running == {}
    assert lender.guests() == []
    await pass_by(3 * LOST_SECONDS)
    assert lender.flock.keeper.loans == {}


@on_its_own_clock
async def test_a_lender_that_starts_again_goes_on_with_what_runs(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    lender = await around.reopen("b.test")
    await pass_by(10)
    assert len(lender.hands.started) == 1
    assert len(lender.hands.running) == 1
    lender.hands.end()
    await pass_by(10)
    assert states(home, job) == [TaskState.DONE]
    assert len(lender.hands.started) == 1
    await pass_by(5 * MINUTE)
    assert lender.spools.kept() == []


@on_its_own_clock
async def test_a_lender_that_starts_again_lends_on(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    job = home.submit(8)
    await pass_by(1)
    lender = await around.reopen("b.test")
    await pass_by(1)
    [loan] = lender.flock.keeper.loans.values()
    assert loan.session.ad.start != NEVER
    for _ in range(4):
        lender.hands.end()
        await pass_by(5)
    assert len(lender.hands.started) == 8
    assert states(home, job) == 8 * [TaskState.DONE]


@on_its_own_clock
async def test_what_is_on_its_way_to_a_lender_that_starts_again_runs_there_when_it_can(
    tmp_path: Path,
) -> None:
    """A lender that has not seen its machines could not say on which of them a task may run."""
    around, lender, home = await two(tmp_path)
    home.submit(2)
    await pass_by(1)
    lender.hands.end()
    await pass_by(0.5)
    job = home.submit(2)
    await pass_by(0)
    lender = await around.reopen("b.test", alone=True)  # while they are on their way
    await pass_by(5)
    lender.greet()
    await pass_by(5)
    assert len(lender.hands.running) == 2
    lender.hands.end()
    await pass_by(5)
    assert states(home, job) == 2 * [TaskState.DONE]


@on_its_own_clock
async def test_a_loan_that_only_waits_to_be_heard_says_so_once(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    home.cancel(job)
    around.cut.add("a.test")
    lender.hands.end()
    await pass_by(3 * MINUTE)
    around.cut.clear()
    before = len(around.said)
    await pass_by(1)
    told = [text for _, _, text in around.said[before:] if '"resized"' in text]
    assert told == []


@on_its_own_clock
async def test_a_home_that_starts_again_goes_on_with_what_runs(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path, at_home=0.5)
    job = home.submit()
    await pass_by(1)
    home = await around.reopen("a.test")
    await pass_by(20)
    assert len(lender.hands.running) == 1
    lender.hands.end()
    await pass_by(20)
    assert states(home, job) == [TaskState.DONE]
    assert len(lender.hands.started) == 1


# -- asking around ---------------------------------------------------------------------------------


async def a_chain(directory: Path) -> tuple[Neighbourhood, PoolOfFlock, PoolOfFlock]:
    """A pool with tasks, one without machines, and one with: each knows the next."""
    around = Neighbourhood(directory)
    lender = around.open("c.test", fixed=("b.test",))
    around.open("b.test", cpus=0, fixed=("a.test", "c.test"))
    home = around.open("a.test", cpus=0, fixed=("b.test",))
    await pass_by(5)
    return around, home, lender


@on_its_own_clock
async def test_who_has_found_nobody_for_a_while_hears_from_neighbours_of_others(
    tmp_path: Path,
) -> None:
    around, home, lender = await a_chain(tmp_path)
    home.submit()
    await pass_by(MINUTE - 1)
    assert around.messages("a.test", "b.test", AskAround) == []
    assert lender.hands.started == []
    await pass_by(2)
    assert len(lender.hands.running) == 1
    assert {each.pool for each in around.messages("b.test", "a.test", PoolAnnouncement)} == {
        "b.test",
        "c.test",
    }


@on_its_own_clock
async def test_who_goes_on_finding_nobody_asks_once_a_minute(tmp_path: Path) -> None:
    around, home, _ = await a_chain(tmp_path)
    home.submit(request={"cpus": 64.0})
    await pass_by(4 * MINUTE + 1)
    assert len(around.messages("a.test", "b.test", AskAround)) == 4


@on_its_own_clock
async def test_who_has_found_somebody_asks_no_others(tmp_path: Path) -> None:
    around, _, home = await two(tmp_path)
    home.submit(9)
    await pass_by(3 * MINUTE)
    assert around.messages("a.test", "b.test", AskAround) == []


# -- messages --------------------------------------------------------------------------------------


@on_its_own_clock
async def test_what_nobody_asked_for_and_nobody_can_read_is_dropped_and_counted(
    tmp_path: Path,
) -> None:
    _, lender, home = await two(tmp_path)
    before = dict(lender.flock.counts)
    home.says("b.test", NotLent(loan="0a1b2c3d4e5f", reason=DENIED))
    home.says("b.test", GivenSlot(request="1"))
    for sender, text in (
        ("flock@a.test", '{"type": "beet"}'),
        ("flock@a.test/0a1b2c3d4e5f", '{"type": "ping", "token": 1}'),
        ("eve@a.test", '{"type": "ping", "token": 1}'),
        ("flock@b.test", '{"type": "ping", "token": 1}'),
    ):
        lender.listener.on_payload(sender, "flock@b.test", text)
    lender.listener.on_payload("pool@a.test", "flock@b.test/0a1b2c3d4e5f", '{"type": "who"}')
    await pass_by(1)
    found = {
        why: lender.flock.counts[why] - before.get(why, 0)
        for why in (UNASKED, UNREADABLE, STRANGER)
    }
    assert found == {UNASKED: 2, UNREADABLE: 1, STRANGER: 4}


@on_its_own_clock
async def test_a_stranger_is_no_worker(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)
    assert set(home.service.pool.workers) == {
        f"flock@b.test/{loan}" for _, loan in lender.flock.keeper.loans
    }
    assert not home.flock.may_work("flock@c.test/0a1b2c3d4e5f")
    assert not home.flock.may_work("flock@b.test")
    assert not home.flock.may_work("eve@b.test/0a1b2c3d4e5f")
    assert home.job(job)
    assert around.messages("b.test", "a.test", PoolAnnouncement)


@on_its_own_clock
async def test_a_pool_that_leaves_says_so_and_is_forgotten(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    home.submit()
    await pass_by(1)
    await lender.standing.leave("root")
    lender.hands.end()
    await pass_by(10)
    assert not around.messages("b.test", "a.test", PoolAnnouncement)[-1].willing
    assert around.messages("b.test", "a.test", FlockLeft)
    assert home.flock.willing.holding(home.service.now()) == []
    assert list(home.flock.overlay.known()) == []
    assert lender.flock.keeper.loans == {}
    home.submit()
    await pass_by(10)
    assert lender.guests() == []


@on_its_own_clock
async def test_a_pool_that_leaves_repays_what_it_asked_for(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    home.submit()
    await pass_by(1)
    await home.standing.leave("root")
    await pass_by(1)
    assert [repay.loan for repay in around.messages("a.test", "b.test", Repay)] == [
        loan for _, loan in lender.flock.keeper.loans
    ]


@on_its_own_clock
async def test_a_ping_is_answered_also_by_a_pool_that_is_in_no_flock(tmp_path: Path) -> None:
    _, lender, home = await two(tmp_path)
    assert await home.standing.ping("b.test") == pytest.approx(0.002, abs=1e-4)
    await lender.standing.leave("root")
    await pass_by(1)
    assert await home.standing.ping("b.test") == pytest.approx(0.002, abs=1e-4)


@on_its_own_clock
async def test_a_ping_is_answered_by_nobody_but_the_pool(tmp_path: Path) -> None:
    around, _, home = await two(tmp_path)
    liar = around.open("c.test", cpus=0)
    pinging = asyncio.ensure_future(home.standing.ping("b.test"))
    await pass_by(0.0005)
    for guess in range(3):
        liar.says("a.test", PoolPong(token=(1 << 47) + guess))
    assert await pinging == pytest.approx(0.002, abs=1e-4)


@on_its_own_clock
async def test_only_who_holds_tasks_is_given_places_for_files(tmp_path: Path) -> None:
    around, lender, _ = await two(tmp_path)
    lender.says("a.test", WantSlot(request="1", size_bytes=1, filename="x"))
    await pass_by(1)
    [given] = around.messages("a.test", "b.test", GivenSlot)
    assert given.problem


@on_its_own_clock
async def test_what_waits_is_told_which_neighbour_has_nothing_free(tmp_path: Path) -> None:
    _, _, home = await two(tmp_path)
    job = home.submit(3)
    await pass_by(10)
    [answer] = home.flock.explain(home.job(job))
    assert (answer.pool, answer.reason) == ("b.test", "full")
    large = home.submit(request={"cpus": 16.0})
    await pass_by(1)
    [answer] = home.flock.explain(home.job(large))
    assert answer.reason not in ("full", "asked")


@on_its_own_clock
async def test_a_worker_of_a_pool_that_was_not_asked_is_refused(tmp_path: Path) -> None:
    around, _, home = await two(tmp_path)
    stranger = around.open("c.test", cpus=0)
    hello = workers.Hello(
        version=workers.VERSION, incarnation="one", greeting=1, at=START, ad=WorkerAd(), holds=[]
    )
    stranger.session.send(codec.encode(hello), "pool@a.test", f"flock@c.test/{SOME}")
    await pass_by(1)
    [refused] = [text for _, to, text in around.said if to == f"flock@c.test/{SOME}"]
    assert isinstance(directions.to_worker.decode(refused), workers.Refused)
    assert f"flock@c.test/{SOME}" not in home.service.pool.workers


@on_its_own_clock
async def test_a_pool_that_is_nowhere_cannot_be_pinged(tmp_path: Path) -> None:
    _, _, home = await two(tmp_path)
    with pytest.raises(Unreachable, match=r"nowhere\.test"):
        await home.standing.ping("nowhere.test")
    assert [view.pool for view in home.standing.pools()] == ["b.test"], "a typing error is no pool"
    with pytest.raises(UsageError, match="itself"):
        await home.standing.ping(home.service.domain)


@on_its_own_clock
async def test_what_may_go_two_ways_is_passed_on_once_with_one_left(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    around.open("c.test", through="b.test")
    await pass_by(10)
    said = PoolAnnouncement(pool="a.test", seq=1 << 50, ttl=2, expires_seconds=60.0)
    home.says("b.test", said)
    home.says("b.test", said)
    await pass_by(1)
    passed_on = around.messages("b.test", "c.test", PoolAnnouncement)
    assert [each for each in passed_on if each.pool == "a.test"] == [replace(said, ttl=1)]
    assert not any(
        each.pool == "a.test" for each in around.messages("b.test", "a.test", PoolAnnouncement)
    )
    assert lender.flock.willing.dropped()["old"] >= 1


@on_its_own_clock
async def test_nonsense_of_one_pool_does_not_keep_tasks_from_another(tmp_path: Path) -> None:
    around, lender, home = await two(tmp_path)
    liar = around.open("c.test", through="b.test", cpus=0)
    await pass_by(5)
    ad = WorkerAd(assets={"cpus": 8.0}, start="((((")
    classes = (LentClass(id=SOME, ad=ad, machines=9, free={"cpus": 72.0}),)
    liar.says(
        "a.test",
        PoolAnnouncement(pool="c.test", seq=1 << 50, expires_seconds=999.0, classes=classes),
    )
    await pass_by(1)
    home.submit()
    await pass_by(1)
    assert len(lender.hands.running) == 1
    assert home.flock.willing.dropped()["absurd"] == 1


@on_its_own_clock
async def test_a_place_is_not_free_for_which_a_guest_is_on_its_way(tmp_path: Path) -> None:
    _, lender, _ = await two(tmp_path)
    keeper = lender.flock.keeper
    [idle] = keeper.look()
    on_its_way: Any = SimpleNamespace(loan=idle.id, begun=lambda: {"cpus": 1.0, "gpus": 1.0})
    keeper.loans["a.test", idle.id] = on_its_way
    [told] = keeper.look()
    assert (idle.free["cpus"], told.free["cpus"]) == (2.0, 1.0)
    del keeper.loans["a.test", idle.id]


@on_its_own_clock
async def test_ended_guests_are_forgotten_also_if_the_disk_was_full_when_they_were_due(
    tmp_path: Path,
) -> None:
    _, lender, home = await two(tmp_path)
    home.submit()
    await pass_by(1)
    lender.hands.end()
    await pass_by(5)
    keeper, commits, totals = (
        lender.flock.keeper,
        lender.service.commits,
        lender.service.pool.totals,
    )
    due = lender.service.now() + KEEP_SECONDS
    commits.store_error = "the disk is full"
    keeper.forget_ended(due)
    commits.store_error = ""
    assert totals.jobs_expired == 0
    keeper.forget_ended(due)
    assert totals.jobs_expired == 1


@on_its_own_clock
async def test_a_pool_that_leaves_while_the_disk_is_slow_does_not_find_the_flock_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lender, _ = await two(tmp_path)
    await pass_by(MINUTE)
    assert [peer.pool for peer in lender.kept.peers()] == ["a.test"]
    disk, commit = asyncio.Event(), lender.store.commit

    async def slow(*args: Any) -> None:
        await disk.wait()
        await commit(*args)

    monkeypatch.setattr(lender.store, "commit", slow)
    leaving = asyncio.ensure_future(lender.standing.leave("root"))
    await pass_by(1.5 * MINUTE)
    disk.set()
    await leaving
    await pass_by(1)
    assert lender.kept.peers() == [], "the next manager would join through these"
    assert not lender.standing.status().member
    await lender.standing.join("a.test", "root")
    await pass_by(1.5 * MINUTE)
    assert [peer.heard_at > 0 for peer in lender.kept.peers()] == [True]


@on_its_own_clock
async def test_a_lender_goes_on_with_its_guests_when_its_store_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    around, lender, home = await two(tmp_path)
    job = home.submit()
    await pass_by(1)

    def away(**_: Any) -> Any:
        raise Unreachable("the database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(lender.store, "jobs", away)
        lender = await around.reopen("b.test")
        await pass_by(5)
    await pass_by(5)
    lender.hands.end()
    await pass_by(5)
    assert states(home, job) == [TaskState.DONE]
    assert len(lender.hands.started) == 1
