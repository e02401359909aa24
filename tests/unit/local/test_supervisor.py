"""What a supervisor tells of its pool stays true, whoever tampers with it."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from kestrelctl.local import supervisor as module
from kestrelctl.local.pool_state import PoolState, last_state
from kestrelctl.local.supervisor import Child, Supervisor


class Told:
    """A supervisor whose processes are not started, and what it tells."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "pool.json"
        self.supervisor = Supervisor(directory, "p", 1, "process", "plain", metrics=False)

    def tells(self) -> PoolState | None:
        """What is written down after another look at its processes."""
        account = ("user@users.localhost", self.directory / "user.password")
        child = Child("server", ["true"], self.directory)
        self.supervisor._publish(account, account, child, child)
        return last_state(self.directory)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_what_is_deleted_or_spoiled_is_told_again(told: Told) -> None:
    first = told.tells()
    assert first is not None
    told.file.unlink()
    assert told.tells() == first
    told.file.write_text("{")
    assert told.tells() == first
    unchanged = told.file.stat().st_ino
    assert told.tells() == first
    assert told.file.stat().st_ino == unchanged, "it is written when there is something to tell"


def test_a_full_disk_ends_no_pool(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_state", full)
        assert told.tells() is None
        assert told.tells() is None
    assert told.tells() is not None


def test_a_machine_that_starts_no_more_processes_ends_no_pool(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's tasks may have taken all that this user may have, and end."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "_reap_strangers", lambda _own: [])
    child = Child("manager", ["true"], told.directory)
    tries: list[float] = []

    def start() -> None:
        tries.append(clock.now)
        if len(tries) < 3:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        child.process = SimpleNamespace(poll=lambda: None, pid=1)  # type: ignore[assignment]

    monkeypatch.setattr(child, "start", start)
    told.supervisor.children = [child]
    for clock.now in (0.0, 0.1, 1.0, 1.1, 10.0):
        told.supervisor._restart_ended()
    assert tries == [0.0, 1.0, 10.0], "it pauses between tries"


def test_a_cache_of_inputs_that_has_filled_the_disk_is_not_thinned_at_the_next_start(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=0, used=0, free=0))
    kept = told.directory / "worker-1" / "inputs" / "owners" / "ada" / "table"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(bytes(4096))
    [worker] = told.supervisor._worker_commands()
    place = worker.command.index("--cache-size")
    assert int(worker.command[place + 1]) == kept.stat().st_size
