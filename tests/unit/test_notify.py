"""What systemd is told, and when."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kestrelctl.notify import STATUS_SECONDS, Notifier


class Timer:
    """Stands in for the event loop: keeps what is to be called later, and calls it when told to."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.what: Callable[[], None] | None = None

    def call_later(self, seconds: float, what: Callable[[], None]) -> Timer:
        self.seconds, self.what = seconds, what
        return self

    def cancel(self) -> None:
        self.what = None

    def fire(self) -> None:
        assert self.what is not None
        self.what()


class Systemd:
    """The other end of the socket."""

    def __init__(self, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        """What came since it was last asked."""
        lines: list[str] = []
        while True:
            try:
                lines += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return lines


@pytest.fixture(params=["path", "abstract"])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Systemd]]:
    """systemd, and its address as a service is told."""
    name = str(tmp_path / "notify")
    if request.param == "abstract":
        systemd = Systemd(f"\0{name}")
        name = f"@{name}"
    else:
        systemd = Systemd(name)
    yield name, systemd
    systemd.socket.close()


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Timer:
    found = Timer()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found)
    return found


def test_it_says_ready_then_the_status_when_that_changes_then_stopping(
    named: tuple[str, Systemd], timer: Timer
) -> None:
    address, systemd = named
    says = "connected; 3 jobs active,\n12 workers"
    notifier = Notifier(lambda: says, {"NOTIFY_SOCKET": address})
    assert systemd.heard() == []
    notifier.ready()
    assert systemd.heard() == ["READY=1", "STATUS=connected; 3 jobs active, 12 workers"]
    assert timer.seconds == STATUS_SECONDS
    timer.fire()
    assert systemd.heard() == []
    says = "the server is away"
    timer.fire()
    assert systemd.heard() == ["STATUS=the server is away"]
    notifier.stopping()
    assert systemd.heard() == ["STOPPING=1"]
    notifier.close()
    assert timer.what is None


@pytest.mark.parametrize("pid", [None, os.getpid(), os.getppid()], ids=["any", "own", "keeper"])
def test_a_watchdog_hears_it_twice_in_its_time(
    named: tuple[str, Systemd], timer: Timer, pid: int | None
) -> None:
    address, systemd = named
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"}
    if pid is not None:
        environment["WATCHDOG_PID"] = str(pid)
    notifier = Notifier(lambda: "fine", environment)
    notifier.ready()
    assert systemd.heard() == ["READY=1", "WATCHDOG=1", "STATUS=fine"]
    assert timer.seconds == 1.5
    timer.fire()
    timer.fire()
    assert systemd.heard() == ["WATCHDOG=1", "WATCHDOG=1"]
    notifier.close()


@pytest.mark.parametrize(
    "watchdog",
    [
        {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid() + 1)},
        {"WATCHDOG_USEC": "soon"},
        {},
    ],
)
def test_a_watchdog_for_somebody_else_hears_nothing(
    named: tuple[str, Systemd], timer: Timer, watchdog: dict[str, str]
) -> None:
    address, systemd = named
    notifier = Notifier(lambda: "fine", {"NOTIFY_SOCKET": address, **watchdog})
    notifier.ready()
    timer.fire()
    assert systemd.heard() == ["READY=1", "STATUS=fine"]
    notifier.close()


@pytest.mark.parametrize("address", ["", "nowhere", "/nowhere", "@nowhere"])
def test_without_systemd_it_does_nothing(timer: Timer, address: str) -> None:
    notifier = Notifier(lambda: "fine", {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"})
    notifier.ready()
    notifier.stopping()
    notifier.close()
    assert timer.what is None


def test_a_systemd_that_has_gone_is_no_trouble(timer: Timer, tmp_path: Path) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    notifier = Notifier(lambda: "fine", {"NOTIFY_SOCKET": str(tmp_path / "notify")})
    systemd.socket.close()
    notifier.ready()
    assert timer.what is not None
    notifier.close()
