"""Workers and managers that come back: what they hold is squared, and nothing counts twice."""

from __future__ import annotations

import msgspec
import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import Progress, TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool


def last_row(driver: PoolDriver, index: int) -> TaskRecord:
    return [r for r in driver.records if isinstance(r, TaskRecord) and r.index == index][-1]


# -- failures are counted once ---------------------------------------------------------------------


def test_a_failure_whose_acknowledgement_was_lost_is_not_counted_again() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(max_failures=2)
    failed = driver.held("a")[0]
    driver.fail("a", failed)
    driver.join("a", holds=[failed])
    driver.fail("a", failed)
    driver.live(2.0)
    assert last_row(driver, 0).failures == 1
    driver.report("a")
    assert driver.ended == [1]


def test_nor_after_a_restart_of_the_manager() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(max_failures=2)
    failed = driver.held("a")[0]
    driver.fail("a", failed)
    driver.restart()
    driver.fail("a", failed)
    driver.join("a", holds=[failed])
    assert failed not in driver.held("a")
    assert last_row(driver, 0).failures == 1


def test_nor_if_a_loss_was_written_over_it() -> None:
    driver = PoolDriver()
    driver.join("a", "b")
    driver.submit(max_failures=2)
    [first] = [name for name in "ab" if driver.held(name)]
    failed = driver.held(first)[0]
    driver.fail(first, failed)
    driver.lose(first)
    driver.live(2.0)
    [second] = [name for name in "ab" if name != first]
    driver.lose(second)
    driver.restart()
    driver.join(first, holds=[failed])
    driver.fail(first, failed)
    assert last_row(driver, 0).failures == 1


def test_a_failure_from_before_the_restart_that_nobody_knew_is_counted() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(max_failures=2)
    attempt = driver.held("a")[0]
    driver.restart()
    driver.fail("a", attempt)
    assert last_row(driver, 0).failures == 1


def test_a_retry_is_not_spoiled_by_an_old_failure() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit()
    failed = driver.held("a")[0]
    driver.fail("a", failed)
    driver.lose("a")
    driver.retry(job)
    driver.restart()
    driver.join("a", holds=[failed])
    driver.fail("a", failed)
    driver.wait(4.0)
    assert job in driver.pool.state.jobs
    assert len(driver.held("a")) == 1


def test_a_hello_does_not_revive_what_was_refused_and_acknowledged_meanwhile() -> None:
    """The report and the hello of a worker cross the news that it was believed dead."""
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit()
    given_up = driver.held("a")[0]
    driver.lose("a")
    driver.fail("a", given_up)
    assert [ack.numbers for ack in driver.of(fx.Acknowledge)] == [[given_up[0]]]
    driver.join("a", holds=[given_up])
    assert given_up not in driver.held("a")
    driver.report("a", seconds=1.0)
    assert driver.ended == [job]


def test_a_refused_end_of_a_repetition_does_not_kill_the_attempt_that_survived() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(max_losses=9)
    [survivor] = driver.held("a")
    driver.lose("a")
    driver.join("b")
    [repetition] = driver.held("b")
    driver.join("a", holds=[survivor])
    driver.report("b", repetition, outcome=Outcome.KILLED)
    driver.lose("a")
    driver.join("a", holds=[survivor])
    assert driver.held("a") == [survivor]
    assert driver.of(fx.Welcome)[-1].kill == []


# -- losses that were none -------------------------------------------------------------------------


def test_an_attempt_that_is_found_again_was_not_lost() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(max_losses=2)
    running = driver.held("a")
    for _ in range(5):
        driver.lose("a")
        driver.join("a", holds=running)
    assert job in driver.pool.state.jobs
    assert last_row(driver, 0).losses == 0
    assert driver.pool.state.totals.attempts_lost == 0


def test_a_loss_that_counts_is_taken_back_after_one_of_its_attempt_that_did_not() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(max_losses=2)
    running = driver.held("a")
    driver.lose("a", begun=False)
    driver.join("a", holds=running)
    for _ in range(3):
        driver.lose("a")
        driver.join("a", holds=running)
    assert job in driver.pool.state.jobs
    assert last_row(driver, 0).losses == 0


def test_one_that_a_new_process_no_longer_has_stays_lost() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    driver.lose("a")
    driver.join("a", incarnation="two")
    assert last_row(driver, 0).losses == 1


def test_waiting_for_a_worker_ends_when_its_new_process_does_not_have_the_task() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(on_worker_lost=OnWorkerLost.WAIT)
    first = driver.held("a")
    driver.lose("a")
    driver.join("a", incarnation="two")
    assert driver.held("a") != first
    assert driver.jobs_at("a") == [1]
    assert last_row(driver, 0).losses == 1, "else a task that ends its worker would run for ever"


# -- cancelled jobs come to their end ------------------------------------------------------------


def test_a_kill_that_was_lost_with_its_attempt_does_not_keep_a_cancelled_job_alive() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit()
    driver.cancel(job)
    driver.join("a", holds=[])
    assert driver.ended == [job]


def test_a_kill_that_was_lost_is_repeated() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit()
    running = driver.held("a")
    driver.cancel(job)
    driver.join("a", holds=running)
    (welcome,) = driver.of(fx.Welcome)
    assert welcome.kill == [running[0][0]]


@pytest.mark.parametrize("killed_first", [True, False])
def test_what_is_given_back_while_its_job_is_cancelled_is_over(killed_first: bool) -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(20)
    driver.report("a", seconds=0.01)
    running, *waiting = driver.held("a")
    driver.cancel(job)
    returned = ev.Returned(at=driver.now, worker="a", numbers=[number for number, *_ in waiting])
    if killed_first:
        driver.report("a", running, outcome=Outcome.KILLED)
    driver.tell(returned)
    if not killed_first:
        driver.report("a", running, outcome=Outcome.KILLED)
    assert driver.ended == [job]


def test_a_cancelled_job_does_not_wait_for_a_worker_that_is_away() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(on_worker_lost=OnWorkerLost.WAIT)
    driver.cancel(job)
    driver.lose("a")
    assert driver.ended == [job]


def test_a_cancelled_job_ends_after_a_restart_though_its_worker_never_returns() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(100)
    driver.cancel(job)
    driver.restart()
    driver.wait(driver.pool.config.reconcile_seconds + 1.0)
    driver.wait(1.0)
    assert driver.ended == [job]
    [record] = driver.store().jobs(ids=[job])
    assert (record.state, record.counts.cancelled) == ("cancelled", 100)


# -- a manager that starts again -------------------------------------------------------------------


def test_counters_survive() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(max_failures=2)
    driver.fail("a")
    driver.restart()
    driver.join("a")
    driver.fail("a")
    assert driver.ended == [job]


def test_what_an_old_attempt_reveals_is_made_durable_with_it() -> None:
    driver = PoolDriver()
    driver.join("a", "b")
    job = driver.submit(10)
    driver.records = [r for r in driver.records if not isinstance(r, Progress)]
    driver.restart()
    driver.report("a", (1 << 40, job, 6))
    assert Progress(job, 7) in driver.records


def test_what_it_passes_over_is_done_even_when_nobody_is_asked_any_more() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(10)
    driver.records = [r for r in driver.records if not isinstance(r, Progress)]
    driver.restart()
    driver.live(driver.pool.config.reconcile_seconds + 1.0)
    driver.join("a", holds=[(1 << 40, job, 6)])
    driver.finish_all()
    assert driver.ended == [job]


def test_nobody_can_claim_what_no_manager_ever_sent() -> None:
    driver = PoolDriver()
    old = driver.submit(10)
    driver.restart()
    young = driver.submit(10)
    driver.join("b")
    [of_another] = driver.held("b")
    unsent = [(5, young, 9, -1), (6, old, 0, -1), (*of_another, -1)]
    seals = driver.seals("b", [(5, young, 9), (6, old, 0), of_another])
    hello = ev.Joined(
        at=driver.now,
        worker="a",
        incarnation="one",
        ad=WorkerAd(assets={"cpus": 0.5}),
        holds=unsent,
        seals=seals,
    )
    driver.tell(hello)
    assert driver.held("a") == []
    assert driver.of(fx.Welcome)[-1].kill == [5, 6, of_another[0]]
    assert [job.cursor for job in driver.pool.state.jobs.values()] == [1, 0]


def test_a_connection_that_comes_and_goes_does_not_cut_the_time_to_answer_short() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit()
    running = driver.held("a")
    driver.restart()
    driver.tell(ev.Disconnected(at=driver.now))
    driver.wait(60.0)
    driver.tell(ev.Reconnected(at=driver.now))
    driver.wait(1.0)
    driver.join("b")
    assert driver.held("b") == []
    driver.join("a", holds=running)
    assert driver.held("a") == running
    assert job in driver.pool.state.jobs


def test_restoring_does_not_change_what_was_found() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(10)
    driver.cancel(1)
    snapshot = driver.store().open()
    before = msgspec.json.encode(snapshot)
    Pool(snapshot)
    assert msgspec.json.encode(snapshot) == before


def test_what_dispatch_adds_is_not_measured_where_it_cannot_be() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(2)
    running = driver.held("a")
    driver.restart()
    driver.join("a", holds=running)
    driver.report("a", *running)
    [job] = driver.pool.state.jobs.values()
    assert list(job.latencies) == []


def test_a_failure_that_was_counted_before_a_restart_is_not_had_again_with_a_hello() -> None:
    """Its acknowledgement was lost, so the worker still has it."""
    driver = PoolDriver()
    driver.join("a")
    driver.submit(max_failures=3)
    [attempt] = driver.held("a")
    driver.fail("a")
    driver.restart()
    driver.join("a", holds=[attempt])
    assert driver.of(fx.Welcome)[-1].kill == [attempt[0]]
    assert attempt not in driver.held("a")


def test_an_attempt_that_two_sessions_of_an_account_name_is_with_the_first() -> None:
    driver = PoolDriver()
    driver.join("w@pool/1")
    driver.submit()
    [attempt] = driver.held("w@pool/1")
    driver.restart()
    driver.join("w@pool/2", holds=[attempt])
    driver.join("w@pool/1", holds=[attempt])
    assert driver.held("w@pool/2") == [attempt]
    assert driver.of(fx.Welcome)[-1].kill == [attempt[0]]


# -- what a worker says that it has ----------------------------------------------------------------


def restored(*, cancelling: bool = False) -> PoolDriver:
    """A manager's second start: of ten tasks of job 1, three had been handed out to two workers."""
    driver = PoolDriver()
    driver.join("a", "b", cpus=3)
    driver.submit(10, max_running=3)
    if cancelling:
        driver.cancel(1)
    driver.restart()
    return driver


def join_with(driver: PoolDriver, *holds: tuple[int, int, int, int]) -> None:
    """A worker of two processors joins; its attempts take half a processor (0), or two (1)."""
    driver.tell(
        ev.Joined(
            at=driver.now,
            worker="a",
            incarnation="one",
            ad=WorkerAd(assets={"cpus": 2.0}),
            holds=list(holds),
            claims=[{"cpus": 500}, {"cpus": 2000}],
            seals=driver.seals("a", [held[:3] for held in holds]),
        )
    )


def test_what_is_adopted_is_charged_what_the_worker_says_and_waits_in_its_order() -> None:
    driver = restored()
    join_with(driver, (7, 1, 0, 0), (8, 1, 1, 1), (9, 1, 2, 0))
    worker = driver.worker("a")
    assert (worker.running, worker.queued) == (1, 2), "the third does not pass the second"
    assert worker.free == {"cpus": 1500}


def test_nothing_is_sent_behind_what_waits_for_room() -> None:
    """One processor and a half are free, but an attempt that needs two is next."""
    driver = restored()
    join_with(driver, (7, 1, 0, 0), (8, 1, 1, 1))
    driver.submit()
    assert [number for number, _, _ in driver.held("a")] == [7, 8]


def test_an_old_attempt_does_not_bring_back_tasks_of_a_job_that_is_being_cancelled() -> None:
    driver = restored(cancelling=True)
    driver.join("a", holds=[(7, 1, 5)])
    assert driver.of(fx.Welcome)[-1].kill == [7]
    assert driver.pool.state.jobs[1].live.keys() == {0, 1, 2}


@pytest.mark.parametrize("said_of_both", [True, False])
def test_a_number_is_that_of_one_task_whatever_a_worker_says(said_of_both: bool) -> None:
    driver = PoolDriver()
    driver.join("a", cpus=2)
    driver.submit(2)
    first, second = driver.held("a")
    wrong = (first[0], 1, second[2])
    hello = ev.Joined(
        at=driver.now,
        worker="a",
        incarnation="one",
        ad=WorkerAd(assets={"cpus": 2.0}),
        holds=[(*first, 0), (*wrong, 0)] if said_of_both else [(*wrong, 0)],
        claims=[{"cpus": 1000}],
        seals=driver.seals("a", [first, second]),
    )
    driver.tell(hello)
    assert driver.of(fx.Welcome)[-1].kill == [first[0]]
    assert driver.held("a")[0] == first
    driver.cancel(1)
    driver.report("a", *driver.held("a"), outcome=Outcome.KILLED)
    assert driver.ended == [1]


def test_an_attempt_is_where_it_was_sent_whoever_else_names_it() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    [sent] = driver.held("a")
    driver.join("b", holds=[sent])
    assert driver.held("a") == [sent]
    assert driver.of(fx.Welcome)[-1].kill == [sent[0]]
    assert driver.of(fx.Kill) == []


def test_a_loss_is_taken_back_once() -> None:
    """The attempt is found again, missing in one hello, and there in the next.

    It is one of an earlier start: of its own the manager knows that it is over.
    """
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    running = driver.held("a")
    driver.restart()
    driver.join("a", holds=running)
    driver.lose("a")
    driver.join("a", holds=running)
    driver.join("a")
    driver.join("a", holds=running)
    assert last_row(driver, 0).losses == 0
    assert driver.pool.state.totals.losses_found_again == 1


@pytest.mark.parametrize("cpus", [1, 8])
def test_what_a_new_process_with_other_room_does_not_have_was_lost_as_well(cpus: float) -> None:
    driver = PoolDriver()
    driver.join("a", cpus=4)
    driver.submit(4, on_worker_lost=OnWorkerLost.WAIT)
    driver.lose("a")
    driver.join("a", cpus=cpus, incarnation="two")
    assert driver.pool.state.totals.attempts_lost == 4


# -- what a new process goes on with ---------------------------------------------------------------


def test_what_a_new_process_goes_on_with_was_never_lost() -> None:
    """It came back before anybody had noticed that the old one was gone."""
    driver = PoolDriver()
    driver.join("a", cpus=2)
    job = driver.submit(2, max_losses=1)
    kept, gone = driver.held("a")
    driver.now += 0.001
    driver.tell(ev.Heard(at=driver.now, worker="a"))
    driver.join("b")
    driver.join("a", cpus=2, incarnation="two", holds=[kept])
    assert driver.held("a") == [kept]
    assert driver.of(fx.Welcome)[-1].kill == []
    assert last_row(driver, gone[2]).state is TaskState.LOST
    driver.report("a", kept)
    assert last_row(driver, kept[2]).state is TaskState.DONE
    assert driver.ended == [job]
    assert driver.pool.state.totals.attempts_lost == 1


def test_what_a_new_process_goes_on_with_is_found_again_before_another_has_it() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(max_losses=2)
    [kept] = driver.held("a")
    driver.lose("a")
    driver.join("a", incarnation="two", holds=[kept])
    assert driver.held("a") == [kept]
    driver.report("a", kept)
    assert driver.ended == [job]
    assert last_row(driver, 0).losses == 0


def test_it_wins_over_a_repetition_that_has_begun_meanwhile() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(max_losses=2)
    [kept] = driver.held("a")
    driver.lose("a")
    driver.join("b")
    [repetition] = driver.held("b")
    driver.join("a", incarnation="two", holds=[kept])
    assert driver.held("a") == [kept]
    assert driver.held("b") == []
    assert driver.of(fx.Kill)[-1].numbers == [repetition[0]]
    driver.report("a", kept)
    assert driver.ended == [job]


def test_it_is_stopped_if_a_repetition_has_ended_meanwhile() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(max_losses=2)
    [kept] = driver.held("a")
    driver.lose("a")
    driver.join("b")
    driver.report("b")
    assert driver.ended == [job]
    driver.join("a", incarnation="two", holds=[kept])
    assert driver.of(fx.Welcome)[-1].kill == [kept[0]]
    assert driver.held("a") == []
