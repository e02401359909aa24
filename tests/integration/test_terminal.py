"""What is drawn on a real terminal: `kestrelctl top`, and the bar of a job that is waited for."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection

CHECKOUT = Path(__file__).parents[2]
PATIENCE_SECONDS = 30.0
#: What moves the cursor, changes colours and so on (ECMA-48, 5.4 and 5.5).
CONTROLS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][0-9A-Z]|[=>])|\r")
ALTERNATE, ORDINARY = "\x1b[?1049h", "\x1b[?1049l"
SHOW_CURSOR = "\x1b[?25h"


class Terminal:
    """A program on a terminal of its own, and all that it has written there."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self.near, self.far = os.openpty()
        self.resize(80, 24)
        self.before: list[Any] = termios.tcgetattr(self.far)
        self.written = ""
        # The shell opens the terminal by its name: that makes it the one that Ctrl-C comes from.
        script = 'tty=$1; shift; exec "$@" <"$tty" >"$tty" 2>"$tty"'
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", os.ttyname(self.far), *words],
            env=environment, start_new_session=True,
        )  # fmt: skip
        asyncio.get_running_loop().add_reader(self.near, self._read)

    def _read(self) -> None:
        self.written += os.read(self.near, 65536).decode(errors="replace")

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self.near, keys)

    @property
    def picture(self) -> list[str]:
        """The lines of the last picture that was drawn whole."""
        pictures = self.written.split("\x1b[H")
        text = pictures[-2] if len(pictures) > 2 else ""
        return CONTROLS.sub("", text).split("\n")

    async def shows(self, what: Callable[[list[str]], bool]) -> list[str]:
        """Waits for a picture of which something is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not what(self.picture):
            assert time.monotonic() < deadline, self.written[-4000:]
            assert self.process.poll() is None, self.written[-4000:]
            await asyncio.sleep(0.02)
        return self.picture

    async def ended(self) -> int:
        """Waits for the end of the program; returns its status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.written[-4000:]
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)
        return self.process.returncode

    def is_as_before(self) -> bool:
        """Whether whoever uses the terminal next finds it as it was."""
        return (
            termios.tcgetattr(self.far) == self.before
            and self.written.rindex(ORDINARY) > self.written.rindex(ALTERNATE)
            and SHOW_CURSOR in self.written
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        asyncio.get_running_loop().remove_reader(self.near)
        os.close(self.near)
        os.close(self.far)


def has(words: str) -> Callable[[list[str]], bool]:
    return lambda lines: any(words in line for line in lines)


@pytest.fixture(scope="module")
def environment(local_pool: PoolState, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pool as one over the network: in a configuration."""
    home = tmp_path_factory.mktemp("home")
    (home / "kestrel").mkdir()
    (home / "kestrel" / "config.toml").write_text(
        f'[context.test]\njid = "{local_pool.user}"\npassword_file = "{local_pool.password_file}"\n'
        f'pool = "{local_pool.domain}"\nhost = "{local_pool.host}"\nport = {local_pool.port}\n'
        "tls = false\n"
    )
    known = {name: value for name, value in os.environ.items() if not name.startswith("KESTREL")}
    return {
        **known,
        "XDG_CONFIG_HOME": str(home),
        "PYTHONPATH": str(CHECKOUT),
        "TERM": "xterm-256color",
        "COLUMNS": "",
        "LINES": "",
    }


KESTRELCTL = [sys.executable, "-m", "kestrelctl"]
TOP = [*KESTRELCTL, "top", "--interval", "0.2"]


@pytest.fixture
async def terminal(environment: dict[str, str]) -> AsyncIterator[Terminal]:
    found = Terminal(environment, *TOP)
    yield found
    found.close()


async def test_it_shows_a_job_at_work(terminal: Terminal, user: UserConnection) -> None:
    await terminal.shows(has("2 idle"))
    await user.ask(
        rq.SubmitJob(
            spec=JobSpec(program=Program(argv=("sleep", "0.05")), count=2000, name="sweep")
        )
    )
    await user.ask(rq.SubmitJob(spec=JobSpec(program=Program(argv=("ls",)), request={"cpus": 64})))
    lines = await terminal.shows(
        lambda lines: any(re.search("finished .*[1-9].*/s", x) for x in lines)
    )
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    await terminal.shows(has("1 too-small"))
    row = re.compile(r" sweep .* active +[0-9]+ +[0-9]+ +[0-9]+ +[0-9,]+ +0 +[0-9.]+/s +[0-9]")
    await terminal.shows(lambda lines: any(map(row.search, lines)))
    terminal.press(b"p")
    await terminal.shows(has("paused"))
    terminal.press(b"q")
    assert await terminal.ended() == 0
    assert terminal.is_as_before()
    await user.ask(rq.CancelJobs(jobs="all"))


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda t: t.press(b"q"), 0),
        (lambda t: t.press(b"\x03"), 0),
        (lambda t: t.process.send_signal(signal.SIGTERM), 143),
        (lambda t: t.process.send_signal(signal.SIGHUP), 129),
    ],
    ids=["q", "ctrl-c", "sigterm", "sighup"],
)
async def test_however_it_ends_the_terminal_is_as_before(
    terminal: Terminal, end: Callable[[Terminal], None], status: int
) -> None:
    await terminal.shows(has("workers   2"))
    assert termios.tcgetattr(terminal.far) != terminal.before
    end(terminal)
    assert await terminal.ended() == status
    assert terminal.is_as_before()


async def test_keys_that_would_leave_the_terminal_spoilt_do_nothing(terminal: Terminal) -> None:
    await terminal.shows(has("workers   2"))
    terminal.press(b"\x1a\x1c\x1b[Zxyz")
    terminal.press(b"p")
    await terminal.shows(has("paused"))


async def test_it_follows_the_size_of_the_terminal(terminal: Terminal) -> None:
    await terminal.shows(has("in use"))
    terminal.resize(60, 12)
    lines = await terminal.shows(lambda lines: len(lines) == 12)
    assert max(map(len, lines)) <= 60
    terminal.resize(160, 50)
    lines = await terminal.shows(lambda lines: len(lines) == 50)
    assert any("so far" in line for line in lines)


async def test_it_outlives_the_manager(terminal: Terminal, local_pool: PoolState) -> None:
    first = await terminal.shows(has("epoch "))
    epoch = int(first[0].partition("epoch ")[2].split()[0])
    os.kill(local_pool.manager_pid, signal.SIGKILL)
    lines = await terminal.shows(has("AWAY since"))
    assert any("workers   2" in line for line in lines), "what was known is still shown"
    lines = await terminal.shows(has(f"epoch {epoch + 1}"))
    lines = await terminal.shows(lambda lines: not has("AWAY")(lines))
    assert "-" not in next(line for line in lines if line.startswith("finished"))
    terminal.press(b"q")
    assert await terminal.ended() == 0
    assert terminal.is_as_before()


async def test_in_a_pipe_it_is_printed_once(environment: dict[str, str]) -> None:
    for words, check in (
        ([], lambda text: "workers   2" in text and "\x1b" not in text),
        (["-o", "json"], lambda text: json.loads(text)["capacity"]["cpus"] == 2),
    ):
        process = await asyncio.create_subprocess_exec(
            *TOP, *words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert check(out.decode())


async def test_a_job_that_is_waited_for_has_a_bar(environment: dict[str, str]) -> None:
    command = ["submit", "--wait", "--array", "1-60", "--", "sleep", "0.05"]
    terminal = Terminal(environment, *KESTRELCTL, *command)
    try:
        assert await terminal.ended() == 0
        lines = [CONTROLS.sub("", line) for line in re.split(r"[\r\n]+", terminal.written)]
        bars = [line for line in lines if "█" in line]
        assert all(re.match(r"job \d+  █+░*", line) for line in bars)
        assert any(re.search(r" running  [0-9.]+/s  .* left", line) for line in bars)
        assert bars[-1].rstrip().endswith("100 %  60/60 done")
        assert max(map(len, lines)) <= 80
        assert termios.tcgetattr(terminal.far) == terminal.before
    finally:
        terminal.close()
