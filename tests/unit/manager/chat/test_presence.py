"""Presence of jobs that have ended, from a store behind a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobkit import job_spec
from managerkit import FarStore, PlayedManager

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool/phone"
JOB = "job-1@pool"


class Desk(PlayedManager):
    """A manager with one job, which is ada's."""

    def __init__(self, directory: Path) -> None:
        self.far = FarStore(MemoryStore())
        super().__init__(directory, store=self.far)

    async def says(self, kind: str, sender: str = ADA) -> None:
        self.listener.on_presence(sender, JOB, kind)
        await self.settled()

    async def ends(self) -> None:
        """The job ends, without a question to the store."""
        self.service.handle(ev.Cancel(at=self.now, cause=ADA, request="", job_id=1))
        await self.settled()

    def shown(self) -> list[tuple[str, str]]:
        """Whom the job has told how it is, and with what status."""
        return [(each[0], each[4]) for each in self.presences if each[4]]


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    found = Desk(tmp_path)
    await found.ask(ADA, rq.SubmitJob(spec=job_spec(count=2)))
    found.far.is_far = True
    return found


async def test_an_ended_job_is_shown_when_the_store_answers(desk: Desk) -> None:
    await desk.ends()
    desk.far.answers.clear()
    await desk.says("probe")
    assert desk.shown() == []
    desk.far.answers.set()
    await desk.settled()
    [(account, status)] = desk.shown()
    assert account == ADA
    assert "cancelled" in status


async def test_who_leaves_while_the_store_is_asked_is_told_nothing(desk: Desk) -> None:
    await desk.ends()
    desk.far.answers.clear()
    await desk.says("probe")
    await desk.says("unavailable")
    desk.far.answers.set()
    await desk.settled()
    assert desk.shown() == []


@pytest.mark.parametrize("kind", ["subscribe", "probe"])
async def test_who_unsubscribes_while_the_store_is_asked_is_told_nothing(
    desk: Desk, kind: str
) -> None:
    await desk.ends()
    desk.far.answers.clear()
    await desk.says(kind)
    await desk.says("unsubscribe")
    desk.far.answers.set()
    await desk.settled()
    assert desk.shown() == []


async def test_the_end_of_a_job_is_told_without_a_question(desk: Desk) -> None:
    await desk.says("probe")
    desk.far.answers.clear()
    await desk.ends()
    desk.listener.desk._look()
    [_, (account, status)] = desk.shown()
    assert account == ADA.partition("/")[0]
    assert "cancelled" in status
    desk.listener.desk._look()
    assert len(desk.shown()) == 2, "it is told once"


async def test_a_job_that_is_gone_is_shown_to_nobody(desk: Desk) -> None:
    await desk.ends()
    await desk.ask(ADA, rq.ForgetJobs(jobs="1"))
    desk.presences.clear()
    await desk.says("probe")
    assert [each[1] for each in desk.presences] == ["unsubscribed"]


async def test_what_is_not_durable_is_counted_once_for_all_that_are_watched(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each count walks over all that waits for a full disk."""
    await desk.ask(ADA, rq.SubmitJob(spec=job_spec(count=3)))
    for contact in (JOB, "job-2@pool"):
        desk.listener.on_presence(ADA, contact, "probe")
        await desk.settled()
    counts = 0

    def counted() -> dict[int, Counts]:
        nonlocal counts
        counts += 1
        return {1: Counts(done=1), 2: Counts(done=2)}

    monkeypatch.setattr(desk.service, "unstored", counted)
    desk.service.pool.state.jobs[1].counts.done = 2
    desk.service.pool.state.jobs[2].counts.done = 2
    desk.presences.clear()
    desk.listener.desk._look()
    assert [status.partition(" done")[0] for _, status in desk.shown()] == ["1 of 2", "0 of 3"]
    assert counts == 1
