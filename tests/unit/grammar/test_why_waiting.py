"""What people are told of a job that waits for what may come by itself."""

from __future__ import annotations

from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol.answers import JobExplanation, JobView, Obstacle

JOB = JobView(job_id=7, name="", owner="ada", state="active", tasks=1, submitted_at=0.0)


def explained(
    *refusals: Refusal,
    ever: bool,
    environments: list[str],
    next_start: float | None = None,
    gives_way: str = "",
) -> JobExplanation:
    return JobExplanation(
        id="",
        job=JOB,
        waiting=1,
        job_reasons=[],
        obstacles=[Obstacle(workers=1, example="w1@pool/a", refusal=each) for each in refusals],
        could_run=0,
        ever=ever,
        environments=environments,
        next_start_seconds=next_start,
        gives_way=gives_way,
    )


def test_a_value_that_changes_is_not_what_it_asks_for_now() -> None:
    refusal = Refusal(
        Reason.REQUIREMENTS, "Property_ram_free > 5", "another Property_ram_free", 0.5
    )
    assert refusal.may_pass
    told = explained(refusal, ever=True, environments=[])
    assert conclusion(told) == (
        "no worker is what it asks for now; the closest is w1, which has another Property_ram_free"
        " where Property_ram_free > 5 is wanted",
        "kestrelctl worker properties",
    )
    assert not told.is_hopeless


def test_what_is_missing_for_good_does_not_pass() -> None:
    assert not Refusal(Reason.REQUIREMENTS, "Memory > 5", "Memory = 2").may_pass
    assert not Refusal(Reason.MISSING_TAGS, "PROPERTY_X").may_pass


def test_who_waits_for_an_environment_hears_that_and_is_not_without_hope() -> None:
    refusal = Refusal(Reason.MISSING_TAGS, "SCIENCE")
    told = explained(refusal, ever=False, environments=["science", "both"])
    assert conclusion(told) == (
        "it waits for an environment of class science or both",
        "kestrelctl environment explain science",
    )
    assert not told.is_hopeless
    for next_start, words in (
        (12.0, "it waits for an environment of class science: starts fail, the next try in 12 s"),
        (0.0, "it waits for an environment of class science: starts fail, it is tried again"),
    ):
        told = explained(refusal, ever=False, environments=["science"], next_start=next_start)
        assert conclusion(told) == (words, "kestrelctl environment explain science")
    told = explained(refusal, ever=False, environments=[])
    assert "no worker could ever run it" in conclusion(told)[0]
    assert told.is_hopeless


def test_who_waits_until_environments_have_gone_hears_that_and_is_not_without_hope() -> None:
    refusal = Refusal(Reason.TOO_SMALL, "2 cpus", "1 cpu")
    told = explained(refusal, ever=False, environments=[], gives_way="w2@pool/b")
    assert conclusion(told) == (
        "it waits for w2, which is large enough when the environments there have gone",
        "kestrelctl environment list",
    )
    assert not told.is_hopeless
