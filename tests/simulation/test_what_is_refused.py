"""What a manager's shell refuses, and to whom."""

from __future__ import annotations

import pytest
from byhand import JOBS, Manager, Puppet

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import NotAllowed, NotFound, UsageError
from kestrelctl.protocol import answers, requests, workers


@pytest.fixture
def house() -> Manager:
    return Manager()


def asked(house: Manager, user: Puppet, request: requests.Request) -> list[object]:
    """What a user is answered."""
    user.forget()
    user.say(request, JOBS)
    house.wait(1.0)
    return [message for _, message in user.heard]


ON_AN_ENDED_JOB = [
    requests.Logs(id="r", job="1", task_id=0),
    requests.RetryJobs(id="r", jobs="1"),
    requests.ForgetJobs(id="r", jobs="1"),
]


@pytest.mark.parametrize("request_", ON_AN_ENDED_JOB)
def test_an_ended_job_is_its_owners(house: Manager, request_: requests.Request) -> None:
    house.fail_a_job()
    [refusal] = asked(house, house.stranger(), request_)
    assert isinstance(refusal, answers.Failed)
    assert refusal.code == NotAllowed.code
    [answer] = asked(house, house.user, request_)
    assert not isinstance(answer, answers.Failed)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (requests.CancelJobs(id="r", jobs="1"), NotAllowed.code),
        (requests.ForgetJobs(id="r", jobs="1"), NotAllowed.code),
        (requests.CancelJobs(id="r", jobs="all"), None),
        (requests.CancelJobs(id="r", jobs="last"), NotFound.code),
        (requests.DrainWorkers(id="r", names=["w0"]), NotAllowed.code),
    ],
)
def test_nobody_touches_what_another_has_at_work(
    house: Manager, request_: requests.Request, code: str | None
) -> None:
    house.hello()
    house.submit()
    house.worker.forget()
    [answer] = asked(house, house.stranger(), request_)
    assert (answer.code if isinstance(answer, answers.Failed) else None) == code
    assert house.worker.of(workers.Kill) == []
    assert house.manager.pool is not None
    assert not house.manager.pool.workers[house.worker.address].draining


def test_a_job_at_work_is_not_forgotten(house: Manager) -> None:
    house.hello()
    house.submit()
    house.ask(requests.ForgetJobs(id="r", jobs="1"))
    assert house.failures() == [UsageError.code]


@pytest.mark.parametrize(
    "hello",
    [
        workers.Hello(version=workers.VERSION + 1, incarnation="one", ad=WorkerAd()),
        workers.Hello(version=workers.VERSION - 1, incarnation="one", ad=WorkerAd()),
        workers.Hello(version=workers.VERSION, incarnation="one", ad=WorkerAd(host="x" * 10_000)),
    ],
)
def test_a_worker_that_this_pool_cannot_have_is_told_so(
    house: Manager, hello: workers.Hello
) -> None:
    house.tell(hello)
    assert len(house.worker.of(workers.Refused)) == 1
    assert house.worker.of(workers.Welcome) == []
    assert house.manager.pool is not None
    assert house.manager.pool.workers == {}


def test_a_worker_that_shows_the_jobs_address_no_presence_is_at_work_all_the_same(
    house: Manager,
) -> None:
    house.hello()
    assert house.worker.session is not None
    house.worker.session.send_presence(JOBS, "unavailable")
    house.wait()
    assert house.manager.pool is not None
    assert house.manager.pool.online == 1
