"""An admin has another manager of the pool lead it."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import PlayedManager
from storekit import QuickStore

from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.errors import SteppedBack
from kestrelctl.protocol import requests as rq

ADMIN, USER = "root@users.pool/1", "ada@users.pool/1"
LEADS = ManagerSeen(host="a", version="1", leads=True)
READY = ManagerSeen(host="b", version="1", leads=False)
AWAY = ManagerSeen(host="c", version="1", leads=False, problem="the server cannot be reached")


class Leadership:
    """One whose managers are these."""

    def __init__(self, *managers: ManagerSeen) -> None:
        self._managers = [*managers]

    def managers(self) -> list[ManagerSeen]:
        return self._managers


@pytest.fixture
async def manager(tmp_path: Path, quick_store: QuickStore) -> PlayedManager:
    return PlayedManager(tmp_path, store=quick_store)


async def test_the_pool_goes_on_with_one_that_could_lead(manager: PlayedManager) -> None:
    manager.store.leadership = Leadership(LEADS, AWAY, READY)
    assert '"what":["b"]' in (await manager.ask(ADMIN, rq.HandOver())).replace(" ", "")
    error = manager.service.broken.result()
    assert isinstance(error, SteppedBack)
    assert ADMIN.partition("/")[0] in str(error.cause)


@pytest.mark.parametrize("managers", [(LEADS,), (LEADS, AWAY)])
async def test_without_one_that_could_lead_nothing_happens(
    manager: PlayedManager, managers: tuple[ManagerSeen, ...]
) -> None:
    manager.store.leadership = Leadership(*managers)
    assert "no manager stands by" in await manager.ask(ADMIN, rq.HandOver())
    assert not manager.service.broken.done()


async def test_a_store_of_one_machine_has_one_manager(manager: PlayedManager) -> None:
    assert "this pool has one manager" in await manager.ask(ADMIN, rq.HandOver())
    assert not manager.service.broken.done()


async def test_the_status_of_the_pool_shows_them_all(manager: PlayedManager) -> None:
    manager.store.leadership = Leadership(LEADS, READY, AWAY)
    answer = await manager.ask(USER, rq.PoolStatus())
    assert '"the server cannot be reached"' in answer
    assert manager.service.managers() == [LEADS, READY, AWAY]
