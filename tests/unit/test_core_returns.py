"""Workers and managers that come back: what they hold is squared, and nothing counts twice."""

from __future__ import annotations

import msgspec
import pytest
from poolkit import Desk

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.records import Progress, TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.spec import OnWorkerLost
from kestrelctl.core.pool import Pool


def last_row(desk: Desk, index: int) -> TaskRecord:
    return [r for r in desk.records if isinstance(r, TaskRecord) and r.index == index][-1]


# -- failures are counted once ---------------------------------------------------------------------


def test_a_failure_whose_acknowledgement_was_lost_is_not_counted_again() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit(max_failures=2)
    failed = desk.held("a")[0]
    desk.fail("a", failed)
    desk.join("a", holds=[failed])
    desk.fail("a", failed)
    desk.live(2.0)
    assert last_row(desk, 0).failures == 1
    desk.report("a")
    assert desk.ended == [1]


def test_nor_after_a_restart_of_the_manager() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit(max_failures=2)
    failed = desk.held("a")[0]
    desk.fail("a", failed)
    desk.restart()
    desk.fail("a", failed)
    desk.join("a", holds=[failed])
    assert failed not in desk.held("a")
    assert last_row(desk, 0).failures == 1


def test_nor_if_a_loss_was_written_over_it() -> None:
    desk = Desk()
    desk.join("a", "b")
    desk.submit(max_failures=2)
    [first] = [name for name in "ab" if desk.held(name)]
    failed = desk.held(first)[0]
    desk.fail(first, failed)
    desk.lose(first)
    desk.live(2.0)
    [second] = [name for name in "ab" if name != first]
    desk.lose(second)
    desk.restart()
    desk.join(first, holds=[failed])
    desk.fail(first, failed)
    assert last_row(desk, 0).failures == 1


def test_a_failure_from_before_the_restart_that_nobody_knew_is_counted() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit(max_failures=2)
    attempt = desk.held("a")[0]
    desk.restart()
    desk.fail("a", attempt)
    assert last_row(desk, 0).failures == 1


def test_a_retry_is_not_spoiled_by_an_old_failure() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit()
    failed = desk.held("a")[0]
    desk.fail("a", failed)
    desk.lose("a")
    desk.retry(job)
    desk.restart()
    desk.join("a", holds=[failed])
    desk.fail("a", failed)
    desk.wait(4.0)
    assert job in desk.pool.state.jobs
    assert len(desk.held("a")) == 1


def test_a_hello_does_not_revive_what_was_refused_and_acknowledged_meanwhile() -> None:
    """The report and the hello of a worker cross the news that it was believed dead."""
    desk = Desk()
    desk.join("a")
    job = desk.submit()
    given_up = desk.held("a")[0]
    desk.lose("a")
    desk.fail("a", given_up)
    assert [ack.numbers for ack in desk.of(fx.Acknowledge)] == [[given_up[0]]]
    desk.join("a", holds=[given_up])
    assert given_up not in desk.held("a")
    desk.report("a", seconds=1.0)
    assert desk.ended == [job]


# -- losses that were none -------------------------------------------------------------------------


def test_an_attempt_that_is_found_again_was_not_lost() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit(max_losses=2)
    running = desk.held("a")
    for _ in range(5):
        desk.lose("a")
        desk.join("a", holds=running)
    assert job in desk.pool.state.jobs
    assert last_row(desk, 0).losses == 0
    assert desk.pool.state.totals.attempts_lost == 0


def test_one_that_a_new_process_no_longer_has_stays_lost() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit()
    desk.lose("a")
    desk.join("a", incarnation="two")
    assert last_row(desk, 0).losses == 1


def test_waiting_for_a_worker_ends_when_its_new_process_does_not_have_the_task() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit(on_worker_lost=OnWorkerLost.WAIT)
    first = desk.held("a")
    desk.lose("a")
    desk.join("a", incarnation="two")
    assert desk.held("a") != first
    assert desk.jobs_at("a") == [1]
    assert last_row(desk, 0).losses == 1, "else a task that ends its worker would run for ever"


# -- cancelled jobs come to their end ------------------------------------------------------------


def test_a_kill_that_was_lost_with_its_attempt_does_not_keep_a_cancelled_job_alive() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit()
    desk.cancel(job)
    desk.join("a", holds=[])
    assert desk.ended == [job]


def test_a_kill_that_was_lost_is_repeated() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit()
    running = desk.held("a")
    desk.cancel(job)
    desk.join("a", holds=running)
    (welcome,) = desk.of(fx.Welcome)
    assert welcome.kill == [running[0][0]]


@pytest.mark.parametrize("killed_first", [True, False])
def test_what_is_given_back_while_its_job_is_cancelled_is_over(killed_first: bool) -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit(20)
    desk.report("a", seconds=0.01)
    running, *waiting = desk.held("a")
    desk.cancel(job)
    returned = ev.Returned(at=desk.now, worker="a", numbers=[number for number, *_ in waiting])
    if killed_first:
        desk.report("a", running, outcome=Outcome.KILLED)
    desk.tell(returned)
    if not killed_first:
        desk.report("a", running, outcome=Outcome.KILLED)
    assert desk.ended == [job]


def test_a_cancelled_job_does_not_wait_for_a_worker_that_is_away() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit(on_worker_lost=OnWorkerLost.WAIT)
    desk.cancel(job)
    desk.lose("a")
    assert desk.ended == [job]


def test_a_cancelled_job_ends_after_a_restart_though_its_worker_never_returns() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit(100)
    desk.cancel(job)
    desk.restart()
    desk.wait(4.0)
    desk.wait(1.0)
    assert desk.ended == [job]
    [record] = desk.store().jobs(ids=[job])
    assert (record.state, record.counts.cancelled) == ("cancelled", 100)


# -- a manager that starts again -------------------------------------------------------------------


def test_counters_survive() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit(max_failures=2)
    desk.fail("a")
    desk.restart()
    desk.join("a")
    desk.fail("a")
    assert desk.ended == [job]


def test_what_an_old_attempt_reveals_is_made_durable_with_it() -> None:
    desk = Desk()
    desk.join("a", "b")
    job = desk.submit(10)
    desk.records = [r for r in desk.records if not isinstance(r, Progress)]
    desk.restart()
    desk.report("a", (1 << 40, job, 6))
    assert Progress(job, 7) in desk.records


def test_what_it_passes_over_is_done_even_when_nobody_is_asked_any_more() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit(10)
    desk.records = [r for r in desk.records if not isinstance(r, Progress)]
    desk.restart()
    for _ in range(5):
        desk.wait(1.0)
    desk.join("a", holds=[(1 << 40, job, 6)])
    desk.finish_all()
    assert desk.ended == [job]


def test_nobody_can_claim_what_no_manager_ever_sent() -> None:
    desk = Desk()
    old = desk.submit(10)
    desk.restart()
    young = desk.submit(10)
    unsent = [(5, young, 9), (desk.pool.state.next_number, old, 9), (6, old, 10), (7, old, -1)]
    desk.join("a", cpus=0.5, holds=unsent)
    assert desk.held("a") == []
    assert [job.cursor for job in desk.pool.state.jobs.values()] == [0, 0]


def test_a_connection_that_comes_and_goes_does_not_cut_the_time_to_answer_short() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit()
    running = desk.held("a")
    desk.restart()
    desk.tell(ev.Disconnected(at=desk.now))
    desk.wait(60.0)
    desk.tell(ev.Reconnected(at=desk.now))
    desk.wait(1.0)
    desk.join("b")
    assert desk.held("b") == []
    desk.join("a", holds=running)
    assert desk.held("a") == running
    assert job in desk.pool.state.jobs


def test_restoring_does_not_change_what_was_found() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit(10)
    desk.cancel(1)
    snapshot = desk.store().open()
    before = msgspec.json.encode(snapshot)
    Pool(snapshot)
    assert msgspec.json.encode(snapshot) == before


def test_what_dispatch_adds_is_not_measured_where_it_cannot_be() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit(2)
    running = desk.held("a")
    desk.restart()
    desk.join("a", holds=running)
    desk.report("a", *running)
    [job] = desk.pool.state.jobs.values()
    assert list(job.latencies) == []


# -- what a worker says that it has ----------------------------------------------------------------


def restored(*, cancelling: bool = False) -> Desk:
    """A manager's second start: of ten tasks of job 1, three had been handed out to two workers."""
    desk = Desk()
    desk.join("a", "b", cpus=3)
    desk.submit(10, max_running=3)
    if cancelling:
        desk.cancel(1)
    desk.restart()
    return desk


def test_what_is_adopted_is_charged_what_the_worker_says_and_waits_in_its_order() -> None:
    desk = restored()
    ad = WorkerAd(assets={"cpus": 2.0})
    holds = [(7, 1, 0, 0), (8, 1, 1, 1), (9, 1, 2, 0)]
    claims = [{"cpus": 500}, {"cpus": 2000}]
    desk.tell(
        ev.Joined(at=desk.now, worker="a", incarnation="one", ad=ad, holds=holds, claims=claims)
    )
    worker = desk.worker("a")
    assert (worker.running, worker.queued) == (1, 2), "the third does not pass the second"
    assert worker.free == {"cpus": 1500}


def test_an_old_attempt_does_not_bring_back_tasks_of_a_job_that_is_being_cancelled() -> None:
    desk = restored(cancelling=True)
    desk.join("a", holds=[(7, 1, 5)])
    assert desk.of(fx.Welcome)[-1].kill == [7]
    assert desk.pool.state.jobs[1].live.keys() == {0, 1, 2}


def test_a_loss_is_taken_back_once() -> None:
    """The attempt is found again, missing in one hello, and there in the next."""
    desk = Desk()
    desk.join("a")
    desk.submit()
    running = desk.held("a")
    desk.lose("a")
    desk.join("a", holds=running)
    desk.join("a")
    desk.join("a", holds=running)
    assert last_row(desk, 0).losses == 0
    assert desk.pool.state.totals.losses_found_again == 1


def test_what_a_new_process_with_more_room_does_not_have_was_lost_as_well() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit(on_worker_lost=OnWorkerLost.WAIT)
    desk.lose("a")
    desk.join("a", cpus=2, incarnation="two")
    assert desk.pool.state.totals.attempts_lost == 1
