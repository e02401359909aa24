"""Jobs that span workers: their members start together, end together, and block nobody."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.job import FAILED_MEMBER, Job
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.core.pool import FEW_WORKERS, TOGETHER_ROUND_SECONDS
from kestrelctl.core.scheduling.together import Members, Together
from kestrelctl.grammar.why_waiting import reason_text

Attempt = tuple[int, int, int]


def spanning(driver: PoolDriver, span: int = 2, **spec: object) -> int:
    return driver.submit(span, span=span, **spec)  # type: ignore[arg-type]


def places(driver: PoolDriver, job_id: int) -> dict[str, Attempt]:
    """Worker -> the member of a job that it has."""
    return {
        name: attempt
        for name in driver.pool.workers
        for attempt in driver.held(name)
        if attempt[1] == job_id
    }


def runs(driver: PoolDriver, job_id: int) -> int:
    return len(places(driver, job_id))


def counts(driver: PoolDriver, job_id: int) -> Counts:
    record = next(job for job in driver.store().jobs(ids=[job_id]))
    return record.counts


def test_members_start_at_as_many_workers_at_once_and_know_of_each_other() -> None:
    driver = PoolDriver()
    driver.join("w1", host="alpha")
    driver.join("w2", host="beta")
    driver.join("w3", host="gamma")
    job_id = spanning(driver, 3)
    sent = driver.of(fx.Run)
    assert {run.worker for run in sent} == {"w1", "w2", "w3"}
    hosts = sent[0].hosts
    assert sorted(hosts) == ["alpha", "beta", "gamma"]
    for run in sent:
        assert run.hosts == hosts
        [(_, of, index, n, _)] = run.spans
        assert (of, n) == (job_id, 1)
        assert hosts[index] == {"w1": "alpha", "w2": "beta", "w3": "gamma"}[run.worker]


def test_it_waits_for_the_last_place_and_others_go_ahead_meanwhile() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 3)
    other = driver.submit(1)
    assert runs(driver, job_id) == 0
    assert runs(driver, other) == 1
    driver.join("w3")
    assert runs(driver, job_id) == 0, "the other one still runs"
    [(name, attempt)] = places(driver, other).items()
    driver.report(name, attempt)
    assert runs(driver, job_id) == 3


def test_a_worker_with_room_for_two_is_one_place() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=8)
    job_id = spanning(driver, 2)
    assert runs(driver, job_id) == 0
    driver.join("w2")
    assert set(places(driver, job_id)) == {"w1", "w2"}


def test_who_was_set_aside_because_the_others_were_missing_is_counted() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", "w3")
    job_id = spanning(driver, 4)
    driver.submit(1, cpus=4)
    assert all(cls.parked for cls in driver.pool.state.supply.classes())
    driver.join("w4")
    assert runs(driver, job_id) == 4


def test_who_comes_before_is_served_first_and_who_comes_after_does_not_take_its_place() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("w1", "w2", "w3")
    first = driver.submit(1, priority=200)
    job_id = spanning(driver, 2, priority=150)
    later = driver.submit(10, priority=100)
    driver.let_go()
    assert (runs(driver, first), runs(driver, job_id), runs(driver, later)) == (1, 2, 0)


def test_it_leaves_their_workers_to_those_who_come_before() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("w1", "w2")
    first = driver.submit(1, priority=200)
    job_id = spanning(driver, 2, priority=150)
    driver.let_go()
    assert (runs(driver, first), runs(driver, job_id)) == (1, 0)


def test_who_comes_before_and_fits_nowhere_keeps_nobody_from_starting() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("w1", "w2")
    driver.submit(1, cpus=4, priority=200)
    job_id = spanning(driver, 2, priority=150)
    driver.submit(10, priority=100)
    driver.let_go()
    assert runs(driver, job_id) == 2


def test_of_its_owner_s_jobs_the_first_comes_first() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("w1", "w2")
    first = driver.submit(1)
    job_id = spanning(driver, 2)
    driver.submit(10)
    driver.let_go()
    assert (runs(driver, first), runs(driver, job_id)) == (1, 0)


def test_users_take_turns_with_it() -> None:
    """Bob's tasks are many and came first; ada runs less than he does, so her job starts."""
    driver = PoolDriver()
    driver.hold_back()
    driver.join(*(f"w{n}" for n in range(8)))
    driver.submit(100, owner="bob")
    job_id = spanning(driver, 4)
    driver.let_go()
    assert runs(driver, job_id) == 4


def test_it_goes_where_it_likes_it_best() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", "w3", "w4")
    for number, name in enumerate(("w1", "w2", "w3", "w4")):
        driver.join(name, attributes={"Speed": number % 2})
    job_id = spanning(driver, 2, rank="TARGET.Speed")
    assert set(places(driver, job_id)) == {"w2", "w4"}


# ---- how it ends


def test_a_member_that_ends_well_keeps_its_place_until_all_have() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    driver.report("w1", held["w1"])
    assert not driver.of(fx.Acknowledge)
    other = driver.submit(1)
    assert runs(driver, job_id) == 2
    assert runs(driver, other) == 0
    driver.report("w2", held["w2"])
    acknowledged = {ack.worker: ack.numbers for ack in driver.of(fx.Acknowledge)}
    assert acknowledged == {name: [attempt[0]] for name, attempt in held.items()}
    assert job_id in driver.ended
    assert counts(driver, job_id) == Counts(done=2)
    assert runs(driver, other) == 1


def test_a_good_result_that_comes_twice_counts_once() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    for _ in range(2):
        driver.report("w1", held["w1"])
    driver.report("w2", held["w2"])
    driver.report("w1", held["w1"])
    assert driver.pool.totals.tasks_done == 2
    assert driver.of(fx.Acknowledge)[0].numbers == [held["w1"][0]], "so that the worker forgets it"


def test_when_a_member_fails_the_others_are_stopped_and_all_start_again() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", "w3")
    job_id = spanning(driver, 3, max_failures=2)
    held = places(driver, job_id)
    driver.report("w1", held["w1"])  # has ended well, and must run again
    driver.fail("w2", held["w2"])
    assert [(kill.worker, kill.numbers) for kill in driver.of(fx.Kill)] == [("w3", [held["w3"][0]])]
    taken_back = [ack for ack in driver.of(fx.Acknowledge) if ack.worker == "w1"]
    assert [ack.numbers for ack in taken_back] == [[held["w1"][0]]]
    driver.live(5.0)
    assert set(places(driver, job_id)) == {"w3"}, "it waits until that has ended"
    driver.report("w3", held["w3"], outcome=Outcome.KILLED)
    assert runs(driver, job_id) == 3
    again = places(driver, job_id)
    assert all(again[name][0] != held[name][0] for name in held)
    driver.finish_all()
    assert counts(driver, job_id) == Counts(done=3)


def test_when_a_member_fails_for_the_last_time_the_job_has_failed() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", "w3")
    job_id = spanning(driver, 3)
    held = places(driver, job_id)
    driver.report("w1", held["w1"])
    driver.fail("w2", held["w2"], exit_code=3)
    driver.report("w3", held["w3"], outcome=Outcome.KILLED)
    [record] = driver.store().jobs(ids=[job_id])
    assert (record.state, record.stopped_by) == ("failed", FAILED_MEMBER)
    assert record.counts == Counts(failed=1, cancelled=2)
    assert not any(driver.held(name) for name in held)
    [told] = [each for each in driver.records if getattr(each, "what", "") == "cancelled"]
    assert told.cause == FAILED_MEMBER  # type: ignore[attr-defined]


@pytest.mark.parametrize("outcome", [Outcome.KILLED, Outcome.DONE])
def test_a_user_s_retry_brings_back_all_members(outcome: int) -> None:
    """Also one that has ended well before it was stopped."""
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    driver.fail("w1", held["w1"])
    driver.report("w2", held["w2"], outcome=outcome)
    assert driver.retry(job_id, rest=False).error, "a part of it cannot run"
    assert driver.retry(job_id).tasks == 2
    assert runs(driver, job_id) == 2
    driver.finish_all()
    assert counts(driver, job_id) == Counts(done=2)


def test_when_a_worker_is_lost_all_start_again() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", "w3")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    gone, other = held
    driver.lose(gone)
    assert [kill.worker for kill in driver.of(fx.Kill)] == [other]
    driver.report(other, held[other], outcome=Outcome.KILLED)
    driver.live(60.0)
    assert runs(driver, job_id) == 2
    assert gone not in places(driver, job_id)
    driver.finish_all()
    assert counts(driver, job_id) == Counts(done=2)


def test_a_worker_that_was_away_while_the_others_were_stopped_is_told_when_it_comes_back() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2, on_worker_lost=OnWorkerLost.WAIT, max_failures=3)
    held = places(driver, job_id)
    driver.lose("w1")
    driver.fail("w2", held["w2"])
    assert not driver.of(fx.Kill)
    driver.join("w1", holds=[held["w1"]])
    assert driver.of(fx.Welcome)[0].kill == [held["w1"][0]]


def test_a_member_that_comes_back_while_the_others_are_being_stopped_is_stopped() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    driver.lose("w1")
    driver.join("w1", holds=[held["w1"]])
    stopped = [number for kill in driver.of(fx.Kill) for number in kill.numbers]
    assert held["w1"][0] in stopped + driver.of(fx.Welcome)[0].kill


def test_a_member_that_gave_its_place_back_stops_the_others() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    driver.tell(ev.Returned(at=driver.now, worker="w1", numbers=[held["w1"][0]]))
    assert [kill.worker for kill in driver.of(fx.Kill)] == ["w2"]


def test_a_cancel_ends_who_has_ended_well_and_who_runs() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    driver.report("w1", held["w1"])
    driver.cancel(job_id)
    driver.report("w2", held["w2"], outcome=Outcome.KILLED)
    assert counts(driver, job_id) == Counts(cancelled=2)
    assert not driver.held("w1")


def test_who_cancels_a_member_cancels_the_job() -> None:
    driver = PoolDriver()
    driver.join("w1")
    job_id = spanning(driver, 2)
    driver.cancel(job_id, 1)
    assert counts(driver, job_id) == Counts(cancelled=2)
    driver.join("w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    driver.cancel(job_id, 1)
    for name, attempt in held.items():
        driver.report(name, attempt, outcome=Outcome.KILLED)
    assert counts(driver, job_id) == Counts(cancelled=2)


# ---- restarts


def test_after_a_restart_members_that_run_go_on() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    driver.restart()
    driver.join("w1", holds=[held["w1"]])
    driver.join("w2", holds=[held["w2"]])
    assert not driver.of(fx.Kill)
    assert places(driver, job_id) == held
    driver.report("w1", held["w1"])
    assert runs(driver, job_id) == 2
    driver.report("w2", held["w2"])
    assert counts(driver, job_id) == Counts(done=2)


def test_after_a_restart_in_which_a_worker_got_lost_all_start_again() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", "w3")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    stays, _ = held
    driver.restart()
    driver.join(stays, holds=[held[stays]])
    driver.live(600.0)
    driver.report(stays, held[stays], outcome=Outcome.KILLED)
    driver.join("w3", "w4")
    assert runs(driver, job_id) == 2
    driver.finish_all()
    assert counts(driver, job_id) == Counts(done=2)


def test_a_result_from_before_a_restart_does_not_count_by_itself() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    held = places(driver, job_id)
    driver.restart()
    driver.join("w1")
    driver.report("w1", held["w1"])
    assert driver.pool.totals.tasks_done == 0
    driver.join("w2")
    driver.live(600.0)
    assert runs(driver, job_id) == 2
    driver.finish_all()
    assert counts(driver, job_id) == Counts(done=2)


def test_a_member_that_has_ended_well_and_is_superseded_is_acknowledged() -> None:
    """An attempt of an earlier start comes back, and wins; the later one had ended already."""
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2)
    earlier = places(driver, job_id)
    driver.restart()
    driver.join("w3", "w4")
    driver.live(600.0)
    later = places(driver, job_id)
    assert set(later) == {"w3", "w4"}
    ended = next(name for name, attempt in later.items() if attempt[2] == earlier["w1"][2])
    driver.report(ended, later[ended])
    driver.join("w1", holds=[earlier["w1"]])
    acknowledged = [ack.numbers for ack in driver.of(fx.Acknowledge) if ack.worker == ended]
    assert acknowledged == [[later[ended][0]]]


# ---- limits


def test_it_needs_tokens_for_all_of_its_members() -> None:
    driver = PoolDriver()
    driver.own("matlab", 2)
    driver.join("w1", "w2", "w3")
    one = driver.submit(1, matlab=1)
    job_id = spanning(driver, 2, matlab=1)
    assert runs(driver, job_id) == 0
    [(name, attempt)] = places(driver, one).items()
    driver.report(name, attempt)
    assert runs(driver, job_id) == 2


def test_it_gets_no_tokens_that_others_of_the_same_plan_had() -> None:
    driver = PoolDriver()
    driver.own("matlab", 2)
    driver.join("w1", "w2", cpus=4)
    driver.hold_back()
    spanning(driver, 2, matlab=1)
    first = driver.submit(1, matlab=1, priority=200)
    other = driver.submit(1)
    driver.let_go()
    at_work = driver.jobs_at("w1") + driver.jobs_at("w2")
    assert sorted(at_work) == [first, other]


def test_it_needs_room_in_its_owner_s_quota_for_all_of_its_members() -> None:
    driver = PoolDriver()
    driver.tell(
        ev.SetUser(
            at=driver.now, cause="root", request="u", name="ada", change=ShareChange(max_running=2)
        )
    )
    driver.join("w1", "w2", "w3")
    one = driver.submit(1)
    job_id = spanning(driver, 2)
    assert runs(driver, job_id) == 0
    [(name, attempt)] = places(driver, one).items()
    driver.report(name, attempt)
    assert runs(driver, job_id) == 2


# ---- nobody starves, nobody blocks


def test_two_of_them_do_not_block_each_other() -> None:
    driver = PoolDriver()
    names = [f"w{n}" for n in range(4)]
    driver.join(*names)
    jobs = [spanning(driver, 3, owner=owner) for owner in ("ada", "bob", "cleo")]
    for job_id in jobs:
        assert runs(driver, job_id) == 3
        for name, attempt in places(driver, job_id).items():
            driver.report(name, attempt)


def stream(driver: PoolDriver, names: list[str], job_ids: list[int]) -> int:
    """Small tasks take whatever becomes free, one worker after the other; returns how many seconds
    went by until all of the jobs had run.
    """
    for second in range(600):
        if all(job_id in driver.ended for job_id in job_ids):
            return second
        if sum(job.waiting for job in driver.pool.jobs if job.owner == "bob") < 10:
            driver.submit(20, owner="bob", priority=100)
        driver.live(1.0)
        for job_id in job_ids:
            for name, attempt in places(driver, job_id).items():
                driver.report(name, attempt)
        name = names[second % len(names)]
        for attempt in driver.held(name)[:1]:
            if attempt[1] not in job_ids:
                driver.report(name, attempt)
    raise AssertionError(f"one of {job_ids} starves")


def test_a_stream_of_small_tasks_does_not_starve_it() -> None:
    driver = PoolDriver(Config(starving_seconds=10.0))
    names = [f"w{n}" for n in range(4)]
    driver.join(*names)
    driver.submit(20, owner="bob")
    job_id = spanning(driver, 4)
    assert stream(driver, names, [job_id]) < 30


def test_without_keeping_workers_it_would() -> None:
    driver = PoolDriver(Config(starving_seconds=10_000.0))
    names = [f"w{n}" for n in range(4)]
    driver.join(*names)
    driver.submit(20, owner="bob")
    job_id = spanning(driver, 4)
    with pytest.raises(AssertionError, match="starves"):
        stream(driver, names, [job_id])


def test_two_that_starve_are_served_one_after_the_other() -> None:
    driver = PoolDriver(Config(starving_seconds=10.0))
    names = [f"w{n}" for n in range(4)]
    driver.join(*names)
    driver.submit(20, owner="bob")
    jobs = [spanning(driver, 3), spanning(driver, 4, owner="cleo")]
    assert stream(driver, names, jobs) < 60


def test_workers_kept_in_vain_are_let_go() -> None:
    driver = PoolDriver(Config(starving_seconds=10.0))
    driver.join("w1", "w2", cpus=2)
    driver.submit(100, owner="bob")
    job_id = spanning(driver, 2, cpus=2)
    driver.live(15.0)
    kept_for = [worker.kept_for for worker in driver.pool.workers.values()]
    assert [job and job.id for job in kept_for] == [job_id, job_id]
    driver.cancel(job_id)
    driver.wait(1.0)
    assert job_id not in [job.id for job in driver.pool.state.kept]


# ---- what users see


def test_explain_says_how_many_workers_it_needs_at_once() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", cpus=2)
    driver.submit(1, cpus=2)
    job_id = spanning(driver, 2, cpus=2)
    found = driver.pool.explain(driver.pool.state.jobs[job_id], driver.now)
    reasons = {refusal.reason: refusal for refusal in found.job_reasons}
    refusal = reasons[Reason.TOGETHER]
    assert (refusal.wanted, refusal.found) == ("2 workers at once", "1 has room")
    assert reason_text(refusal) == (
        "its tasks start together or not at all (wanted 2 workers at once, found 1 has room)"
    )
    assert found.ever


def test_explain_says_if_there_are_never_enough_workers() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 3)
    found = driver.pool.explain(driver.pool.state.jobs[job_id], driver.now)
    assert not found.ever
    [refusal] = [each for each in found.job_reasons if each.reason is Reason.TOGETHER]
    assert refusal.found == "2 have room, 2 could ever run one"


def test_explain_says_that_others_are_still_being_stopped() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    job_id = spanning(driver, 2, max_failures=2)
    driver.fail("w1", places(driver, job_id)["w1"])
    driver.live(60.0)
    found = driver.pool.explain(driver.pool.state.jobs[job_id], driver.now)
    refusal = next(each for each in found.job_reasons if each.reason is Reason.TOGETHER)
    assert refusal.found == "1 member is still being stopped"


# ---- whatever happens


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["span", "one", "done", "fail", "killed", "lose", "join", "cancel", "time", "restart"]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_members_run_together_or_not_at_all_whatever_happens(steps: list[tuple[str, int]]) -> None:
    """The driver checks the pool's invariants after each event."""
    driver = PoolDriver(Config(starving_seconds=5.0))
    names = ["w0", "w1", "w2", "w3"]
    driver.join(*names, cpus=2)
    for what, n in steps:
        name = names[n % 4]
        known = name in driver.pool.workers
        held = driver.held(name) if known else []
        jobs = [job.id for job in driver.pool.jobs]
        if what == "span":
            spanning(driver, 2 + n % 3, max_failures=2, owner="ada" if n % 2 else "bob")
        elif what == "one":
            driver.submit(1 + n)
        elif what in ("done", "fail", "killed") and held:
            outcome = {"done": Outcome.DONE, "fail": Outcome.FAILED, "killed": Outcome.KILLED}[what]
            driver.report(name, held[n % len(held)], outcome=outcome)
        elif what == "lose" and known:
            driver.lose(name)
        elif what == "join":
            driver.join(name, cpus=2, holds=held)
        elif what == "cancel" and jobs:
            driver.cancel(jobs[n % len(jobs)])
        elif what == "time":
            driver.live(1.0 + 10 * n, step=5.0)
        elif what == "restart":
            driver.restart()
    for name in names:
        driver.join(name, cpus=2, incarnation="other")
    driver.live(700.0, step=20.0)
    driver.finish_all(rounds=200)
    for _ in range(20):
        driver.live(100.0, step=20.0)
        driver.finish_all(rounds=200)
    assert not list(driver.pool.jobs)


def test_in_a_large_pool_not_every_pass_looks_at_all_workers_for_it() -> None:
    """For one that waits for room, each pass would take several times as long."""
    driver = PoolDriver()
    names = [f"w{n}" for n in range(FEW_WORKERS + 1)]
    driver.join(*names)
    driver.submit(2)
    job_id = spanning(driver, FEW_WORKERS)
    assert runs(driver, job_id) == 0
    for name in names:
        for attempt in driver.held(name):
            driver.report(name, attempt)
    assert runs(driver, job_id) == 0, "it was just looked for"
    driver.wait(TOGETHER_ROUND_SECONDS)
    assert runs(driver, job_id) == FEW_WORKERS


def test_of_many_that_ask_alike_one_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    find = Together.members

    def counted(self: Together, job: Job, *more: Any) -> Members:
        looked.append(job.id)
        return find(self, job, *more)

    monkeypatch.setattr(Together, "members", counted)
    driver = PoolDriver()
    driver.hold_back()
    driver.join("w1", "w2")
    for user in range(50):
        spanning(driver, 3, owner=f"user{user}")
    driver.let_go()
    assert len(looked) == 1
