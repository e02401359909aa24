"""Has the programs of attempts started, in sandboxes that are furnished for them."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource

from kestrelctl.core.model.end_reason import NO_REASON, EndKind, ReasonText
from kestrelctl.core.model.job.stage import RUN
from kestrelctl.worker.isolation.rung import Rung, Start
from kestrelctl.worker.launch.launcher import Launcher, NotStarted, Order, StartStep
from kestrelctl.worker.own_files import NO_LINKS
from kestrelctl.worker.run.attempt_state import CLEANUP, AttemptState, Starting
from kestrelctl.worker.run.executor import CommandSpec
from kestrelctl.worker.run.orphans import ATTEMPT_VARIABLE, SCRATCH_VARIABLE
from kestrelctl.worker.run.programs import Programs, why_not_started
from kestrelctl.worker.run.sandbox import is_spoiled

MOST_DESCRIPTORS = 65_536
"""RLIMIT_NOFILE is raised up to here. Not further, because tasks inherit it, and some programs
close every descriptor up to the limit when they start."""


def raise_descriptor_limit() -> None:
    """Allows this process as many descriptors as it may have, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def switch_core_dumps_off() -> None:
    """Lets no process that this one starts leave a core file, unless it asks for one."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def seal_descriptors() -> None:
    """Keeps every open descriptor but 0, 1 and 2 from the processes that are started.

    Python opens all of its own so; this is for those inherited from whoever started this
    process. Closed ones among 0 to 2 become /dev/null, so that no other file can get these
    numbers.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(null, True)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    os.close(null)


HOST_FILE = "kestrel-hosts"
HOST_FILE_VARIABLE = "KESTREL_HOSTFILE"
STAGE_VARIABLE = "KESTREL_STAGE"
_MOST_DIRECTORIES = 1000
"""Of a PATH, that are searched: more of them would keep this process from everything else."""


class Starter:
    """Has programs of attempts started, each in the sandbox of its attempt.

    An earlier task may have made a sandbox unusable; then the next one, which is not to blame, is
    given another.

    Args:
        launcher: starts them.
        rung: isolates what is started.
        any_workdir: whether a command may say in which directory it starts.
    """

    def __init__(self, launcher: Launcher, rung: Rung, *, any_workdir: bool = False) -> None:
        self._launcher = launcher
        self._rung = rung
        self._any_workdir = any_workdir
        self._programs = Programs(rung.shows)

    def start(self, run: AttemptState, argv: tuple[str, ...]) -> ReasonText:
        """Has a program of an attempt started.

        Returns:
            The reason why that cannot be done; nothing if the launcher is to say what comes of it.
        """
        if run.command.program.workdir and not self._any_workdir:
            return EndKind.CANNOT_START.text("this worker runs tasks in scratch directories only")
        resumes = not run.furnished and bool(run.command.resume_dir)
        run.starting = Starting(
            argv,
            resumes=resumes,
            may_renew=not (run.ran or resumes),  # its output is there
        )
        if resumes:
            run.sandbox.renew()
        return self._order(run, run.starting)

    def retry(self, run: AttemptState, failure: NotStarted) -> ReasonText:
        """Has a program started again that could not be started, if that was not its fault.

        Returns:
            The reason why it cannot be started; nothing if it is tried again.
        """
        starting = run.starting
        assert starting is not None
        error = OSError(failure.error, os.strerror(failure.error))
        if failure.step is StartStep.WORKDIR:
            workdir = run.command.program.workdir
            detail = f"the directory of the job: {error.strerror}: {workdir!r}"
            return EndKind.CANNOT_START.text(detail)
        if failure.step is StartStep.SCRATCH:
            if not starting.remade:
                starting.anew = starting.remade = True
                return self._order(run, starting)
            gone = "somebody removed the directory of the task"  # which is not to blame
            error = OSError(errno.EAGAIN, gone)
        elif failure.error == errno.ENOENT and starting.through:
            error = OSError(errno.EAGAIN, f"{starting.through} has gone")
        elif self._is_mended(run, starting, error):
            return self._order(run, starting)
        return self._give_up(run, starting, error)

    def _order(self, run: AttemptState, starting: Starting) -> ReasonText:
        while True:
            try:
                self._launcher.start(self._order_of(run, starting))
            except (OSError, ValueError, TypeError) as error:
                if not self._is_mended(run, starting, error):
                    return self._give_up(run, starting, error)
            else:
                return NO_REASON

    def _order_of(self, run: AttemptState, starting: Starting) -> Order:
        """Furnishes a sandbox, and says what is to be started there.

        Raises:
            OSError, ValueError, TypeError: the machine or the command does not allow it.
        """
        command, sandbox, argv = run.command, run.sandbox, starting.argv
        program = command.program
        furniture = command.host_lines or command.links or command.resume_dir
        if not run.furnished and furniture and not sandbox.is_there():
            starting.anew = True
        sandbox.prepare(anew=starting.anew)
        if starting.anew:
            starting.anew = False
            run.furnished = run.ran
        if not run.furnished:
            run.furnished = True
            if furniture:
                _furnish(command, sandbox.open_scratch())
        env = command.env.copy()
        env[ATTEMPT_VARIABLE] = str(command.number)
        env[SCRATCH_VARIABLE] = f"{sandbox.place}/scratch"
        if run.stages is not None and run.part != CLEANUP:
            env[STAGE_VARIABLE] = run.part
        if command.host_lines:
            env[HOST_FILE_VARIABLE] = f"{sandbox.place}/scratch/{HOST_FILE}"
        starting.program = argv[0] if argv else ""
        file = starting.program = self._programs.find(starting.program, _searched(env.get("PATH")))
        start = Start(file, argv, env, run.limits, program.workdir, command.inputs_dir)
        launch = self._rung.launch(sandbox.place, start)
        starting.through = launch.program if launch.program != file else ""
        return Order(
            command.number,
            launch,
            sandbox.name,
            sandbox.device,
            sandbox.inode,
            program.workdir,
            command.stdin_path if run.part == RUN else "",
            run.ran,
            program.join,
            command.lane,
            run.waits,
        )

    def _is_mended(self, run: AttemptState, starting: Starting, error: Exception) -> bool:
        """Gives an attempt another sandbox, if an earlier task may have spoiled this one."""
        if not (starting.may_renew and is_spoiled(error)):
            return False
        starting.may_renew = False
        run.sandbox.renew()
        run.furnished = False
        return True

    def _give_up(self, run: AttemptState, starting: Starting, error: Exception) -> ReasonText:
        if starting.resumes:
            run.sandbox.renew()  # nobody else finds what was moved there
        self._programs.forget(
            starting.argv[0] if starting.argv else "", _searched(run.command.env.get("PATH"))
        )
        workdir, place = run.command.program.workdir, run.sandbox.place
        return why_not_started(error, starting.program, workdir, f"{place}/scratch")


def _furnish(command: CommandSpec, scratch: int) -> None:
    """Puts into a scratch directory what its task is to find there.

    Args:
        scratch: the open directory, in which no task has been yet; it is closed.
    """
    try:
        resume_dir = command.resume_dir
        for name in os.listdir(resume_dir) if resume_dir else ():
            os.rename(f"{resume_dir}/{name}", name, dst_dir_fd=scratch)
        if command.host_lines:
            _write_hosts(command.host_lines, scratch)
        for link, target in command.links:
            if not (resume_dir and _is_there(link, scratch)):  # what it left is its own
                os.symlink(target, link, dir_fd=scratch)
    finally:
        os.close(scratch)


def _is_there(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _write_hosts(lines: tuple[str, ...], scratch: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS
    with open(os.open(HOST_FILE, flags, 0o644, dir_fd=scratch), "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)  # a full disk may take a part of it


@functools.lru_cache(maxsize=1000)
def _searched(path: str | None) -> str | None:
    return path and ":".join(path.split(":", _MOST_DIRECTORIES)[:_MOST_DIRECTORIES])
