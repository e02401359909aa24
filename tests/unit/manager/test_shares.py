"""Shares of users and groups, as the manager sets and shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from managerkit import NOW, PlayedManager
from store_samples import job, result
from storekit import QuickStore

from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.jobs.stored_bytes import hour_of
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import StoredRecord, TaskRecord
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.views import GroupView, UserView

ADA, BOB, ROOT = "ada@users.pool/1", "bob@users.pool/1", "root@users.pool/1"
W1 = "w1@workers.pool/1"


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    """Ada and Bob, of physics, and Carl, of no group, want more than there is."""
    manager = PlayedManager(tmp_path)
    await said(manager, ROOT, rq.ChangeGroup(name="physics", change=ShareChange(weight=3.0)))
    for name in ("ada", "bob"):
        await said(manager, ROOT, rq.ChangeUser(user=f"{name}@users.pool", group="physics"))
    for name in ("ada", "bob", "carl"):
        spec = JobSpec(program=Program(argv=("x",)), count=10)
        await said(manager, f"{name}@users.pool/1", rq.SubmitJob(spec=spec))
    ad = WorkerAd(assets={"cpus": 8.0})
    await manager.work(W1, workers.Hello(version=workers.VERSION, incarnation="x", ad=ad))
    return manager


async def said(manager: PlayedManager, who: str, request: rq.Request) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(who, request))


async def users(manager: PlayedManager, who: str, **asked: str) -> dict[str, UserView]:
    found = await said(manager, who, rq.ListUsers(**asked))
    assert isinstance(found, an.Users), found
    return {view.user.partition("@")[0]: view for view in found.users}


async def groups(manager: PlayedManager, who: str, **asked: str) -> list[GroupView]:
    found = await said(manager, who, rq.ListGroups(**asked))
    assert isinstance(found, an.Groups), found
    return found.groups


async def test_an_admin_sees_what_everybody_has(manager: PlayedManager) -> None:
    found = await users(manager, ROOT)
    assert {name: (view.running, view.waiting) for name, view in found.items()} == {
        "ada": (3, 7),
        "bob": (3, 7),
        "carl": (2, 8),
    }
    assert sum(view.share for view in found.values()) == pytest.approx(1.0)
    assert found["ada"].share + found["bob"].share == pytest.approx(0.75)
    manager.now += 3600.0
    found = await users(manager, ROOT)
    assert found["carl"].usage_seconds == pytest.approx(2 * 3600.0)


async def test_others_see_themselves(manager: PlayedManager) -> None:
    assert list(await users(manager, ADA)) == ["ada"]
    assert list(await users(manager, ADA, user="ada")) == ["ada"]
    refused = await said(manager, ADA, rq.ListUsers(user="bob"))
    assert isinstance(refused, an.Failed)
    assert refused.code == "not-allowed"


async def test_members_see_their_group_and_not_each_other(manager: PlayedManager) -> None:
    [seen] = await groups(manager, ADA)
    assert (seen.group, seen.members, seen.running) == ("physics", 2, 6)
    assert seen.names == ["ada@users.pool"]
    [whole] = await groups(manager, ROOT)
    assert whole.names == ["ada@users.pool", "bob@users.pool"]
    assert await groups(manager, "carl@users.pool/1") == []
    refused = await said(manager, "carl@users.pool/1", rq.ListGroups(group="physics"))
    assert isinstance(refused, an.Failed)
    assert refused.code == "not-allowed"


async def test_users_who_share_jobs_see_each_others_shares(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path, share_jobs=True)
    for who in (ADA, BOB):
        await said(manager, who, rq.SubmitJob(spec=JobSpec(program=Program(argv=("x",)))))
    assert list(await users(manager, ADA)) == ["ada", "bob"]


async def test_only_an_admin_sets_something(manager: PlayedManager) -> None:
    for request in (
        rq.ChangeUser(user="ada", change=ShareChange(weight=100.0)),
        rq.ChangeUser(user="ada", max_stored_bytes=None),
        rq.ChangeUser(user="ada", mail="", max_stored_bytes=None),
        rq.ChangeUser(user="ada", max_queued_bytes=None),
        rq.ChangeGroup(name="mine"),
        rq.RemoveGroup(name="physics"),
    ):
        refused = await said(manager, ADA, request)
        assert isinstance(refused, an.Failed)
        assert refused.code == "not-allowed"


async def test_a_user_is_named_by_what_is_before_the_at_once_he_is_known(
    manager: PlayedManager,
) -> None:
    done = await said(manager, ROOT, rq.ChangeUser(user="carl", change=ShareChange(weight=2.0)))
    assert isinstance(done, an.Changed)
    assert done.what == ["carl@users.pool"]
    assert (await users(manager, ROOT))["carl"].weight == 2.0


@pytest.mark.parametrize(
    ("name", "code"),
    [("dora", "not-found"), ("@", "usage"), ("a b@users.pool", "usage"), ("d@x/1", "usage")],
)
async def test_who_was_never_seen_needs_a_whole_account(
    manager: PlayedManager, name: str, code: str
) -> None:
    refused = await said(manager, ROOT, rq.ChangeUser(user=name))
    assert isinstance(refused, an.Failed)
    assert refused.code == code
    assert refused.hint
    done = await said(manager, ROOT, rq.ChangeUser(user="Dora@Users.Pool"))
    assert isinstance(done, an.Changed)
    assert done.what == ["dora@users.pool"]
    assert "dora" in await users(manager, ROOT)


async def test_a_name_that_several_have_is_refused(manager: PlayedManager) -> None:
    await said(manager, ROOT, rq.ChangeUser(user="carl@elsewhere"))
    refused = await said(manager, ROOT, rq.ChangeUser(user="carl"))
    assert isinstance(refused, an.Failed)
    assert "carl@elsewhere, carl@users.pool" in refused.message


async def test_a_group_has_a_name_that_can_be_typed(manager: PlayedManager) -> None:
    refused = await said(manager, ROOT, rq.ChangeGroup(name="high energy"))
    assert isinstance(refused, an.Failed)
    assert refused.code == "usage"


async def test_too_many_tasks_are_refused_with_a_code_of_their_own(
    manager: PlayedManager,
) -> None:
    await said(manager, ROOT, rq.ChangeGroup(name="physics", change=ShareChange(max_queued=25)))
    refused = await said(
        manager, ADA, rq.SubmitJob(spec=JobSpec(program=Program(argv=("x",)), count=6))
    )
    assert isinstance(refused, an.Failed)
    assert refused.code == "over-quota"
    assert refused.message == (
        "group physics has 20 tasks that have not ended, and may have 25; 6 more would be too many"
    )


async def test_lists_come_page_by_page(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "MAX_PAYLOAD_BYTES", 800)
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await said(manager, ROOT, rq.ListUsers(after=after))
        assert isinstance(page, an.Users)
        assert len(page.users) == 1
        seen += [view.user for view in page.users]
        after = page.after
    assert seen == ["ada@users.pool", "bob@users.pool", "carl@users.pool"]


async def test_users_and_admins_see_what_is_stored_and_the_limit(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    quick_store.at = NOW
    for job_id, owner in enumerate(("ada", "bob"), start=1):
        row = TaskRecord(job_id, 0, TaskState.DONE, 0, 0, "w1", result(0, job_id))
        record = job(job_id, owner=f"{owner}@users.pool", state="done", ended_at=NOW)
        hour = hour_of(NOW)
        sums = [StoredRecord(f"{owner}@users.pool", hour - n, 5 * job_id) for n in range(2)]
        await quick_store.commit([record, row, *sums])
    manager = PlayedManager(tmp_path, store=quick_store, max_stored_bytes=70)
    await said(manager, ROOT, rq.ChangeGroup(name="physics"))
    for name in ("ada", "bob"):
        await said(manager, ROOT, rq.ChangeUser(user=f"{name}@users.pool", group="physics"))
    await said(manager, ROOT, rq.ChangeUser(user="bob", max_stored_bytes=30))
    found = await users(manager, ROOT)
    seen = {name: (view.stored_bytes, view.max_stored_bytes) for name, view in found.items()}
    assert seen == {"ada": (10, 70), "bob": (20, 30)}

    async def used(who: str, **asked: Any) -> list[tuple[int, int | None]]:
        found = await said(manager, who, rq.UserUsage(since=0.0, **asked))
        assert isinstance(found, an.UsedByUsers), found
        return [(line.stored_bytes, line.max_stored_bytes) for line in found.users]

    assert await used(ROOT) == [(10, 70), (20, 30)]
    assert await used(BOB) == [(20, 30)]
    assert await used(ROOT, by="group") == [(30, None)]


async def test_it_is_shown_how_large_the_jobs_of_each_are_and_may_be(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    manager = PlayedManager(tmp_path, store=quick_store, max_queued_bytes=1_000)
    await said(manager, ROOT, rq.ChangeGroup(name="physics"))
    for name in ("ada", "bob"):
        await said(manager, ROOT, rq.ChangeUser(user=f"{name}@users.pool", group="physics"))
    spec = JobSpec(program=Program(argv=("x" * 300,)), held=True)
    size_bytes = encoded_bytes(spec)
    for who, jobs in ((ADA, 2), (BOB, 1)):
        for _ in range(jobs):
            await said(manager, who, rq.SubmitJob(spec=spec))
    await said(manager, ROOT, rq.ChangeUser(user="bob", max_queued_bytes=None))
    found = await users(manager, ROOT)
    seen = {name: (view.queued_bytes, view.max_queued_bytes) for name, view in found.items()}
    assert seen == {"ada": (2 * size_bytes, 1_000), "bob": (size_bytes, None)}

    async def used(who: str, **asked: Any) -> list[tuple[int, int | None]]:
        found = await said(manager, who, rq.UserUsage(since=0.0, **asked))
        assert isinstance(found, an.UsedByUsers), found
        return [(line.queued_bytes, line.max_queued_bytes) for line in found.users]

    assert await used(ROOT) == [(2 * size_bytes, 1_000), (size_bytes, None)]
    assert await used(BOB) == [(size_bytes, None)], "though nothing has run yet"
    assert await used(ROOT, by="group") == [(3 * size_bytes, None)]


async def test_a_job_that_is_too_large_is_refused_with_a_cause(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path, max_queued_bytes=1_000)
    refused = await said(
        manager, ADA, rq.SubmitJob(spec=JobSpec(program=Program(argv=("x" * 1_000,))))
    )
    assert isinstance(refused, an.Failed)
    assert (refused.code, bool(refused.cause), bool(refused.hint)) == ("over-quota", True, True)


async def test_what_groups_have_used_is_the_sum_of_their_present_members(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    quick_store.at = NOW
    for job_id, owner in enumerate(("ada", "bob", "carl"), start=1):
        took = result(0, job_id, started_at=NOW - 9.0, wall_seconds=5.0)
        row = TaskRecord(job_id, 0, TaskState.DONE, 0, 0, "w1", took)
        record = job(job_id, owner=f"{owner}@users.pool", state="done", ended_at=NOW)
        await quick_store.commit([record, row])
    manager = PlayedManager(tmp_path, store=quick_store)
    await said(manager, ROOT, rq.ChangeGroup(name="physics"))
    for name in ("ada", "bob"):
        await said(manager, ROOT, rq.ChangeUser(user=f"{name}@users.pool", group="physics"))

    async def used(**asked: str) -> dict[str, float]:
        found = await said(manager, ROOT, rq.UserUsage(since=0.0, by="group", **asked))
        assert isinstance(found, an.UsedByUsers), found
        return {line.user: line.wall_seconds for line in found.users}

    assert await used() == {"": 5.0, "physics": 10.0}
    assert await used(user="physics") == {"physics": 10.0}
    refused = await said(manager, ADA, rq.UserUsage(since=0.0, by="group"))
    assert isinstance(refused, an.Failed)
    assert refused.code == "not-allowed"
