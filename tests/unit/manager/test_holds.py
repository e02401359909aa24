"""Users hold jobs and release them: by id, by range, all of theirs; and what others see of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from managerkit import NOW, PlayedManager
from storekit import QuickStore

from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.manager import selection
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"
ROOT = "root@users.pool/1"


@pytest.fixture
async def manager(tmp_path: Path, quick_store: QuickStore) -> PlayedManager:
    """Jobs 1 to 4 of two tasks are ada's, job 5 is bob's."""
    manager = PlayedManager(tmp_path, store=quick_store)
    for whom in (ADA, ADA, ADA, ADA, BOB):
        await manager.ask(
            whom, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)), name="n", count=2))
        )
    return manager


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


async def held(manager: PlayedManager, jobs: str, reason: str = "", whom: str = ADA) -> an.Changed:
    found = await asked(manager, rq.HoldJobs(jobs=jobs, reason=reason), whom)
    assert isinstance(found, an.Changed), found
    return found


async def released(manager: PlayedManager, jobs: str, whom: str = ADA) -> an.Changed:
    found = await asked(manager, rq.ReleaseJobs(jobs=jobs), whom)
    assert isinstance(found, an.Changed), found
    return found


async def seen(manager: PlayedManager, job_id: int, whom: str) -> an.JobView:
    found = await asked(manager, rq.ListJobs(jobs=str(job_id)), whom)
    assert isinstance(found, an.Jobs), found
    return found.jobs[0]


def on_hold(manager: PlayedManager) -> list[int]:
    return [job.job_id for job in manager.store.jobs() if job.hold is not None]


async def test_all_means_the_user_s_jobs_that_can_be_held_or_released(
    manager: PlayedManager,
) -> None:
    await held(manager, "2", "first")
    changed = await held(manager, "all", "second")
    assert (changed.what, changed.tasks, changed.kept) == (["1", "3", "4"], 6, 1)
    assert on_hold(manager) == [1, 2, 3, 4]
    assert (await released(manager, "name:n*")).what == ["1", "2", "3", "4"]
    assert on_hold(manager) == []
    assert (await released(manager, "all")).what == []


async def test_of_a_range_what_is_on_hold_is_passed_over_and_what_is_named_is_kept(
    manager: PlayedManager,
) -> None:
    await held(manager, "2", "first")
    ranged = await held(manager, "1-3")
    assert (ranged.what, ranged.kept) == (["1", "3"], 1)
    named = await held(manager, "2,4")
    assert (named.what, named.kept) == (["4"], 1)
    hold = (await seen(manager, 2, ADA)).hold
    assert hold == Hold("ada@users.pool", NOW, "first")
    await released(manager, "4")
    free = await released(manager, "4")
    assert (free.what, free.kept) == ([], 1)


CHANGES = {
    "hold": rq.HoldJobs(jobs=""),
    "release": rq.ReleaseJobs(jobs=""),
    "cancel": rq.CancelJobs(jobs=""),
    "retry": rq.RetryJobs(jobs=""),
    "forget": rq.ForgetJobs(jobs=""),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ended", [False, True], ids=["active", "ended"])
async def test_a_range_of_anothers_jobs_is_refused_in_whatever_state_they_are(
    manager: PlayedManager, change: str, *, ended: bool
) -> None:
    if ended:
        await asked(manager, rq.CancelJobs(jobs="1-4"))
    before = manager.store.jobs()
    for jobs, named in (("1-4", "jobs 1-4 belong"), ("1-2,4", "jobs 1-2,4 belong")):
        request = msgspec.structs.replace(CHANGES[change], jobs=jobs)
        refused = await asked(manager, request, BOB)
        assert isinstance(refused, an.Failed), refused
        assert (refused.code, refused.cause) == ("not-allowed", "")
        assert refused.message == f"{named} to ada@users.pool"
    assert manager.store.jobs() == before


async def test_of_a_range_ones_own_jobs_are_changed_and_those_of_others_named(
    manager: PlayedManager,
) -> None:
    refused = await asked(manager, rq.HoldJobs(jobs="1-5"), BOB)
    assert isinstance(refused, an.Failed)
    assert refused.message == "jobs 1-4 belong to ada@users.pool"
    assert refused.cause == "it was done for 1 other job"
    assert on_hold(manager) == [5]
    assert (await held(manager, "1-5", whom=ROOT)).what == ["1", "2", "3", "4"]
    refused = await asked(manager, rq.CancelJobs(jobs="4-5"), BOB)
    assert isinstance(refused, an.Failed)
    assert refused.message == "job 4 belongs to ada@users.pool"
    assert [job.job_id for job in manager.store.jobs(states=["cancelled"])] == [5]


async def test_ids_of_a_range_that_are_of_no_job_are_counted(manager: PlayedManager) -> None:
    changed = await held(manager, "3-9", whom=ROOT)
    assert (changed.what, changed.missing) == (["3", "4", "5"], 4)
    cancelled = await asked(manager, rq.CancelJobs(jobs="1-5"), ROOT)
    assert isinstance(cancelled, an.Changed)
    again = await asked(manager, rq.CancelJobs(jobs="1-6"), ROOT)
    assert isinstance(again, an.Changed)
    assert (again.what, again.kept, again.missing) == ([], 5, 1)


async def test_nothing_is_retried_where_one_of_the_jobs_has_nothing_to_retry(
    manager: PlayedManager,
) -> None:
    await asked(manager, rq.CancelJobs(jobs="1,2"))
    refused = await asked(manager, rq.RetryJobs(jobs="1-3"))
    assert isinstance(refused, an.Failed)
    assert refused.message == "job 3 has no such task that failed, was lost or cancelled"
    assert [job.job_id for job in manager.store.jobs(states=["cancelled"])] == [1, 2]


async def test_not_any_number_of_tasks_is_looked_up_in_several_jobs(manager: PlayedManager) -> None:
    """Half a megabyte of ids in 500 jobs would keep everybody waiting for minutes."""
    refused = await asked(manager, rq.RetryJobs(jobs="1-3", task_ids=list(range(1_001))))
    assert isinstance(refused, an.Failed)
    assert (refused.code, refused.message) == ("usage", "1,001 tasks are too many of several jobs")
    same = await asked(manager, rq.RetryJobs(jobs="1-3", task_ids=[0] * 1_001))
    assert isinstance(same, an.Failed)
    assert same.message == "job 1 has no such task that failed, was lost or cancelled"
    alone = await asked(manager, rq.RetryJobs(jobs="1", task_ids=list(range(1_001))))
    assert isinstance(alone, an.Failed)
    assert alone.code == "not-found", "it has fewer"


async def test_a_job_that_is_being_cancelled_is_not_among_those_to_hold(
    manager: PlayedManager,
) -> None:
    manager.service.pool.state.jobs[3].cancelling = True
    assert (await held(manager, "all")).what == ["1", "2", "4"]


async def test_more_than_one_request_may_change_are_done_in_pieces(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MAX_SELECTED", 3)
    found = [await held(manager, "all") for _ in range(3)]
    assert [(changed.what, changed.left) for changed in found] == [
        (["1", "2", "3"], 1),
        (["4"], 0),
        ([], 0),
    ]


async def test_another_user_sees_that_a_job_is_held_and_not_why(manager: PlayedManager) -> None:
    await held(manager, "5", "a secret", ROOT)
    whole = Hold("root@users.pool", NOW, "a secret")
    assert (await seen(manager, 5, BOB)).hold == whole
    assert (await seen(manager, 5, ADA)).hold == Hold("root@users.pool", NOW)
    refused = await asked(manager, rq.ReleaseJobs(jobs="5"))
    assert isinstance(refused, an.Failed)
    assert refused.code == "not-allowed"
    assert (await released(manager, "5", BOB)).what == ["5"]


async def test_jobs_on_hold_are_found_in_lists_and_seen_at_a_glance(
    manager: PlayedManager,
) -> None:
    await held(manager, "2")
    found = await asked(manager, rq.ListJobs(where="Held"))
    assert isinstance(found, an.Jobs)
    assert [(view.job_id, view.state) for view in found.jobs] == [(2, "active")]
    glance = await asked(manager, rq.PoolOverview())
    assert isinstance(glance, an.Overview)
    assert [line.job_id for line in glance.jobs if line.state == "held"] == [2]
    assert glance.waiting["held"] == 2


async def test_a_job_is_explained_and_its_story_told(manager: PlayedManager) -> None:
    await held(manager, "2", "disk full")
    explained = await asked(manager, rq.ExplainJob(job="2"))
    assert isinstance(explained, an.JobExplanation)
    assert explained.job_reasons[0].found == "by ada@users.pool: disk full"
    await released(manager, "2", ROOT)
    story = await asked(manager, rq.TellStory(job="2"))
    assert isinstance(story, an.Story)
    told = [(entry.what, entry.cause, entry.detail) for entry in story.entries]
    assert ("held", ADA, "disk full") in told
    assert ("released", ROOT, "") in told


async def test_a_reason_may_not_be_of_any_length(manager: PlayedManager) -> None:
    await manager.ask(ADA, rq.HoldJobs(jobs="2", reason="x" * 201))
    assert on_hold(manager) == []
