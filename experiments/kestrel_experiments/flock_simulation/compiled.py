"""Runs `kestrelctl` from a copy whose rules of flocking and simulated flocks are compiled.

mypyc makes C of typed Python, with the same results; a flock of a thousand pools takes less
than half the time then, one with cores three fifths. Only the modules in which a simulation spends
its time are compiled, and only for this one run: what is deployed is Python.
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
from types import ModuleType

import kestrel_experiments
import kestrel_worlds
import kestrelctl
from kestrel_experiments.flock_simulation import (
    agenda,
    core_pool,
    member,
    pool_model,
    simulated_pool,
)
from kestrelctl.core import jobs, pool, state
from kestrelctl.core.attempts import endings, hand_out, reserve, table
from kestrelctl.core.handlers import reporting, submission
from kestrelctl.core.members import worker, worker_class
from kestrelctl.core.pacing import pace
from kestrelctl.core.scheduling import (
    demand,
    fitting,
    lendable,
    match,
    offer,
    own_waiting,
    plan,
    supply,
    unmet,
)
from kestrelctl.errors import KestrelError, MissingTool
from kestrelctl.flock import overlay
from kestrelctl.flock.rules import announcing, borrowing, lending, willing

#: The modules, or whole packages, in which a simulated flock spends its time.
OF_FLOCKS: tuple[ModuleType, ...] = (
    agenda,
    announcing,
    borrowing,
    core_pool,
    lending,
    member,
    overlay,
    pace,
    pool_model,
    simulated_pool,
    willing,
)
#: The further modules in which a flock whose pools have cores spends its time.
OF_CORES: tuple[ModuleType, ...] = (
    table,
    demand,
    endings,
    fitting,
    hand_out,
    jobs,
    lendable,
    match,
    offer,
    own_waiting,
    plan,
    pool,
    reporting,
    reserve,
    state,
    submission,
    supply,
    unmet,
    worker,
    worker_class,
)
#: mypyc checks as `mypy` itself does; it does not matter here what is installed beside it.
_MYPY_INI = "[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n"
#: Copied together with the product; else the product's copy would find them in the checkout.
_BESIDE = (kestrel_experiments, kestrel_worlds)
#: The variable that is set in a process that runs from a copy.
_MARK = "KESTREL_COMPILED"
#: The default options, by mypyc's own names.
_OPTIMISED = {"MYPYC_OPT_LEVEL": "3", "MYPYC_DEBUG_LEVEL": "0"}


def is_compiled() -> bool:
    """Whether this process runs from such a copy."""
    return not _file(agenda).endswith(".py")


def run_compiled(arguments: Sequence[str], modules: Sequence[ModuleType]) -> int:
    """Makes the copy, runs `kestrelctl` with these arguments there, and removes the copy.

    Args:
        modules: the modules to compile.

    Returns:
        Its exit status.

    Raises:
        MissingTool: there is no mypyc, or no C compiler.
        KestrelError: it could not be compiled, or a copy is not what runs.
    """
    if _MARK in os.environ:
        raise KestrelError("what was compiled is not what runs", cause=_file(agenda))
    with compiled_copy(modules) as directory:
        return subprocess.run(
            # -P: the copy is run, not a checkout in which somebody works
            [sys.executable, "-P", "-m", "kestrelctl", *arguments],
            env=environment_of(directory),
            check=False,
        ).returncode


@contextmanager
def compiled_copy(modules: Sequence[ModuleType]) -> Iterator[Path]:
    """Makes a directory with a copy of the packages in which these modules are compiled.

    Raises:
        MissingTool: there is no mypyc, or no C compiler.
        KestrelError: it could not be compiled.
    """
    _find_tools()
    with TemporaryDirectory(prefix="kestrel-compiled-") as directory:
        _compile(Path(directory), modules)
        yield Path(directory)


def environment_of(copy: Path) -> dict[str, str]:
    """Returns the variables of a Python that imports the packages from a copy."""
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


def _compile(place: Path, chosen: Sequence[ModuleType]) -> None:
    """Copies the packages and compiles these modules there."""
    packages = [Path(file).parent for file in map(_file, (kestrelctl, *_BESIDE))]
    for package in packages:
        shutil.copytree(package, place / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "mypy.ini").write_text(_MYPY_INI)
    paths = [path for module in chosen for path in _paths(module)]
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", *paths],
        cwd=place,
        env=_OPTIMISED | os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode or not list((place / _paths(agenda)[0]).parent.glob("agenda.*.so")):
        raise KestrelError("the simulation could not be compiled", cause=done.stdout.strip())


def _file(module: ModuleType) -> str:
    assert module.__file__ is not None
    return module.__file__


def _paths(module: ModuleType) -> list[str]:
    """Lists the sources of a module or of all modules of a package, relative to the import root."""
    path = Path(*module.__name__.split("."))
    if not hasattr(module, "__path__"):
        return [f"{path}.py"]
    return [str(path / each.name) for each in sorted(Path(_file(module)).parent.glob("[!_]*.py"))]
