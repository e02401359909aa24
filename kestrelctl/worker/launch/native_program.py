"""Finds our programs that are not in Python, and builds them from their sources:

    python -m kestrelctl.worker.launch.native_program [--all]

With `--all` they are built for each kind of processor that workers are installed on, by the
compiler that the package `ziglang` brings, which needs nothing else of the machine. Without, they
are built for this machine, by that compiler or else by the machine's own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from kestrelctl.errors import KestrelError

MACHINES = ("x86_64", "aarch64")
COMPILED = Path(__file__).with_name("compiled")
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
_ALONE = (
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-pie",
    "-fno-asynchronous-unwind-tables",
)
_OLDEST_GLIBC = "2.28"  # Debian 10
_TRIED_SECONDS = 10.0
_USAGE_STATUS = 2
"""Of a program that is called without arguments."""


class NativeProgram(NamedTuple):
    """A program in C, whose source lies beside this file.

    Attributes:
        stands_alone: it uses no library, not even C's.
    """

    name: str
    stands_alone: bool = False

    @property
    def source(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.c")


LAUNCHER = NativeProgram("launcher")
#: It runs where a task's files are, which may hold no library.
INIT = NativeProgram("init", stands_alone=True)
PROGRAMS = (LAUNCHER, INIT)


def find(program: NativeProgram) -> Path | None:
    """The program for this machine; None if it was not built, or does not run here."""
    found = place_of(program, os.uname().machine)
    try:
        tried = subprocess.run([found], capture_output=True, timeout=_TRIED_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return found if tried.returncode == _USAGE_STATUS else None


def place_of(program: NativeProgram, machine: str, directory: Path = COMPILED) -> Path:
    """The path of a program for that kind of processor."""
    return directory / f"kestrel-{program.name}-{machine}"


def build(program: NativeProgram, machine: str, directory: Path = COMPILED) -> Path:
    """Builds a program for a kind of processor, if it is older than its source.

    Raises:
        KestrelError: there is no compiler, or it failed.
    """
    made = place_of(program, machine, directory)
    if made.exists() and made.stat().st_mtime >= program.source.stat().st_mtime:
        return made
    directory.mkdir(exist_ok=True)
    unfinished = made.with_suffix(f".{os.getpid()}")
    compiled = unfinished.with_name(f"{unfinished.name}.o")
    compiler, source = _compiler(machine, f"gnu.{_OLDEST_GLIBC}"), str(program.source)
    steps = [[*compiler, *_FLAGS, "-s", "-o", str(unfinished), source]]
    if program.stands_alone:  # a linker that is to use no library has no headers of one, either
        linker = [*_compiler(machine, "none"), "-s", "-static", "-nostdlib"]
        steps = [
            [*compiler, *_FLAGS, *_ALONE, "-c", "-o", str(compiled), source],
            [*linker, "-o", str(unfinished), str(compiled)],
        ]
    try:
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode:
                raise KestrelError(f"{made.name} could not be built", cause=done.stderr.strip())
        unfinished.rename(made)
    finally:
        for each in (unfinished, compiled):
            each.unlink(missing_ok=True)
    return made


def builds_for_all() -> bool:
    """Whether the compiler that builds them for each kind of processor is here."""
    return importlib.util.find_spec("ziglang") is not None


def _compiler(machine: str, library: str) -> list[str]:
    """Returns the words that call a compiler for a kind of processor.

    Args:
        library: the C library, as a compiler that knows several calls it.
    """
    if builds_for_all():
        target = f"{machine}-linux-{library}"
        return [sys.executable, "-m", "ziglang", "cc", "-target", target]
    found = shutil.which("cc")
    if found is None or machine != os.uname().machine:
        raise KestrelError(
            f"there is no compiler for {machine}", hint="pip install ziglang brings one"
        )
    return [found]


if __name__ == "__main__":
    try:
        for machine in MACHINES if "--all" in sys.argv[1:] else (os.uname().machine,):
            for each in PROGRAMS:
                print(build(each, machine))
    except KestrelError as error:
        sys.exit(f"{error.message}: {error.cause or error.hint}")
