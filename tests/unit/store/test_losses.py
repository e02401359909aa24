"""A store that has lost its latest commits: noticed, told, and no number is given away twice."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from store_samples import done, job

from kestrelctl.core.model.records import Snapshot
from kestrelctl.errors import StoreUnusable
from kestrelctl.store.backup import MISSED_JOBS, MISSED_STARTS, back_up, restore
from kestrelctl.store.mark import MARK, UNKNOWN_JOBS, UNKNOWN_STARTS, read_mark
from kestrelctl.store.sqlite.store import DATABASE, SqliteStore

LOG = f"{DATABASE}-wal"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "manager"


@pytest.fixture
def crashed(data_dir: Path, tmp_path: Path) -> Path:
    """The files of a manager that was killed after ten jobs, all of which are in the log alone."""
    live = tmp_path / "live"
    store = SqliteStore(live)
    store.open()
    store.close()
    store.open()
    import asyncio

    for job_id in range(1, 11):
        asyncio.run(store.commit([job(job_id), done(0, job_id)]))
    shutil.copytree(live, data_dir)
    store.close()
    return data_dir


def opened(data_dir: Path) -> tuple[Snapshot, list[str]]:
    store = SqliteStore(data_dir)
    snapshot = store.open()
    notes = store.notes()
    store.close()
    return snapshot, notes


def shorten(path: Path, to: float) -> None:
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * to))


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def older(path: Path) -> None:
    """Somebody has put an older database in its place, without `restore`."""
    path.unlink()
    other = SqliteStore(path.parent / "other")
    other.open()
    other.close()
    shutil.move(path.parent / "other" / DATABASE, path)
    (path.parent / LOG).unlink()


def test_a_kill_loses_nothing(crashed: Path) -> None:
    snapshot, notes = opened(crashed)
    assert notes == []
    assert (snapshot.epoch, snapshot.next_job_id, len(snapshot.jobs)) == (3, 11, 10)


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(lambda found: (found / LOG).unlink(), id="the log is deleted"),
        pytest.param(lambda found: shorten(found / LOG, 0.5), id="the log is cut"),
        pytest.param(lambda found: shorten(found / LOG, 0.0), id="the log is empty"),
        pytest.param(lambda found: flip(found / LOG), id="a bit of the log has flipped"),
        pytest.param(lambda found: older(found / DATABASE), id="an older database"),
        pytest.param(
            lambda found: [(found / name).unlink() for name in (DATABASE, LOG)], id="all is gone"
        ),
    ],
)
def test_what_is_missing_is_noticed_and_no_number_comes_again(
    crashed: Path, lose: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    known = read_mark(crashed)
    assert known is not None
    assert (known.epoch, known.last_job_id) == (2, 10)
    lose(crashed)
    snapshot, notes = opened(crashed)
    assert snapshot.epoch > known.epoch
    assert snapshot.next_job_id == known.last_job_id + UNKNOWN_JOBS + 1
    [note] = notes
    assert "missing" in note
    assert str(snapshot.next_job_id) in note
    assert "missing" in caplog.text
    again, told = opened(crashed)
    assert (again.epoch, again.next_job_id) == (snapshot.epoch + 1, snapshot.next_job_id)
    assert told == notes
    assert caplog.text.count("commits were missing") == 1


def test_without_its_mark_nobody_knows_what_is_missing(crashed: Path) -> None:
    (crashed / MARK).unlink()
    snapshot, [note] = opened(crashed)
    assert "unknown number" in note
    assert snapshot.epoch == 2 + UNKNOWN_STARTS + 1
    assert snapshot.next_job_id == 10 + UNKNOWN_JOBS + 1


def test_a_mark_that_cannot_be_read_is_none(crashed: Path) -> None:
    (crashed / MARK).write_bytes(b"\xff\x00 rubbish")
    _, [note] = opened(crashed)
    assert "unknown number" in note
    _, notes = opened(crashed)
    assert notes == [note]


def test_a_mark_that_lags_behind_is_no_loss(crashed: Path) -> None:
    """After a power failure the disk may have the commits but not the mark."""
    (crashed / MARK).write_text("1 1 0\n")
    snapshot, notes = opened(crashed)
    assert notes == []
    assert (snapshot.epoch, snapshot.next_job_id) == (3, 11)


def test_what_was_lost_is_told_for_a_week(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (crashed / LOG).unlink()
    _, notes = opened(crashed)
    from kestrelctl import clock

    now = clock.wall()
    monkeypatch.setattr(clock, "wall", lambda: now + 6 * 86_400)
    assert opened(crashed)[1] == notes
    monkeypatch.setattr(clock, "wall", lambda: now + 8 * 86_400)
    assert opened(crashed)[1] == []


async def test_a_backup_is_no_loss_though_it_is_older(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the machine stops before the mark says so."""
    monkeypatch.setattr("kestrelctl.store.backup._mark", lambda *_: None)
    store = SqliteStore(data_dir)
    store.open()
    await store.commit([job(1)])
    back_up(data_dir, tmp_path / "copy")
    for job_id in range(2, 6):
        await store.commit([job(job_id)])
    store.close()
    restore(tmp_path / "copy", data_dir, tmp_path / "aside")
    snapshot, notes = opened(data_dir)
    assert notes == []
    assert (snapshot.epoch, snapshot.next_job_id) == (2, 6)


async def test_a_backup_on_a_new_machine_is_no_loss(tmp_path: Path, data_dir: Path) -> None:
    store = SqliteStore(tmp_path / "old")
    store.open()
    await store.commit([job(1)])
    back_up(tmp_path / "old", tmp_path / "copy")
    store.close()
    restore(tmp_path / "copy", data_dir, tmp_path / "aside")
    snapshot, notes = opened(data_dir)
    assert notes == []
    assert snapshot.epoch > 1 + MISSED_STARTS
    assert snapshot.next_job_id > 1 + MISSED_JOBS


async def test_a_backup_that_replaces_a_store_without_its_log_reuses_no_number(
    crashed: Path, tmp_path: Path
) -> None:
    (crashed / LOG).unlink()
    back_up(crashed, tmp_path / "copy")
    restore(tmp_path / "copy", crashed, tmp_path / "aside")
    snapshot, notes = opened(crashed)
    assert notes == []
    assert (snapshot.epoch, snapshot.next_job_id) == (3, 11)


async def test_a_manager_whose_store_another_has_taken_over_ends(data_dir: Path) -> None:
    """As on a file system on which locks do not hold."""
    store = SqliteStore(data_dir)
    store.open()
    other = sqlite3.connect(data_dir / DATABASE)
    other.execute("UPDATE pool SET epoch = epoch + 1")
    other.commit()
    other.close()
    with pytest.raises(StoreUnusable, match="Another manager"):
        await store.commit([job(1)])
    assert store.jobs() == []
    store.close()
