"""Who may do what, by the address that the server vouches for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.manager.access import Access
from kestrelctl.manager.options import ManagerOptions

ACCESS = Access(
    ManagerOptions(
        domain="pool",
        secret_file=Path("secret"),
        data_dir=Path("data"),
        users=("ann@friends",),
        admins=("root@users.pool",),
    )
)


@pytest.mark.parametrize(
    ("jid", "allowed"),
    [
        ("ann@friends/1", {"submit"}),
        ("eve@friends/1", set()),
        ("w1@workers.pool/1", {"work"}),
        ("join-1795193600-5f2c-w1@workers.pool/1", {"join"}),
        ("ada@users.pool/1", {"submit"}),
        ("root@users.pool/1", {"submit", "administrate"}),
        ("root@users.pool", {"submit", "administrate"}),
        ("root@workers.pool/1", {"work"}),
        ("w1@workers.pool.elsewhere/1", set()),
        ("ada@elsewhere/w1@workers.pool", set()),
        ("pool", set()),
    ],
)
def test_an_address_may_do_what_its_host_is_for(jid: str, allowed: set[str]) -> None:
    may = {
        "work": ACCESS.may_work,
        "join": ACCESS.may_join,
        "submit": ACCESS.may_submit,
        "administrate": ACCESS.is_admin,
    }
    assert {what for what, asked in may.items() if asked(jid)} == allowed
