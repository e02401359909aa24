"""While the store cannot be written nothing is begun, shown as done, or lost."""

from __future__ import annotations

import pytest
from byhand import POOL, SOON_SECONDS, M, Manager, Puppet

from kestrel_worlds.network import DOMAIN
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import StoreFull
from kestrelctl.manager.commits import RETRY_SECONDS, STUCK_SECONDS
from kestrelctl.manager.sending.acknowledgements import COMPANY_SECONDS
from kestrelctl.protocol import answers, requests, workers
from kestrelctl.protocol import answers as overview_answers

WHY = "a disk that was told to be full"


@pytest.fixture
def house() -> Manager:
    """The disk is full since the first result of a job of a hundred tasks came."""
    house = Manager()
    fill_the_disk(house)
    return house


def fill_the_disk(house: Manager) -> None:
    """A worker has a hundred tasks, and ends one; that cannot be written."""
    house.hello()
    house.submit(count=100)
    house.wait(1.0)
    house.store.full = True
    report(house, house.attempts()[0])


def report(house: Manager, number: int) -> None:
    """A result of job 1, whose tasks are handed out in the order of their indexes."""
    house.report(number, index=house.attempts().index(number))


def asked(house: Manager, request: requests.Request, kind: type[M]) -> M:
    house.user.forget()
    house.ask(request)
    [found] = house.user.of(kind)
    return found


def come_back(house: Manager, *ended: int) -> None:
    """The worker does what it does when it is asked who it is: it says hello, and reports again."""
    numbers = house.attempts()
    holds = [(n, 1, i, -1 if n in ended else 0) for i, n in enumerate(numbers)]
    house.tell(
        workers.Hello(
            version=workers.VERSION,
            incarnation="one",
            greeting=2,
            ad=WorkerAd(),
            holds=[hold for hold in holds if hold[0] not in house.acknowledged()],
            claims=[{"cpus": 1000}],
        )
    )
    for number in ended:
        index = numbers.index(number)
        result = Result(number, 1, index, Outcome.DONE, house.clock.now - 1.0, 1.0)
        house.tell(workers.Report(results=[result]))


def greet(worker: Puppet, incarnation: str) -> None:
    hello = workers.Hello(
        version=workers.VERSION, incarnation=incarnation, greeting=1, ad=WorkerAd()
    )
    worker.say(hello, POOL)


def test_nothing_is_handed_out() -> None:
    house = Manager()
    known = house.puppet(f"w1@workers.{DOMAIN}/1")
    house.audit.machine(known.address, {})
    house.wait()
    greet(known, "one")
    house.wait(1.0)
    known.say(workers.Leaving(), POOL)
    house.wait()
    fill_the_disk(house)
    sent = house.attempts()
    for number in sent[1:]:
        report(house, number)
    known.forget()
    greet(known, "two")
    house.wait(5.0)
    assert house.attempts() == sent
    assert len(known.of(workers.Welcome)) == 1
    assert known.of(workers.Run) == []
    house.store.full = False
    house.wait(2 * RETRY_SECONDS)
    assert len(known.of(workers.Run)) == 1


def test_a_new_worker_waits_until_it_can_be_written_down(house: Manager) -> None:
    new = house.puppet(f"w1@workers.{DOMAIN}/1")
    house.audit.machine(new.address, {})
    house.wait()
    greet(new, "one")
    house.wait(5.0)
    assert len(new.of(workers.Welcome)) == 1
    assert new.of(workers.Run) == []
    house.store.full = False
    house.wait(2 * RETRY_SECONDS)
    assert len(new.of(workers.Run)) == 1


def test_whoever_waits_for_the_next_commit_hears_of_it_too() -> None:
    house = Manager(commit_seconds=(1.0, 1.0))
    house.wait(5.0)
    house.store.full = True
    house.submit()
    house.wait(0.5)
    house.submit()
    assert house.failures() == []
    house.wait(1.0)
    assert house.failures() == [StoreFull.code] * 2


def test_results_wait_at_their_workers(house: Manager) -> None:
    """However many come, the manager holds those only that came before it knew."""
    for number in house.attempts()[1:]:
        report(house, number)
    house.wait(5.0)
    assert house.manager.pool is not None
    assert house.manager.pool.totals.tasks_done == 1
    assert house.acknowledged() == []


def test_it_goes_on_by_itself_and_loses_and_repeats_nothing(house: Manager) -> None:
    sent = house.attempts()
    for number in sent[1:]:
        report(house, number)
    house.wait(5.0)
    house.worker.forget()
    house.store.full = False
    house.wait(RETRY_SECONDS + SOON_SECONDS)
    assert len(house.worker.of(workers.Who)) == 1
    house.worker.heard.insert(0, (0.0, workers.Run(spans=[(sent[0], 1, 0, len(sent), 0, 0)])))
    come_back(house, *sent[1:])
    house.wait(COMPANY_SECONDS + 1.0)
    assert sorted(set(house.acknowledged())) == sent
    assert len(house.attempts()) > len(sent)
    assert len(set(house.attempts())) == len(house.attempts())
    view = asked(house, requests.ListJobs(id="j", jobs="1"), answers.Jobs).jobs[0]
    assert (view.done, view.failed, view.lost) == (len(sent), 0, 0)
    assert house.audit.problems == []


def test_what_is_not_durable_is_not_shown_as_done(house: Manager) -> None:
    for number in house.attempts()[1:]:
        report(house, number)
    view = asked(house, requests.ListJobs(id="j", jobs="1"), answers.Jobs).jobs[0]
    assert (view.done, view.running, view.waiting) == (0, len(house.attempts()), 100 - view.running)
    overview = asked(house, requests.PoolOverview(id="o"), overview_answers.Overview)
    assert overview.jobs[0].done == 0
    assert overview.jobs[0].running == view.running
    page = asked(house, requests.ListTasks(id="t", job="1"), answers.Tasks)
    assert not any(task.state == "done" for task in page.tasks)


def test_a_job_that_would_have_ended_is_shown_as_active() -> None:
    house = Manager()
    house.hello()
    house.submit(count=1)
    house.wait(1.0)
    house.store.full = True
    report(house, house.attempts()[0])
    view = asked(house, requests.ListJobs(id="j", jobs="1"), answers.Jobs).jobs[0]
    assert (view.state, view.done, view.running) == ("active", 0, 1)


def test_everybody_who_asks_is_told(house: Manager) -> None:
    since = house.clock.now
    house.wait(7.0)
    overview = asked(house, requests.PoolOverview(id="o"), overview_answers.Overview)
    assert WHY in overview.store_error
    assert overview.store_error_since == pytest.approx(since, abs=0.2)
    assert set(overview.waiting) == {Reason.STORE_FAILING.value}
    why = asked(house, requests.ExplainJob(id="e", job="1"), answers.JobExplanation)
    assert [reason.reason for reason in why.job_reasons] == [Reason.STORE_FAILING]
    assert WHY in why.job_reasons[0].found


def test_another_error_does_not_begin_anew() -> None:
    house = Manager()
    house.wait(1.0)
    house.store.slowness = 2 * STUCK_SECONDS / 0.01
    house.store.full = True
    house.submit()
    house.wait(STUCK_SECONDS)
    first = asked(house, requests.PoolOverview(id="o"), overview_answers.Overview)
    house.wait(STUCK_SECONDS)
    later = asked(house, requests.PoolOverview(id="o"), overview_answers.Overview)
    assert first.store_error != later.store_error
    assert first.store_error_since == later.store_error_since is not None


@pytest.mark.parametrize(
    "request_",
    [
        requests.CancelJobs(id="c", jobs="1"),
        requests.RetryJobs(id="r", jobs="1"),
        requests.ForgetJobs(id="f", jobs="1"),
    ],
)
def test_a_change_is_refused_at_once_and_does_not_happen_later(
    house: Manager, request_: requests.Request
) -> None:
    refused = asked(house, request_, answers.Failed)
    assert refused.code in (StoreFull.code, "usage")
    house.store.full = False
    house.wait(5.0)
    assert [job.cancelling for job in house.store.jobs()] == [False]


def test_a_refusal_says_why_and_what_to_do(house: Manager) -> None:
    refused = asked(house, requests.CancelJobs(id="c", jobs="1"), answers.Failed)
    assert refused.code == StoreFull.code
    assert WHY in refused.cause
    assert refused.hint


def test_a_disk_that_does_not_answer_is_one_that_fails() -> None:
    house = Manager()
    house.hello()
    house.submit(count=100)
    house.wait(1.0)
    house.store.slowness = 100 * STUCK_SECONDS / 0.01
    sent = house.attempts()
    report(house, sent[0])
    house.wait(STUCK_SECONDS + SOON_SECONDS)
    overview = asked(house, requests.PoolOverview(id="o"), overview_answers.Overview)
    assert "takes" in overview.store_error
    sent = house.attempts()
    report(house, sent[-1])
    assert house.attempts() == sent
    house.store.slowness = 1.0
    house.wait(101 * STUCK_SECONDS)
    overview = asked(house, requests.PoolOverview(id="o"), overview_answers.Overview)
    assert overview.store_error == ""


def test_a_worker_that_comes_and_goes_fills_no_memory(
    house: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each loss and each return leaves a record; only the latest of a task is worth keeping."""
    monkeypatch.setattr("kestrelctl.manager.commits.MOST_WAITING_RECORDS", 20)
    commits = house.manager.commits
    assert commits is not None
    counts = []
    for greeting in range(2, 40):
        numbers = house.attempts()
        house.tell(
            workers.Hello(
                version=workers.VERSION,
                incarnation=f"life {greeting}",
                greeting=greeting,
                ad=WorkerAd(tags=(f"tag{greeting}",)),
                holds=[(n, 1, i, 0) for i, n in enumerate(numbers)],
                claims=[{"cpus": 1000}],
                seals=house.seals(),
            )
        )
        house.wait(2 * RETRY_SECONDS)
        counts.append(commits.waiting_records)
    assert max(counts) < 40, counts
    assert len({record.worker for record in house.store.open().workers}) == 1
