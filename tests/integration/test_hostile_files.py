"""Tasks that put something else where the worker has its files: nothing of it is followed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
import rungs
from test_execution import Machine, until

from kestrelctl.errors import NotFound
from kestrelctl.worker.launch.native_program import LAUNCHER, build

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount or mark files")


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "work", output_limit_bytes=8 << 20)
    yield machine
    await machine.executor.close()


class Foreign:
    """A directory of somebody else, which must stay as it is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "sub").mkdir(parents=True)
        self.file = directory / "thesis"
        self.file.write_text("years of work\n")
        (directory / "sub" / "file").write_text("more\n")
        directory.chmod(0o751)
        (directory / "sub").chmod(0o711)
        self.file.chmod(0o644)
        self._before = self._look()

    def __str__(self) -> str:
        return shlex.quote(str(self.directory))

    def _look(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for path in sorted((self.directory, *self.directory.rglob("*"))):
            state = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found.append((path, state.st_mode, state.st_mtime_ns, state.st_nlink, content))
        return found

    def check(self) -> None:
        assert self._look() == self._before


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Foreign]:
    found = Foreign(tmp_path / "foreign")
    yield found
    found.check()


async def next_task_is_well(machine: Machine) -> None:
    """What is true for every task, whatever the one before did."""
    ended = await machine.sh("echo out; echo err >&2; ls -A; stat -c %a .; pwd -P")
    assert (ended.exit_code, ended.reason) == (0, "")
    *lines, directory = ended.stdout.decode().splitlines()
    assert lines == ["out", "700"]
    assert ended.stderr == b"err\n"
    assert Path(directory).is_relative_to(machine.directory / "sandboxes")


async def trash_is_empty(machine: Machine) -> None:
    await until(lambda: not os.listdir(machine.directory / "trash"))


# ---- symbolic links


@pytest.mark.parametrize(
    "attack",
    [
        "rmdir ../scratch; ln -s {} ../scratch",
        "mkdir deep; cd deep; mv ../../scratch ../../away; ln -s {} ../../scratch",
        "cd ../..; mv 0 away; ln -s {} 0",
        "cd ../..; mv 0 away; mkdir 0; ln -s {} 0/scratch",
        "cd ../../..; mv sandboxes away; ln -s {} sandboxes",
        "cd ../../..; mv trash away; ln -s {} trash; mkdir -p away2 sandboxes/0/scratch/x/y",
        "ln -s {} link; mkdir d; ln -s {} d/link; ln -s {}/thesis d/file; chmod 0 d",
        "ln -s {}/thesis ../scratch/link; rm ../stdout; ln -s {}/thesis ../stdout",
        "rm ../stderr; ln -s {}/thesis ../stderr",
        "rm ../stdout; ln {}/thesis ../stdout",
        "rm ../stdout ../stderr; ln -s {}/new ../stdout; ln -s {}/new2 ../stderr",
        "mv ../scratch/../stdout ../kept; ln -s {}/thesis ../stdout; seq 10000",
    ],
)
async def test_no_link_leads_the_worker_elsewhere(
    machine: Machine, foreign: Foreign, attack: str
) -> None:
    script = attack.replace("{}", str(foreign))
    assert (await machine.sh(f"{script}; exit 0")).exit_code == 0
    if "mv sandboxes" not in attack:
        await next_task_is_well(machine)
    assert (await machine.sh("echo more; mkdir -p a/b")).stdout == b"more\n"
    assert (await machine.sh("ls -A")).stdout == b""
    foreign.check()
    if "trash" not in attack:
        await trash_is_empty(machine)


async def test_the_output_of_a_task_is_never_another_file(
    machine: Machine, foreign: Foreign
) -> None:
    for attack in ("ln -s", "ln"):
        ended = await machine.sh(f"rm ../stdout; {attack} {foreign}/thesis ../stdout")
        assert (ended.exit_code, ended.stdout, ended.stdout_bytes) == (0, b"", 0)
        number = machine.start(
            "/bin/sh", "-c", f"rm ../stdout; {attack} {foreign}/thesis ../stdout; sleep 60"
        )
        await until(lambda: any(map(_is_theirs, machine.directory.glob("sandboxes/*/stdout"))))
        await until(partial(machine.executor.used, [number]))  # its start is known
        with pytest.raises(NotFound):
            machine.executor.read_output(number, "stdout", 0, 100)
        machine.executor.kill(number)
        await machine.exit_of(number)
    await trash_is_empty(machine)  # until then the file also has the name that the task gave it


@pytest.mark.parametrize("launcher", ["python", "native"])
@pytest.mark.parametrize(
    "attack", ["ln -s {foreign}/thesis", "ln {foreign}/thesis", "mkdir", "mkfifo"]
)
async def test_what_a_sandbox_tells_is_never_told_to_another_file(
    tmp_path: Path, foreign: Foreign, attack: str, launcher: str
) -> None:
    if "namespace" not in rungs.available():
        pytest.skip(rungs.why_not("namespace"))
    machine = Machine(
        tmp_path / "work",
        rung=rungs.make_rung("namespace", tmp_path / "work"),
        native=build(LAUNCHER, os.uname().machine) if launcher == "native" else None,
    )
    status = machine.directory / "sandboxes" / "0" / "sandbox-status"
    with _opened_again_and_again(status):
        script = attack.format(foreign=foreign)
        ended = await machine.sh(f"rm ../sandbox-status; {script} ../sandbox-status; exit 3")
        assert ended.exit_code == 3
        ended = await machine.sh("echo next; exit 4", cleanup=("/bin/true",))
        assert (ended.stdout, ended.reason) == (b"next\n", "")
        assert stat.S_ISREG(status.lstat().st_mode)
        foreign.check()
    await machine.executor.close()


@pytest.mark.parametrize("launcher", ["python", "native"])
async def test_a_fifo_in_the_place_of_an_input_keeps_no_worker_waiting(
    tmp_path: Path, launcher: str
) -> None:
    """Between its fetch and its use, a task of the same user may have put it there."""
    native = build(LAUNCHER, os.uname().machine) if launcher == "native" else None
    machine = Machine(tmp_path / "work", native=native)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with _opened_again_and_again(fifo):
        ended = await machine.run("cat", stdin_path=str(fifo))
    assert (ended.exit_code, ended.stdout) == (0, b"")
    await machine.executor.close()


@contextlib.contextmanager
def _opened_again_and_again(fifo: Path) -> Iterator[None]:
    """A worker that waits for somebody at a FIFO could not tell: another process has to."""
    script = 'while sleep 2; do [ -p "$0" ] && echo late 1<>"$0"; done'
    with subprocess.Popen(["sh", "-c", script, fifo]) as rescue:
        try:
            yield
        finally:
            rescue.kill()


def _is_theirs(file: Path) -> bool:
    state = file.lstat()
    return stat.S_ISLNK(state.st_mode) or state.st_nlink > 1


async def test_a_kept_output_that_was_replaced_is_not_read(
    machine: Machine, foreign: Foreign
) -> None:
    ended = await machine.run("seq", "10000")
    name = f"{ended.number}.stdout"
    for made in (f"ln -s {foreign}/thesis", f"ln {foreign}/thesis", "mkfifo", "mkdir"):
        await machine.sh(f"cd ../../../outputs; rm -rf {name}; {made} {name}")
        with pytest.raises(NotFound):
            machine.executor.read_output(ended.number, "stdout", 0, 100)


async def test_a_worker_starts_though_its_directories_hold_what_it_did_not_put_there(
    tmp_path: Path, foreign: Foreign
) -> None:
    machine = Machine(tmp_path / "work")
    await machine.run("seq", "10000")
    where = {name: f"../../../{name}" for name in ("outputs", "trash")}
    await machine.sh(
        f"cd {where['outputs']}; ln -s /nowhere 8.stdout; mkdir -p 9.stdout/deep; mkfifo 7.stdout; "
        f"ln -s {foreign} other; ln -s {foreign}/thesis 6.stdout; "
        f"cd ../trash; ln -s {foreign} a; mkfifo b; touch c; mkdir -p d/e; chmod 0 d/e"
    )
    await machine.executor.close()
    later = Machine(tmp_path / "work", kept_files=1)
    await later.run("seq", "20000")
    assert len(os.listdir(later.directory / "outputs")) == 1
    await trash_is_empty(later)
    await later.executor.close()


@pytest.mark.parametrize("name", ["outputs", "trash", "sandboxes"])
async def test_a_directory_of_the_worker_that_became_a_link_is_made_anew(
    tmp_path: Path, foreign: Foreign, name: str
) -> None:
    machine = Machine(tmp_path / "work")
    await machine.sh(f"cd ../../..; mv {name} away; ln -s {foreign} {name}")
    await machine.executor.close()
    later = Machine(tmp_path / "work")
    await later.run("seq", "10000")
    await next_task_is_well(later)
    assert (tmp_path / "work" / name).resolve() == (tmp_path / "work" / name)
    await later.executor.close()


# ---- what is no plain file


@pytest.mark.parametrize(
    "attack",
    [
        "mkfifo ../stdout",
        "mkfifo ../stdout ../stderr",
        "mkdir -p ../stdout/deep ../stderr",
        "ln -s /dev/full ../stdout",
        "ln -s ../stdout ../stdout",
        "mkfifo ../stdout; sleep 600 < ../stdout & :",
    ],
)
async def test_what_is_no_file_cannot_stop_the_worker(machine: Machine, attack: str) -> None:
    ended = await asyncio.wait_for(machine.sh(f"rm ../stdout ../stderr; {attack}; exit 0"), 10)
    assert ended.exit_code == 0
    await asyncio.wait_for(next_task_is_well(machine), 10)
    await trash_is_empty(machine)


async def test_a_fifo_made_between_two_tasks_cannot_stop_the_worker(machine: Machine) -> None:
    await machine.sh("echo first")
    place = machine.directory / "sandboxes" / "0"
    (place / "stdout").unlink()
    os.mkfifo(place / "stdout")
    # A worker that is stuck could not tell: somebody else has to.
    signal.signal(signal.SIGALRM, lambda *_: os.open(place / "stdout", os.O_RDWR))
    signal.alarm(5)
    try:
        await next_task_is_well(machine)
    finally:
        signal.alarm(0)


@NEEDS_ROOT
async def test_a_device_is_no_output(machine: Machine) -> None:
    await machine.sh("rm ../stdout; mknod ../stdout c 1 5")  # /dev/zero
    ended = await machine.sh("rm ../stderr; mknod ../stderr c 1 5")
    assert ended.stderr_bytes == 0
    await next_task_is_well(machine)


# ---- scratch directories that resist


async def test_a_directory_deeper_than_any_path_is_removed(machine: Machine) -> None:
    # 6,000 characters: PATH_MAX is 4,096, Python recurses 1,000 deep, a process opens 1,024 files.
    dig = "import os\nfor _ in range(3_000):\n    os.mkdir('d'); os.chdir('d')"
    assert (await machine.run(sys.executable, "-c", dig)).exit_code == 0
    assert (await machine.sh("ls -A")).stdout == b""
    await trash_is_empty(machine)


async def test_directories_without_permissions_are_removed(machine: Machine) -> None:
    await machine.sh("mkdir -p a/b/c; touch a/b/c/f; chmod 0 a/b/c a/b a . ..")
    await next_task_is_well(machine)
    await trash_is_empty(machine)


async def test_what_is_hidden_by_a_false_date_is_removed(machine: Machine) -> None:
    await machine.sh("echo 1 > first")
    for _ in range(20):  # also right after it was emptied
        await machine.sh("touch hidden; touch -d @1 .")
        assert (await machine.run("ls", "-A")).stdout == b""
        await machine.sh("touch hidden; touch -d @1 .; touch -d @1 .")
        assert (await machine.sh("ls -A; touch x")).stdout == b""


def started(command: list[str]) -> int:
    """A process beside the tasks. The executor reaps it."""
    return os.posix_spawn(command[0], command, {})


SWAP = """
import os, sys
os.chdir(sys.argv[1])
os.symlink(sys.argv[2], "link")
for i in range(50):
    os.makedirs(f"{i}/deep/er")
while True:
    for i in range(50):
        for a, b in ((f"{i}/deep", f"{i}/away"), ("link", f"{i}/deep"),
                     (f"{i}/deep", "link"), (f"{i}/away", f"{i}/deep")):
            try:
                os.rename(a, b)
            except OSError:
                pass
"""


async def test_directories_that_change_places_meanwhile_lead_nowhere(
    tmp_path: Path, foreign: Foreign
) -> None:
    machine = Machine(tmp_path / "work")
    scratch = tmp_path / "work" / "sandboxes" / "0" / "scratch"
    for _ in range(10):
        await machine.sh("touch x")
        command = [sys.executable, "-c", SWAP, str(scratch), str(foreign.directory)]
        racer = started(command)
        await until((scratch / "49" / "deep").exists)
        await machine.sh("touch x; mkdir -p y/z")
        await machine.sh("touch x; mkdir -p y/z")
        os.kill(racer, signal.SIGKILL)
        foreign.check()
    await machine.executor.close()


def unmount_all_below(directory: Path) -> None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if str(directory) in line:
            subprocess.run(["umount", line.split()[1]], check=True)


def make_mutable(directory: str) -> None:
    subprocess.run(["chattr", "-R", "-i", directory], check=True)


@NEEDS_ROOT
@pytest.mark.parametrize("place", ["inner", ".", "inner/deep"])
async def test_what_is_mounted_in_a_scratch_directory_is_not_emptied(
    machine: Machine, foreign: Foreign, place: str
) -> None:
    mounted = await machine.sh(
        f"mkdir -p inner/deep; mount --bind {foreign} {place} && pwd -P; exit 0"
    )
    where = Path(mounted.stdout.decode().strip() or ".")
    if not mounted.stdout:
        pytest.skip("nothing can be mounted here")
    try:
        await next_task_is_well(machine)
        await next_task_is_well(machine)
        foreign.check()
    finally:
        assert where.is_relative_to(machine.directory)
        unmount_all_below(machine.directory)


@NEEDS_ROOT
async def test_what_cannot_be_removed_costs_a_directory_and_no_task() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        machine = Machine(Path(directory) / "work")
        marked = await machine.sh("mkdir d; touch f d/f && chattr +i f d . && pwd")
        try:
            if marked.exit_code:
                pytest.skip("this file system knows no immutable files")
            await next_task_is_well(machine)
            await next_task_is_well(machine)
        finally:
            make_mutable(directory)
            await machine.executor.close()


# ---- what others may read


async def test_nobody_else_reads_what_tasks_leave(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        work = tmp_path / "work"
        for name in ("", "outputs", "sandboxes", "trash"):
            (work / name).mkdir(mode=0o755)
        machine = Machine(work)
        ended = await machine.sh("chmod 0666 ../stdout; seq 10000; ls -ld ..")
        number = machine.start("sleep", "60")
        found = [work / "sandboxes" / "0", *(work / "sandboxes" / "0").iterdir()]
        found += [work, *work.iterdir(), work / "outputs" / f"{ended.number}.stdout"]
        for path in found:
            assert path.stat().st_mode & 0o077 == 0, path
        machine.executor.kill(number)
        await machine.exit_of(number)
        await machine.executor.close()
    finally:
        os.umask(old)


async def test_a_host_file_that_was_replaced_is_left_alone(
    machine: Machine, tmp_path: Path
) -> None:
    """A cleanup runs where the task has been: to open what it left might take for ever."""
    foreign = Foreign(tmp_path / "foreign")
    for replace in ("mkfifo $KESTREL_HOSTFILE", f"ln {foreign.file} $KESTREL_HOSTFILE"):
        ended = await machine.sh(
            f"cat $KESTREL_HOSTFILE; rm $KESTREL_HOSTFILE; {replace}",
            cleanup=("/bin/sh", "-c", "test -e $KESTREL_HOSTFILE"),
            host_lines=("alpha", "beta"),
        )
        assert (ended.exit_code, ended.reason, ended.stdout) == (0, "", b"alpha\nbeta\n")
    assert foreign.file.read_text() == "years of work\n"


async def test_a_host_file_is_written_in_a_sandbox_that_had_to_be_made_anew(
    machine: Machine,
) -> None:
    await machine.sh("rm ../stdout; mkfifo ../stdout")
    ended = await machine.sh("cat $KESTREL_HOSTFILE", host_lines=("alpha",))
    assert (ended.exit_code, ended.stdout) == (0, b"alpha\n")
