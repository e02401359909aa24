"""What a manager's shell promises, one promise at a time; the worker and the user are the test."""

from __future__ import annotations

import pytest
from byhand import SOON_SECONDS, Manager

from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.errors import StoreFull
from kestrelctl.manager.commits import RETRY_SECONDS
from kestrelctl.manager.sending.acknowledgements import COMPANY_SECONDS
from kestrelctl.protocol import answers, requests, workers


@pytest.fixture
def house() -> Manager:
    return Manager()


def at_work(house: Manager, **spec: object) -> int:
    """The worker is welcomed and has the first attempt of a job; returns its number."""
    house.hello()
    house.submit(**spec)  # type: ignore[arg-type]
    house.wait(1.0)
    return house.attempts()[0]


# -- durability ------------------------------------------------------------------------------------


@pytest.mark.parametrize("callbacks", range(1, 30))
def test_a_job_that_was_acknowledged_outlives_any_crash(callbacks: int) -> None:
    house = Manager()
    house.manager.kill_in_a_turn(callbacks)
    house.submit()
    house.wait(1.0)
    house.manager.kill()
    house.manager.start()
    house.wait(1.0)
    submitted = house.user.of(answers.Submitted)
    assert len(house.store.jobs()) >= len(submitted)
    assert house.audit.problems == []


def test_an_acknowledgement_waits_for_a_commit_that_is_under_way() -> None:
    """The result is in the batch that is being written when it is reported again."""
    house = Manager(commit_seconds=(1.0, 1.0))
    house.hello()
    house.submit()
    house.wait(5.0)
    [number] = house.attempts()
    house.report(number)
    house.tell(workers.Leaving())  # to a worker that leaves, acknowledgements are not held back
    result = Result(number, 1, 0, Outcome.DONE, house.clock.now - 1.0, 1.0)
    house.tell(workers.Report(results=[result], seals=house.seals()))
    assert house.acknowledged() == []
    house.wait(3.0)
    assert house.acknowledged() == [number] * 2
    assert house.audit.problems == []


def test_what_waits_for_a_commit_alone_does_not_wait_for_the_next() -> None:
    """A result that changes nothing is acknowledged after the commit that is under way."""
    house = Manager(commit_seconds=(1.0, 1.0))
    house.hello()
    house.tell(workers.Leaving())
    house.wait(5.0)
    house.submit()
    house.tell(workers.Report(results=[Result(7, 99, 0, Outcome.DONE, house.clock.now, 1.0)]))
    house.audit.kept(Result(7, 99, 0, Outcome.FAILED, house.clock.now, 1.0))
    house.wait(1.5)
    assert house.acknowledged() == [7]


def test_results_are_acknowledged_though_nothing_else_is_to_be_said(house: Manager) -> None:
    number = at_work(house)
    house.report(number)
    house.wait(COMPANY_SECONDS + SOON_SECONDS)
    assert house.acknowledged() == [number]


def test_and_those_that_come_later_are(house: Manager) -> None:
    number = at_work(house, count=2)
    house.report(number)
    house.wait(COMPANY_SECONDS + SOON_SECONDS)
    house.report(house.attempts()[-1], index=1)
    house.wait(COMPANY_SECONDS + SOON_SECONDS)
    assert house.acknowledged() == house.attempts()


def test_a_worker_that_sends_nothing_but_output_is_alive(house: Manager) -> None:
    number = at_work(house)
    for _ in range(60):
        house.tell(workers.Output(request="of nobody", offset=0))
        house.wait(0.5)
    house.report(number)
    house.wait(COMPANY_SECONDS + SOON_SECONDS)
    assert house.acknowledged() == [number]
    assert house.manager.pool is not None
    assert house.manager.pool.totals.leases_expired == 0


def test_acknowledgements_travel_with_the_next_attempts(house: Manager) -> None:
    number = at_work(house, count=3)
    house.report(number)
    house.wait(0.1)
    house.report(house.attempts()[-1], index=1)
    assert house.worker.of(workers.Run)[-1].ack == [number]
    assert house.worker.of(workers.Ack) == []


def test_a_leaving_worker_is_acknowledged_at_once(house: Manager) -> None:
    number = at_work(house)
    house.report(number)
    house.tell(workers.Leaving())
    assert house.acknowledged() == [number]


def test_told_to_stop_it_keeps_what_it_decided() -> None:
    house = Manager(commit_seconds=(0.3, 0.3))
    number = at_work(house)
    house.report(number)
    house.manager.terminate()
    house.wait(1.0)
    assert not house.manager.alive
    assert [job.state for job in house.store.jobs()] == ["done"]
    assert house.acknowledged() == [number]


# -- a full disk -----------------------------------------------------------------------------------


def test_users_hear_of_a_full_disk_at_once(house: Manager) -> None:
    house.store.full = True
    house.submit()
    assert house.failures() == [StoreFull.code]
    house.submit()
    assert house.failures() == [StoreFull.code] * 2


@pytest.mark.parametrize(
    "request_", [requests.CancelJobs(id="c", jobs="1"), requests.RetryJobs(id="r", jobs="1")]
)
def test_whoever_wants_a_change_while_the_disk_is_full_hears_of_it(
    house: Manager, request_: requests.Request
) -> None:
    at_work(house)
    house.store.full = True
    house.submit()  # the manager learns that its disk is full
    house.user.forget()
    house.ask(request_)
    house.wait(2 * RETRY_SECONDS)
    assert len(house.failures()) == 1


def test_what_was_decided_on_a_full_disk_is_done_when_there_is_room(house: Manager) -> None:
    number = at_work(house)
    house.store.full = True
    house.report(number)
    house.wait(10.0)
    assert house.acknowledged() == []
    house.store.full = False
    house.wait(RETRY_SECONDS + COMPANY_SECONDS + 1.0)
    assert house.acknowledged() == [number]
    assert [job.state for job in house.store.jobs()] == ["done"]


# -- time ------------------------------------------------------------------------------------------


def test_a_failed_task_is_tried_again_as_soon_as_it_may() -> None:
    house = Manager(Config(backoff_seconds=0.1))
    number = at_work(house, count=1, max_failures=3)
    house.wait(3.0)
    house.report(number, Outcome.FAILED)
    house.wait(0.1 + SOON_SECONDS)
    assert len(house.attempts()) == 2


def test_a_worker_that_gives_signs_of_life_is_not_given_up(house: Manager) -> None:
    number = at_work(house)
    beat = house.worker.of(workers.Welcome)[-1].heartbeat_seconds
    for _ in range(20):
        house.wait(beat)
        house.tell(workers.Heartbeat())
    assert house.attempts() == [number]
    assert house.worker.of(workers.Who) == []


def test_a_silent_worker_is_given_up(house: Manager) -> None:
    at_work(house)
    house.wait(60.0)
    house.tell(workers.Heartbeat())
    assert len(house.worker.of(workers.Who)) == 1


def test_the_pool_is_woken_at_the_moment_that_it_asked_for(house: Manager) -> None:
    """With nothing to do it asks for half a second; with a task at work for a tenth."""
    house.hello()
    house.wait(5.0)
    house.submit()
    house.wait(5.0)
    assert house.audit.problems == []


# -- who is there ----------------------------------------------------------------------------------


def test_a_worker_that_the_server_says_is_gone_is_gone(house: Manager) -> None:
    house.hello()
    assert house.worker.session is not None
    house.worker.session.send_presence("pool@pool")
    house.wait()
    house.worker.kill()
    house.wait()
    assert house.manager.pool is not None
    assert house.manager.pool.state.online == 0


def test_a_worker_to_whom_nothing_can_be_delivered_is_gone(house: Manager) -> None:
    house.hello()
    house.worker.kill()  # it had shown no presence: the server tells nobody
    house.submit()
    house.wait()
    assert house.manager.pool is not None
    assert house.manager.pool.state.online == 0


def test_a_manager_that_was_away_asks_everybody(house: Manager) -> None:
    house.hello()
    house.worker.forget()
    house.manager.drop_connection()
    house.wait(2.0)
    assert len(house.worker.of(workers.Who)) == 1


def test_without_a_connection_nobodys_silence_counts(house: Manager) -> None:
    house.hello()
    house.server.stop()
    house.wait(60.0)
    assert house.manager.pool is not None
    assert house.manager.pool.state.online == 1


def test_a_leaving_worker_is_sent_nothing_new(house: Manager) -> None:
    house.hello()
    house.tell(workers.Leaving())
    house.submit()
    house.wait(1.0)
    assert house.attempts() == []


# -- users -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("since_when", ["the submission", "later"])
def test_whoever_watches_is_told_of_the_end(house: Manager, since_when: str) -> None:
    house.hello()
    spec = JobSpec(program=Program(argv=("task",)), name="long")
    if since_when == "the submission":
        house.ask(requests.SubmitJob(id="s", spec=spec, watch=True))
    else:
        house.ask(requests.SubmitJob(id="s", spec=spec))
        house.ask(requests.Watch(id="w", jobs="1"))
    house.report(house.attempts()[0])
    house.wait(1.0)
    assert [ended.job.state for ended in house.user.of(answers.Ended)] == ["done"]


def test_two_retries_at_once_run_nothing_twice() -> None:
    """The rows that the second one would go by are about to be changed by the first."""
    house = Manager(Config(min_heartbeat_seconds=60.0), commit_seconds=(2.0, 2.0))
    house.hello()
    house.submit(count=2, max_failures=1)
    house.wait(5.0)
    for index in range(2):
        house.report(house.attempts()[-1], Outcome.FAILED, index)
    house.wait(10.0)
    house.ask(requests.RetryJobs(id="one", jobs="1"))
    house.report(house.attempts()[2], Outcome.DONE, 0)
    house.ask(requests.RetryJobs(id="two", jobs="1"))
    house.report(house.attempts()[3], Outcome.DONE, 1)
    house.wait(20.0)
    assert len(house.attempts()) == 4
    assert house.failures() == ["error"]
    [job] = house.store.jobs()
    assert (job.state, job.counts.done, job.counts.failed) == ("done", 2, 0)


def test_whoever_watches_a_job_is_told_even_if_it_ends_before_it_is_durable() -> None:
    """Submission and cancellation go into one commit, that after the one under way."""
    house = Manager(commit_seconds=(1.0, 1.0))
    house.wait(5.0)
    house.submit()
    spec = JobSpec(program=Program(argv=("task",)), name="long")
    house.ask(requests.SubmitJob(id="s", spec=spec, watch=True))
    house.ask(requests.CancelJobs(id="c", jobs="2"))
    house.wait(5.0)
    told = [(ended.job.job_id, ended.job.state) for ended in house.user.of(answers.Ended)]
    assert told == [(2, "cancelled")]


def test_whoever_does_not_go_on_watching_is_not_told(house: Manager) -> None:
    """A session that watches says so again before a minute is over."""
    house.hello()
    house.submit()
    house.ask(requests.Watch(id="w", jobs="1"))
    for _ in range(20):
        house.wait(4.0)
        house.tell(workers.Heartbeat())
    house.report(house.attempts()[0])
    house.wait(1.0)
    assert [job.state for job in house.store.jobs()] == ["done"]
    assert house.user.of(answers.Ended) == []
