"""A person with the terminal client Profanity, who types what docs/chat.md says."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kestrelctl.local.pool_state import PoolState
from kestrelctl.xmpp.prosody import PrivateServer

SECONDS = 20.0
CONSOLE, CHAT = "1", "2"


class Terminal:
    """Profanity in a terminal of its own, with an account that was made for it."""

    def __init__(self, directory: Path, state: PoolState, name: str) -> None:
        for program in ("profanity", "tmux"):
            assert shutil.which(program), f"no {program}: apt-get install {program}"
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(directory / "tmux")]
        accounts = PrivateServer(
            Path(state.password_file).parent / "server", state.domain, state.port, 0, ""
        )
        self.pool = state.domain
        self._jid = f"{name}@{accounts.users_domain}"
        self._password = accounts.add_account(self._jid)
        self._server = f"server {state.host} port {state.port} tls disable"
        home = {
            "HOME": str(directory), "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_DATA_HOME": str(directory / "data"), "LC_ALL": "C.UTF-8", "TERM": "xterm",
            "PATH": os.environ["PATH"],
        }  # fmt: skip
        words = [*self._tmux, "new-session", "-d", "-x", "150", "-y", "60", "profanity"]
        subprocess.run(words, check=True, env=home)
        self.sees("Type '/help'")

    def close(self) -> None:
        """Ends the terminal, and what runs in it."""
        subprocess.run([*self._tmux, "kill-server"], check=True)

    def log_in(self) -> None:
        self.types(f"/connect {self._jid} {self._server}")
        self.sees("Enter password:")
        self.types(self._password)
        self.sees("logged in successfully")

    def types(self, line: str) -> None:
        for keys in (["-l", "--", line], ["Enter"]):
            subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def turns_to(self, window: str) -> None:
        self.types(f"/win {window}")

    def screen(self) -> str:
        """All lines that are to be seen."""
        words = [*self._tmux, "capture-pane", "-p"]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def sees(self, pattern: str) -> re.Match[str]:
        """Waits until the screen shows that."""
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self.screen())):
            assert time.monotonic() < deadline, f"no {pattern!r} in\n{self.screen()}"
            time.sleep(0.1)
        return found

    def adds(self, contact: str) -> None:
        self.types(f"/roster add {contact}")
        self.types(f"/sub request {contact}")
        if ignores_roster_pushes():
            self.sees(f"Subscription received from {contact}")
            self.types("/disconnect")
            self.types("/clear")
            self.log_in()


@functools.cache
def ignores_roster_pushes() -> bool:
    """Whether it learns that a contact has agreed only when it connects again.

    Profanity 0.15.0 does: github.com/profanity-im/profanity/issues/2035.
    """
    words = ["profanity", "--version"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return "version 0.15.0" in said


@pytest.fixture
def terminal(local_pool: PoolState, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, local_pool, "tess")
    yield terminal
    terminal.close()


@pytest.mark.timeout(60)
def test_a_job_from_profanity(terminal: Terminal) -> None:
    jobs = f"jobs@{terminal.pool}"
    terminal.log_in()
    terminal.adds(jobs)
    terminal.sees(rf'{jobs} is online, "0 of 2 workers busy; 0 tasks waiting"')
    assert "Error from" not in terminal.screen()

    terminal.types(f"/msg {jobs} help")
    terminal.sees("I run jobs. Write one of:")
    terminal.types("submit --array 1-5 -- sh -c 'sleep 1; echo number {}'")
    job_id = terminal.sees(r"Job (\d+): 5 tasks of sh -c 'sleep 1; echo number \{\}'")[1]
    terminal.types("status")
    terminal.sees("2 workers: 2 busy")
    terminal.sees(f"job {job_id} done: 5 done, 0 failed in ")
    terminal.types(f"logs {job_id} 3")
    terminal.sees(r"jobs@\S+: number 3\b")
    chat = terminal.screen()
    assert chat.count(f"job {job_id} done") == 1
    assert "Error from" not in chat
    assert '{"' not in chat

    terminal.turns_to(CONSOLE)
    terminal.adds(f"job-{job_id}@{terminal.pool}")
    terminal.sees(rf'job-{job_id}@{terminal.pool} is xa, "5 of 5 done"')
    assert "Error from" not in terminal.screen()


@pytest.mark.timeout(60)
def test_profanity_is_told_when_it_is_back(terminal: Terminal, tmp_path: Path) -> None:
    go = tmp_path / "go"
    terminal.log_in()
    terminal.types(
        f"/msg jobs@{terminal.pool} submit -- sh -c 'until [ -e {go} ]; do sleep 0.1; done'"
    )
    job_id = terminal.sees(r"Job (\d+): 1 task")[1]
    terminal.types("/disconnect")
    terminal.sees("logged out successfully")
    go.touch()
    terminal.log_in()
    terminal.sees(f"chat message: jobs@{terminal.pool}.*win {CHAT}")
    terminal.turns_to(CHAT)
    terminal.sees(f"job {job_id} done: 1 done, 0 failed in ")
    assert terminal.screen().count(f"job {job_id} done") == 1


@pytest.mark.timeout(60)
def test_corrections_from_profanity(terminal: Terminal) -> None:
    jobs = f"jobs@{terminal.pool}"
    terminal.log_in()
    terminal.types("/correction on")
    terminal.types(f"/msg {jobs} statsu")
    terminal.sees('I do not know "statsu"')
    terminal.types("/correct status")
    terminal.sees("2 workers: 2 ")
    terminal.types("submit -- true")
    job_id = int(terminal.sees(r"Job (\d+): 1 task of true")[1])
    terminal.types("/correct submit -- false")
    terminal.sees("This corrects a message that may have been acted upon")
    assert f"Job {job_id + 1}" not in terminal.screen()

    terminal.types("/otr policy opportunistic")  # says so by spaces behind each message
    terminal.types("job last?")
    terminal.sees(rf"Job {job_id} done: 1 done")
