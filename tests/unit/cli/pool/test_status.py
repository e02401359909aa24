"""`pool status`, where the pool has several managers."""

from __future__ import annotations

from cli_fake_pool import POOL, FakePool, run
from msgspec.structs import replace

from kestrelctl.core.model.manager_seen import ManagerSeen


def test_each_manager_is_shown_with_what_it_does() -> None:
    managers = [
        ManagerSeen(host="a", version="1.0", leads=True),
        ManagerSeen(host="b", version="1.1", leads=False),
        ManagerSeen(host="c", version="1.0", leads=False, problem="it is asleep"),
    ]
    pool = FakePool(PoolStatus=replace(POOL, managers=managers))
    lines = [" ".join(line.split()) for line in run(pool, "pool", "status").stdout.splitlines()]
    assert "managers a leads" in lines
    assert "managers b stands by (1.1)" in lines
    assert "managers c cannot take over: it is asleep" in lines
