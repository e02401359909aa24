"""Tasks that try to get at others: what each rung of isolation promises holds."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import rungs
from test_execution import PATH, Machine, alive, until

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.worker.isolation import NOT_ENFORCED
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.worker.isolation.control_group import ControlGroup, TaskGroups
from kestrelctl.worker.isolation.file_view import FileView
from kestrelctl.worker.isolation.rung import TaskLimits
from kestrelctl.worker.run import limits
from kestrelctl.worker.run.executor import CommandSpec
from kestrelctl.worker.run.process_tree import ExactMemory, exact_memory
from kestrelctl.worker.run.scratch_size import ScratchSize

PASSWORD = "the-workers-password"
LIMITS = TaskLimits(
    memory_bytes=96 << 20, disk_bytes=8 << 20, files=200, processes=40
)  # of one task
HIDDEN_FILES = "files of the worker"
HIDDEN_PROCESSES = "signals to other tasks and to the worker"

#: Keeps what it was given for a while, and is bounded itself.
HOLD = "import sys, time\n{}\nopen('held', 'w').close()\ntime.sleep(20)"


#: The rungs of this machine that promise to hide files.
HIDING = [rung for rung in rungs.available() if HIDDEN_FILES not in NOT_ENFORCED[rung]]
#: Those that promise to keep processes apart.
APART = [rung for rung in rungs.available() if HIDDEN_PROCESSES not in NOT_ENFORCED[rung]]


class Place:
    """A worker's directories, a rung, and what tasks are after."""

    def __init__(self, directory: Path, rung: str) -> None:
        self.data = directory / "data"
        self.shared = directory / "shared"
        self.credentials = self.shared / "credentials"  # even where something is shared
        self.results = self.data / "spool" / "results"
        self.results.parent.mkdir(parents=True)
        self.shared.mkdir()
        self.results.write_text("kept\n")
        self.credentials.write_text(PASSWORD)
        self.rung = rungs.make_rung(rung, self.data, [self.shared], [self.credentials])
        self.machine = Machine(self.data / "tasks", self.rung, task_limits=LIMITS)
        self.hides_files = HIDDEN_FILES not in NOT_ENFORCED[rung]
        self.hides_processes = HIDDEN_PROCESSES not in NOT_ENFORCED[rung]


@pytest.fixture(params=rungs.available())
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path, request.param)
    yield place
    await place.machine.executor.close()


async def victim(place: Place) -> tuple[int, Path]:
    """A task with something to lose; its number, and its directory."""
    env = {"PATH": PATH, "SECRET": "in-the-environment"}
    script = "echo before; echo in-the-scratch > secret; sleep 30.0625"
    number = place.machine.start("/bin/sh", "-c", script, env=env)
    sandboxes = place.machine.directory / "sandboxes"
    await until(lambda: list(sandboxes.glob("*/scratch/secret")))
    return number, next(sandboxes.glob("*/scratch/secret")).parents[1]


# ---- files


async def test_the_scratch_of_another_task_cannot_be_read_or_removed(place: Place) -> None:
    _, home = await victim(place)
    ended = await place.machine.sh(f"cat {home}/scratch/secret; rm -f {home}/scratch/secret")
    assert (b"in-the-scratch" in ended.stdout) is not place.hides_files
    assert (home / "scratch" / "secret").exists() is place.hides_files


async def test_the_output_of_another_task_cannot_be_read_or_written(place: Place) -> None:
    number, home = await victim(place)
    await place.machine.sh(f"cat {home}/stdout; echo forged >> {home}/stdout")
    written = place.machine.executor.read_output(number, "stdout", 0, 100)
    assert (written == b"before\n") is place.hides_files


async def test_a_task_has_no_other_way_to_its_output_than_its_descriptor(place: Place) -> None:
    ended = await place.machine.sh('echo said; : > "$(readlink /proc/$$/fd/1)"')
    assert (ended.stdout == b"said\n") is place.hides_files


async def test_the_spool_of_the_worker_cannot_be_seen_or_written(place: Place) -> None:
    ended = await place.machine.sh(f"cat {place.results}; echo forged > {place.results}")
    assert (b"kept" in ended.stdout) is not place.hides_files
    assert (place.results.read_text() == "kept\n") is place.hides_files


async def test_the_credentials_of_the_worker_cannot_be_read(place: Place) -> None:
    places = f"{place.credentials} /root/* ~/* ~/.config/kestrel/*"
    ended = await place.machine.sh(f"grep -ahs {PASSWORD} {places}")
    assert (PASSWORD.encode() in ended.stdout) is not place.hides_files


@pytest.mark.parametrize("place", HIDING, indirect=True)
async def test_only_scratch_tmp_and_what_is_shared_can_be_written(place: Place) -> None:
    places = f"/ /etc /usr /var /run /dev /proc /sys /root {place.data} {place.data}/tasks"
    ended = await place.machine.sh(
        f"for d in {places} . /tmp /var/tmp /dev/shm {place.shared}; do"
        ' if (: > "$d/by-a-task") 2>/dev/null; then echo "$d"; fi; done'
    )
    written = ended.stdout.decode().split()
    assert written == [".", "/tmp", "/var/tmp", "/dev/shm", str(place.shared)]
    assert (place.shared / "by-a-task").exists()
    assert not Path("/tmp/by-a-task").exists()


@pytest.mark.parametrize("place", HIDING, indirect=True)
async def test_each_task_has_a_tmp_of_its_own(place: Place) -> None:
    number = place.machine.start("/bin/sh", "-c", "echo mine > /tmp/file; sleep 20")
    await asyncio.sleep(0)
    assert (await place.machine.sh("ls /tmp/file /dev/shm /var/tmp")).exit_code != 0
    place.machine.executor.kill(number)


@pytest.mark.parametrize("place", HIDING, indirect=True)
async def test_what_is_hidden_stays_hidden_from_a_root_of_its_own(place: Place) -> None:
    script = (
        f"umount {place.credentials}; umount -l {place.data}; umount /run; umount /root;"
        f" mount -o remount,rw / ; cat {place.credentials} {place.results}; echo x > /usr/by-a-task"
    )
    ended = await place.machine.run("unshare", "--user", "-r", "--mount", "/bin/sh", "-c", script)
    assert ended.stdout == b""
    assert not Path("/usr/by-a-task").exists()


async def test_symbolic_links_lead_out_of_nowhere(place: Place, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    ended = await place.machine.sh(
        f"ln -s {kept} out; ln -s {place.results} results; cat results out/file;"
        f" rm -rf out/file; mkdir -p deep; ln -s {kept} deep/out; chmod 0 deep"
    )
    if place.hides_files:
        assert b"kept" not in ended.stdout
        assert (kept / "file").exists()
    await place.machine.run("/bin/true")
    assert kept.is_dir(), "clearing up follows no link"


@pytest.mark.parametrize("place", HIDING, indirect=True)
async def test_no_privileges_are_left_or_can_be_won(place: Place) -> None:
    status = (await place.machine.run("cat", "/proc/self/status")).stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd")} == {0}
    assert fields["NoNewPrivs"] == "1"


# ---- processes


@pytest.mark.parametrize("place", APART, indirect=True)
async def test_other_processes_are_neither_seen_nor_signalled(place: Place) -> None:
    number, _ = await victim(place)
    await until(sleepers)
    [target] = sleepers()
    ended = await place.machine.sh(
        "cat /proc/*/environ 2>/dev/null; ls -d /proc/[0-9]* | wc -l >&2;"
        f" kill -9 {target} {os.getpid()} {os.getppid()}; kill -9 -1"
    )
    assert b"in-the-environment" not in ended.stdout
    assert int(ended.stderr.split()[0]) < 8
    assert number not in place.machine.exits
    assert alive("30.0625")


def sleepers() -> list[int]:
    """The process that a victim has at the end, as the machine numbers it."""
    return [pid for pid in alive("30.0625") if cmdline(pid).startswith(b"sleep\0")]


PTRACE = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, sys.argv[1:]):
    print(libc.ptrace(16, pid, 0, 0), ctypes.get_errno())  # PTRACE_ATTACH
"""


@pytest.mark.parametrize("place", APART, indirect=True)
async def test_other_processes_cannot_be_traced(place: Place) -> None:
    await victim(place)
    await until(sleepers)
    pids = [str(pid) for pid in (*sleepers(), os.getpid())]
    ended = await place.machine.run(sys.executable, "-c", PTRACE, *pids)
    assert ended.stdout.decode().split() == ["-1", "3"] * len(pids)  # ESRCH


DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
while True:
    time.sleep(1)
"""


async def test_a_daemon_without_environment_does_not_survive(place: Place) -> None:
    word = f"daemon-of-{place.machine.rung}"
    ended = await place.machine.run("env", "-i", sys.executable, "-c", DAEMON, word)
    assert ended.exit_code == 0
    if place.hides_processes:
        assert not alive(word), "when the task is reported, nothing of it is left"
    await until(lambda: not alive(word))


LONELY = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import rungs
from kestrelctl.core.model.job.program import Program
from kestrelctl.worker.run.executor import CommandSpec
from kestrelctl.worker.run.process_executor import ProcessExecutor

async def main():
    data = Path(sys.argv[1])
    executor = ProcessExecutor(data / "tasks", print, rung=rungs.make_rung(sys.argv[2], data))
    program = Program(argv=("sleep", sys.argv[3]))
    executor.start(CommandSpec(1, program, {{"PATH": "/usr/bin:/bin"}}))
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_bubblewrap_does_not_outlive_a_killed_worker(tmp_path: Path) -> None:
    if "bubblewrap" not in rungs.available():
        pytest.skip(rungs.why_not("bubblewrap"))
    script = LONELY.format(tests=str(Path(__file__).parent))
    words = [sys.executable, "-c", script, str(tmp_path), "bubblewrap", "600.5"]
    worker = subprocess.Popen(words)  # noqa: ASYNC220
    await until(lambda: len(alive("600.5")) > 3)  # worker, monitor, init, task
    worker.kill()
    worker.wait()
    await until(lambda: not alive("600.5"))


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


# ---- what runs ahead of a task


async def test_a_job_s_linker_variables_are_for_its_own_program_alone(place: Place) -> None:
    env = {"PATH": PATH, "LD_PRELOAD": "/nowhere/evil.so"}
    ended = await place.machine.run("/bin/true", env=env)
    assert ended.stderr.count(b"cannot be preloaded") == 1


async def test_an_environment_cannot_smuggle_options_in(place: Place) -> None:
    for env in ({"A": "x\0--bind\0/\0/"}, {"A\0B": "x"}, {"A=B": "x"}, {"": "x"}):
        ended = await place.machine.run("/bin/true", env={"PATH": PATH, **env})
        assert ended.reason.startswith("cannot-start: ")
        assert ended.exit_code is None


async def test_a_command_that_looks_like_an_option_is_none(place: Place, tmp_path: Path) -> None:
    tool = place.shared / "--bind"
    tool.symlink_to("/bin/echo")
    ended = await place.machine.run("--bind", "/", "/", env={"PATH": str(place.shared)})
    assert ended.stdout == b"/ /\n"


@pytest.mark.parametrize("place", HIDING, indirect=True)
async def test_a_program_that_tasks_do_not_see_cannot_start(place: Place, tmp_path: Path) -> None:
    hidden = tmp_path / "tool"
    hidden.symlink_to("/bin/true")
    ended = await place.machine.run(str(hidden))
    assert ended.reason == (
        f"cannot-start: No such file or directory: '{hidden}'"
        " (the isolation of tasks hides that place; the worker may share it: --share)"
    )
    assert (ended.exit_code, ended.stderr) == (None, b"")
    script = place.shared / "script"
    script.write_text(f"#!{hidden}\n")
    script.chmod(0o755)
    ended = await place.machine.run(str(script))
    assert ended.reason.endswith(
        " (the interpreter named in its first line: the isolation of tasks hides that place;"
        " the worker may share it: --share)"
    )
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    hidden.rename(tmp_path / "true")
    assert (await place.machine.run("true", env=env)).exit_code == 0, "found where it is seen"
    (place.shared / "true").symlink_to(tmp_path / "true")
    env = {"PATH": f"{place.shared}:/usr/bin:/bin"}
    assert (await place.machine.run("true", env=env)).exit_code == 0, "a link to what is hidden"


async def test_a_sandbox_that_cannot_be_made_is_the_machine_s_fault(tmp_path: Path) -> None:
    if "bubblewrap" not in rungs.available():
        pytest.skip(rungs.why_not("bubblewrap"))
    place = Place(tmp_path, "bubblewrap")
    place.credentials.unlink()
    place.shared.rename(tmp_path / "gone")
    ended = await place.machine.run("/bin/true")
    assert ended.reason.startswith("no-resources: bwrap: ")
    assert ended.exit_code is None
    await place.machine.executor.close()


# ---- limits


async def test_a_task_that_takes_too_much_memory_is_ended(place: Place) -> None:
    script = HOLD.format("x = b'x' * (200 << 20)")
    ended = await place.machine.run(sys.executable, "-c", script)
    assert ended.signal == signal.SIGKILL
    assert ended.reason.startswith("memory-limit: used ")
    assert ended.reason.endswith(" of 96 MiB")


async def test_memory_of_all_processes_of_a_task_counts(place: Place) -> None:
    script = HOLD.format("import os\nos.fork(), os.fork()\nx = b'x' * (60 << 20)")
    ended = await place.machine.run(sys.executable, "-c", script)
    assert ended.reason.startswith("memory-limit: ")


async def test_memory_that_processes_share_counts_once(place: Place) -> None:
    # For some seconds: a busy machine looks late at what it has.
    share = "import os\nx = b'x' * (50 << 20)\nos.fork(), os.fork()\ntime.sleep(5)\nsys.exit()"
    ended = await place.machine.run(sys.executable, "-c", HOLD.format(share))
    assert (ended.exit_code, ended.reason) == (0, "")
    assert 50 << 20 < ended.peak_bytes < 100 << 20, "and so it is reported"


def big_file(place: Place, tmp_path: Path) -> str:
    """A file on a disk, of more than a task may have in memory."""
    disks = [
        disk
        for disk in psutil.disk_partitions(all=True)
        if tmp_path.is_relative_to(disk.mountpoint)
    ]
    if max(disks, key=lambda disk: len(disk.mountpoint)).fstype == "tmpfs":
        pytest.skip(f"{tmp_path} is on no disk")
    file = place.shared / "big"
    file.touch()
    os.truncate(file, 2 * LIMITS.memory_bytes)
    return str(file)


#: A task that is to be ended holds its memory for so long; a busy machine looks at it late.
UNTIL_ENDED_SECONDS = 60
#: Maps a file, touches each of its pages, and holds them for a while.
MAP = """import mmap, os
mapped = mmap.mmap(os.open({file!r}, os.O_RDONLY), 0, access=mmap.{access})
for at in range(0, len(mapped), mmap.PAGESIZE):
    {touch}
with open("/proc/self/statm") as statm:
    assert int(statm.read().split()[1]) * mmap.PAGESIZE > len(mapped)
{more}
time.sleep({seconds})
sys.exit()"""


def mapping(
    file: str,
    *,
    access: str = "READ",
    touch: str = "mapped[at]",
    more: str = "",
    seconds: float = 1,
) -> str:
    script = MAP.format(
        file=file, access=f"ACCESS_{access}", touch=touch, more=more, seconds=seconds
    )
    return HOLD.format(script)


async def test_files_that_are_mapped_do_not_count(place: Place, tmp_path: Path) -> None:
    script = mapping(big_file(place, tmp_path))
    ended = await place.machine.run(sys.executable, "-c", script)
    assert (ended.exit_code, ended.reason) == (0, "")


@pytest.mark.parametrize(("own", "reason"), [("50 << 20", ""), ("100 << 20", "memory-limit")])
async def test_beside_mapped_files_memory_counts_and_copies_of_it_once(
    place: Place, tmp_path: Path, own: str, reason: str
) -> None:
    more = f"x = b'x' * ({own})\nos.fork(), os.fork()"
    seconds = UNTIL_ENDED_SECONDS if reason else 1
    script = mapping(big_file(place, tmp_path), more=more, seconds=seconds)
    ended = await place.machine.run(sys.executable, "-c", script)
    assert ended.reason.partition(":")[0] == reason


async def test_pages_of_a_file_that_a_task_has_changed_for_itself_count(
    place: Place, tmp_path: Path
) -> None:
    script = mapping(
        big_file(place, tmp_path),
        access="COPY",
        touch="mapped[at] = 1",
        seconds=UNTIL_ENDED_SECONDS,
    )
    ended = await place.machine.run(sys.executable, "-c", script)
    assert ended.reason.startswith("memory-limit: ")


def counts_of_exact_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each time that memory is counted exactly: of how many processes."""
    counted: list[int] = []

    def exact(pids: list[int]) -> ExactMemory:
        counted.append(len(pids))
        return exact_memory(pids)

    monkeypatch.setattr(limits, "exact_memory", exact)
    return counted


async def test_a_sandbox_that_is_being_made_is_not_measured(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = counts_of_exact_looks(monkeypatch)
    monkeypatch.setattr(place.rung, "processes", lambda pid, most: [])
    await place.machine.run("sleep", "0.5")
    assert counted == []


async def test_shared_pages_are_counted_exactly_only_in_doubt(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = counts_of_exact_looks(monkeypatch)
    script = mapping(big_file(place, tmp_path))
    await place.machine.run(sys.executable, "-c", script)
    assert counted == [], "a file that is mapped is no doubt"
    await place.machine.run(sys.executable, "-c", HOLD.format("x = b'x' * (100 << 20)"))
    assert counted != []


@pytest.mark.parametrize("place", HIDING, indirect=True)
async def test_files_in_memory_count(place: Place) -> None:
    for directory in ("/dev/shm", "/tmp"):
        ended = await place.machine.sh(f"head -c 150M /dev/zero > {directory}/big; sleep 20")
        assert ended.reason.startswith("memory-limit: ")


async def test_a_job_s_own_limit_of_memory_holds(place: Place) -> None:
    script = HOLD.format("x = b'x' * (150 << 20)\ntime.sleep(1)\nsys.exit()")
    for memory_bytes, reason in ((400 << 20, ""), (32 << 20, "memory-limit")):
        number = place.machine.start()
        await place.machine.exit_of(number)
        place.machine.executor.start(
            CommandSpec(
                number + 1000,
                Program(argv=(sys.executable, "-c", script)),
                {"PATH": PATH},
                memory_bytes=memory_bytes,
            )
        )
        assert (await place.machine.exit_of(number + 1000)).reason.partition(":")[0] == reason


BOMB = """
import os, sys, time
for _ in range(150):
    if not os.fork():
        {detach}
        time.sleep(30)
        os._exit(0)
time.sleep(30)
"""


@pytest.mark.parametrize("detach", ["pass", "os.setsid()"])
async def test_a_task_that_starts_too_many_processes_is_ended(place: Place, detach: str) -> None:
    word = f"bomb-{place.machine.rung}-{detach}"
    ended = await place.machine.run(sys.executable, "-c", BOMB.format(detach=detach), word)
    assert ended.reason == "process-limit: more than 40 processes and threads"
    await until(lambda: not alive(word))
    assert (await place.machine.run("/bin/true")).exit_code == 0


async def test_threads_count_like_processes(place: Place) -> None:
    script = """
import threading, time
for _ in range(60):
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
time.sleep(30)
"""
    ended = await place.machine.run(sys.executable, "-c", script)
    assert ended.reason == "process-limit: more than 40 processes and threads"


async def test_a_task_that_fills_the_disk_is_ended(place: Place) -> None:
    ended = await place.machine.sh("mkdir deep; head -c 32M /dev/urandom > deep/big; sleep 20")
    assert ended.reason.startswith("disk-limit: ")
    assert ended.reason.endswith(" MiB in the scratch directory, of 8 MiB")


async def test_a_task_that_makes_too_many_files_is_ended(place: Place) -> None:
    ended = await place.machine.sh("for i in $(seq 300); do : > $i; done; sleep 20")
    assert ended.reason == "disk-limit: more than 200 files in the scratch directory"


async def test_a_directory_that_cannot_be_counted_is_over_the_limit(tmp_path: Path) -> None:
    deep = tmp_path
    os.chdir(deep)
    for _ in range(30):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    size = ScratchSize(str(tmp_path))
    size.advance(float("inf"))
    assert size.unreadable == "a directory in it cannot be read: File name too long"
    os.chdir("/")


# ---- the ladder


def test_a_rung_that_does_not_work_is_an_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="isolation 'bubblewrap' does not work") as caught:
        rungs.make_rung("bubblewrap", tmp_path / "data")
    assert caught.value.cause == "bwrap is not installed"
    assert "install bubblewrap" in str(caught.value.hint)
    assert rungs.make_rung("auto", tmp_path / "data").name == "plain"


def test_a_sandbox_program_that_does_nothing_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bwrap", "unshare"):
        fake = tmp_path / name
        fake.write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for rung in ("bubblewrap", "namespace"):
        with pytest.raises(UsageError) as caught:
            rungs.make_rung(rung, tmp_path / "data")
        assert "no process namespace" in str(caught.value.cause)


@pytest.mark.parametrize("rung", APART)
async def test_an_init_that_does_not_work_costs_no_isolation(rung: str, tmp_path: Path) -> None:
    made = rungs.make_rung(rung, tmp_path / "data", init=Path("/bin/false"))
    machine = Machine(tmp_path / "data", rung=made)
    assert (await machine.sh("echo here")).stdout == b"here\n"
    await machine.executor.close()


# ---- control groups (what this machine's kernel lends: membership and killing)


@pytest.fixture
async def grouped(tmp_path: Path) -> AsyncIterator[tuple[Machine, Path]]:
    unit = next(
        (
            root / f"kestrel-test-{os.getpid()}"
            for root in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
            if (root / "cgroup.procs").exists()
        ),
        None,
    )
    if unit is None or "bubblewrap" not in rungs.available() or os.geteuid():
        pytest.skip("no control groups of version 2 that can be written")
    unit.mkdir()
    data = tmp_path / "data"
    data.mkdir()
    rung = ControlGroup(FileView(data), TaskGroups(unit, controllers=()))
    machine = Machine(data / "tasks", rung)
    yield machine, unit
    await machine.executor.close()
    for group in (*sorted(unit.rglob("*/"), reverse=True), unit):
        group.rmdir()


async def test_a_task_is_in_its_control_group_from_its_first_moment(
    grouped: tuple[Machine, Path],
) -> None:
    machine, unit = grouped
    number = machine.start("sleep", "600.75")
    await until(lambda: len(alive("600.75")) > 2)
    members = set(map(int, (unit / "tasks" / "0" / "cgroup.procs").read_text().split()))
    assert members == set(alive("600.75"))
    with pytest.raises(OSError, match="Resource temporarily unavailable"):
        (unit / "tasks" / "0" / "below").mkdir()  # it would keep the group, and its counters
    machine.executor.kill(number)
    assert (await machine.exit_of(number)).signal == signal.SIGTERM
    assert not (unit / "tasks" / "0").exists()
    assert (await machine.run("false")).exit_code == 1
    assert "No such file" in (await machine.run("/nowhere")).reason


async def test_a_control_group_that_cannot_be_made_is_the_machine_s_fault(
    grouped: tuple[Machine, Path],
) -> None:
    machine, unit = grouped
    (unit / "tasks").rmdir()
    assert (await machine.run("true")).reason.startswith("no-resources: ")
    (unit / "tasks").mkdir()
    assert (await machine.run("true")).exit_code == 0


def test_a_control_group_with_other_processes_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    stranger = max(os.getpid(), os.getppid()) + 1
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n{stranger}\n")
    with pytest.raises(KestrelError, match="is not this worker's alone") as caught:
        TaskGroups(tmp_path)
    assert caught.value.cause == f"process {stranger} is in it"
    assert sorted(os.listdir(tmp_path)) == ["cgroup.controllers", "cgroup.procs"]


def test_a_control_group_is_divided_with_limits_for_each_task(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.procs").write_text("")
    groups = TaskGroups(tmp_path)
    group = groups.prepare("0", TaskLimits(memory_bytes=1 << 20, processes=7))
    told = {file.name: file.read_text() for file in group.iterdir()}
    assert told == {
        "memory.max": "1048576",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "7",
        "cgroup.max.descendants": "0",
    }
    for divided in (tmp_path, tmp_path / "tasks"):
        assert (divided / "cgroup.subtree_control").read_text() == "+memory +pids"
    (group / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    (group / "memory.peak").write_text("1040000\n")
    assert groups.finish("0") == (True, 1_040_000)


def test_a_task_is_not_told_of_the_memory_of_the_one_before_in_its_control_group(
    tmp_path: Path,
) -> None:
    """The group stays as long as a process in it is dying."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.procs").write_text("")
    groups = TaskGroups(tmp_path)
    ends = []
    for kills, peak_bytes in ((1, 900), (1, 900), (1, 1000), (2, 1000)):
        group = groups.prepare("0", TaskLimits())
        (group / "memory.events").write_text(f"oom_kill {kills}\n")
        (group / "memory.peak").write_text(f"{peak_bytes}\n")
        ends.append(groups.finish("0"))
    assert ends == [(True, 900), (False, 0), (False, 1000), (True, 0)]


def test_a_control_group_without_controllers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io\n")
    with pytest.raises(KestrelError, match="has no controller memory"):
        TaskGroups(tmp_path)
