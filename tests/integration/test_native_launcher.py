"""The program that starts tasks: it may be killed, stopped, or told rubbish."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
from test_execution import Machine, alive, until

from kestrelctl.worker.launch import native_launcher
from kestrelctl.worker.launch.launcher import Launch, Order, Tree
from kestrelctl.worker.launch.native_program import LAUNCHER, build

PROGRAM = build(LAUNCHER, os.uname().machine)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "work", native=PROGRAM)
    yield machine
    await machine.executor.close()


async def begun(machine: Machine, word: str, count: int) -> list[int]:
    """Tasks that sleep; they have started when this returns."""
    numbers = [machine.start("sleep", word) for _ in range(count)]
    await until(lambda: len(alive(word)) == count)
    return numbers


# ---- what happens to it


async def test_a_launcher_that_is_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_launcher, "PATIENCE_SECONDS", 0.05)
    deaths: list[str] = []
    machine = Machine(tmp_path / "work", native=PROGRAM, on_death=deaths.append)
    await machine.run("/bin/true")
    launcher = machine.parent
    launcher.suspend()
    number = machine.start("/bin/echo", "here")
    await until(lambda: deaths or number in machine.exits)
    launcher.resume()  # nothing of it is left, whatever follows
    assert deaths == []
    assert machine.exits[number].stdout == b"here\n"
    await machine.executor.close()


async def test_a_launcher_that_is_killed_is_the_end_of_its_worker(tmp_path: Path) -> None:
    deaths: list[str] = []
    machine = Machine(tmp_path / "work", native=PROGRAM, on_death=deaths.append)
    machine.parent.kill()
    await until(lambda: deaths)
    assert deaths == ["the launcher has ended: signal 9"]
    await machine.executor.close()


async def test_a_launcher_that_does_not_answer_is_the_end_of_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_launcher, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(native_launcher, "_CLOSE_SECONDS", 0.05)
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\nexec sleep 600.625\n")
    deaf.chmod(0o700)
    deaths: list[str] = []
    machine = Machine(tmp_path / "work", native=deaf, on_death=deaths.append)
    machine.start("/bin/true")
    await until(lambda: deaths)
    assert deaths == ["the launcher does not answer"]
    await machine.executor.close()
    assert alive("600.625") == []


WORKER = """
import asyncio, sys
sys.path.insert(0, sys.argv[4])
from functools import partial
from pathlib import Path
from commandkit import command_spec
from kestrelctl.worker.keeper import run_kept
from kestrelctl.worker.launch.native_launcher import NativeLauncher
from kestrelctl.worker.run.process_executor import ProcessExecutor

async def main():
    launch = partial(NativeLauncher, Path(sys.argv[2]))
    executor = ProcessExecutor(Path(sys.argv[1]), print, launch=launch)
    for number in range(2):
        argv = ("/bin/sh", "-c", f"setsid sleep {sys.argv[3]} & exec sleep {sys.argv[3]}")
        executor.start(command_spec(number, env={"PATH": "/usr/bin:/bin"}, argv=argv))
    await asyncio.sleep(600)

sys.exit(run_kept(lambda: asyncio.run(main()) or 0))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("who", ["worker", "launcher"])
async def test_everything_ends_with_the_worker_and_that_with_its_launcher(
    tmp_path: Path, who: str, number: signal.Signals
) -> None:
    word = "600.875"
    words = [str(tmp_path / "work"), str(PROGRAM), word, str(Path(__file__).parent)]
    keeper = psutil.Popen([sys.executable, "-c", WORKER, *words])
    await until(lambda: len([pid for pid in alive(word) if b"python" not in name_of(pid)]) >= 4)
    [worker] = psutil.Process(keeper.pid).children()
    [launcher] = worker.children()
    if who == "launcher" and number == signal.SIGTERM:
        launcher.send_signal(number)  # it means nothing to it
        worker.kill()
    else:
        (worker if who == "worker" else launcher).send_signal(number)
    keeper.wait()
    assert not launcher.is_running()
    assert [pid for pid in alive(word)] == []


def name_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/exe").resolve().name.encode()
    except OSError:
        return b""


async def test_a_launcher_is_waited_for_when_its_executor_is_closed(tmp_path: Path) -> None:
    before = psutil.Process().children()
    machine = Machine(tmp_path / "work", native=PROGRAM)
    await begun(machine, "600.0625", 2)
    await machine.executor.close()
    assert psutil.Process().children() == before
    assert alive("600.0625") == []


# ---- what it is told


@pytest.fixture(scope="module")
def checked() -> Iterator[Path]:
    """The program with the checks of the compiler for memory and undefined behaviour."""
    compiler = shutil.which("cc")
    assert compiler is not None
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory, "launcher")
        flags = ("-g", "-std=gnu11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        subprocess.run([compiler, *flags, "-o", made, LAUNCHER.source], check=True)
        yield made


def told(program: Path, directory: Path, said: bytes) -> tuple[int, str]:
    """Its exit status when it is told something and then nothing more, and what it complained."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [str(program), str(theirs.fileno()), "0", str(directory)]
        process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True
        )
        theirs.close()
        ours.settimeout(20)
        try:
            ours.sendall(said)
            ours.shutdown(socket.SHUT_WR)
            while ours.recv(1 << 16):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass
        complained = process.communicate(timeout=20)[1]
    return process.returncode, complained


def orders(directory: Path) -> list[bytes]:
    """Each kind of request, as the worker says it."""
    scratch = directory / "box" / "scratch"
    scratch.mkdir(parents=True)
    state = scratch.stat()
    launch = Launch(
        "/bin/true",
        ("true", "word"),
        {"A": "B", "KESTREL_ATTEMPT_ID": "7"},
        b"options",
        "/bin/true",
        has_status=True,
    )
    order = Order(7, launch, "box", state.st_dev, state.st_ino, "/tmp", "", False, True)
    requests = [
        native_launcher._encoded(order),
        native_launcher._NUMBER.pack(b"p", 0),
        native_launcher._NUMBER.pack(b"k", 7),
        native_launcher._SIGNAL.pack(b"t", 7, signal.SIGTERM),
    ]
    return [native_launcher._LENGTH.pack(len(request)) + request for request in requests]


def test_the_worker_s_own_requests_are_served_without_a_fault(
    checked: Path, tmp_path: Path
) -> None:
    status, complained = told(checked, tmp_path, b"".join(orders(tmp_path) * 20))
    assert (status, complained) == (0, "")


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        b"\1\0\0\0?",
        b"\1\0\0\0k",
        b"\5\0\0\0sabcd",
        b"\x2d\0\0\0s" + bytes(41) + b"box",
    ],
    ids=["long", "empty", "unknown", "no number", "no head", "text without an end"],
)
def test_what_it_cannot_read_ends_it(checked: Path, tmp_path: Path, said: bytes) -> None:
    status, complained = told(checked, tmp_path, said)
    assert (status, complained) == (2, "kestrel-launcher: a request that cannot be read\n")


@pytest.mark.parametrize("seed", range(40))
def test_rubbish_does_no_harm(checked: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    requests = orders(tmp_path)
    said = bytearray(b"".join(chance.choice(requests) for _ in range(20)))
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(said))
        match chance.randrange(3):
            case 0:
                said[place] = chance.randrange(256)
            case 1:
                del said[place : place + chance.randint(1, 40)]
            case _:
                said[place:place] = chance.randbytes(chance.randint(1, 40))
    status, complained = told(checked, tmp_path, bytes(said))
    assert status in (0, 2)
    assert complained in ("", "kestrel-launcher: a request that cannot be read\n")


def test_its_trees_are_the_port_s() -> None:
    names = [f"{tree.name} = {tree.value}," for tree in Tree]
    assert all(name in LAUNCHER.source.read_text() for name in names)
