"""The order of the whole check: first what runs beside hosts that are being set up.

Roles are tried on hosts of their own, which mostly wait for something. Meanwhile run the tests
below that only compute. What talks to real processes comes when the hosts are gone: for it,
`./kestrel test` calls pytest once more.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
#: Directories whose tests compute, and promise nothing about real time.
ONLY_COMPUTE = ("unit", "property", "simulation", "planted", "roles")
#: One of them that goes on for so long never ends. The longest computes for a minute, but hosts
#: that are being set up leave it a third of a processor.
ENDLESS_SECONDS = 600
#: What the lab calls the file that this run keeps locked: who finds hosts of a run that was killed
#: may remove them, even from another checkout.
TEST_RUN = "KESTREL_LAB_TEST_RUN"


def pytest_configure() -> None:
    if TEST_RUN in os.environ or os.geteuid() != 0:  # a part of a run; only root has labs
        return
    state = TESTS / "lab/.state"
    state.mkdir(exist_ok=True)
    run = state / "test-run.lock"
    descriptor = os.open(run, os.O_RDWR | os.O_CREAT, 0o600)  # open until the process is gone
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.environ[TEST_RUN] = str(run)


def turn(item: pytest.Item) -> int:
    """When a test is run: those that compute, then those that need hosts, then all others."""
    only_computes = item.path.relative_to(TESTS).parts[0] in ONLY_COMPUTE
    if item.get_closest_marker("lab") is None:
        return 0 if only_computes else 2
    return 1


@pytest.hookimpl(tryfirst=True)  # before the options that choose by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=turn)
    for item in items:
        if turn(item) == 2:
            item.add_marker("processes")
        elif turn(item) == 0 and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(ENDLESS_SECONDS))
