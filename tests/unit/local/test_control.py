"""What `up` and `down` keep of a pool on this machine, and what they say of it."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.access.context import running_pools
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.errors import KestrelError, NotFound, SteppedBack, StoreUnusable, UsageError
from kestrelctl.local import control
from kestrelctl.local.pool_state import (
    PoolState,
    claim_pool,
    known_pools,
    last_state,
    manager_directory,
    pool_directory,
    pools_directory,
    process_mark,
    read_state,
    write_state,
)
from kestrelctl.local.supervisor import MANAGER, Supervisor, processes_for
from kestrelctl.protocol.properties import PropertyList, PropertyView
from kestrelctl.store.sqlite.store import SqliteStore


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KESTREL_POOL", raising=False)
    monkeypatch.setattr(control, "find_prosody", lambda: Path("/bin/true"))
    return tmp_path


def a_state(name: str) -> PoolState:
    """The state that a pool published whose processes are gone."""
    return PoolState(
        name=name, pid=2**22 + 1, domain="d", host="h", port=1, user="u",
        password_file=str(pool_directory(name) / "user.password"), admin="a",
        admin_password_file="q", workers=1, server_pid=0, manager_pid=0, worker_pids=[],
        marks={2**22 + 1: "an earlier boot 7"},
    )  # fmt: skip


def crashed(name: str) -> Path:
    """The directory of a pool whose processes are gone."""
    directory = pool_directory(name)
    directory.mkdir(parents=True)
    write_state(directory, a_state(name))
    store = SqliteStore(manager_directory(name))
    store.open()
    store.close()
    return directory


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisors that end at once, as one does whose manager cannot use its store."""

    def start(directory: Path, *_words: object, **_options: object) -> subprocess.Popen[bytes]:
        (directory / "manager.log").write_text("error: The manager's store is damaged\n")
        process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(14)"])
        process.wait()
        return process

    monkeypatch.setattr(control, "_start", start)


@pytest.mark.usefixtures("failing")
def test_up_leaves_what_a_crashed_pool_stored_and_names_a_damaged_store() -> None:
    directory = crashed("hurt")
    directory.chmod(0o755)
    (directory / "manager.log").write_text("of the earlier pool\n")
    with pytest.raises(StoreUnusable) as caught:
        asyncio.run(control.up("hurt", 1))
    assert (directory / "manager" / "kestrel.db").exists()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / "manager.log.old").read_text() == "of the earlier pool\n"
    assert "store is damaged" in (caught.value.cause or "")
    assert "manager restore --pool hurt" in (caught.value.hint or "")
    assert "--delete" not in (caught.value.hint or "")


def test_down_keeps_and_deletes_only_when_told() -> None:
    directory = crashed("p")
    asyncio.run(control.down("p"))
    assert (directory / "manager" / "kestrel.db").exists()
    with pytest.raises(NotFound) as caught:
        asyncio.run(control.down("p"))
    assert "kestrelctl up --name p" in (caught.value.hint or "")
    asyncio.run(control.down("p", delete=True))
    assert not directory.exists()


@pytest.mark.parametrize("delete", [False, True])
def test_a_pool_that_starts_or_runs_elsewhere_is_left_alone(delete: bool) -> None:
    directory = crashed("p")
    lock = claim_pool(directory)  # as its supervisor does, before it tells where it is
    try:
        for refused in (control.up("p", 1), control.down("p", delete=delete)):
            with pytest.raises(UsageError, match="is starting or stopping"):
                asyncio.run(refused)
    finally:
        os.close(lock)
    assert last_state(directory) is not None
    assert (directory / "manager" / "kestrel.db").exists()


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("name", ["x" * 64, "é" * 40, "", "..", "a/b", "\udcff"])
def test_a_name_that_no_directory_has_is_refused(name: str) -> None:
    for refused in (control.up(name, 1), control.down(name, delete=True)):
        with pytest.raises(UsageError, match="name of a pool"):
            asyncio.run(refused)
    assert not pools_directory().exists()


@pytest.mark.usefixtures("failing")
def test_where_nothing_can_be_written_no_pool_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").touch()
    for place in (home / "file", home / ("x" * 300)):
        monkeypatch.setenv("XDG_STATE_HOME", str(place))
        with pytest.raises(KestrelError, match="the directory of the pool cannot be used"):
            asyncio.run(control.up("p", 1))
        with pytest.raises(NotFound):
            asyncio.run(control.down("p"))
        assert known_pools() == []
        assert running_pools() == {}


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("text", [b"\xff\xfe", b"../x", b"a b"])
def test_a_pool_whose_domain_was_spoiled_does_not_start_and_is_deleted(text: bytes) -> None:
    directory = crashed("p")
    (directory / "domain").write_bytes(text)
    with pytest.raises(UsageError, match="is not a domain"):
        asyncio.run(control.up("p", 1))
    asyncio.run(control.down("p", delete=True))
    assert not directory.exists()


@pytest.mark.usefixtures("failing")
def test_more_workers_than_a_machine_can_have_are_refused() -> None:
    # What follows is wrong as well: not even a pool that took so many would start here.
    result = run(FakePool(), "up", "--workers", "100001", "--executor", "none")
    assert result.exit_code == 2
    assert "100001 is not in the range" in result.stderr
    assert not pools_directory().exists()


def test_a_supervisor_that_cannot_write_says_where(home: Path) -> None:
    directory = crashed("p")
    (directory / "server").touch()  # a file, where a directory is to be
    words = ["-m", "kestrelctl.local.supervisor", "--directory", str(directory), "--name", "p"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{directory}/server" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_supervisor_ends_and_touches_nothing() -> None:
    directory = crashed("p")
    lock = claim_pool(directory)
    words = ["-m", "kestrelctl.local.supervisor", "--directory", str(directory), "--name", "p"]
    second = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    os.close(lock)
    assert second.returncode == UsageError.exit_status
    assert "the pool p is starting or stopping, or runs on another machine" in second.stderr
    assert last_state(directory) is not None


def test_down_deletes_what_a_task_has_closed() -> None:
    directory = crashed("p")
    closed = directory / "worker-1" / "tasks" / "closed"
    (closed / "inner").mkdir(parents=True)
    (closed / "inner" / "file").touch()
    for path in (closed / "inner", closed):
        path.chmod(0)
    asyncio.run(control.down("p", delete=True))
    assert not directory.exists()


def test_a_store_that_cannot_be_read_is_not_taken_for_an_empty_one() -> None:
    assert control.kept_jobs("p") == (0, 0)
    (crashed("p") / "manager" / "kestrel.db").write_bytes(b"x" * 5000)
    assert control.kept_jobs("p") is None


def test_a_pool_of_another_boot_does_not_run() -> None:
    assert read_state(crashed("p")) is None
    assert process_mark(os.getpid()) == process_mark(os.getpid()) != process_mark(1)


def test_a_backup_is_of_the_pool_that_is_meant(home: Path) -> None:
    for name in ("a", "b"):
        crashed(name)
    assert run(FakePool(), "manager", "backup", "f").exit_code == 2, "there are two"
    result = run(FakePool(), "manager", "backup", "--pool", "b", str(home / "f"))
    assert result.exit_code == 0, result.stderr
    assert "holds 0 jobs" in result.stdout
    assert run(FakePool(), "manager", "backup", "--pool", "c", "f").exit_code == 7
    crashed("default")
    assert run(FakePool(), "manager", "backup", str(home / "f")).exit_code == 0


def test_every_worker_that_is_to_make_environments_has_a_process() -> None:
    assert processes_for(40, makes_environments=True) == 40
    assert processes_for(0, makes_environments=True) == 1
    assert processes_for(40, makes_environments=False) == min(40, os.cpu_count() or 1)


@pytest.mark.parametrize("error", [StoreUnusable, SteppedBack])
def test_a_manager_that_starting_again_does_not_help_ends_its_pool(
    error: type[KestrelError],
) -> None:
    ended = SimpleNamespace(poll=lambda: error.exit_status, returncode=error.exit_status)
    supervisor = Supervisor.__new__(Supervisor)
    manager: Any = SimpleNamespace(name=MANAGER, process=ended, started_at=0.0)
    supervisor.children = [manager]
    with pytest.raises(error):
        supervisor._restart_ended()


class Telling:
    """A pool whose workers tell of one property more each time that they are asked about."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked = 0

    async def __aenter__(self) -> Telling:
        return self

    async def __aexit__(self, *given: object) -> None:
        return None

    async def ask(self, request: object, timeout_seconds: float) -> PropertyList:
        self.asked += 1
        told = [
            PropertyView(name=name, summary=PropertySummary(1, 0))
            for name in self.names[: self.asked - 1]
        ]
        return PropertyList(id="", properties=told, workers=1)


async def test_who_looks_at_once_finds_the_properties_of_a_new_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Telling("ram", "users")
    monkeypatch.setattr(control, "connect_local", lambda state: pool)
    monkeypatch.setattr(control, "POLL_SECONDS", 0.0)
    await control._until_told(a_state("p"), {"ram", "users"})
    assert pool.asked == 3


async def test_a_reading_that_takes_long_does_not_keep_a_pool_from_coming_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Telling("ram")
    monkeypatch.setattr(control, "connect_local", lambda state: pool)
    monkeypatch.setattr(control, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(control, "TOLD_SECONDS", 0.01)
    await control._until_told(a_state("p"), {"ram", "slow"})
    assert pool.asked > 1


async def test_up_waits_until_properties_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waited: list[set[str]] = []

    async def ready(*given: object) -> PoolState:
        return a_state("p")

    async def until_told(state: PoolState, names: set[str]) -> None:
        waited.append(names)

    monkeypatch.setattr(control, "_start", lambda *given, **more: None)
    monkeypatch.setattr(control, "_ready", ready)
    monkeypatch.setattr(control, "_until_told", until_told)
    defined = tmp_path / "properties.ini"
    defined.write_text("[ram_free]\ncommand = ram\nreturn_type = int\nticks = 60\n")
    await control.up("p", 1, properties=(defined,))
    await control.up("p", 1)
    assert waited == [{"ram_free"}]
