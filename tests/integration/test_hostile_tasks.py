"""Tasks of one user that help each other against another's, or against the worker."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import rungs
from test_execution import PATH, Machine, until

from kestrelctl.core.model.worker.isolation import NOT_ENFORCED
from kestrelctl.worker.isolation.bubblewrap import Bubblewrap
from kestrelctl.worker.isolation.file_view import FileView

HIDDEN_FILES = "files of other tasks"

#: The network is shared, and so are abstract Unix sockets (unix(7)): any task may pass descriptors.
TAKE = """
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind("\\0" + sys.argv[1])
listener.listen(1)
connection = listener.accept()[0]
_, (scratch, out), _, _ = socket.recv_fds(connection, 1, 2)
connection.close()
shared = sys.argv[2]
open(shared + "/taken", "w").close()
while not os.path.exists(shared + "/now"):
    time.sleep(0.01)
try:
    print(os.listdir(scratch))
    file = os.open("secret", os.O_RDWR, dir_fd=scratch)
    print(os.read(file, 100))
    os.pwrite(file, b"ALTERED!", 0)
except OSError as error:
    print(error)
try:
    file = os.open(f"/proc/self/fd/{out}", os.O_RDWR)
    print(os.pread(file, 100, 0))
    os.pwrite(file, b"ALTERED!", 0)
except OSError as error:
    print(error)
"""
GIVE = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect("\\0" + sys.argv[1])
socket.send_fds(connection, [b"x"], [os.open(".", os.O_RDONLY), 1])
connection.recv(1)
"""


@pytest.fixture(params=rungs.available())
async def machine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Machine]:
    (tmp_path / "shared").mkdir()
    rung = rungs.make_rung(request.param, tmp_path / "work", shares=[tmp_path / "shared"])
    machine = Machine(tmp_path / "work" / "tasks", rung=rung)
    yield machine
    await machine.executor.close()


async def test_descriptors_that_outlive_their_task_lead_to_nothing_of_a_later_one(
    machine: Machine, tmp_path: Path
) -> None:
    shared, name = tmp_path / "shared", f"kestrel-test-{os.getpid()}-{id(machine)}"
    taker = machine.start("python3", "-c", TAKE, name, str(shared))
    await until(lambda: f"@{name}" in Path("/proc/net/unix").read_text())
    assert (await machine.run("python3", "-c", GIVE, name)).exit_code == 0
    await until((shared / "taken").exists)
    script = f"""echo private-output; echo in-the-scratch > secret
        touch {shared}/now; sleep 0.5; cat secret"""
    ended = await machine.sh(script)
    taken = await machine.exit_of(taker)
    if HIDDEN_FILES in NOT_ENFORCED[machine.rung]:
        return
    assert b"in-the-scratch" not in taken.stdout
    assert b"private-output" not in taken.stdout
    assert ended.stdout == b"private-output\nin-the-scratch\n"


ADD_KEY = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(248, b"user", b"ticket", b"secret", 6, -3) > 0)  # add_key(2), @s
"""
GET_KEY = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
found = ctypes.create_string_buffer(50)
key = libc.syscall(250, 10, -3, b"user", b"ticket", 0)  # keyctl(2): search in @s
libc.syscall(250, 11, key, found, 50)
print(found.value)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
async def test_keys_of_a_task_are_not_inherited_by_the_next(tmp_path: Path) -> None:
    if "bubblewrap" not in rungs.available():
        pytest.skip(rungs.why_not("bubblewrap"))
    ctypes.CDLL(None).syscall(250, 1, None)  # as in a service: a session keyring of its own
    machine = Machine(tmp_path / "tasks", rung=rungs.make_rung("bubblewrap", tmp_path))
    await machine.run("python3", "-c", ADD_KEY)
    assert (await machine.run("python3", "-c", GET_KEY)).stdout == b"b''\n"
    await machine.executor.close()


async def test_a_fifo_that_is_named_as_the_program_keeps_no_worker_waiting(
    machine: Machine, tmp_path: Path
) -> None:
    fifo = tmp_path / "shared" / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o755)
    rescue = asyncio.get_running_loop().run_in_executor(None, _open_later, fifo)
    ended = await machine.run(str(fifo))
    assert ended.reason.startswith("cannot-start: Permission denied")
    await rescue


def _open_later(fifo: Path) -> None:
    """So that a worker that waits fails this test, and does not hang it."""
    time.sleep(1)
    with contextlib.suppress(OSError):
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))


async def test_a_path_of_very_many_directories_keeps_no_worker_busy(machine: Machine) -> None:
    searched = ":".join(f"/nowhere/{number}" for number in range(999))
    assert (await machine.run("true", env={"PATH": f"{searched}:/bin"})).exit_code == 0
    ended = await machine.run("true", env={"PATH": f"{searched}:/nowhere:/bin"})
    assert ended.reason.startswith("cannot-start: ")


async def test_as_many_words_as_the_sandbox_takes_are_taken(machine: Machine) -> None:
    words = [str(number) for number in range(8_500)]
    ended = await machine.run("/bin/sh", "-c", "echo $#", "sh", *words)
    assert (ended.reason, ended.stdout) == ("", b"8500\n")


async def test_too_many_variables_are_no_fault_of_the_machine(machine: Machine) -> None:
    """The sandbox program refuses them; the worker must neither blame itself nor wait."""
    env = {f"V{number}": "x" for number in range(5_000)}
    ended = await machine.sh("echo $V4999", env={"PATH": PATH, **env})
    if HIDDEN_FILES in NOT_ENFORCED[machine.rung]:
        assert ended.stdout == b"x\n"
    else:
        assert ended.reason.startswith("cannot-start: bubblewrap takes 9,000 words")


async def test_a_sandbox_program_that_fails_at_once_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho no >&2; exit 1\n")
    program.chmod(0o755)
    rung = Bubblewrap(FileView(tmp_path), str(program))
    machine = Machine(tmp_path / "tasks", rung=rung)
    ended = await machine.run("/bin/true")
    assert ended.reason == "no-resources: no"
    await machine.executor.close()


async def test_an_environment_beyond_what_the_kernel_takes_is_the_task_s_fault(
    machine: Machine,
) -> None:
    env = {f"V{number}": "x" * 100_000 for number in range(40)}
    ended = await machine.sh("echo ran", env={"PATH": PATH, **env})
    assert ended.reason.startswith("cannot-start: "), ended.reason
    ended = await machine.sh("echo ran", env={"PATH": PATH, "V": "x" * 200_000})
    assert ended.reason.startswith("cannot-start: "), ended.reason
    ended = await machine.run("/bin/echo", "x" * 200_000)
    assert ended.reason.startswith("cannot-start: "), ended.reason
    ended = await machine.run("/bin/echo", *(["x" * 1000] * 3000))
    assert ended.reason.startswith("cannot-start: "), ended.reason


async def test_limits_of_others_hold_whatever_a_task_calls_itself(tmp_path: Path) -> None:
    """A name that looks like a figure ended the look at all tasks, and no limit held any more."""
    machine = Machine(tmp_path / "tasks")
    named = "import time; open('/proc/self/comm', 'w').write('VmHWM:'); time.sleep(60)"
    machine.start(sys.executable, "-Sc", named)
    ended = await machine.run("sleep", "60", limit=1.0)
    assert ended.reason.startswith("time-limit")
    await machine.executor.close()
