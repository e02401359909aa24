"""`kestrelctl up --flock`: pools of one machine whose servers reach each other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import Spawn, until
from flock_servers import Servers

from kestrelctl.errors import UsageError
from kestrelctl.local.flock_membership import (
    addresses_of,
    flock_directory,
    flock_domain,
    membership,
    own_addresses_of,
    server_address,
)
from kestrelctl.local.pool_state import pool_directory, read_state
from kestrelctl.local.throw_away_flock import throw_away_flock

ASPEN, BIRCH, CEDAR = map(flock_domain, ("aspen", "birch", "cedar"))

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawn: Spawn) -> Iterator[None]:
    """A user of this machine with a state directory of his own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    for name in ("aspen", "birch"):
        spawn("down", "--name", name, "--delete", "--yes").wait(60)


async def up(
    spawn: Spawn, name: str, flock: str = "", status: int = 0, executor: str = "inline"
) -> str:
    """Starts a pool; returns what it says of errors."""
    words = ["up", "--name", name, "--workers", "1", "--executor", executor]
    process = spawn(*words, *(["--flock", flock] if flock else []))
    assert await asyncio.to_thread(process.wait, 90) == status, process.communicate()
    return process.communicate()[1]


async def down(spawn: Spawn, name: str) -> None:
    assert await asyncio.to_thread(spawn("down", "--name", name, "--yes").wait, 60) == 0


async def ask(servers: Servers, to: str) -> set[str]:
    """What a pool at a server beside theirs is answered, as conditions of errors."""
    directory = servers.directory / "cedar"
    directory.mkdir(exist_ok=True)
    federation = membership(flock_directory(), directory, CEDAR, ASPEN)
    assert federation.flock is not None
    servers.addresses = Path(federation.flock.address_directories[-1])
    async with servers.pool(CEDAR, federation) as (_, cedar):
        cedar.say(
            f"<iq type='get' id='1' from='flock@{CEDAR}' to='pool@{to}'>"
            "<query xmlns='http://jabber.org/protocol/disco#info'/></iq>"
        )
        answer = await cedar.hear()
        assert answer.get("from") == f"pool@{to}"
        return {part.tag.rpartition("}")[2] for part in answer.iterfind("{*}error/*")}


async def test_a_second_pool_joins_through_the_first(spawn: Spawn, tmp_path: Path) -> None:
    await up(spawn, "aspen", "aspen")
    await up(spawn, "birch", "aspen")
    for name, domain in (("aspen", ASPEN), ("birch", BIRCH)):
        state = read_state(pool_directory(name))
        assert state is not None
        assert state.domain == domain
        command = Path(f"/proc/{state.manager_pid}/cmdline").read_text().split("\0")
        assert command[command.index("--flock") + 1] == ASPEN
    assert {file.name for file in addresses_of(flock_directory()).iterdir()} == {ASPEN, BIRCH}

    servers = Servers(tmp_path)
    for domain in (ASPEN, BIRCH):
        assert not any("remote" in word for word in await ask(servers, domain))

    certificate = (pool_directory("birch") / "flock.pem").read_bytes()
    await down(spawn, "birch")
    assert not (addresses_of(flock_directory()) / BIRCH).exists()
    assert "remote-server-not-found" in await ask(servers, BIRCH)
    await up(spawn, "birch", "aspen")
    assert (pool_directory("birch") / "flock.pem").read_bytes() == certificate
    assert "remote-server-not-found" not in await ask(servers, BIRCH)


async def test_files_of_tasks_that_ran_elsewhere_come_home(spawn: Spawn, tmp_path: Path) -> None:
    async def say(*words: str) -> str:
        process = spawn("--pool", "aspen", *words)
        said, errors = await asyncio.to_thread(process.communicate, timeout=120)
        assert process.returncode == 0, errors
        return said

    async def has_found_birch() -> bool:
        return BIRCH in await say("flock", "pools", "--output", "quiet")

    await up(spawn, "aspen", "aspen", executor="process")
    await up(spawn, "birch", "aspen", executor="process")
    while not await has_found_birch():
        await asyncio.sleep(0.5)
    (tmp_path / "numbers").write_text("".join(f"{n} squared is {n * n}\n" for n in range(1, 9)))
    files = ("--input", str(tmp_path / "numbers"), "--keep", "found")
    command = ("sh", "-c", "sleep 1; sed -n {}p numbers >found")
    await say("submit", "--array", "1-8", *files, "--", *command)
    await say("job", "wait", "1", "--timeout", "60s")
    tasks = json.loads(await say("job", "tasks", "1", "--output", "json"))
    assert any(BIRCH in task["worker"] for task in tasks)
    await say("job", "fetch", "1", "--to", str(tmp_path / "out"))
    for n in range(1, 9):
        assert (tmp_path / "out" / str(n) / "found").read_text() == f"{n} squared is {n * n}\n"


async def test_what_a_crash_leaves_does_no_harm(spawn: Spawn) -> None:
    await up(spawn, "aspen", "aspen")
    state = read_state(pool_directory("aspen"))
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    await until(lambda: read_state(pool_directory("aspen")) is None)
    assert server_address(flock_directory(), "aspen")
    assert "does not run" in await up(spawn, "birch", "aspen", UsageError.exit_status)
    await up(spawn, "aspen", "aspen")
    await down(spawn, "aspen")
    assert not (addresses_of(flock_directory()) / ASPEN).exists()


async def test_a_pool_that_was_begun_without_a_flock_has_no_name_in_one(spawn: Spawn) -> None:
    await up(spawn, "aspen")
    assert "is in no flock" in await up(spawn, "birch", "aspen", UsageError.exit_status)
    await down(spawn, "aspen")
    said = await up(spawn, "aspen", "aspen", UsageError.exit_status)
    assert "cannot be in a flock" in said
    assert "--name OTHER" in said


async def test_pools_that_are_thrown_away_come_and_go_one_by_one(tmp_path: Path) -> None:
    directory = tmp_path / "flock"
    directory.mkdir()
    ways = {("aspen", "birch"): "127.0.0.1:9"}
    async with throw_away_flock(
        directory, {"aspen": 1, "birch": 2}, ways=ways, minute_seconds=2.0, executor="inline"
    ) as flock:
        assert {name: pool.workers for name, pool in flock.pools.items()} == {
            "aspen": 1,
            "birch": 2,
        }
        way = own_addresses_of(directory / "aspen") / BIRCH
        assert way.read_text() == "127.0.0.1:9\n"
        await flock.start("cedar", 1, "birch")
        command = Path(f"/proc/{flock.pools['cedar'].manager_pid}/cmdline").read_text().split("\0")
        assert command[command.index("--flock") + 1] == BIRCH
        assert command[command.index("--flock-minute") + 1] == "2.0"
        await flock.stop("birch")
        assert {file.name for file in addresses_of(directory).iterdir()} == {ASPEN, CEDAR}
    assert not list(addresses_of(directory).iterdir())
    assert not any((directory / name).exists() for name in ("aspen", "birch", "cedar"))
