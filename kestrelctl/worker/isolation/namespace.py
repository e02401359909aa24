"""Namespaces of processes, made by unshare(1) of util-linux: for machines without bubblewrap.

A task sees its own processes alone, so it can signal no other, and nothing of it survives its end.
It sees all files that the worker sees.
"""

from __future__ import annotations

import shutil

from kestrelctl.worker.isolation.rung import Ending, Namespaced, Start, told_code
from kestrelctl.worker.launch.launcher import Launch, Tree
from kestrelctl.worker.run.programs import check_executable

#: Variables by which the dynamic linker, the C library (ld.so(8); glibc ignores the same ones in
#: set-user-ID programs) and the shell are told what to do. They are for the task, not for the
#: programs that run ahead of it.
_FOR_THE_TASK_ALONE = (
    "LD_",
    "GLIBC_",
    "MALLOC_",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "ENV",
    "BASH",
    "SHELLOPTS",
    "IFS",
    "PS4",
)

#: The shell is the namespace's init, so it must not be replaced by the task, whose default actions
#: for signals would be off (pid_namespaces(7)). dash ends at SIGINT, and takes the task along; with
#: a trap it waits, and the task begins with the signal's default action.
_INIT = 'trap : INT; "$@"; exit $?'


class Namespace(Namespaced):
    """Rung `namespace`."""

    name = "namespace"
    #: Unshare 2.38 complains in the task's stderr when the init is killed, so the monitor is: it
    #: has asked the kernel to kill the init after itself (--kill-child). The launcher is handed the
    #: init then, and lets nobody write where that may still write to.
    tree = Tree.MONITOR

    def __init__(self, program: str | None = None) -> None:
        self.program = program or shutil.which("unshare") or "/usr/bin/unshare"
        self._prefix = (
            "unshare",
            "--user",
            "--map-current-user",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--ipc",
            "--",
            "/bin/sh",
            "-c",
            _INIT,
            "sh",
        )

    def launch(self, place: str, start: Start) -> Launch:
        program, argv, env, _, workdir, _ = start
        check_executable(program, workdir or f"{place}/scratch")
        if any(not name or "=" in name for name in env):
            raise ValueError("illegal environment variable name")
        outside, inside = {}, []
        for name, value in env.items():
            if name.startswith(_FOR_THE_TASK_ALONE):
                inside.append(f"{name}={value}")
            else:
                outside[name] = value
        words = (program, *argv[1:])
        if inside:
            if "=" in program:  # env(1) takes it for a variable
                raise ValueError(f"no `=` in the name of a program with {inside[0]!r}")
            words = ("env", "--", *inside, *words)
        return Launch(self.program, (*self._prefix, *words), outside)

    def ended(self, place: str, code: int, *, asked: bool) -> Ending:
        return Ending(told_code(code))
