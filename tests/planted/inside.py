"""Runs tests against the copy of `kestrelctl` in the working directory: a program of its own.

The last line that it prints is a `planting.Found`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

#: What the tests need; to load all that is installed takes longer than most tests.
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout")
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
    from hypothesis import HealthCheck, Phase, settings

    os.environ["CI"] = "true"
    settings.register_profile(
        "planted",
        database=None,
        deadline=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("planted")


def main(checkout: str, tests: list[str]) -> None:
    here = Path.cwd()
    sys.path[:] = [str(here), *(path for path in sys.path if path not in ("", checkout))]
    import kestrelctl

    assert Path(kestrelctl.__file__).is_relative_to(here), "the checkout is tested, not the copy"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    files = {Path(test.partition("::")[0]) for test in tests}
    if any("hypothesis" in file.read_text(encoding="utf-8") for file in files):
        try_the_same_examples()
    plugins = [word for plugin in PLUGINS for word in ("-p", plugin)]
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--rootdir={checkout}", *plugins]
    witness = Witness()
    status = pytest.main([*options, f"--config-file={checkout}/pyproject.toml", *tests], [witness])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        witness.broken = witness.broken or f"pytest ends with {status!r}"
    print()
    print(json.dumps(vars(witness)), end="")


main(sys.argv[1], sys.argv[2:])
