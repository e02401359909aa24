"""Finds the program of the native launcher, and builds it from `launcher.c`:

    python -m kestrelctl.worker.launch.native_program [--all]

With `--all` for each kind of processor that workers are installed on, by the compiler that the
package `ziglang` brings, which needs nothing else of the machine. What it makes runs with every
glibc since 2.28 (Debian 10). Without, for this machine, by that or else by its own compiler.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kestrelctl.errors import KestrelError

MACHINES = ("x86_64", "aarch64")
SOURCE = Path(__file__).with_name("launcher.c")
COMPILED = Path(__file__).with_name("compiled")
_FLAGS = ("-std=gnu11", "-O2", "-s", "-Wall", "-Wextra", "-Werror")
_OLDEST_GLIBC = "2.28"
_TRIED_SECONDS = 10.0
_USAGE_STATUS = 2
"""Of a program that is called without arguments."""


def find() -> Path | None:
    """The program for this machine; None if it was not built, or does not run here."""
    found = program_for(os.uname().machine)
    try:
        tried = subprocess.run([found], capture_output=True, timeout=_TRIED_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return found if tried.returncode == _USAGE_STATUS else None


def program_for(machine: str, directory: Path = COMPILED) -> Path:
    """Where it is for that kind of processor."""
    return directory / f"kestrel-launcher-{machine}"


def build(machine: str, directory: Path = COMPILED) -> Path:
    """Builds it for a kind of processor, if it is older than its source.

    Raises:
        KestrelError: there is no compiler, or it failed.
    """
    made = program_for(machine, directory)
    if made.exists() and made.stat().st_mtime >= SOURCE.stat().st_mtime:
        return made
    directory.mkdir(exist_ok=True)
    unfinished = made.with_suffix(f".{os.getpid()}")
    command = [*_compiler(machine), *_FLAGS, "-o", str(unfinished), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KestrelError("the launcher could not be built", cause=done.stderr.strip())
        unfinished.rename(made)
    finally:
        unfinished.unlink(missing_ok=True)
    return made


def builds_for_all() -> bool:
    """Whether the compiler is here that builds it for each kind of processor."""
    return importlib.util.find_spec("ziglang") is not None


def _compiler(machine: str) -> list[str]:
    if builds_for_all():
        target = f"{machine}-linux-gnu.{_OLDEST_GLIBC}"
        return [sys.executable, "-m", "ziglang", "cc", "-target", target]
    found = shutil.which("cc")
    if found is None or machine != os.uname().machine:
        raise KestrelError(
            f"there is no compiler for {machine}", hint="pip install ziglang brings one"
        )
    return [found]


if __name__ == "__main__":
    try:
        for each in MACHINES if "--all" in sys.argv[1:] else (os.uname().machine,):
            print(build(each))
    except KestrelError as error:
        sys.exit(f"{error.message}: {error.cause or error.hint}")
