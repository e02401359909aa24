"""Every task of an experiment ends once and well, or the audit says which one does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from flockbenchkit import SECONDS, a_pool, a_task

from kestrel_experiments.flock.audit import audit

EXPECTED = {"A": {"A-1": SECONDS, "A-2": SECONDS}}
WELL = (a_task("A-1"), a_task("A-2"))


def test_where_all_is_well_nothing_is_found() -> None:
    found = audit(EXPECTED, {"A": a_pool("A", *WELL)})
    assert (found.tasks, found.lost, found.twice, found.breaches) == (2, 0, 0, [])


def test_a_task_that_the_pool_does_not_know_is_lost() -> None:
    found = audit(EXPECTED, {"A": a_pool("A", WELL[0])})
    assert found.lost == 1
    assert found.breaches == ["pool A: task A-2 has no accepted result"]


def test_a_pool_that_tells_nothing_has_lost_all() -> None:
    assert audit(EXPECTED, {}).lost == 2


@pytest.mark.parametrize(
    "changes",
    [{"state": "failed", "accepted": 0}, {"accepted": 0}, {"exit_code": 1}, {"started_at": 0.0}],
)
def test_a_task_that_did_not_end_well_counts_as_lost(changes: dict[str, Any]) -> None:
    broken = msgspec.structs.replace(WELL[1], **changes)
    assert audit(EXPECTED, {"A": a_pool("A", WELL[0], broken)}).lost == 1


def test_a_result_that_was_accepted_twice_is_found_in_the_count_of_its_job() -> None:
    twice = msgspec.structs.replace(WELL[1], accepted=2)
    found = audit(EXPECTED, {"A": a_pool("A", WELL[0], twice)})
    assert found.twice == 1
    assert found.breaches == ["pool A: task A-2 has several accepted results"]


def test_a_result_that_was_accepted_twice_is_found_in_what_its_user_was_charged() -> None:
    """Even if the job itself looks as it should."""
    found = audit(EXPECTED, {"A": a_pool("A", *WELL, accepted_results=3)})
    assert found.twice == 1
    assert found.breaches == ["pool A: charged 1 result too many"]


def test_a_task_that_became_two_jobs_is_found() -> None:
    found = audit(EXPECTED, {"A": a_pool("A", *WELL, a_task("A-2", job_id=3))})
    assert found.twice == 1
    assert "pool A: task A-2 was submitted twice" in found.breaches


def test_a_task_of_nobody_is_found() -> None:
    found = audit(EXPECTED, {"A": a_pool("A", *WELL, a_task("A-3"))})
    assert "pool A: task A-3 was never submitted" in found.breaches


def test_a_task_that_ended_before_it_could_have_is_found() -> None:
    short = msgspec.structs.replace(WELL[1], wall_seconds=SECONDS / 2)
    found = audit(EXPECTED, {"A": a_pool("A", WELL[0], short)})
    assert found.breaches == ["pool A: task A-2 ended before its time"]


def test_a_task_that_started_before_it_came_is_found() -> None:
    early = msgspec.structs.replace(WELL[1], submitted_at=102.0)
    found = audit(EXPECTED, {"A": a_pool("A", WELL[0], early)})
    assert found.breaches == ["pool A: task A-2 started before it was submitted"]


def test_many_findings_of_one_kind_are_counted() -> None:
    expected = {"A": {f"A-{number}": SECONDS for number in range(10)}}
    found = audit(expected, {"A": a_pool("A")})
    assert len(found.breaches) == 4
    assert found.breaches[-1] == "pool A: 7 more: has no accepted result"
