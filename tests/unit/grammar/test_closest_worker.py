"""Which worker comes closest to a job that none could ever run, and what is to be done about it."""

from __future__ import annotations

from poolkit import PoolDriver

from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol.answers import JobExplanation, JobView, Obstacle

JOB = JobView(job_id=7, name="", owner="ada", state="active", tasks=1, submitted_at=0.0)
HERE = "/home/ada"


def told(driver: PoolDriver, job_id: int) -> tuple[str, str | None]:
    """What people read of a job that waits: why, and what to do."""
    found = driver.pool.explain(driver.pool.state.jobs[job_id], driver.now)
    assert not found.ever
    return conclusion(explained(*((g.example, g.refusal) for g in found.groups)))


def explained(*refusals: tuple[str, Refusal]) -> JobExplanation:
    return JobExplanation(
        id="",
        job=JOB,
        waiting=1,
        job_reasons=[],
        obstacles=[Obstacle(workers=1, example=who, refusal=each) for who, each in refusals],
        could_run=0,
        ever=False,
    )


def test_who_lacks_only_what_a_way_of_submitting_asks_for_is_the_closest() -> None:
    driver = PoolDriver()
    driver.join("w1", tags=["workdir"])
    driver.join("w2", fpga=1)
    assert told(driver, driver.submit(fpga=1, workdir=HERE)) == (
        "no worker could ever run it; the closest is w2, which does not let jobs choose a "
        "directory",
        "kestrelctl job cancel 7, and submit it with --workdir scratch",
    )


def test_who_lacks_more_than_that_is_not() -> None:
    driver = PoolDriver()
    driver.join("w1", tags=["workdir"])
    driver.join("w2", fpga=1)
    assert told(driver, driver.submit(fpga=2, workdir=HERE))[0].endswith("w1, which has no fpga")
    tagged = driver.submit(fpga=1, workdir=HERE, requires=("r",))
    assert told(driver, tagged)[0].endswith("w1, which lacks R")
    wants = driver.submit(fpga=1, workdir=HERE, requirements="TARGET.Fpga > 5")
    assert told(driver, wants)[0].endswith("w1, which has no fpga")


def test_a_worker_that_is_away_is_not_called_closest_for_its_tags() -> None:
    driver = PoolDriver()
    driver.join("w1", tags=["workdir"])
    driver.join("w2", fpga=1)
    driver.lose("w2")
    assert told(driver, driver.submit(fpga=1, workdir=HERE))[0].endswith("w1, which has no fpga")


def test_a_simple_worker_is_told_of_by_what_it_does_not_do() -> None:
    """Such a worker has no tag of those that workers give themselves."""
    driver = PoolDriver()
    driver.join("w1", tags=["workdir", "inputs"])
    driver.join("simple", tags=["foo"])
    assert told(driver, driver.submit(requires=("foo",), workdir=HERE)) == (
        "no worker could ever run it; the closest is simple, which does not let jobs choose a "
        "directory",
        "kestrelctl job cancel 7, and submit it with --workdir scratch",
    )


def test_a_worker_that_does_not_say_how_much_memory_it_has_is_not_said_to_have_none() -> None:
    driver = PoolDriver()
    driver.join("simple")
    assert told(driver, driver.submit(memory_bytes=1 << 30)) == (
        "no worker says how much memory it has",
        "kestrelctl job cancel 7, and submit it without --memory",
    )
    missing = Refusal(Reason.MISSING_ASSET, "memory")
    why, _ = conclusion(explained(("simple", missing), ("w2", Refusal(Reason.POLICY, found="no"))))
    assert why.endswith("the closest is simple, which does not say how much memory it has")


def test_a_worker_that_isolates_tasks_less_is_told_of_by_that() -> None:
    lacks = Refusal(Reason.MISSING_TAGS, "GPU ISOLATION:BUBBLEWRAP")
    why, _ = conclusion(explained(("w1", lacks)))
    assert why.endswith("w1, which lacks GPU and isolates tasks less than bubblewrap does")


def test_that_there_is_no_such_worker_is_said_only_where_there_is_none() -> None:
    lacks = Refusal(Reason.MISSING_TAGS, "WORKDIR")
    both = Refusal(Reason.MISSING_TAGS, "GPU WORKDIR")
    small = Refusal(Reason.TOO_SMALL, "64 cpus", "8 cpus")
    none = "this job is for workers that let jobs choose a directory, and there is none"
    assert conclusion(explained(("w1", lacks), ("w2", both)))[0] == none
    why, hint = conclusion(explained(("w1", both), ("w2", small)))
    assert why == (
        "no worker could ever run it; the closest is w1, which lacks GPU and does not let jobs "
        "choose a directory"
    )
    assert hint == "add such a worker, or: kestrelctl job cancel 7"


def test_all_that_stands_in_the_way_is_named_at_once() -> None:
    lacks = Refusal(Reason.MISSING_TAGS, "CHECKPOINTS WORKDIR")
    why, hint = conclusion(explained(("w1", lacks), ("w2", Refusal(Reason.OFFLINE))))
    assert "does not store the checkpoints of tasks and does not let jobs choose" in why
    assert (hint or "").endswith("submit it without --checkpoint and with --workdir scratch")
