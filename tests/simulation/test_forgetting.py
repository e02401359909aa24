"""Ended jobs are forgotten for good, whatever else is wanted of them meanwhile."""

from __future__ import annotations

import pytest
from byhand import Manager

from kestrelctl.core.model.result import Outcome
from kestrelctl.errors import NotFound, StoreFull, UsageError
from kestrelctl.manager.commits import RETRY_SECONDS
from kestrelctl.protocol import answers, requests

RETRY = requests.RetryJobs(id="r", jobs="1")
FORGET = requests.ForgetJobs(id="f", jobs="1")


def with_failed_jobs(n: int = 1, commit_seconds: float = 0.01) -> Manager:
    house = Manager(commit_seconds=(commit_seconds, commit_seconds))
    house.hello()
    for _ in range(n):
        house.submit(max_failures=1)
        house.wait(5 * commit_seconds)
        house.report(house.attempts()[-1], Outcome.FAILED)
    house.wait(5 * commit_seconds + 1.0)
    house.user.forget()
    return house


@pytest.mark.parametrize("first", [RETRY, FORGET], ids=["retry first", "forget first"])
def test_a_job_is_retried_or_forgotten_but_not_both(first: requests.Request) -> None:
    house = with_failed_jobs(commit_seconds=1.0)
    for request in (first, FORGET if first is RETRY else RETRY):
        house.ask(request)
    house.wait(10.0)
    assert [answer.id for answer in house.user.of(answers.Changed)] == [first.id]
    refused = NotFound.code if first is FORGET else UsageError.code
    assert house.failures() == [refused]
    assert len(house.store.jobs()) == (first is RETRY)


def test_nothing_can_be_forgotten_twice() -> None:
    house = with_failed_jobs(commit_seconds=1.0)
    house.ask(FORGET)
    house.ask(FORGET)
    house.wait(5.0)
    assert len(house.user.of(answers.Changed)) == 1
    assert house.failures() == [NotFound.code]


def test_whoever_wants_a_job_forgotten_hears_of_a_full_disk() -> None:
    house = with_failed_jobs()
    house.store.full = True
    house.ask(FORGET)
    house.wait(0.5)
    assert house.failures() == [StoreFull.code]
    house.store.full = False
    house.wait(2 * RETRY_SECONDS)
    assert house.store.jobs() == [], "it was said that the manager keeps trying"


def test_of_several_those_that_can_be_forgotten_are() -> None:
    house = with_failed_jobs(2)
    house.submit()
    house.wait(1.0)
    house.ask(requests.ForgetJobs(id="f", jobs="1,2,3"))
    house.wait(1.0)
    [failed] = house.user.of(answers.Failed)
    assert (failed.message, failed.cause) == ("job 3 is active", "it was done for 2 other jobs")
    assert [job.job_id for job in house.store.jobs()] == [3]


def test_many_jobs_are_cancelled_in_one_commit() -> None:
    house = Manager(commit_seconds=(1.0, 1.0))
    for _ in range(30):
        house.submit()
    house.wait(5.0)
    assert house.manager.commits is not None
    commits = house.manager.commits.seconds.count
    house.ask(requests.CancelJobs(id="c", jobs="all"))
    house.wait(3.0)
    [changed] = house.user.of(answers.Changed)
    assert len(changed.what) == 30
    assert house.manager.commits.seconds.count - commits <= 2
