"""Namespaces of processes, made by unshare(1) of util-linux: for machines without bubblewrap.

A task sees its own processes alone, so it can signal no other, and nothing of it survives its end.
It sees all files that the worker sees.
"""

from __future__ import annotations

import os
import shutil

from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.worker.isolation.rung import (
    Ending,
    InitReport,
    Namespaced,
    Start,
    told_code,
)
from kestrelctl.worker.launch.launcher import Launch, Tree
from kestrelctl.worker.run.programs import check_executable

#: Variables by which the dynamic linker, the C library (ld.so(8); glibc ignores the same ones in
#: set-user-ID programs) and the shell are told what to do. They are for the task, not for the
#: programs that run ahead of it. A command line hands them over, which everybody on the machine
#: can read: so no others.
_FOR_THE_TASK_ALONE = {"GCONV_PATH", "LOCPATH", "NLSPATH", "ENV", "SHELLOPTS", "IFS", "PS4"}
#: The same, by how their names begin.
_ALL_FOR_THE_TASK_ALONE = ("LD_", "GLIBC_", "MALLOC_", "BASH")

#: Without our program a shell is the namespace's init, so it must not be replaced by the task,
#: whose default actions for signals would be off (pid_namespaces(7)). dash ends at SIGINT, and
#: takes the task along; with a trap it waits, and the task begins with the default action.
_SHELL_INIT = ("/bin/sh", "-c", 'trap : INT; "$@"; exit $?', "sh")


class Namespace(Namespaced):
    """Rung `namespace`."""

    name = "namespace"
    #: Unshare 2.38 complains in the task's stderr when the init is killed, so the monitor is
    #: killed: it has asked the kernel to kill the init after itself (--kill-child). The launcher is
    #: handed the init then, and lets nobody write where the init may still write to.
    tree = Tree.MONITOR

    def __init__(self, program: str | None = None, init: str = "") -> None:
        super().__init__(init)
        self.program = program or shutil.which("unshare") or "/usr/bin/unshare"
        self._env = shutil.which("env") or "/usr/bin/env"
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
            *(self.init_words if init else _SHELL_INIT),
        )

    def launch(self, place: str, start: Start) -> Launch:
        program, argv, env, _, workdir, _ = start
        check_executable(program, workdir or f"{place}/scratch")
        if any(not name or "=" in name for name in env):
            raise ValueError("illegal environment variable name")
        outside, inside = {}, []
        for name, value in env.items():
            if name in _FOR_THE_TASK_ALONE or name.startswith(_ALL_FOR_THE_TASK_ALONE):
                inside.append(f"{name}={value}")
            else:
                outside[name] = value
        words = (program, *argv[1:])
        if inside:
            if "=" in program:  # env(1) takes it for a variable
                raise ValueError(f"no `=` in the name of a program with {inside[0]!r}")
            words = (self._env, "--", *inside, *words)
        return Launch(
            self.program,
            (*self._prefix, *words),
            outside,
            init=self.init,
            has_status=bool(self.init),
        )

    def ended(self, place: str, code: int, *, asked: bool) -> Ending:
        told = InitReport.read(place) if self.init and code else None
        if told is None:
            return Ending(told_code(code))
        if told.error:  # a task can write that as well, so `ran` remains
            why = f"{os.strerror(told.error)}: {told.program!r}"
            return Ending(code, EndKind.CANNOT_START.text(why))
        return Ending(told_code(code) if told.code is None else told.code)
