"""Starts processes that find everything as in a fresh login: descriptors, signals, directory."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import signal
import time

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import NO_REASON, EndKind, ReasonText
from kestrelctl.worker.isolation.rung import Rung, Start
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec
from kestrelctl.worker.run.orphans import ATTEMPT_VARIABLE, SCRATCH_VARIABLE
from kestrelctl.worker.run.programs import Programs, why_not_started
from kestrelctl.worker.run.running_process import CLEANUP, RunningProcess
from kestrelctl.worker.run.sandbox import FileActions, is_spoiled

MOST_DESCRIPTORS = 65_536
"""RLIMIT_NOFILE is raised up to here. Not further, because tasks inherit it, and some programs
close every descriptor up to the limit when they start."""


def raise_descriptor_limit() -> None:
    """Allow this process as many descriptors as it may have, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def switch_core_dumps_off() -> None:
    """Have no process that this one starts leave a core file, unless it asks for one."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def seal_descriptors() -> int:
    """Keep every open descriptor but 0, 1 and 2 from the processes that are started.

    Python opens all of its own so; this is for those inherited from whoever started this
    process. Closed ones among 0 to 2 become /dev/null, so that no other file can get these
    numbers.

    Returns:
        A descriptor of /dev/null, above 2.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(null, True)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    return null


HOST_FILE = "kestrel-hosts"
HOST_FILE_VARIABLE = "KESTREL_HOSTFILE"
STAGE_VARIABLE = "KESTREL_STAGE"
_MOST_DIRECTORIES = 1000
"""Of a PATH, that are searched: more of them would keep this process from everything else."""


class Spawner:
    """Starts processes. It changes the current directory of this process.

    Args:
        rung: how what is to be started is isolated.
        any_workdir: whether a command may say in which directory it starts.

    Attributes:
        null: descriptor of /dev/null.
        start_seconds: how long starts took.
    """

    def __init__(self, rung: Rung, *, any_workdir: bool = False) -> None:
        self._rung = rung
        self._any_workdir = any_workdir
        raise_descriptor_limit()
        switch_core_dumps_off()
        self.null = seal_descriptors()
        self.start_seconds = Histogram(START_BOUNDS)
        self._programs = Programs(rung.shows)
        self._home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self._ignored_signals = [
            number
            for number in signal.valid_signals()
            if signal.getsignal(number) is signal.SIG_IGN
        ]

    def spawn(
        self, process: RunningProcess, argv: tuple[str, ...], file_actions: FileActions
    ) -> ReasonText:
        """Starts a program in the sandbox of an attempt, and notes its id and the moment.

        Returns:
            Why it could not be started, or nothing.
        """
        try:
            return self._spawn(process, argv, file_actions)
        finally:
            if process.command.program.workdir:  # a user may want to unmount or remove it
                os.fchdir(self._home)

    def _spawn(
        self, process: RunningProcess, argv: tuple[str, ...], file_actions: FileActions
    ) -> ReasonText:
        began = time.monotonic()
        env = process.command.env.copy()
        env[ATTEMPT_VARIABLE] = str(process.command.number)
        program = name = argv[0] if argv else ""
        path = _searched(env.get("PATH"))
        workdir = process.command.program.workdir
        if workdir and not self._any_workdir:
            return EndKind.CANNOT_START.text("this worker runs tasks in scratch directories only")
        if process.course is not None and process.part != CLEANUP:
            env[STAGE_VARIABLE] = process.part
        resume_dir = "" if process.furnished else process.command.resume_dir
        if resume_dir:
            process.sandbox.renew()  # what is moved there is moved once
        may_renew = not (process.ran or resume_dir)  # its output is there
        while True:
            try:
                process.sandbox.enter()
                place = process.sandbox.place
                env[SCRATCH_VARIABLE] = f"{place}/scratch"
                if process.command.host_lines:
                    env[HOST_FILE_VARIABLE] = f"{place}/scratch/{HOST_FILE}"
                if not process.furnished:
                    process.furnished = True
                    _furnish(process.command)
                actions = file_actions
                if workdir:
                    why = _enter(workdir)
                    if why:
                        return why
                    actions = process.sandbox.from_elsewhere(file_actions)
                program = self._programs.find(name, path)
                launch = self._rung.launch(
                    place,
                    Start(program, argv, env, process.limits, workdir, process.command.inputs_dir),
                )
                process.since = time.monotonic()  # it runs before the call returns
                try:
                    process.pid = os.posix_spawn(
                        launch.program,
                        launch.argv,
                        launch.env,
                        file_actions=actions + launch.file_actions,
                        setsid=True,
                        setsigmask=(),
                        setsigdef=self._ignored_signals,
                    )
                except FileNotFoundError as error:
                    if not os.path.isdir(f"{place}/scratch"):  # the task is not to blame
                        gone = "somebody removed the directory of the task"
                        raise OSError(errno.EAGAIN, gone) from error
                    if launch.program == program:
                        raise
                    gone = f"{launch.program} has gone"
                    raise OSError(errno.EAGAIN, gone) from error  # the task is not to blame
                finally:
                    if launch.descriptor >= 0:
                        os.close(launch.descriptor)
                break
            except (OSError, ValueError, TypeError) as error:
                if may_renew and is_spoiled(error):
                    # An earlier task may have made the sandbox unusable; this one is not to blame.
                    may_renew = False
                    process.sandbox.renew()
                    process.furnished = False
                    continue
                if resume_dir:
                    process.sandbox.renew()  # nobody else finds what was moved there
                self._programs.forget(name, path)
                return why_not_started(error, program, workdir)
        self.start_seconds.observe(time.monotonic() - began)
        return NO_REASON

    def close(self) -> None:
        """Goes back to the directory where this process was."""
        os.fchdir(self._home)
        os.close(self._home)
        os.close(self.null)


def _furnish(command: CommandSpec) -> None:
    """Puts into the current directory what a task finds in its own."""
    resume_dir = command.resume_dir
    for name in os.listdir(resume_dir) if resume_dir else ():
        os.rename(f"{resume_dir}/{name}", name)
    if command.host_lines:
        _write_hosts(command.host_lines)
    for link, target in command.links:
        if not (resume_dir and os.path.lexists(link)):  # what it left is its own
            os.symlink(target, link)


def _write_hosts(lines: tuple[str, ...]) -> None:
    """Writes the host file into the current directory, in which no task has been yet."""
    file = os.open(HOST_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        os.write(file, "".join(f"{line}\n" for line in lines).encode())
    finally:
        os.close(file)


def _enter(workdir: str) -> ReasonText:
    """Makes the directory of a job the current one. Returns why that cannot be done, or nothing.

    Nothing else is asked about it: this is a path of every task.
    """
    try:
        os.chdir(workdir)
    except OSError as error:
        detail = f"the directory of the job: {error.strerror}: {workdir!r}"
        return EndKind.CANNOT_START.text(detail)
    return NO_REASON


@functools.lru_cache(maxsize=1000)
def _searched(path: str | None) -> str | None:
    return path and ":".join(path.split(":", _MOST_DIRECTORIES)[:_MOST_DIRECTORIES])
