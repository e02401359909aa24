"""Where a worker process begins."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kestrelctl.worker import entry
from kestrelctl.worker.options import WorkerOptions
from kestrelctl.worker.run.orphans import PR_SET_DUMPABLE, prctl

PR_GET_DUMPABLE = 3


@pytest.fixture
def _readable_again() -> Iterator[None]:
    yield
    prctl(PR_SET_DUMPABLE, 1)


@pytest.mark.usefixtures("_readable_again")
def test_neither_keeper_nor_worker_can_be_read_by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def dumpable(_main: Callable[[], int]) -> int:
        return int(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE))

    monkeypatch.setattr(entry, "run_kept", dumpable)
    options = WorkerOptions(pool="p.example.org", credentials=Path("-"), data_dir=Path("data"))
    assert entry.run(options) == 0
