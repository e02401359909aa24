"""Who sits at a machine: as logind tells, and from records of utmp as they stand on a disk."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from kestrelctl.worker import gpus
from kestrelctl.worker.plugins import logins
from kestrelctl.worker.plugins.built_in import NoValue, users

BOOT, LOGIN, USER, DEAD = 2, 6, 7, 8
HERE, GONE = os.getpid(), 2**22 + 1

#: `loginctl list-sessions --output=json`: at the login screen, at the desktop, over SSH,
#: in a session that is ending, and the manager of a user's services.
SESSIONS = """[
{"session":"c1","uid":112,"user":"gdm","seat":"seat0","tty":"tty1"},
{"session":"2","uid":1000,"user":"ada","seat":"seat0","tty":"tty2"},
{"session":"5","uid":1001,"user":"bob","seat":null,"tty":"pts/0"},
{"session":"4","uid":1002,"user":"eve","seat":"seat0","tty":"tty3"},
{"session":"6","uid":1003,"user":"joe","seat":"-","tty":null,"class":"manager"}]"""
FACTS = {
    "c1": "Class=greeter\nState=online\n",
    "2": "Class=user\nState=active\n",
    "5": "Class=user\nState=active\n",
    "4": "Class=user\nState=closing\n",
    "6": "Class=manager\nState=active\n",
}


def record(kind: int, line: str, user: str, host: str = "", pid: int = HERE) -> bytes:
    """A record of utmp(5) on a machine such as this."""
    begin = struct.pack(
        "<h2xi32s4s32s256s", kind, pid, line.encode(), b"x", user.encode(), host.encode()
    )
    return begin.ljust(logins.RECORD_BYTES, b"\0")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One without logind; its utmp."""
    monkeypatch.setattr(gpus, "output", lambda command: "")
    monkeypatch.setattr(logins, "UTMP", tmp_path / "utmp")
    return tmp_path / "utmp"


def test_of_utmp_those_count_that_have_a_terminal_or_a_display_of_the_machine(
    machine: Path,
) -> None:
    machine.write_bytes(
        record(BOOT, "~", "reboot", "6.1.0-28-amd64")
        + record(LOGIN, "tty1", "LOGIN")
        + record(USER, "tty2", "ada")
        + record(USER, "tty7", "ada", ":0")
        + record(USER, ":0", "ada", ":0")
        + record(USER, "pts/3", "ada", ":1.0")
        + record(USER, "pts/0", "bob", "10.1.2.3")
        + record(USER, "pts/1", "bob", "::1")
        + record(USER, "pts/2", "bob", "localhost")
        + record(DEAD, "tty3", "eve")
        + record(USER, "tty4", "eve", pid=GONE)
        + record(USER, "tty5", "ada")[:100]
    )
    assert users(["console"]) == 4
    assert users([]) == 4
    assert users(["all"]) == 7


def test_nobody_in_utmp_is_nobody(machine: Path) -> None:
    machine.write_bytes(b"")
    assert users(["console"]) == 0


def test_where_nothing_tells_it_is_not_said_that_nobody_is_there() -> None:
    with pytest.raises(NoValue, match="neither logind nor utmp"):
        users(["console"])


def answers(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def output(command: tuple[str, ...]) -> str:
        return said if command[1] == "list-sessions" else FACTS[command[2]]

    monkeypatch.setattr(gpus, "output", output)


def test_of_logind_people_with_a_seat_count(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(SESSIONS, monkeypatch)
    assert users(["console"]) == 1
    assert users(["all"]) == 2


@pytest.mark.parametrize("said", ["[]", "No sessions.\n"])
def test_nobody_at_logind_is_nobody(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(said, monkeypatch)
    assert users(["console"]) == 0


@pytest.mark.parametrize("said", ["{}x", "[3]", '[{"seat": "s"}]', '{"a": 1}', "[" * 100_000])
def test_what_cannot_be_read_is_not_nobody(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(said, monkeypatch)
    with pytest.raises(NoValue):
        users(["console"])
