"""Which jobs users mean with several words, with a state and with the name of a user."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobkit import job_spec
from managerkit import FarStore, PlayedManager

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.cli.job.commands import LISTED_STATES, chosen_states
from kestrelctl.manager import selection
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"
ROOT = "root@users.pool/1"


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    """Jobs 1 to 4 are ada's, and job 2 is over; job 5 is bob's; job 6 is ada's service."""
    manager = PlayedManager(tmp_path)
    for whom in (ADA, ADA, ADA, ADA, BOB):
        await submit(manager, whom)
    await submit(manager, ADA, service=True)
    await asked(manager, rq.CancelJobs(jobs="2"))
    return manager


async def submit(manager: PlayedManager, whom: str, **fields: bool) -> None:
    await manager.ask(whom, rq.SubmitJob(spec=job_spec(count=2, **fields)))


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


async def listed(manager: PlayedManager, whom: str = ADA, **fields: object) -> list[int]:
    found = await asked(manager, rq.ListJobs(**fields), whom)  # type: ignore[arg-type]
    assert isinstance(found, an.Jobs), found
    return [view.job_id for view in found.jobs]


@pytest.mark.parametrize(
    ("jobs", "ids"),
    [
        ("1,last", [1, 6]),
        ("last,all", [1, 3, 4, 6]),
        ("all,2", [1, 2, 3, 4, 6]),
        ("1-3,all", [1, 2, 3, 4, 6]),
        ("5,all", [1, 3, 4, 5, 6]),
        ("all", [1, 3, 4, 6]),
    ],
)
async def test_ids_ranges_last_and_all_go_together(
    manager: PlayedManager, jobs: str, ids: list[int]
) -> None:
    assert await listed(manager, jobs=jobs) == ids


async def test_what_is_named_must_be_there_and_the_rest_is_passed_over(
    manager: PlayedManager,
) -> None:
    refused = await asked(manager, rq.CancelJobs(jobs="all,99"))
    assert isinstance(refused, an.Failed)
    assert refused.message == "there is no job 99"
    assert refused.hint.endswith("nothing was done with the others")
    refused = await asked(manager, rq.CancelJobs(jobs="99"))
    assert isinstance(refused, an.Failed)
    assert "others" not in refused.hint
    found = await asked(manager, rq.HoldJobs(jobs="1-3,all"))
    assert isinstance(found, an.Changed)
    assert (found.what, found.kept) == (["1", "3", "4", "6"], 1)


@pytest.mark.parametrize("jobs", ["", ",", "last,", "all,,1", "last,x", "last all"])
async def test_anything_else_between_commas_is_refused(manager: PlayedManager, jobs: str) -> None:
    refused = await asked(manager, rq.CancelJobs(jobs=jobs))
    assert isinstance(refused, an.Failed)
    assert refused.code == "usage"


async def test_as_many_jobs_as_all_means_are_listed(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MAX_SELECTED", 2)
    assert await listed(manager, jobs="all,2") == [1, 2, 3, 4, 6]
    found = await asked(manager, rq.HoldJobs(jobs="all"))
    assert isinstance(found, an.Changed)
    assert (found.what, found.left) == (["1", "3"], 2)


@pytest.mark.parametrize("name", ["bob", "bob@users.pool"])
async def test_the_owner_is_an_account_or_what_is_before_its_at(
    manager: PlayedManager, name: str
) -> None:
    assert await listed(manager, owner=name) == [5]


async def test_ones_own_name_is_oneself_and_a_name_of_several_is_refused(
    manager: PlayedManager,
) -> None:
    for guest in ("ada@b.pool", "cy@b.pool", "cy@c.pool"):
        manager.service.pool.sharers.of(guest)
    for whom in (ADA, BOB):
        assert await listed(manager, whom, owner="ada") == [1, 2, 3, 4, 6]
    refused = await asked(manager, rq.ListJobs(owner="cy"))
    assert isinstance(refused, an.Failed)
    assert refused.message == "several users are called cy"
    assert await listed(manager, owner="nobody") == []


async def in_states(manager: PlayedManager, *states: str, where: str = "") -> list[int]:
    asked_states, expression = chosen_states(states, where)
    return await listed(manager, states=asked_states, where=expression)


async def test_jobs_are_chosen_by_each_state_that_lists_show(manager: PlayedManager) -> None:
    await asked(manager, rq.HoldJobs(jobs="3"))
    assert await in_states(manager, "active") == [1, 3, 4, 5, 6]
    assert await in_states(manager, "waiting") == [1, 4, 5, 6]
    assert await in_states(manager, "held") == [3]
    assert await in_states(manager, "service") == [6]
    assert await in_states(manager, "running") == []
    assert await in_states(manager, "cancelled") == [2]
    assert await in_states(manager, "cancelled", "held") == [2, 3]
    assert await in_states(manager, "active", "held") == [1, 3, 4, 5, 6]
    assert await in_states(manager, "waiting", where="JobId > 1 || JobId == 0") == [4, 5, 6]
    for state in LISTED_STATES:
        await in_states(manager, state)


async def test_jobs_are_forgotten_while_a_store_behind_a_network_is_asked(tmp_path: Path) -> None:
    store = FarStore(MemoryStore())
    manager = PlayedManager(tmp_path, store=store)
    await submit(manager, ADA)
    await asked(manager, rq.CancelJobs(jobs="1"))
    store.is_far = True
    changed = await asked(manager, rq.ForgetJobs(jobs="1"))
    assert isinstance(changed, an.Changed)
    assert changed.what == ["1"]
    assert await store.ask(lambda read: read.job_ids()) == []
