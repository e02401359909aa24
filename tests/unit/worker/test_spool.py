"""The spool: what a worker has not been thanked for outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from workerkit import files_limited_to

from kestrelctl.errors import KestrelError
from kestrelctl.worker import spool as spool_module
from kestrelctl.worker.spool import GARBAGE_BYTES, GARBAGE_SHARE, SMALL_BYTES, DiskSpool

KILLED_IN_THE_MIDDLE = """
import os, signal, sys
from pathlib import Path
from kestrelctl.worker.spool import DiskSpool
spool = DiskSpool(Path(sys.argv[1]))
spool.append([(1, b"one"), (2, b"two")])
spool.append([(3, b"three")])
spool.forget([2])
os.kill(os.getpid(), signal.SIGKILL)
"""


def reopened(spool: DiskSpool, path: Path) -> DiskSpool:
    """What a worker finds after this one died: nothing of a spool is written when it goes."""
    os.close(spool._file)
    os.close(spool._lock)
    return DiskSpool(path)


def test_records_come_back_in_order(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    assert spool.load() == []
    spool.append([(2, b"two\nlines\0\xff"), (1, b"")])
    spool.append([(3, b"three")])
    spool = reopened(spool, tmp_path)
    assert spool.load() == [(2, b"two\nlines\0\xff"), (1, b""), (3, b"three")]
    assert len(spool) == 3
    spool.close()


def test_records_survive_kill_9(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_IN_THE_MIDDLE, str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    spool = DiskSpool(tmp_path)
    assert dict(spool.load()).items() >= {1: b"one", 3: b"three"}.items()
    spool.close()


def test_a_torn_last_line_costs_only_itself(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    spool.append([(1, b"one")])
    spool.append([(2, b"two")])
    os.truncate(tmp_path / "results", os.path.getsize(tmp_path / "results") - 3)
    spool = reopened(spool, tmp_path)
    assert spool.load() == [(1, b"one")]
    spool.append([(3, b"three")])
    spool = reopened(spool, tmp_path)
    assert spool.load() == [(1, b"one"), (3, b"three")]
    spool.close()


def test_acknowledged_records_are_gone_after_a_clean_end(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    spool.append([(1, b"one"), (2, b"two")])
    spool.forget([1, 2, 77])
    assert len(spool) == 0
    spool.close()
    assert os.path.getsize(tmp_path / "results") == 0


def test_the_file_is_emptied_when_everything_is_acknowledged(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    spool.append([(1, b"x" * SMALL_BYTES)])
    spool.forget([1])
    assert os.path.getsize(tmp_path / "results") == 0
    spool.close()


def test_the_file_stays_small_although_something_is_always_open(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    spool.append([(0, b"stays")])
    for number in range(1, 200):
        spool.append([(number, b"x" * 100_000)])
        spool.forget([number])
        assert os.path.getsize(tmp_path / "results") < GARBAGE_BYTES + 200_000
    spool = reopened(spool, tmp_path)
    assert (0, b"stays") in spool.load()
    spool.close()


def test_a_file_of_which_much_is_needed_is_seldom_written_anew(tmp_path: Path) -> None:
    """A worker that ends thousands of tasks a second has as many results on their way."""
    spool = DiskSpool(tmp_path)
    spool.append([(number, b"x" * 1000) for number in range(3000)])
    files = [os.stat(tmp_path / "results").st_ino]  # numbers come again
    for number in range(3000, 30_000):
        spool.append([(number, b"x" * 1000)])
        spool.forget([number - 3000])
        if (file := os.stat(tmp_path / "results").st_ino) != files[-1]:
            files.append(file)
    assert len(files) <= 1 + 30_000 // (GARBAGE_SHARE * 3000)
    spool.close()


def test_on_a_full_disk_results_stay_in_memory_and_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.0)
    spool = DiskSpool(tmp_path)
    spool.append([(1, b"one")])
    with files_limited_to(100):
        spool.append([(2, b"2" * 200)])
        assert spool.degraded == "results are only in memory: No space left on device"
        spool.append([(3, b"3" * 200)])
        assert len(spool) == 3
        assert len(spool.load()) == 3
        spool.forget([3])
    spool.append([(4, b"four")])
    assert spool.degraded is None
    spool = reopened(spool, tmp_path)
    assert spool.load() == [(1, b"one"), (2, b"2" * 200), (4, b"four")]
    assert caplog.messages == [], "no broken line was left"
    spool.close()


def test_a_full_disk_is_not_tried_again_at_every_call(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    with files_limited_to(0):
        spool.append([(1, b"one")])
    spool.append([(2, b"two")])
    assert spool.degraded
    spool.close()


def test_compaction_on_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    spool.append([(1, b"1" * 1000)])
    spool.append([(2, b"2" * GARBAGE_BYTES)])
    with files_limited_to(500):
        spool.forget([2])
    assert spool.degraded
    assert sorted(os.listdir(tmp_path)) == ["lock", "results"]
    spool = reopened(spool, tmp_path)
    assert (1, b"1" * 1000) in spool.load()
    spool.close()


def test_two_workers_cannot_share_a_spool(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    with pytest.raises(KestrelError) as caught:
        DiskSpool(tmp_path)
    assert caught.value.cause == f"another worker has it (process {os.getpid()})"
    assert caught.value.hint
    spool.close()
    DiskSpool(tmp_path).close()


def test_a_directory_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KestrelError) as caught:
        DiskSpool(tmp_path / "file" / "spool")
    assert caught.value.cause == "Not a directory"


@pytest.mark.parametrize("name", ["results", "lock", "results.new"])
@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "fifo", "directory"])
def test_a_spool_is_never_another_file(tmp_path: Path, name: str, kind: str) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("years of work\n")
    foreign.chmod(0o644)
    path = tmp_path / "spool"
    with closing(DiskSpool(path)) as spool:
        spool.append([(1, b"one")])
    place = path / name
    place.unlink(missing_ok=True)
    if kind == "symbolic link":
        place.symlink_to(foreign)
    elif kind == "hard link":
        place.hardlink_to(foreign)
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    with suppress(KestrelError), closing(DiskSpool(path)) as spool:
        spool.append([(2, b"two")])
    assert foreign.read_text() == "years of work\n"
    assert foreign.stat().st_mode & 0o777 == 0o644


def test_nobody_else_reads_a_spool(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.mkdir(mode=0o755)
    (path / "results").touch(mode=0o644)
    spool = DiskSpool(path)
    for file in (path, *path.iterdir()):
        assert file.stat().st_mode & 0o077 == 0, file
    spool.close()
