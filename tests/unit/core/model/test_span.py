"""What jobs that span workers may ask for."""

from __future__ import annotations

from typing import Any

import pytest
from jobkit import job_spec

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.span import MOST_HOST_CHARACTERS, MOST_SPAN, told_host
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.protocol.codec import MAX_PAYLOAD_BYTES
from kestrelctl.protocol.handout import problem_with_size


def problem(**more: Any) -> str | None:
    return problem_with_job(job_spec(**{"count": 4, "span": 4} | more))


def test_a_job_with_a_task_for_each_worker_is_fine() -> None:
    assert problem() is None
    assert problem(max_running=4, max_failures=3, requirements="Memory > 1") is None
    assert problem(count=MOST_SPAN, span=MOST_SPAN) is None


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"span": 0}, "a job spans 1 to 1,000 workers, not 0"),
        ({"span": -1}, "a job spans 1 to 1,000 workers, not -1"),
        ({"count": 1001, "span": 1001}, "a job spans 1 to 1,000 workers, not 1,001"),
        ({"span": 2**63}, "a job spans 1 to 1,000 workers, not 9,223,372,036,854,775,808"),
        ({"count": 8}, "a job that spans 4 workers has a task for each of them, and no others"),
        (
            {"items": ("a", "b", "c", "d")},
            "a job that spans 4 workers has a task for each of them, and no others",
        ),
        ({"service": True}, "a service spans no workers"),
        (
            {"request": {"cpus": 1, "memory": 5.0}, "retry_memory_bytes": (9,), "max_failures": 2},
            "a job that spans workers cannot ask for more memory for one of them",
        ),
        ({"max_running": 3}, "4 tasks that run together are more than max_running, 3"),
    ],
)
def test_what_makes_no_sense_is_refused(more: dict[str, Any], why: str) -> None:
    assert problem(**more) == why


@pytest.mark.parametrize("host", ["node-1", "10.0.0.7", "fe80::1", "a.b.example.org", "x" * 64])
def test_names_of_machines_are_told(host: str) -> None:
    assert told_host(host) == host


@pytest.mark.parametrize("host", ["", "a,b", "a\nb slots=99", "-oProxyCommand=x", "x" * 65, "ä"])
def test_what_is_no_name_of_a_machine_is_not_told(host: str) -> None:
    assert told_host(host) == "unknown-host"


def test_a_command_leaves_room_for_the_names_of_all_machines() -> None:
    names = MOST_SPAN * (MOST_HOST_CHARACTERS + 3)
    fits = JobSpec(
        program=Program(argv=("x" * (MAX_PAYLOAD_BYTES - names - 9000),)),
        count=MOST_SPAN,
        span=MOST_SPAN,
    )
    assert problem_with_size(fits) is None
    too_long = JobSpec(
        program=Program(argv=("x" * (MAX_PAYLOAD_BYTES - names),)), count=MOST_SPAN, span=MOST_SPAN
    )
    assert problem_with_size(too_long) is not None
