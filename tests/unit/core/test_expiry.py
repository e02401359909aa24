"""Ended jobs that are not to be kept any longer."""

from __future__ import annotations

from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.model.records import JobForgotten, Swept


def with_ended_job() -> tuple[PoolDriver, int]:
    pool = PoolDriver()
    pool.join("w1")
    job_id = pool.submit(max_failures=1)
    pool.fail("w1")
    assert pool.ended == [job_id]
    return pool, job_id


def expire(pool: PoolDriver, *job_ids: int, sweep: bool = False) -> list[object]:
    before = len(pool.records)
    pool.tell(ev.Expire(at=pool.now, cause="retention", job_ids=list(job_ids), sweep=sweep))
    pool.pool.check()
    return list(pool.records[before:])


def test_an_ended_job_is_forgotten_once() -> None:
    pool, job_id = with_ended_job()
    assert expire(pool, job_id, job_id) == [JobForgotten(job_id)]
    assert pool.pool.totals.jobs_expired == 1


def test_a_job_that_was_brought_back_is_not_forgotten() -> None:
    """What the store said of it was out of date."""
    pool, job_id = with_ended_job()
    pool.retry(job_id)
    assert expire(pool, job_id) == []
    assert pool.pool.job(job_id) is not None


def test_a_sweep_is_a_commit() -> None:
    pool, _ = with_ended_job()
    assert expire(pool) == []
    assert expire(pool, sweep=True) == [Swept()]


def test_a_forgotten_job_cannot_be_brought_back() -> None:
    pool, job_id = with_ended_job()
    assert expire(pool, job_id) == [JobForgotten(job_id)]
