"""The keeper: nothing of a worker is left, however the worker ends."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kestrelctl.worker.stops import MOST_STOPS

WORKER = """
import os, sys
from kestrelctl.worker.keeper import run_kept

def main():
    import asyncio, signal
    from pathlib import Path
    from kestrelctl.core.model.job.program import Program
    from kestrelctl.worker.run.executor import CommandSpec
    from kestrelctl.worker.run.process_executor import ProcessExecutor

    from kestrelctl.worker.keeper import keep_the_keeper

    async def work():
        keeping = asyncio.create_task(keep_the_keeper(0.2))
        executor = ProcessExecutor(Path(sys.argv[1]), print)
        heard = []
        ended = asyncio.Event()
        def on_signal(number):
            heard.append(number)
            asyncio.get_running_loop().call_later(0.3, ended.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
        env = {"PATH": os.environ["PATH"]}
        script = "sleep 601 & setsid sleep 602 & sh -c 'setsid sleep 603 & :' ; sleep 604"
        executor.start(CommandSpec(1, Program(argv=("/bin/sh", "-c", script)), env))
        print(os.getpid(), flush=True)
        await ended.wait()
        print(*heard, flush=True)
        await executor.close()
        return 7
    return asyncio.run(work())

sys.exit(run_kept(main))
"""


def until(condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise TimeoutError(condition)


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def tasks_below(process: psutil.Process) -> list[psutil.Process]:
    tasks = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a shell on its way out
            if child.name() == "sleep":
                tasks.append(child)
    return tasks


class Kept:
    """A keeper, its worker, and the worker's four sleeping processes."""

    def __init__(self, directory: Path) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(directory)], stdout=subprocess.PIPE, text=True
        )
        assert self.popen.stdout is not None
        self.stdout = self.popen.stdout
        self.keeper = psutil.Process(self.popen.pid)
        self.worker = psutil.Process(int(self.stdout.readline()))
        until(lambda: len(tasks_below(self.worker)) == 4)
        self.tasks = tasks_below(self.worker)

    def tasks_are_gone(self) -> bool:
        return all(map(is_gone, self.tasks))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    for process in (kept.keeper, kept.worker, *kept.tasks):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    kept.popen.wait()
    kept.stdout.close()


def test_after_kill_9_of_the_worker_nothing_runs_on(kept: Kept) -> None:
    kept.worker.kill()
    assert kept.popen.wait(10) == 128 + signal.SIGKILL
    assert kept.tasks_are_gone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_worker_and_its_status_comes_back(
    kept: Kept, number: signal.Signals
) -> None:
    kept.keeper.send_signal(number)
    assert kept.stdout.readline().split() == [str(int(number))]
    assert kept.popen.wait(10) == 7
    assert kept.tasks_are_gone()


def test_a_worker_that_was_stopped_hears_that_it_shall_end(kept: Kept) -> None:
    kept.worker.suspend()
    kept.keeper.send_signal(signal.SIGTERM)
    assert kept.popen.wait(10) == 7
    assert kept.tasks_are_gone()


def test_a_worker_does_not_outlive_its_keeper(kept: Kept) -> None:
    kept.keeper.kill()
    kept.popen.wait()
    until(lambda: is_gone(kept.worker))


def is_stopped(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP], ids=lambda number: number.name)
def test_a_worker_that_is_stopped_goes_on(kept: Kept, number: signal.Signals) -> None:
    for _ in range(3):
        kept.worker.send_signal(number)
        time.sleep(0.1)  # until it has arrived
        until(lambda: not is_stopped(kept.worker))
    assert not any(map(is_gone, kept.tasks))
    kept.keeper.send_signal(signal.SIGTERM)
    assert kept.popen.wait(10) == 7


def test_a_worker_that_is_stopped_all_the_time_ends_with_its_tasks(kept: Kept) -> None:
    for _ in range(50 * MOST_STOPS):
        if kept.popen.poll() is not None:
            break
        with contextlib.suppress(psutil.NoSuchProcess):
            kept.worker.suspend()
        time.sleep(0.01)
    assert kept.popen.wait(10) == 128 + signal.SIGKILL
    assert kept.tasks_are_gone()


def test_a_keeper_that_is_stopped_goes_on(kept: Kept) -> None:
    kept.keeper.suspend()
    time.sleep(0.5)
    until(lambda: not is_stopped(kept.keeper))
    kept.worker.kill()
    assert kept.popen.wait(10) == 128 + signal.SIGKILL
    assert kept.tasks_are_gone()


def test_a_keeper_is_small_and_sleeps(kept: Kept) -> None:
    assert kept.keeper.memory_full_info().uss < 12 << 20
    before = kept.keeper.num_ctx_switches()
    time.sleep(0.5)
    assert kept.keeper.num_ctx_switches() == before


def test_ctrl_c_at_a_terminal_reaches_the_worker_once(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, "-c", WORKER, str(tmp_path)])
    with open(terminal, "rb", buffering=0) as screen:
        worker = psutil.Process(int(screen.readline()))
        until(lambda: len(tasks_below(worker)) == 4)
        tasks = tasks_below(worker)
        os.write(terminal, b"\x03")
        shown = screen.readline()
        assert shown.replace(b"^C", b"").split() == [b"2"]
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert all(map(is_gone, tasks))


TELLING = """
import sys
from kestrelctl.worker.keeper import run_kept

def main():
    import asyncio
    from kestrelctl.notify import Notifier

    async def work():
        notifier = Notifier(lambda: "fine")
        notifier.ready()
        notifier.stopping()
        notifier.close()
        return 0
    return asyncio.run(work())

sys.exit(run_kept(main))
"""


def test_systemd_hears_of_a_worker_from_its_main_process_alone(tmp_path: Path) -> None:
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    systemd.bind(str(tmp_path / "notify"))
    environment = {
        **os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000",
    }  # fmt: skip
    told: list[str] = []
    with systemd, subprocess.Popen([sys.executable, "-c", TELLING], env=environment) as started:
        assert started.wait(30) == 0
        systemd.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                message, sent_with, _, _ = systemd.recvmsg(4096, socket.CMSG_SPACE(12))
                ((_, _, credentials),) = sent_with
                assert struct.unpack("3i", credentials)[0] == started.pid
                told += message.decode().splitlines()
    assert told == ["READY=1", "WATCHDOG=1", "STATUS=fine", "STOPPING=1"]
