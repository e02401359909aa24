"""How jobs look in answers."""

from __future__ import annotations

from poolkit import PoolDriver

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord
from kestrelctl.manager.views import LONGEST_COMMAND, abridged, job_view


def test_one_of_many_jobs_is_short_whatever_its_owner_asked_for() -> None:
    long = ("x" * 400_000, "y")
    record = JobRecord(
        job_id=1,
        owner="eve@x",
        spec=JobSpec(program=Program(argv=long), requires=long),
        submitted_at=0.0,
    )
    view = job_view(record, None)
    short = abridged(view)
    assert short.spec.requires == ("x" * LONGEST_COMMAND + "…",) == short.spec.program.argv


def test_a_job_whose_end_is_stored_and_not_yet_told_has_no_end() -> None:
    driver = PoolDriver()
    job = driver.pool.state.jobs[driver.submit(1)]
    view = job_view(job.record("done", driver.now), job)
    assert (view.state, view.ended_at) == ("active", None)
