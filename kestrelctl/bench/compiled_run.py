"""Runs `kestrelctl` from a copy whose rules of flocking and simulated flocks are compiled.

mypyc makes C of typed Python, with the same results; a flock of a thousand pools takes half the
time then. Only what a simulation spends its time in is compiled, and only for this one run: what is
deployed is Python.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import kestrelctl
from kestrelctl.errors import KestrelError, MissingTool
from kestrelctl.simulate.flocks import agenda

#: What is compiled: a module, or all of a package.
COMPILED = (
    "flock/overlay",
    "flock/rules/announcing.py",
    "flock/rules/borrowing.py",
    "flock/rules/lending.py",
    "flock/rules/willing.py",
    "simulate/flocks/agenda.py",
    "simulate/flocks/member.py",
    "simulate/flocks/pool_model.py",
)
#: mypyc's checks are the ones of `mypy` itself; what is installed beside it does not matter here.
_MYPY_INI = "[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n"
#: Set in a process that runs from a copy.
_MARK = "KESTREL_COMPILED"
_OPTIMISED = {"MYPYC_OPT_LEVEL": "3", "MYPYC_DEBUG_LEVEL": "0"}


def is_compiled() -> bool:
    """Whether this process runs from such a copy."""
    return not agenda.__file__.endswith(".py")


def run_compiled(arguments: Sequence[str]) -> int:
    """Makes the copy, runs `kestrelctl` with these arguments there, and forgets the copy.

    Returns:
        Its exit status.

    Raises:
        MissingTool: there is no mypyc, or no C compiler.
        KestrelError: it could not be compiled, or a copy is not what runs.
    """
    if _MARK in os.environ:
        raise KestrelError("what was compiled is not what runs", cause=agenda.__file__)
    _find_tools()
    with TemporaryDirectory(prefix="kestrel-compiled-") as directory:
        place = Path(directory)
        _compile(place)
        path = os.pathsep.join(filter(None, [directory, os.environ.get("PYTHONPATH")]))
        return subprocess.run(
            # -P: a checkout in which somebody works is not what is run
            [sys.executable, "-P", "-m", "kestrelctl", *arguments],
            env=os.environ | {"PYTHONPATH": path, _MARK: "1"},
            check=False,
        ).returncode


def _find_tools() -> None:
    for module in ("mypyc", "setuptools"):
        if importlib.util.find_spec(module) is None:
            raise MissingTool(
                f"{module} is needed to compile, and is not installed",
                hint="pip install 'mypy[mypyc]', or leave --compiled away",
            )
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        raise MissingTool(
            f"a C compiler is needed, and there is no {compiler!r}",
            hint="install gcc, or leave --compiled away",
        )


def _compile(place: Path) -> None:
    """Copies the package and compiles there what is to be compiled."""
    package = Path(kestrelctl.__file__).parent
    copy = place / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "mypy.ini").write_text(_MYPY_INI)
    modules: list[str] = []
    for name in COMPILED:
        found = copy / name
        modules += map(str, [found] if found.is_file() else sorted(found.glob("[!_]*.py")))
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", *(os.path.relpath(each, place) for each in modules)],
        cwd=place,
        env=os.environ | _OPTIMISED,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode or not list((copy / "simulate" / "flocks").glob("agenda.*.so")):
        raise KestrelError("the simulation could not be compiled", cause=done.stdout.strip())
