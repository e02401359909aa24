"""The keeper: a small parent process that clears up after a worker that died.

A worker ends its tasks itself, unless it is killed with SIGKILL, by the kernel for want of memory,
or by a fault. Then its processes are handed to the keeper, which kills them and passes the worker's
status on. A worker that was stopped goes on at once (SIGSTOP: each task of the same user can send
it). The keeper forks before anything heavy is loaded, sleeps in sigwaitinfo(2) and so costs
one small process and no CPU time.

If the keeper itself is killed with SIGKILL, the worker dies with it (prctl(2),
PR_SET_PDEATHSIG), and the tasks go to the next subreaper above or to init: as a service,
systemd kills them, because they are in the worker's control group; without a service manager
they run to their end. A keeper that is stopped is continued by the worker. If both are stopped,
whoever started the keeper has to notice: the supervisor of a local pool, or systemd's watchdog.

What the worker tells systemd, the keeper passes on. It is the service's main process, so systemd
need not listen to others of the service (`NotifyAccess=main`): tasks cannot speak for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from kestrelctl.notify_socket import RELAY_VARIABLE, to_systemd
from kestrelctl.worker.run.orphans import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    Children,
    kill,
    prctl,
)
from kestrelctl.worker.stops import Stops

_FORWARDED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_GIVE_UP_SECONDS = 10.0
_SI_KERNEL = 128
#: More than any message of a worker has.
_MESSAGE_BYTES = 65_536


class _Relay:
    """Passes messages of the worker on to systemd. SIGIO says that there are some."""

    def __init__(self, systemd: socket.socket) -> None:
        self._systemd = systemd
        self._ours, self.workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (self._ours, self.workers):
            end.setblocking(False)
        descriptor = self._ours.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)

    def pass_on(self) -> None:
        """Passes on all that came. What systemd does not take is lost, as when told directly."""
        with contextlib.suppress(BlockingIOError):
            while True:
                message = self._ours.recv(_MESSAGE_BYTES)
                with contextlib.suppress(OSError):
                    self._systemd.send(message)

    def become_worker(self) -> None:
        """Sends what the worker tells systemd to the keeper from now on; called in the worker."""
        self._systemd.close()
        self._ours.close()
        os.environ[RELAY_VARIABLE] = str(self.workers.detach())


def run_kept(main: Callable[[], int]) -> int:
    """Runs `main` in a child process and leaves nothing of it behind.

    Call it before heavy imports: let `main` do them. Off Linux, `main` runs in this process.

    Args:
        main: returns an exit status.

    Returns:
        In the worker process, what `main` returned. In the keeper, the worker's exit status, or
        128 + the signal that ended it. Both callers then exit with it.
    """
    if sys.platform != "linux":
        return main()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGIO, *_FORWARDED})
    systemd = to_systemd(os.environ)
    relay = _Relay(systemd) if systemd is not None else None
    keeper = os.getpid()
    worker = os.fork()
    if worker:
        status = _keep(worker, relay)
        if relay is not None:
            relay.pass_on()
        _kill_descendants()
        return status
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # it died before the line above
        os._exit(1)
    if relay is not None:
        relay.become_worker()
    signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
    return main()


async def keep_the_keeper(pause_seconds: float = 5.0) -> None:
    """Keeps this worker's keeper from being stopped for long; runs until it is cancelled.

    The signal means nothing to a process that runs. Nothing is asked first, because with
    `ProtectProc=` /proc shows the keeper to nobody.
    """
    import asyncio

    while sys.platform == "linux":
        await asyncio.sleep(pause_seconds)
        with contextlib.suppress(OSError):
            os.kill(os.getppid(), signal.SIGCONT)


def _keep(worker: int, relay: _Relay | None) -> int:
    """Passes signals on to the worker, and its messages to systemd, until it ends.

    Returns:
        Its status.
    """
    stops = Stops()
    while True:
        heard = signal.sigwaitinfo({signal.SIGCHLD, signal.SIGIO, *_FORWARDED})
        if heard.si_signo == signal.SIGIO:
            if relay is not None:
                relay.pass_on()
            continue
        if heard.si_signo != signal.SIGCHLD:
            # A terminal (the kernel) has already told the whole process group, the worker included.
            if heard.si_code != _SI_KERNEL:
                os.kill(worker, heard.si_signo)
                os.kill(worker, signal.SIGCONT)  # a worker that was stopped hears nothing before it
            continue
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if os.WIFSTOPPED(status):
                if pid == worker:
                    os.kill(worker, stops.answer(time.monotonic()))
            elif pid == worker:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if not pid:
                break


def _kill_descendants() -> None:
    """Kills what is below this process; the death of one hands its children to us."""
    children = Children()
    give_up = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < give_up:
        for pid in children.listing().split():
            kill(int(pid))
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        signal.sigtimedwait({signal.SIGCHLD}, 0.1)
    children.close()
