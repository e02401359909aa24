"""A task that asks for several tokens does not starve under a stream of tasks that ask for one."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.share_change import ShareChange

STARVING = Config(starving_seconds=10.0)
STREAM = "bob"


def bound_to_one(driver: PoolDriver, name: str) -> None:
    """An admin lets a user have one task at workers at once."""
    change = ShareChange(max_running=1)
    driver.tell(ev.SetUser(at=driver.now, cause="root", request="u", name=name, change=change))


class TokenStream:
    """A pool with tokens, and tasks of one token each that never end coming.

    Each second one of them ends, so that there is never more than one token free by itself.
    """

    def __init__(self, tokens: int = 3, priority: int = 100, **more: int) -> None:
        self.driver = PoolDriver(STARVING)
        self.names = [f"w{n}" for n in range(8)]
        self.driver.join(*self.names)
        self.driver.own("matlab", tokens)
        for name, total in more.items():
            self.driver.own(name, total)
        self.priority = priority
        self.flow()

    def flow(self) -> None:
        """Somebody wants more tokens than there are."""
        if sum(job.waiting for job in self.driver.pool.jobs if job.owner == STREAM) < 10:
            self.driver.submit(20, owner=STREAM, matlab=1, priority=self.priority)

    def second(self) -> None:
        """A second goes by."""
        self.driver.live(1.0)
        self.flow()
        streaming = [
            name for name in self.names if self.driver.held(name) and self.owner(name) == STREAM
        ]
        if streaming:
            oldest = min(streaming, key=lambda name: self.driver.held(name)[0])
            self.driver.report(oldest, seconds=2.0)

    def owner(self, name: str) -> str:
        """Whose task a worker has."""
        [job_id] = self.driver.jobs_at(name)
        return self.driver.pool.state.jobs[job_id].owner

    def seconds(self, n: int) -> None:
        """Several go by."""
        for _ in range(n):
            self.second()

    def served(self, job_id: int) -> bool:
        """Whether a job has got its first task."""
        return bool(self.driver.pool.state.jobs[job_id].served_at)

    def kept(self) -> dict[str, int]:
        """Sort -> the job for which tokens of it are kept."""
        return {name: kept.job.id for name, kept in self.driver.pool.state.tokens.kept.items()}

    def held(self) -> int:
        """How many tokens are in use."""
        return self.driver.pool.state.tokens.held.get("matlab", 0) // 1000


def test_tokens_that_come_free_are_kept_for_who_has_waited_long() -> None:
    stream = TokenStream()
    job = stream.driver.submit(matlab=3)
    stream.seconds(8)
    assert (stream.kept(), stream.served(job)) == ({}, False)
    stream.seconds(8)
    assert stream.served(job)
    assert stream.held() == 3


def test_tokens_are_kept_for_all_members_of_a_job_that_spans_workers() -> None:
    stream = TokenStream()
    job = stream.driver.submit(3, matlab=1, span=3)
    while not stream.kept():
        assert not stream.served(job)
        stream.second()
    explained = stream.driver.pool.explain(stream.driver.pool.state.jobs[job], stream.driver.now)
    assert explained.job_reasons[0].wanted == "3 matlab"
    stream.seconds(4)
    assert stream.served(job)
    assert stream.held() == 3


def test_what_comes_beyond_what_is_kept_goes_on_to_others_at_once() -> None:
    stream = TokenStream(tokens=5)
    job = stream.driver.submit(matlab=2)
    while not stream.kept():
        stream.second()
    assert stream.kept() == {"matlab": job}
    stream.driver.own("matlab", 8)
    assert stream.served(job)
    assert stream.held() == 8
    stream.second()
    assert stream.kept() == {}


def test_a_job_that_got_its_tokens_for_one_task_shares_with_others_again() -> None:
    stream = TokenStream()
    job = stream.driver.submit(5, matlab=3)
    while not stream.served(job):
        stream.second()
    stream.second()
    assert stream.kept() == {}


def test_who_has_waited_longest_is_next() -> None:
    stream = TokenStream(tokens=2)
    first = stream.driver.submit(matlab=2, requires=("A",), owner="zoe")
    second = stream.driver.submit(matlab=2, owner="ada")
    stream.driver.live(12.0)
    assert list(stream.kept().values()) == [second]  # nobody could run the first
    stream.driver.join("a", tags=["A"])
    stream.seconds(3)
    assert (stream.served(first), stream.served(second)) == (False, True)
    [worker] = [n for n in stream.names if stream.driver.held(n) and stream.owner(n) != STREAM]
    third = stream.driver.submit(matlab=2, owner="ada")
    stream.driver.report(worker)
    stream.seconds(20)
    assert stream.served(first)
    assert not stream.served(third)


def test_a_task_that_asks_for_two_sorts_does_not_starve_under_tasks_of_one() -> None:
    stream = TokenStream(tokens=1, seats=1)
    driver = stream.driver
    driver.submit(1, seats=1, owner="eve")
    job = driver.submit(matlab=1, seats=1)
    stream.seconds(12)
    assert stream.kept() == {"matlab": job, "seats": job}
    eves = next(n for n in stream.names if driver.held(n) and stream.owner(n) == "eve")
    driver.submit(1, seats=1, owner="eve")
    driver.report(eves)
    stream.seconds(2)
    assert stream.served(job)


def test_nothing_is_kept_among_tasks_that_ask_alike() -> None:
    driver = PoolDriver(STARVING)
    driver.join("w1", "w2")
    driver.own("matlab", 2)
    driver.submit(10, matlab=2, owner=STREAM)
    driver.submit(10, matlab=2)
    driver.live(30.0)
    assert not driver.pool.state.tokens.kept


def test_who_comes_before_by_priority_takes_what_is_free() -> None:
    stream = TokenStream(priority=200)
    job = stream.driver.submit(matlab=3, priority=100)
    for _ in range(20):
        stream.second()
        assert stream.kept() == {}
    assert not stream.served(job)


def test_kept_tokens_are_given_up_for_who_comes_before_by_priority() -> None:
    stream = TokenStream()
    stream.driver.submit(matlab=3)
    while stream.held() == 3:
        stream.second()
    urgent = stream.driver.submit(matlab=1, priority=200)
    assert stream.served(urgent)
    assert stream.kept() == {}


def test_a_cancelled_job_gives_its_tokens_back_at_once() -> None:
    stream = TokenStream()
    job = stream.driver.submit(matlab=3)
    while stream.held() == 3:
        stream.second()
    stream.driver.cancel(job)
    assert (stream.kept(), stream.held()) == ({}, 3)


@pytest.mark.parametrize("wanted", ["more than there are", "room", "quota"])
def test_nothing_is_kept_for_who_could_not_use_it(wanted: str) -> None:
    stream = TokenStream()
    if wanted == "quota":
        bound_to_one(stream.driver, "ada")
        stream.driver.submit(1)
    spec = {"cpus": 64} if wanted == "room" else {}
    stream.driver.submit(matlab=4 if wanted == "more than there are" else 3, **spec)
    for _ in range(20):
        stream.second()
        assert stream.kept() == {}


def test_nothing_is_kept_of_what_a_service_holds_for_good() -> None:
    stream = TokenStream()
    stream.driver.submit(1, matlab=1, service=True, priority=255)
    stream.second()
    stream.driver.submit(matlab=3)
    for _ in range(20):
        stream.second()
        assert stream.kept() == {}


def test_fewer_tokens_than_are_kept_give_them_up() -> None:
    stream = TokenStream()
    stream.driver.submit(matlab=3)
    while not stream.kept():
        stream.second()
    stream.driver.own("matlab", 2)
    assert stream.kept() == {}


def test_why_a_job_waits_names_for_whom_tokens_are_kept() -> None:
    stream = TokenStream()
    job = stream.driver.submit(matlab=3)
    while stream.held() == 3:
        stream.second()
    driver = stream.driver

    def found(job_id: int) -> list[str]:
        reasons = driver.pool.explain(driver.pool.state.jobs[job_id], driver.now).job_reasons
        return [reason.found for reason in reasons if reason.reason is Reason.TOKENS]

    assert found(job) == ["1 of 3 free, kept for it"]
    other = next(each.id for each in driver.pool.jobs if each.owner == STREAM and each.waiting)
    assert found(other) == [f"0 of 3 free, 3 kept for job {job}"]


def test_no_worker_is_kept_for_whom_a_quota_stops() -> None:
    driver = PoolDriver(STARVING)
    driver.join("w1", cpus=4)
    bound_to_one(driver, "ada")
    driver.submit(1, cpus=2)
    driver.submit(1, cpus=4)
    driver.submit(1, cpus=1, owner=STREAM)
    driver.live(20.0)
    assert driver.worker("w1").kept_for is None
