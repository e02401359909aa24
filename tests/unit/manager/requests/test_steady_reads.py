"""Reads of a store behind a network, while jobs end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from store_samples import job

from kestrelctl.core.effects import JobEnded
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import EndedTasks, JobRecord
from kestrelctl.manager.requests.steady_reads import SteadyReads


class SlowStore:
    """A store, and the manager before it: jobs end while it is asked.

    Attributes:
        known: what a question finds.
        ends: the jobs that end during each question in turn.
    """

    def __init__(self, *ends: list[JobRecord]) -> None:
        self.store = self
        self.ends = list(ends)
        self.known: dict[int, str] = {}
        self.asked = 0
        self._listeners: list[Callable[[JobEnded], None]] = []

    def listen(self, _kind: type, listener: Callable[[JobEnded], None]) -> None:
        self._listeners.append(listener)

    async def ask(self, question: Callable[[Any], Any]) -> Any:
        self.asked += 1
        answer = question(self)
        for record in self.ends.pop(0) if self.ends else []:
            self.known[record.job_id] = record.state
            for listener in self._listeners:
                listener(JobEnded(record=record, dispatch_seconds=[]))
        return answer

    def job_of_key(self, owner: str, key: str) -> JobRecord | None:
        return job(5, owner=owner, key=key) if 5 in self.known else None

    def job_ids(self, *, ids: list[int], owner: str | None, states: tuple[str, ...]) -> list[int]:
        return [each for each in ids if self.known.get(each) in states]

    def jobs(self, **_: Any) -> list[JobRecord]:
        return []

    def ended_badly(self, _job_id: int) -> EndedTasks:
        raise AssertionError("no job was found")


def waits(*after: After, after_each: int = 0) -> JobSpec:
    return JobSpec(program=Program(argv=("true",)), after=after, after_each=after_each)


async def test_a_parent_that_ends_meanwhile_is_found() -> None:
    store = SlowStore([job(3, state="done")])
    reads = SteadyReads(store)  # type: ignore[arg-type]
    found = await reads.for_submission("ada", "", [waits(After(2, 4))])
    assert (store.asked, found.ended) == (2, {3: "done"})


async def test_the_job_of_an_earlier_submission_that_ends_meanwhile_is_found() -> None:
    store = SlowStore([job(5, owner="ada", key="nightly", state="done")])
    reads = SteadyReads(store)  # type: ignore[arg-type]
    found = await reads.for_submission("ada", "nightly", [waits()])
    assert store.asked == 2
    assert found.earlier is not None


async def test_a_job_for_whose_tasks_others_wait_and_that_ends_meanwhile_is_found() -> None:
    store = SlowStore([job(7, state="done")])
    await SteadyReads(store).for_submission("ada", "", [waits(after_each=7)])  # type: ignore[arg-type]
    assert store.asked == 2


async def test_jobs_that_do_not_matter_keep_nobody_waiting() -> None:
    others = [job(9, state="done"), job(8, owner="bob", key="nightly", state="done")]
    store = SlowStore(others, others, others)
    reads = SteadyReads(store)  # type: ignore[arg-type]
    await reads.for_submission("ada", "nightly", [waits(After(2, 4), after_each=7)])
    assert store.asked == 1
