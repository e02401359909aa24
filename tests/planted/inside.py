"""Runs tests against a copy of `kestrelctl`, in a process of its own.

Each such process is forked from one that has imported what all tests need (`planting.NEEDED`).
Nothing here imports `kestrelctl`, which the copy brings.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import hypothesis
import pytest
import pytest_asyncio.plugin

#: What no planted defect is about: the replaced text does not even run.
NO_DEFECTS = ("SyntaxError", "NameError", "ImportError", "ModuleNotFoundError", "UnboundLocalError")


class Witness:
    """A plugin of pytest that keeps what failed."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, str]] = []
        self.passed = 0
        self.broken = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken = f"not collected: {report.longreprtext}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.passed and report.when == "call"
        if report.failed:
            self.failed.append((report.nodeid, report.longreprtext[-2000:]))
            found = [error for error in NO_DEFECTS if f"{error}:" in report.longreprtext]
            if found:
                self.broken = f"it fails for a {found[0]}: {report.longreprtext[-2000:]}"


def try_the_same_examples() -> None:
    """Has Hypothesis make the same examples each time, and none smaller: a failure is enough."""
    hypothesis.settings.register_profile(
        "planted",
        database=None,
        deadline=None,
        derandomize=True,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("planted")


def main(
    checkout: str, copied: str, tests: list[str], room: str, found: Connection, to_the_end: bool
) -> None:
    """Runs tests, in a process that does nothing else.

    Args:
        checkout: where the tests are, and the package that is not tested.
        copied: the directory of the copy.
        tests: their paths, as pytest takes them.
        room: an empty directory, for their files and for what they print, which goes to `said`.
        found: where a `planting.Found` goes.
        to_the_end: also after a first failure.
    """
    descriptor = os.open(f"{room}/said", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    gc.freeze()  # what is imported stays; pytest looks for garbage twice
    sys.dont_write_bytecode = False  # the next one need not compile the same tests
    os.chdir(copied)
    sys.path[:] = [copied, *(path for path in sys.path if path not in ("", checkout))]
    assert "kestrelctl" not in sys.modules, "it was imported before the copy could be"
    import kestrelctl

    assert Path(kestrelctl.__file__).is_relative_to(copied), "the checkout is tested, not the copy"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["KESTREL_SEEDS"] = "all"  # a defect may be found by a seed of any day
    files = {Path(test.partition("::")[0]) for test in tests}
    if any("hypothesis" in file.read_text(encoding="utf-8") for file in files):
        try_the_same_examples()
    # Only the plugins that the tests need: to load all that are installed takes long.
    options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    options += [] if to_the_end else ["-x"]
    options += [f"--rootdir={checkout}", f"--config-file={checkout}/pyproject.toml"]
    witness = Witness()
    status = pytest.main(
        [*options, f"--basetemp={room}/t", *tests], [witness, pytest_asyncio.plugin]
    )
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        witness.broken = witness.broken or f"pytest ends with {status!r}"
    found.send_bytes(json.dumps(vars(witness)).encode())
