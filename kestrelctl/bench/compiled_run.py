"""Runs `kestrelctl` from a copy whose rules of flocking and simulated flocks are compiled.

mypyc makes C of typed Python, with the same results; a flock of a thousand pools takes less
than half the time then, one with cores three fifths. Only what a simulation spends its time in
is compiled, and only for this one run: what is deployed is Python.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import kestrelctl
from kestrelctl.errors import KestrelError, MissingTool
from kestrelctl.simulate.flocks import agenda

#: What a simulated flock spends its time in: modules, or all of a package.
OF_FLOCKS = (
    "core/pacing/pace.py",
    "flock/overlay",
    "flock/rules/announcing.py",
    "flock/rules/borrowing.py",
    "flock/rules/lending.py",
    "flock/rules/willing.py",
    "simulate/flocks/agenda.py",
    "simulate/flocks/core_pool.py",
    "simulate/flocks/member.py",
    "simulate/flocks/pool_model.py",
    "simulate/flocks/simulated_pool.py",
)
#: And what one spends it in whose pools have cores.
OF_CORES = (
    "core/attempts/book.py",
    "core/attempts/endings.py",
    "core/attempts/hand_out.py",
    "core/attempts/reserve.py",
    "core/handlers/reporting.py",
    "core/handlers/submission.py",
    "core/jobs",
    "core/members/worker.py",
    "core/members/worker_class.py",
    "core/pool.py",
    "core/scheduling/demand.py",
    "core/scheduling/fitting.py",
    "core/scheduling/lendable.py",
    "core/scheduling/match.py",
    "core/scheduling/offer.py",
    "core/scheduling/own_waiting.py",
    "core/scheduling/plan.py",
    "core/scheduling/supply.py",
    "core/scheduling/unmet.py",
    "core/state.py",
)
#: mypyc's checks are the ones of `mypy` itself; what is installed beside it does not matter here.
_MYPY_INI = "[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n"
#: Set in a process that runs from a copy.
_MARK = "KESTREL_COMPILED"
#: Unless told otherwise: mypyc's own names.
_OPTIMISED = {"MYPYC_OPT_LEVEL": "3", "MYPYC_DEBUG_LEVEL": "0"}


def is_compiled() -> bool:
    """Whether this process runs from such a copy."""
    return not agenda.__file__.endswith(".py")


def run_compiled(arguments: Sequence[str], modules: Sequence[str]) -> int:
    """Makes the copy, runs `kestrelctl` with these arguments there, and forgets the copy.

    Args:
        modules: what is compiled.

    Returns:
        Its exit status.

    Raises:
        MissingTool: there is no mypyc, or no C compiler.
        KestrelError: it could not be compiled, or a copy is not what runs.
    """
    if _MARK in os.environ:
        raise KestrelError("what was compiled is not what runs", cause=agenda.__file__)
    with compiled_copy(modules) as directory:
        return subprocess.run(
            # -P: a checkout in which somebody works is not what is run
            [sys.executable, "-P", "-m", "kestrelctl", *arguments],
            env=environment_of(directory),
            check=False,
        ).returncode


@contextmanager
def compiled_copy(modules: Sequence[str]) -> Iterator[Path]:
    """A directory with a copy of the package of which these modules are compiled.

    Raises:
        MissingTool: there is no mypyc, or no C compiler.
        KestrelError: it could not be compiled.
    """
    _find_tools()
    with TemporaryDirectory(prefix="kestrel-compiled-") as directory:
        _compile(Path(directory), modules)
        yield Path(directory)


def environment_of(copy: Path) -> dict[str, str]:
    """The variables of a Python that imports the package from a copy."""
    path = os.pathsep.join(filter(None, [str(copy), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, _MARK: "1"}


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


def _compile(place: Path, names: Sequence[str]) -> None:
    """Copies the package and compiles these modules there."""
    package = Path(kestrelctl.__file__).parent
    copy = place / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "mypy.ini").write_text(_MYPY_INI)
    modules: list[str] = []
    for name in names:
        found = copy / name
        modules += map(str, [found] if found.is_file() else sorted(found.glob("[!_]*.py")))
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", *(os.path.relpath(each, place) for each in modules)],
        cwd=place,
        env=_OPTIMISED | os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode or not list((copy / "simulate" / "flocks").glob("agenda.*.so")):
        raise KestrelError("the simulation could not be compiled", cause=done.stdout.strip())
