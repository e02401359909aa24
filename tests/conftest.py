"""Which tests talk to real processes and which begin; what hosts that tests boot belong to."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# By default an example that takes 200 ms fails. On a machine that does something else, too, that
# is no fault of what is tested; where time is promised, a test counts steps or measures it.
settings.register_profile("kestrel", deadline=None)
settings.load_profile("kestrel")

TESTS = Path(__file__).parent
#: Directories whose tests compute, and promise nothing about real time.
ONLY_COMPUTE = ("unit", "property", "simulation", "planted", "roles")
#: One of them that goes on for so long never ends. The longest computes for a minute, but it gives
#: way to all that runs beside it.
ENDLESS_SECONDS = 600
#: What the lab calls the file that this run keeps locked: who finds hosts of a run that was killed
#: may remove them, even from another checkout.
TEST_RUN = "KESTREL_LAB_TEST_RUN"


def pytest_configure() -> None:
    for name in ("CI", "BUILD_NUMBER"):  # with one, pytest takes hours to compare megabytes
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As of what a script starts in the background; no child of the tests would hear Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if TEST_RUN in os.environ or os.geteuid() != 0:  # a part of a run; only root has labs
        return
    state = TESTS / "lab/.state"
    state.mkdir(exist_ok=True)
    run = state / "test-run.lock"
    descriptor = os.open(run, os.O_RDWR | os.O_CREAT, 0o600)  # open until the process is gone
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.environ[TEST_RUN] = str(run)


def longest_seconds(items: list[pytest.Item]) -> dict[Path, float]:
    """How long a test of each file may take, as its mark says; 0 where none says it."""
    longest: dict[Path, float] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        waits_for_hosts = item.get_closest_marker("lab") is not None
        seconds = float(mark.args[0]) if mark and not waits_for_hosts else 0.0
        longest[item.path] = max(seconds, longest.get(item.path, 0.0))
    return longest


@pytest.hookimpl(tryfirst=True)  # before the options that choose by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests may take long begin: the last one would keep one processor busy alone."""
    longest = longest_seconds(items)
    items.sort(key=lambda item: -longest[item.path])
    for item in items:
        if item.path.relative_to(TESTS).parts[0] not in ONLY_COMPUTE:
            item.add_marker("processes")
        elif item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(ENDLESS_SECONDS))
