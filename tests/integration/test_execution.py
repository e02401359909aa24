"""Tasks as real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import rungs
from commandkit import command_spec

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.errors import NotFound
from kestrelctl.worker.isolation.rung import Rung
from kestrelctl.worker.launch.native_launcher import NativeLauncher, end_worker
from kestrelctl.worker.launch.native_program import LAUNCHER, build
from kestrelctl.worker.run import attempt_run, limits, sandbox
from kestrelctl.worker.run.executor import CommandSpec, Completion
from kestrelctl.worker.run.process_executor import ProcessExecutor

PATH = os.environ["PATH"]

DAEMON = """
import os, sys, time
if os.fork():
    time.sleep(float(sys.argv[2]))
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
open(sys.argv[1] + ".ready", "w").close()
while True:
    os.write(1, b"still here\\n")
    time.sleep(0.01)
"""

#: Says its process group, and takes a moment to save its work when it is asked to end.
SAVER = """
import os, signal, sys, time
def save(*_):
    time.sleep(float(sys.argv[1]))
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGUSR1, save)
print(os.getpgid(0), flush=True)
while True:  # a long sleep that begins just after the signal came would not be interrupted
    time.sleep(0.05)
"""


class Machine:
    """An executor, and the exits it has reported."""

    def __init__(
        self,
        directory: Path,
        rung: Rung | None = None,
        native: Path | None = None,
        on_death: Callable[[str], None] = end_worker,
        **options: Any,
    ) -> None:
        if native is not None:
            options["launch"] = partial(NativeLauncher, native, on_death=on_death)
        self.directory = directory
        self.rung = "plain" if rung is None else rung.name
        #: Whether a shell or bubblewrap starts the task, and ends with it.
        self.has_foreign_init = self.rung != "plain" and native is None
        self.ends_with = {signal.SIGTERM}  #: what a task dies of that is cancelled at its start
        if self.rung != "plain":
            self.ends_with.add(signal.SIGKILL)  # its sandbox was not finished
        self.exits: dict[int, Completion] = {}
        self.begun: list[int] = []  #: those that had waited
        self.withdrawn: list[int] = []
        self._changed = asyncio.Event()
        self.executor = ProcessExecutor(
            directory,
            self._on_completion,
            on_begun=lambda number, at: self.begun.append(number),
            on_withdrawn=self.withdrawn.append,
            rung=rung,
            **options,
        )
        self._number = 0

    def _on_completion(self, ended: Completion) -> None:
        self.exits[ended.number] = ended
        self._changed.set()

    def start(
        self,
        *argv: str,
        env: dict[str, str] | None = None,
        limit: float | None = None,
        cleanup: tuple[str, ...] = (),
        **more: Any,
    ) -> int:
        self._number += 1
        env = {"PATH": PATH} if env is None else env
        self.executor.start(
            command_spec(
                self._number, env=env, argv=argv, time_limit_seconds=limit, cleanup=cleanup, **more
            )
        )
        return self._number

    @property
    def parent(self) -> psutil.Process:
        """Of all tasks: this process, or the launcher."""
        own = psutil.Process()
        found = [each for each in own.children() if each.name().startswith("kestrel-launch")]
        return found[0] if found else own

    async def exit_of(self, number: int) -> Completion:
        while number not in self.exits:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)
        return self.exits[number]

    async def run(self, *argv: str, **options: object) -> Completion:
        return await self.exit_of(self.start(*argv, **options))  # type: ignore[arg-type]

    async def sh(self, script: str, **options: object) -> Completion:
        return await self.run("/bin/sh", "-c", script, **options)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that comes about outside this process."""
    give_up = time.monotonic() + 20
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(condition)
        await asyncio.sleep(0.005)


def alive(word: str) -> list[int]:
    """The processes with that word in their command line: a task may not know its own number."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and word in process.cmdline():
                found.append(process.pid)
    return found


def is_first(process: psutil.Process) -> bool:
    """Whether it is the first process of a namespace below this one."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [*_, within] = re.findall(r"^NSpid:(.*)$", status, re.MULTILINE)[0].split()
    return within == "1"


PLAIN = pytest.mark.parametrize("rung_name", ["plain"])
#: What happens to a call of this process happens to no other program.
PYTHON = pytest.mark.parametrize("native", [None], ids=["python"])
IN_A_NAMESPACE = pytest.mark.parametrize(
    "rung_name", [name for name in rungs.available() if name != "plain"]
)


@pytest.fixture(params=["python", "native"])
def native(request: pytest.FixtureRequest) -> Path | None:
    return build(LAUNCHER, os.uname().machine) if request.param == "native" else None


@pytest.fixture(params=rungs.available())
def rung_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def machine(rung_name: str, native: Path | None, tmp_path: Path) -> AsyncIterator[Machine]:
    init = None if native is None else rungs.INIT
    rung = rungs.make_rung(rung_name, tmp_path / "work", shares=[tmp_path], init=init)
    machine = Machine(tmp_path / "work", output_limit_bytes=8 << 20, rung=rung, native=native)
    yield machine
    await machine.executor.close()


# ---- how tasks end


async def test_a_task_that_succeeds(machine: Machine) -> None:
    asked_at, started = time.time(), time.monotonic()
    ended = await machine.run("sleep", "0.2")
    assert (ended.exit_code, ended.signal, ended.reason) == (0, None, "")
    assert asked_at <= ended.started_at <= time.time()
    assert 0.2 <= ended.wall_seconds <= time.monotonic() - started
    assert 0 < ended.cpu_seconds < ended.wall_seconds


async def test_what_a_running_task_uses_is_that_of_all_its_processes(machine: Machine) -> None:
    """Of those it waits for, too; and of memory only what is its own, not what is cached."""
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    number = machine.start("/bin/sh", "-c", f"({burn}); ({burn}; sleep 30) & wait")
    used: dict[int, tuple[float, int]] = {}
    for _ in range(2000):
        used = machine.executor.used([number, 77])
        if used.get(number, (0.0, 0))[0] > 0.1:
            break
        await asyncio.sleep(0.01)
    assert used.keys() == {number}
    cpu_seconds, memory_bytes = used[number]
    assert 0.1 < cpu_seconds < 30.0
    assert 0 < memory_bytes < 100 << 20
    machine.executor.kill(number)
    await machine.exit_of(number)
    assert machine.executor.used([number]) == {}


async def test_what_a_task_was_seen_to_use_counts_though_it_waited_for_nobody(
    machine: Machine,
) -> None:
    burn = "import os\nif not os.fork():\n    while True: pass\nos.wait()"
    number = machine.start(sys.executable, "-c", burn)
    await until(lambda: machine.executor.used([number]).get(number, (0.0, 0))[0] > 0.3)
    machine.executor.kill(number)
    assert (await machine.exit_of(number)).cpu_seconds > 0.3


async def test_no_task_takes_more_processor_time_than_it_takes_time(machine: Machine) -> None:
    at_once = 1 if machine.rung == "plain" else 2  # what makes a namespace works beside its init
    for _ in range(30):
        ended = await machine.run("true")
        assert ended.cpu_seconds <= ended.wall_seconds * at_once


async def test_joined_streams_are_one_in_the_order_of_writing(machine: Machine) -> None:
    await machine.sh("echo of an earlier task >&2")
    script = "echo one; echo two >&2; echo three; exec sh -c 'echo four >&2'"
    ended = await machine.sh(script, join=True, cleanup=("sh", "-c", "echo five >&2"))
    assert (ended.stdout, ended.stderr) == (b"one\ntwo\nthree\nfour\nfive\n", b"")
    assert (ended.stdout_bytes, ended.stderr_bytes) == (24, 0)
    apart = await machine.sh("echo one; echo two >&2")
    assert (apart.stdout, apart.stderr) == (b"one\n", b"two\n")


async def test_what_cannot_be_started_says_so_though_its_streams_are_joined(
    machine: Machine, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ended = await machine.run(str(script), join=True)
    assert ended.reason.startswith("cannot-start: ")
    assert (ended.stdout, ended.stderr) == (b"", b"")


@pytest.mark.parametrize("code", [1, 7, 255])
async def test_exit_codes_are_reported(machine: Machine, code: int) -> None:
    ended = await machine.sh(f"exit {code}")
    assert (ended.exit_code, ended.signal, ended.reason) == (code, None, "")


async def test_an_exit_code_is_told_from_a_signal(machine: Machine) -> None:
    ended = await machine.sh("exit 137")
    exited = (None, signal.SIGKILL) if machine.has_foreign_init else (137, None)
    assert (ended.exit_code, ended.signal, ended.reason) == (*exited, "")


async def test_a_signal_is_not_an_exit_code(machine: Machine) -> None:
    ended = await machine.sh("kill -SEGV $$")
    assert (ended.exit_code, ended.signal, ended.reason) == (None, signal.SIGSEGV, "")


async def test_a_missing_command_says_so(machine: Machine) -> None:
    ended = await machine.run("nosuch")
    assert ended.exit_code is None
    assert ended.signal is None
    assert ended.reason == (
        "cannot-start: No such file or directory: 'nosuch' (in no directory of the task's PATH)"
    )


async def test_a_file_that_is_not_executable_says_so(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    absolute = str(tmp_path / "data")
    assert (await machine.run(absolute)).reason == f"cannot-start: Permission denied: {absolute!r}"
    ended = await machine.run("data", env={"PATH": str(tmp_path)})
    assert ended.reason == "cannot-start: Permission denied: 'data'"


async def test_a_script_without_an_interpreter_says_so(machine: Machine, tmp_path: Path) -> None:
    bare, lost = tmp_path / "bare", tmp_path / "lost"
    bare.write_text("exit 0\n")
    lost.write_text("#!/no/such/interpreter\n")
    for script in (bare, lost):
        script.chmod(0o755)
    assert "Exec format error" in (await machine.run(str(bare))).reason
    assert "interpreter named in its first line" in (await machine.run(str(lost))).reason


@pytest.mark.parametrize(
    ("argv", "env", "reason"),
    [
        (("echo", "a\0b"), {}, "cannot-start: embedded null byte"),
        ((), {}, "cannot-start: "),
        (("",), {}, "cannot-start: No such file or directory: ''"),
        (("/bin/true", "x" * 3_000_000), {}, "cannot-start: Argument list too long: '/bin/true'"),
        (("/bin/true", "\ud800"), {}, "cannot-start: "),
        (("/bin/true",), {"A=B": ""}, "cannot-start: illegal environment variable name"),
    ],
)
async def test_what_no_kernel_accepts_ends_with_a_reason(
    machine: Machine, argv: tuple[str, ...], env: dict[str, str], reason: str
) -> None:
    ended = await machine.run(*argv, env=env)
    assert ended.exit_code is None
    assert ended.reason.startswith(reason)
    assert (await machine.run("/bin/true")).exit_code == 0


@PYTHON
async def test_a_machine_without_room_for_a_process_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "posix_spawn", refuse)
    ended = await machine.run("/bin/true")
    assert ended.reason == "no-resources: Resource temporarily unavailable: '/bin/true'"


@PYTHON
async def test_a_task_whose_directory_somebody_removes_as_it_starts_is_not_to_blame(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = os.posix_spawn

    def removed(*args: Any, **kwargs: Any) -> int:
        shutil.rmtree(Path(os.getcwd()).parent)
        return spawn(*args, **kwargs)

    monkeypatch.setattr(os, "posix_spawn", removed)
    ended = await machine.run("/bin/true")
    assert ended.reason.startswith("no-resources: somebody removed the directory of the task")
    monkeypatch.undo()
    assert (await machine.run("/bin/true")).exit_code == 0


async def test_a_full_disk_at_the_start_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sandbox.os, "mkdir", full)
    ended = await machine.run("/bin/true")
    assert ended.reason == "no-space: No space left on device"
    monkeypatch.undo()
    assert (await machine.run("/bin/true")).exit_code == 0


async def test_a_program_that_moved_is_found_again(machine: Machine, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
    (first / "tool").symlink_to("/bin/true")
    env = {"PATH": f"{first}:{second}"}
    assert (await machine.run("tool", env=env)).exit_code == 0
    (first / "tool").rename(second / "tool")
    assert "No such file" in (await machine.run("tool", env=env)).reason
    assert (await machine.run("tool", env=env)).exit_code == 0


# ---- what a task finds


async def test_the_environment_is_the_given_one(machine: Machine) -> None:
    ended = await machine.run("/usr/bin/env", env={"ONE": "1", "TWO": "zwei ü"})
    lines = {line for line in ended.stdout.decode().splitlines() if not line.startswith("PWD=")}
    scratch = f"KESTREL_SCRATCH={machine.directory / 'sandboxes' / '0' / 'scratch'}"
    assert lines == {"KESTREL_ATTEMPT_ID=1", scratch, "ONE=1", "TWO=zwei ü"}


async def test_stdin_is_empty(machine: Machine) -> None:
    ended = await machine.sh("cat; readlink /proc/self/fd/0")
    assert (ended.exit_code, ended.stdout) == (0, b"/dev/null\n")


async def test_tasks_at_once_have_each_a_scratch_directory(machine: Machine) -> None:
    await machine.run("/bin/true")
    first = machine.start("/bin/sh", "-c", "pwd; sleep 0.2")
    second = await machine.run("pwd")
    directories = {(await machine.exit_of(first)).stdout, second.stdout}
    assert len(directories) == 2
    for directory in directories:
        assert Path(os.fsdecode(directory.strip())).is_relative_to(machine.directory)


async def test_a_scratch_directory_is_used_again(machine: Machine) -> None:
    assert (await machine.run("pwd")).stdout == (await machine.run("pwd")).stdout


async def test_only_the_three_standard_descriptors_are_open(
    tmp_path: Path, native: Path | None
) -> None:
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    machine = Machine(tmp_path / "work", native=native)
    ended = await machine.run("ls", "/proc/self/fd")
    assert ended.stdout.split() == [b"0", b"1", b"2", b"3"]  # 3: the directory ls reads
    await machine.executor.close()
    os.close(leaked)


async def test_signals_are_as_in_a_fresh_process(tmp_path: Path, native: Path | None) -> None:
    old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    machine = Machine(tmp_path / "work", native=native)
    status = (await machine.run("cat", "/proc/self/status")).stdout.decode()
    await machine.executor.close()
    signal.signal(signal.SIGUSR1, old)
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    ordinary = (1 << 31) - 1  # glibc keeps 32 and 33 for itself
    assert {int(masks[name], 16) & ordinary for name in ("SigBlk", "SigIgn", "SigCgt")} == {0}


async def test_a_task_is_a_session_of_its_own(machine: Machine, tmp_path: Path) -> None:
    # Numbers inside a namespace are not comparable with ours, so it is asked from outside.
    word = f"session-of-{os.getpid()}-{tmp_path.name}"
    number = machine.start("sh", "-c", "sleep 30; :", word)
    shells: list[int] = []

    def is_shell(pid: int) -> bool:
        with contextlib.suppress(psutil.Error):
            return psutil.Process(pid).name() == "sh"
        return False

    def is_running() -> bool:
        shells[:] = filter(is_shell, alive(word))
        return bool(shells)

    await until(is_running)
    assert os.getsid(0) not in {os.getsid(pid) for pid in shells}
    machine.executor.kill(number)
    await machine.exit_of(number)


# ---- output


async def test_short_outputs_travel_with_the_report(machine: Machine) -> None:
    ended = await machine.sh("echo out; echo err >&2")
    assert (ended.stdout, ended.stderr) == (b"out\n", b"err\n")
    assert (ended.stdout_bytes, ended.stderr_bytes) == (4, 4)
    with pytest.raises(NotFound):
        machine.executor.read_output(ended.number, "stdout", 0, 100)
    silent = await machine.run("/bin/true")
    assert (silent.stdout, silent.stdout_bytes, silent.stderr) == (b"", 0, b"")


async def test_of_a_long_output_the_tail_travels_and_the_whole_is_kept(machine: Machine) -> None:
    ended = await machine.run("seq", "100000")
    whole = "".join(f"{i}\n" for i in range(1, 100001)).encode()
    assert ended.stdout_bytes == len(whole)
    assert ended.stdout == whole[-TAIL_BYTES:]
    silent = await machine.run("/bin/true")
    assert (silent.stdout, silent.stdout_bytes) == (b"", 0)
    assert machine.executor.read_output(ended.number, "stdout", 0, 1 << 20) == whole
    assert machine.executor.read_output(ended.number, "stdout", 100, 10) == whole[100:110]
    assert machine.executor.read_output(ended.number, "stdout", len(whole), 10) == b""


async def test_the_output_of_a_running_task_can_be_read(machine: Machine) -> None:
    number = machine.start("/bin/sh", "-c", "echo begun; sleep 60")
    await until(lambda: machine.executor.read_output(number, "stdout", 0, 100))
    assert machine.executor.read_output(number, "stdout", 2, 3) == b"gun"


async def test_kept_outputs_are_bounded_and_the_oldest_go_first(
    tmp_path: Path, native: Path | None
) -> None:
    machine = Machine(tmp_path / "work", kept_files=2, native=native)
    ends = [await machine.run("seq", "10000") for _ in range(3)]
    for ended in ends[1:]:
        assert machine.executor.read_output(ended.number, "stdout", 0, 2) == b"1\n"
    with pytest.raises(NotFound):
        machine.executor.read_output(ends[0].number, "stdout", 0, 2)
    await machine.executor.close()


async def test_a_task_that_writes_without_end_is_killed(machine: Machine) -> None:
    ended = await machine.run("yes")
    assert ended.reason == "output-limit"
    assert ended.signal == signal.SIGKILL
    assert ended.stdout_bytes > 8 << 20
    assert ended.stdout == b"y\n" * (TAIL_BYTES // 2)
    kept = next((machine.directory / "outputs").iterdir())
    assert kept.stat().st_size == 8 << 20


async def test_a_task_that_removes_its_output_files_harms_nobody(machine: Machine) -> None:
    ended = await machine.sh("echo gone; rm -r ../stdout ../stderr ../scratch")
    if machine.rung in ("plain", "namespace"):
        assert (ended.exit_code, ended.stdout) == (0, b"")
    else:
        assert (ended.exit_code, ended.stdout) == (1, b"gone\n")
    assert (await machine.sh("echo here; pwd > file")).stdout == b"here\n"


async def test_a_task_that_spoils_its_sandbox_harms_nobody(machine: Machine) -> None:
    await machine.sh("rm ../stdout; mkdir -p ../stdout/deep")
    assert (await machine.sh("echo here")).stdout == b"here\n"


# ---- nothing is left behind


async def test_what_a_task_leaves_in_its_scratch_directory_is_removed(machine: Machine) -> None:
    await machine.sh("echo 1 > file; ln -s / link; mkfifo pipe")
    assert (await machine.run("ls", "-A")).stdout == b""
    await machine.sh("mkdir -p deep/er; touch deep/er/file; ln -s / deep/link; chmod 0 deep/er .")
    assert (await machine.sh("ls -A; stat -c %a .")).stdout == b"700\n"
    await machine.sh("for i in $(seq 200); do : > $i; done")
    assert (await machine.run("ls", "-A")).stdout == b""
    await machine.executor.close()
    assert os.listdir(machine.directory / "trash") == []


async def test_a_machine_without_a_thread_to_spare_removes_it_later(
    tmp_path: Path, native: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    machine = Machine(tmp_path / "work", native=native)
    trash = machine.directory / "trash"
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        assert (await machine.sh("mkdir -p deep/er")).exit_code == 0
        assert (await machine.sh("ls -A; rm ../stdout; mkdir ../stdout")).exit_code == 0
        assert (await machine.sh("ls -A; echo here")).stdout == b"here\n"
    assert len(os.listdir(trash)) == 2
    await machine.executor.close()
    later = Machine(tmp_path / "work", native=native)
    await until(lambda: not os.listdir(trash))
    await later.executor.close()


async def test_children_that_outlive_their_task_are_killed(machine: Machine) -> None:
    await machine.sh("sleep 600.125 &")
    await until(lambda: not alive("600.125"))


async def test_children_that_outlive_their_task_need_no_environment_to_be_found(
    machine: Machine,
) -> None:
    machine.start("sleep", "600")
    await machine.sh("env -i sleep 600.25 & sleep 0.1")
    await until(lambda: not alive("600.25"))


@pytest.mark.parametrize("middle_lives_seconds", ["0", "0.3"])
async def test_a_daemon_dies_with_its_task(
    machine: Machine, tmp_path: Path, middle_lives_seconds: str
) -> None:
    told = tmp_path / "pid"
    before = set(psutil.Process().children())
    number = machine.start(sys.executable, "-c", DAEMON, str(told), middle_lives_seconds)
    ready = tmp_path / "pid.ready"
    if middle_lives_seconds != "0":
        await until(ready.exists)
        assert alive(str(told))
    assert (await machine.exit_of(number)).exit_code == 0
    following = await machine.run("sleep", "0.2")
    assert following.stdout == b"", "the daemon wrote into the next task's output"
    await until(lambda: not alive(str(told)))
    await until(lambda: set(psutil.Process().children()) <= before)


async def test_a_daemon_of_one_task_survives_the_end_of_another(
    machine: Machine, tmp_path: Path
) -> None:
    told, ready = tmp_path / "pid", tmp_path / "pid.ready"
    number = machine.start(sys.executable, "-c", DAEMON, str(told), "60")
    await until(ready.exists)

    def said_bytes() -> int:
        return len(machine.executor.read_output(number, "stdout", 0, 1 << 20))

    await machine.run("sleep", "0.1")
    before = said_bytes()
    await until(lambda: said_bytes() > before)
    machine.executor.kill(number)
    await machine.exit_of(number)
    await until(lambda: not alive(str(told)))


async def test_a_daemon_without_environment_dies_with_the_tasks_of_its_time(
    machine: Machine, tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    other = machine.start("sleep", "600")
    command = ["env", "-i", sys.executable, "-c", DAEMON, str(told), "0.2"]
    assert (await machine.run(*command)).exit_code == 0
    following = await machine.run("sleep", "0.2")
    assert following.stdout == b"", "the daemon wrote into the next task's output"
    if machine.rung == "plain":
        assert alive(str(told)), "it may be the other task's"
    else:
        assert not alive(str(told)), "it is known whose it is"
    machine.executor.kill(other)
    await machine.exit_of(other)
    await until(lambda: not alive(str(told)))


async def test_closing_kills_all_and_restores_the_process(
    tmp_path: Path, native: Path | None
) -> None:
    directory = Path.cwd()
    children = psutil.Process().children()
    descriptors = len(os.listdir("/proc/self/fd"))
    machine = Machine(tmp_path / "work", native=native)
    for _ in range(3):
        machine.start("/bin/sh", "-c", "trap '' TERM; sleep 60.875")
    await until(lambda: len(alive("60.875")) >= 3)
    await machine.executor.close()
    assert alive("60.875") == []
    assert machine.exits == {}
    assert psutil.Process().children() == children
    assert Path.cwd() == directory
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert signal.SIGCHLD not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


async def test_one_that_was_closed_as_soon_as_a_task_began_looks_at_nothing_any_more(
    tmp_path: Path, native: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for children of another executor of this process."""
    machine = Machine(tmp_path / "work", native=native)
    machine.start("sleep", "60")
    await machine.executor.close()
    looks: list[object] = []
    monkeypatch.setattr(machine.executor._context.launcher, "hear", lambda: looks.append(None))
    await asyncio.sleep(2 * limits.WATCH_SECONDS)
    assert looks == []


# ---- limits and cancellation


async def test_a_time_limit_ends_a_task(machine: Machine) -> None:
    later = machine.start("sleep", "5")
    ended = await machine.run("sleep", "60", limit=0.3)
    assert (ended.exit_code, ended.signal, ended.reason) == (None, signal.SIGTERM, "time-limit")
    assert ended.wall_seconds >= 0.3
    assert later not in machine.exits, "and ends it long before its own end"


async def asked_to_end(machine: Machine, script: str, **more: Any) -> Completion:
    """How a task ends that is asked to, once it has said that it has begun."""
    number = machine.start("/bin/sh", "-c", script, **more)
    await until(lambda: machine.executor.read_output(number, "stdout", 0, 100))
    assert machine.executor.kill(number, "time-limit")
    return await machine.exit_of(number)


async def test_a_task_that_ignores_sigterm_is_killed_after_the_grace(machine: Machine) -> None:
    script = "trap '' TERM; echo begun; while :; do sleep 0.05; done"
    ended = await asked_to_end(machine, script, stop_grace_seconds=0.3)
    assert (ended.signal, ended.reason) == (signal.SIGKILL, "time-limit")
    assert ended.wall_seconds >= 0.3


async def test_a_task_may_end_well_within_the_grace(machine: Machine) -> None:
    script = "trap 'echo saved; exit 3' TERM; echo begun; sleep 60 & wait"
    ended = await asked_to_end(machine, script)
    assert (ended.exit_code, ended.reason) == (3, "time-limit")
    assert ended.stdout == b"begun\nsaved\n"


async def test_a_task_is_asked_to_end_by_the_signal_of_its_choice(machine: Machine) -> None:
    script = "trap 'echo saved; exit 3' INT; trap '' TERM; echo begun; sleep 60 & wait"
    ended = await asked_to_end(machine, script, stop_signal="INT")
    assert (ended.exit_code, ended.stdout) == (3, b"begun\nsaved\n")


async def saving(machine: Machine, seconds: float, **more: Any) -> tuple[int, int]:
    """A shell whose program saves for so long when it is asked to end; its number and group."""
    script = f"{shlex.quote(sys.executable)} -c {shlex.quote(SAVER)} {seconds}; true"
    number = machine.start("/bin/sh", "-c", script, **more)
    await until(lambda: machine.executor.read_output(number, "stdout", 0, 100))
    return number, int(machine.executor.read_output(number, "stdout", 0, 100))


@pytest.mark.parametrize("stop_signal", ["TERM", "USR1"])
async def test_all_of_a_group_has_the_grace(machine: Machine, stop_signal: str) -> None:
    number, _ = await saving(machine, 0.5, stop_signal=stop_signal, stop_grace_seconds=60.0)
    machine.executor.kill(number, "time-limit")
    ended = await machine.exit_of(number)
    told = (signal.Signals[f"SIG{stop_signal}"], "time-limit")
    assert (ended.signal, ended.reason) == told, "the shell's end"
    saved = ended.stdout.splitlines()[1:]
    if not machine.has_foreign_init:
        assert saved == [b"saved"]
        assert ended.wall_seconds >= 0.5
    else:
        assert saved == [], "the shell's end was that of the namespace"


@IN_A_NAMESPACE
async def test_the_group_is_asked_only_once_its_first_process_knows(
    native: Path | None, rung_name: str, tmp_path: Path
) -> None:
    """Else a task that dies of the signal at once may be reaped before, and takes all along."""
    rung = rungs.make_rung(rung_name, tmp_path, init=rungs.INIT)
    machine = Machine(tmp_path / "work", rung=rung, native=native)
    number, _ = await saving(machine, 0.1, stop_grace_seconds=60.0)
    [init] = [each for each in machine.parent.children(recursive=True) if is_first(each)]
    init.suspend()
    await until(lambda: init.status() == psutil.STATUS_STOPPED)
    machine.executor.kill(number)
    await asyncio.sleep(0.3)
    running = {each.status() for each in init.children(recursive=True)}
    assert psutil.STATUS_ZOMBIE not in running, "the shell has heard nothing yet"
    init.resume()
    assert (await machine.exit_of(number)).stdout.splitlines()[1:] == [b"saved"]
    await machine.executor.close()


@pytest.mark.parametrize("rung_name", rungs.available())
async def test_each_process_of_a_group_is_asked_once(
    native: Path | None, rung_name: str, tmp_path: Path
) -> None:
    """Python dies of a second signal if that comes while the first one ends it."""
    rung = rungs.make_rung(rung_name, tmp_path, init=rungs.INIT)
    machine = Machine(tmp_path / "work", rung=rung, native=native)
    script = "trap 'echo asked' USR1; echo begun; while :; do sleep 0.02; done"
    number = machine.start("/bin/sh", "-c", script, stop_signal="USR1", stop_grace_seconds=0.5)
    await until(lambda: machine.executor.read_output(number, "stdout", 0, 100))
    machine.executor.kill(number)
    assert (await machine.exit_of(number)).stdout == b"begun\nasked\n"
    await machine.executor.close()


@PLAIN
async def test_the_first_process_is_kept_until_its_group_has_ended(machine: Machine) -> None:
    number, group = await saving(machine, 60.0, stop_grace_seconds=60.0)
    machine.executor.kill(number)
    await until(lambda: psutil.Process(group).status() == psutil.STATUS_ZOMBIE)
    others = [await machine.sh("exit 3") for _ in range(3)]
    assert [ended.exit_code for ended in others] == [3, 3, 3]
    assert number not in machine.exits, "others end meanwhile"
    assert psutil.Process(group).status() == psutil.STATUS_ZOMBIE
    os.killpg(group, signal.SIGKILL)  # what still saves
    await machine.exit_of(number)
    assert not psutil.pid_exists(group)


async def test_a_group_that_ignores_the_signal_is_killed_after_the_grace(machine: Machine) -> None:
    script = "(trap '' TERM; echo begun; while :; do sleep 0.05; done) & wait"
    ended = await asked_to_end(machine, script, stop_grace_seconds=0.3)
    assert (ended.signal, ended.reason) == (signal.SIGTERM, "time-limit"), "the shell's end"
    if not machine.has_foreign_init:
        assert ended.wall_seconds >= 0.3


async def test_a_group_that_is_asked_twice_is_killed_at_once(machine: Machine) -> None:
    number, _ = await saving(machine, 60.0, stop_grace_seconds=60.0)
    machine.executor.kill(number)
    machine.executor.kill(number)
    assert (await machine.exit_of(number)).stdout.splitlines()[1:] == []


#: The saver's parent leaves the group before the saver begins.
APART = """
import os, time
if os.fork():
    time.sleep(600)
told, tells = os.pipe()
saver = os.fork()
if saver:
    os.setpgid(0, 0)
    os.write(tells, b"x")
    os.waitpid(saver, 0)
    os._exit(0)
os.read(told, 1)
"""


async def test_a_process_of_the_group_has_the_grace_also_below_one_that_has_left_it(
    machine: Machine,
) -> None:
    number = machine.start(sys.executable, "-c", APART + SAVER, "0.5", stop_grace_seconds=60.0)
    await until(lambda: machine.executor.read_output(number, "stdout", 0, 100))
    machine.executor.kill(number)
    ended = await machine.exit_of(number)
    assert ended.signal == signal.SIGTERM
    assert ended.stdout.splitlines()[1:] == ([] if machine.has_foreign_init else [b"saved"])


async def test_what_has_left_the_group_of_a_task_does_not_prolong_its_end(
    machine: Machine, tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    daemon = f"{shlex.quote(sys.executable)} -c {shlex.quote(DAEMON)} {told} 0 >&2"
    script = f"{daemon}; echo begun; sleep 60; true"
    number = machine.start("/bin/sh", "-c", script, stop_grace_seconds=60.0)
    await until(lambda: machine.executor.read_output(number, "stdout", 0, 100))
    await until(lambda: told.with_suffix(".ready").exists())
    machine.executor.kill(number)
    await machine.exit_of(number)
    await until(lambda: not alive(str(told)))


async def test_a_group_in_its_grace_ends_with_its_worker(
    tmp_path: Path, native: Path | None
) -> None:
    machine = Machine(tmp_path / "work", native=native)
    number, group = await saving(machine, 60.0, stop_grace_seconds=60.0)
    machine.executor.kill(number)
    await until(lambda: psutil.Process(group).status() == psutil.STATUS_ZOMBIE)
    await machine.executor.close()
    assert not psutil.pid_exists(group)


async def test_a_running_task_can_be_cancelled(machine: Machine) -> None:
    number = machine.start("/bin/sh", "-c", "echo begun; exec sleep 60")
    await until(lambda: machine.executor.read_output(number, "stdout", 0, 100))
    assert machine.executor.kill(number, "lease lost")
    ended = await machine.exit_of(number)
    assert (ended.signal, ended.reason) == (signal.SIGTERM, "lease lost")
    assert not machine.executor.kill(number)


async def test_a_task_can_be_cancelled_as_soon_as_it_has_started(machine: Machine) -> None:
    number = machine.start("sleep", "60")
    assert machine.executor.kill(number)
    assert number not in machine.exits, "no report from inside the call"
    ended = await machine.exit_of(number)
    assert (ended.exit_code, ended.reason) == (None, "cancelled")
    assert ended.signal in machine.ends_with
    assert (await machine.run("/bin/true")).exit_code == 0


async def test_what_cannot_start_is_not_reported_from_inside_the_call(machine: Machine) -> None:
    number = machine.start("nosuch")
    assert number not in machine.exits
    assert not machine.executor.kill(number)
    assert (await machine.exit_of(number)).reason.startswith("cannot-start: ")


async def test_an_attempt_runs_once_at_a_time(machine: Machine) -> None:
    command = CommandSpec(7, Program(argv=("sleep", "60")), {"PATH": PATH})
    machine.executor.start(command)
    with pytest.raises(ValueError, match="attempt 7"):
        machine.executor.start(command)


# ---- cleanup commands


async def test_a_cleanup_runs_after_the_task_in_the_same_place(machine: Machine) -> None:
    cleanup = ("/bin/sh", "-c", "cat made; echo $WHO")
    env = {"PATH": PATH, "WHO": "me"}
    ended = await machine.sh("echo task; echo file > made; exit 4", cleanup=cleanup, env=env)
    assert (ended.exit_code, ended.reason) == (4, "")
    assert ended.stdout == b"task\nfile\nme\n"


async def test_a_failing_cleanup_is_a_reason_and_no_outcome(machine: Machine) -> None:
    ended = await machine.run("/bin/true", cleanup=("/bin/sh", "-c", "exit 3"))
    assert (ended.exit_code, ended.reason) == (0, "cleanup-failed: exit code 3")
    ended = await machine.run("/bin/true", cleanup=("nosuch",))
    assert ended.exit_code == 0
    assert ended.reason.startswith("cleanup-failed: cannot-start: No such file")


async def test_a_cleanup_also_follows_a_killed_task_and_has_a_limit_itself(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    ended = await machine.run("sleep", "60", limit=0.1, cleanup=("touch", str(done)))
    assert ended.reason == "time-limit"
    assert done.exists()
    monkeypatch.setattr(attempt_run, "CLEANUP_SECONDS", 0.2)
    ended = await machine.run("/bin/true", cleanup=("sleep", "60"))
    assert (ended.exit_code, ended.reason) == (0, "cleanup-failed: signal 15")


# ---- usage


async def test_memory_is_the_task_s_own_and_not_the_worker_s(machine: Machine) -> None:
    ballast = b"x" * (200 << 20)
    small = await machine.run("sleep", "0.4")
    assert 0 < small.peak_bytes < 50 << 20
    # The peak is sampled at ages that double, so it has to be held for a while to be seen.
    hungry = f"import time; x = b'x' * {len(ballast) + (150 << 20)}; time.sleep(1.5)"
    large = await machine.run(sys.executable, "-c", hungry)
    assert 350 << 20 < large.peak_bytes < 450 << 20


def children_cpu_seconds(parent: psutil.Process) -> float:
    """What the kernel has counted for all processes that have ended below that one."""
    if parent.pid != os.getpid():
        times = parent.cpu_times()
        return float(times.children_user + times.children_system)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def test_cpu_time_is_counted_with_children(machine: Machine) -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    before = children_cpu_seconds(machine.parent)
    ended = await machine.sh(f'{sys.executable} -c "{spin}"; exit 0')
    assert ended.cpu_seconds >= 0.3
    as_exact_as = 0.001 if machine.parent.pid == os.getpid() else 0.02  # told in ticks
    counted = children_cpu_seconds(machine.parent) - before
    assert ended.cpu_seconds == pytest.approx(counted, abs=as_exact_as)


# ---- what waits


async def test_what_waits_starts_when_one_of_its_lane_ends(machine: Machine) -> None:
    first = machine.start("sleep", "60", lane=5)
    second, third = (machine.start("sleep", "0.1", lane=5, waits=True) for _ in range(2))
    for lane in (6, 5 + 1024):  # lanes lie in so many lists
        other = await machine.sh("exit 0", lane=lane)
        assert (other.exit_code, machine.begun) == (0, []), "its place is of another lane"
    machine.executor.kill(first)
    ends = [await machine.exit_of(number) for number in (first, second, third)]
    assert machine.begun == [second, third]
    assert [ended.exit_code for ended in ends] == [None, 0, 0]
    assert ends == sorted(ends, key=lambda ended: ended.started_at)


async def test_what_fails_or_is_killed_gives_its_place_too(machine: Machine) -> None:
    first = machine.start("sleep", "60", lane=5)
    waiting = machine.start("sh", "-c", "exit 3", lane=5, waits=True)
    last = machine.start("sleep", "0", lane=5, waits=True)
    machine.executor.kill(first)
    assert (await machine.exit_of(waiting)).exit_code == 3
    assert (await machine.exit_of(last)).exit_code == 0


async def test_what_waits_can_be_begun(machine: Machine) -> None:
    number = machine.start("sleep", "0", lane=5, waits=True)
    await machine.run("sleep", "0.1", lane=6)
    assert number not in machine.exits
    machine.executor.begin(number)
    assert (await machine.exit_of(number)).exit_code == 0
    machine.executor.begin(number)  # nothing
    assert machine.begun == [], "whoever says so knows it"


async def test_what_waits_can_be_withdrawn_and_started_again(machine: Machine) -> None:
    number = machine.start("sleep", "0", lane=5, waits=True)
    machine.executor.withdraw(number)
    await until(lambda: machine.withdrawn == [number])
    machine.executor.withdraw(number)  # nothing
    machine._number -= 1
    assert (await machine.run("echo", "again", lane=5)).stdout == b"again\n"
    assert machine.withdrawn == [number]


async def test_what_comes_after_the_last_was_withdrawn_waits_in_its_place(
    machine: Machine,
) -> None:
    first = machine.start("sleep", "60", lane=5)
    second, last = (machine.start("true", lane=5, waits=True) for _ in range(2))
    machine.executor.withdraw(last)
    await until(lambda: machine.withdrawn == [last])
    later = machine.start("true", lane=5, waits=True)
    machine.executor.kill(first)
    ends = [await machine.exit_of(number) for number in (first, second, later)]
    assert [ended.exit_code for ended in ends] == [None, 0, 0]
    assert machine.begun == [second, later]


async def test_what_has_started_cannot_be_withdrawn(machine: Machine) -> None:
    number = machine.start("sleep", "0.2", lane=5)
    machine.executor.withdraw(number)
    assert (await machine.exit_of(number)).exit_code == 0
    assert machine.withdrawn == []


async def test_what_waits_can_be_cancelled(machine: Machine) -> None:
    number = machine.start("sleep", "0", lane=5, waits=True)
    assert machine.executor.kill(number)
    ended = await machine.exit_of(number)
    assert (ended.exit_code, ended.signal, ended.reason) == (None, None, "cancelled")
    assert (await machine.run("sleep", "0", lane=5)).exit_code == 0


async def test_what_waits_in_a_sandbox_that_is_spoiled_meanwhile_starts_in_another(
    machine: Machine,
) -> None:
    first = machine.start("sleep", "0.3", lane=5)
    waiting = machine.start("echo", "here", lane=5, waits=True)
    await machine.run("true")
    for scratch in (machine.directory / "sandboxes").glob("*/scratch"):
        scratch.rename(scratch.with_name("elsewhere"))
        scratch.symlink_to("elsewhere")
    await machine.exit_of(first)
    if waiting not in machine.exits:
        machine.executor.begin(waiting)
    assert (await machine.exit_of(waiting)).stdout == b"here\n"


async def test_what_waits_is_forgotten_when_all_is_closed(machine: Machine) -> None:
    machine.start("sleep", "0", lane=5, waits=True)
    await machine.executor.close()
    assert machine.exits == {}


# ---- many at once


async def test_five_hundred_tasks_at_once(machine: Machine) -> None:
    parent = machine.parent
    before = len(parent.children())
    numbers = [machine.start("sleep", "600") for index in range(500)]
    await until(lambda: len(parent.children()) == before + len(numbers))
    for number in numbers:
        machine.executor.kill(number)
    ends = [await machine.exit_of(number) for number in numbers]
    assert {ended.signal for ended in ends} <= machine.ends_with
    assert len(parent.children()) == before


async def test_descriptors_are_allowed_up_to_the_hard_limit(machine: Machine) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == min(hard, 65_536)


async def test_an_idle_executor_does_not_wake_up(machine: Machine) -> None:
    await machine.run("/bin/true")
    await asyncio.sleep(2 * limits.WATCH_SECONDS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    await asyncio.sleep(4 * limits.WATCH_SECONDS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before <= 2


async def test_leftovers_of_an_earlier_worker_are_removed(
    tmp_path: Path, native: Path | None
) -> None:
    old = tmp_path / "work" / "sandboxes" / "0" / "scratch" / "big"
    old.mkdir(parents=True)
    (old / "file").touch()
    old.chmod(stat.S_IRUSR)
    machine = Machine(tmp_path / "work", native=native)
    await machine.executor.close()
    assert not old.parent.exists()
    assert os.listdir(tmp_path / "work" / "trash") == []
