"""`doctor`: what it finds between a command and its pool, and what it says to do."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_fake_pool import CONTEXT, POOL, FakePool, run
from msgspec.structs import replace

from kestrelctl.access.context import Account, Context
from kestrelctl.cli.doctor import clock, manager, password
from kestrelctl.errors import NotAllowed
from kestrelctl.protocol.views import QuarantineView


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """A context whose server listens."""
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield replace(
            CONTEXT,
            host="127.0.0.1",
            port=server.getsockname()[1],
            user=Account("ada@example.org", file),
        )


def checked(pool: FakePool, context: Context, status: int = 0) -> dict[str, dict[str, Any]]:
    done = run(pool, "doctor", "-o", "json", context=context)
    assert done.exit_code == status, done.output
    found = json.loads(done.stdout)
    return {each.pop("what"): each for each in found}


def test_all_is_well(context: Context) -> None:
    found = checked(FakePool(), context)
    assert [*found] == [
        "configuration", "password", "server", "login", "manager", "clock", "store", "workers",
        "disk",
    ]  # fmt: skip
    assert {found[what]["state"] for what in ("password", "server", "login", "store")} == {"ok"}


def test_a_server_that_is_not_there_ends_it_and_the_disk_is_looked_at(context: Context) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = checked(FakePool(), replace(context, port=port), status=5)
    assert [*found][-2:] == ["server", "disk"]
    assert found["server"]["state"] == "bad"
    assert "refused" in found["server"]["found"]
    found = checked(FakePool(), replace(context, host="no-such-host.invalid"), status=5)
    assert "has no address" in found["server"]["found"]


def test_of_a_server_with_several_addresses_it_is_told_why_none_answers(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reasons differ by their addresses, so the error of them all has no number."""

    async def refuse(*_: object, **__: object) -> None:
        raise OSError("Multiple exceptions: [Errno 111] refused by ::1, [Errno 111] by 127.0.0.1")

    monkeypatch.setattr("asyncio.open_connection", refuse)
    found = checked(FakePool(), context, status=5)
    assert "refused by ::1" in found["server"]["found"]


def test_a_disk_without_any_space_says_so(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(total=1 << 30, used=1 << 30, free=0)
    monkeypatch.setattr("shutil.disk_usage", lambda _: full)
    assert checked(FakePool(), context, status=1)["disk"]["found"].startswith("0 B free at ")


def test_a_login_that_is_refused_is_told_with_its_hint(context: Context) -> None:
    refused = NotAllowed("the server refused the login", cause="not-authorized", hint="ask Bob")
    found = checked(FakePool(PoolTraffic=refused), context, status=1)
    assert found["manager"] == {
        "state": "bad", "found": "the server refused the login: not-authorized", "hint": "ask Bob",
    }  # fmt: skip


def test_a_pool_that_cannot_store_or_has_no_workers_is_bad(context: Context) -> None:
    sick = replace(POOL, store_error="the disk is full", workers={})
    found = checked(FakePool(PoolStatus=sick), context, status=1)
    assert (found["store"]["state"], found["workers"]["state"]) == ("bad", "bad")
    worker = QuarantineView("w1@workers.pool/x", 0.0, "it failed 3 tasks")
    doubtful = replace(POOL, store_notes=["jobs were lost"], quarantined=[worker])
    found = checked(FakePool(PoolStatus=doubtful), context)
    assert (found["store"]["state"], found["workers"]["state"]) == ("look", "look")
    assert "w1" in found["workers"]["found"]


def test_a_password_that_others_read_or_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "my password"
    account = Account("ada@example.org", file)
    assert password(account).state == "bad"
    file.write_text("\n")
    assert password(account).state == "bad"
    file.write_text("secret\n")
    file.chmod(0o644)
    assert password(account).state == "look"
    assert shlex.split(password(account).hint) == ["chmod", "600", str(file)]
    file.chmod(0o600)
    assert password(account).state == "ok"


def test_clocks_and_versions_are_compared() -> None:
    assert clock(1000.0, 999.0, 1001.0).state == "ok"
    assert clock(1000.0, 1003.0, 1004.0).state == "ok"
    assert clock(1000.0, 1013.0, 1014.0).found.endswith("differ by 13 s")
    assert clock(1000.0, 900.0, 901.0).found.endswith("differ by 99 s")
    assert manager(replace(POOL, version="1.0+gabc"), "1.0+gdef").state == "ok"
    assert manager(replace(POOL, version="1.0"), "1.1").state == "look"
