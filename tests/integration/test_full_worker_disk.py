"""A worker whose disk is full: the machine is at fault, not the task."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from small_disk import mounted
from test_execution import Machine

from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.worker import spool as spool_module
from kestrelctl.worker.spool import DiskSpool


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB and 300 files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "4m", "nr_inodes=300"):
        yield disk


@pytest.fixture
async def machine(small_disk: Path) -> AsyncIterator[Machine]:
    machine = Machine(small_disk / "work")
    yield machine
    await machine.executor.close()


def fill(disk: Path) -> None:
    """As somebody else who writes on this disk."""
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 65536):
                pass
        except OSError:
            return


async def test_a_task_that_fails_on_a_full_disk_is_not_to_blame(
    machine: Machine, small_disk: Path
) -> None:
    await machine.run("/bin/true")
    fill(small_disk)
    ended = await machine.sh("cp /bin/sh . || exit 1")
    assert ended.exit_code == 1
    assert ended.reason == "no-space: the worker's disk is full"
    assert (await machine.sh("echo lost || exit 3")).reason.startswith("no-space: ")
    assert (await machine.sh("kill -BUS $$")).reason.startswith("no-space: ")
    assert (await machine.run("/bin/true")).reason == ""
    assert (await machine.run("sleep", "60", limit=0.1)).reason == "time-limit"
    (small_disk / "filler").unlink()
    ended = await machine.sh("cp /bin/sh . && exit 4")
    assert (ended.exit_code, ended.reason) == (4, "")


async def test_a_disk_without_room_for_files_is_full(machine: Machine, small_disk: Path) -> None:
    await machine.run("/bin/true")
    try:
        for number in range(1000):
            (small_disk / str(number)).touch()
    except OSError:
        pass
    assert (await machine.sh(": > file || exit 1")).reason.startswith("no-space: ")


@pytest.mark.parametrize("place", [".", "deep/er"])
async def test_a_task_that_fills_the_disk_itself_is_to_blame(machine: Machine, place: str) -> None:
    ended = await machine.sh(f"mkdir -p {place}; cat /dev/zero > {place}/file; exit 1")
    assert ended.exit_code == 1
    assert ended.reason == "disk-full: there is room without what the task wrote"
    assert (await machine.sh("cp /bin/sh .")).exit_code == 0


async def test_an_output_for_which_there_is_no_room_says_how_much_there_is(
    machine: Machine, small_disk: Path
) -> None:
    ended = await machine.sh("seq 10000000; exit 0")
    assert ended.stdout_bytes > 1 << 20
    assert len(ended.stdout) == TAIL_BYTES
    kept = machine.executor.read_output(ended.number, "stdout", 0, 1 << 25)
    assert len(kept) == ended.stdout_bytes


def test_results_on_a_full_disk_wait_for_room(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.0)
    spool = DiskSpool(small_disk / "spool")
    spool.append([(1, b"one")])
    fill(small_disk)
    spool.append([(2, b"x" * 100_000)])
    assert "only in memory" in (spool.degraded or "")
    assert [number for number, _ in spool.load()] == [1, 2]
    spool.forget([1])
    (small_disk / "filler").unlink()
    spool.append([(3, b"three")])
    assert spool.degraded is None
    spool.close()
    spool = DiskSpool(small_disk / "spool")
    assert {number for number, _ in spool.load()} >= {2, 3}
    spool.close()


def test_a_worker_finds_its_results_though_its_disk_is_full(small_disk: Path) -> None:
    spool = DiskSpool(small_disk / "spool")
    spool.append([(number, b"x" * 1000) for number in range(100)])
    spool.close()
    fill(small_disk)
    spool = DiskSpool(small_disk / "spool")
    assert len(spool.load()) == 100
    spool.close()
