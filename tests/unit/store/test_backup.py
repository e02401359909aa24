"""Copies of the store: complete, private, checked before use, and never a number given twice."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_samples import FULL_RULE, done, job

from kestrelctl.core.model.records import FlockPeer, JobForgotten
from kestrelctl.errors import KestrelError, NotFound, StoreFull, UsageError
from kestrelctl.store.backup import MISSED_JOBS, MISSED_STARTS, back_up, checked, restore
from kestrelctl.store.mark import MARK
from kestrelctl.store.sqlite.store import DATABASE, SqliteStore


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "manager"


@pytest.fixture
def store(data_dir: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(data_dir)
    store.open()
    yield store
    store.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pool.backup"


@pytest.fixture
def aside(data_dir: Path) -> Path:
    return data_dir / "replaced"


class Killed(BaseException):
    """Nothing more happens."""


def killed_at_last(do: Callable[..., None], left: list[int]) -> Callable[..., None]:
    """The same, until so many such things were done; `left` is counted down."""

    def done(*arguments: object, **more: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        do(*arguments, **more)

    return done


async def one_job_then_a_copy(store: SqliteStore, file: Path) -> None:
    await store.commit([job(1), done(0)])
    back_up(store.path.parent, file)


class TestBackUp:
    async def test_it_holds_what_was_committed_while_the_manager_runs(
        self, store: SqliteStore, data_dir: Path, file: Path
    ) -> None:
        await store.commit([job(1), job(2, state="done", ended_at=5.0), done(0)])
        copy = back_up(data_dir, file)
        assert (copy.jobs, copy.active_jobs, copy.last_job_id, copy.epoch) == (2, 1, 2, 1)
        assert (copy.file, copy.bytes) == (str(file), file.stat().st_size)
        await store.commit([job(3)])
        assert checked(file).jobs == 2

    async def test_the_flock_is_in_it(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        peer = FlockPeer(pool="b.test", through=True)
        await store.commit([FULL_RULE, peer])
        back_up(data_dir, file)
        store.close()
        restore(file, data_dir, aside)
        found = store.open()
        assert (found.settings, found.flock_peers) == ([FULL_RULE], [peer])

    async def test_it_is_one_private_file(self, store: SqliteStore, file: Path) -> None:
        await one_job_then_a_copy(store, file)
        assert [path.name for path in file.parent.iterdir() if path.is_file()] == [file.name]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_without_a_store_there_is_nothing_to_copy(self, data_dir: Path, file: Path) -> None:
        with pytest.raises(NotFound, match="no store"):
            back_up(data_dir, file)
        assert not file.exists()

    def test_an_earlier_copy_survives_a_failure(
        self, store: SqliteStore, data_dir: Path, file: Path
    ) -> None:
        back_up(data_dir, file)
        store.close()
        store.path.write_bytes(b"not a database" * 500)
        with pytest.raises(KestrelError, match="damaged"):
            back_up(data_dir, file)
        assert checked(file).epoch == 1

    def test_a_target_that_cannot_be_written_is_named(
        self, store: SqliteStore, data_dir: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(KestrelError, match="missing"):
            back_up(data_dir, tmp_path / "missing" / "pool.backup")

    @pytest.mark.parametrize("suffix", ["", "-wal"])
    def test_a_copy_never_takes_the_place_of_the_store(
        self, store: SqliteStore, data_dir: Path, tmp_path: Path, suffix: str
    ) -> None:
        (tmp_path / "by another way").symlink_to(data_dir)
        before = store.path.stat().st_ino
        with pytest.raises(UsageError, match="the store itself"):
            back_up(data_dir, tmp_path / "by another way" / f"{DATABASE}{suffix}")
        assert store.path.stat().st_ino == before

    def test_somebody_elses_link_is_not_followed(
        self, store: SqliteStore, data_dir: Path, file: Path, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """In a directory that others can write, such as /tmp, names can be guessed."""
        victim = tmp_path / "victim"
        victim.write_text("")
        unlink = Path.unlink

        def too_late(path: Path, missing_ok: bool = False) -> None:
            unlink(path, missing_ok)
            if path.suffix != "-journal" and not path.is_symlink():
                path.symlink_to(victim)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", too_late)
            with pytest.raises(KestrelError):
                back_up(data_dir, file)
        assert victim.read_text() == ""

    @pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 100] * 5)])
    async def test_a_name_that_is_too_long_is_no_full_disk(
        self, store: SqliteStore, data_dir: Path, file: Path, name: str
    ) -> None:
        target = file.parent / name
        with pytest.raises(KestrelError) as refused:
            back_up(data_dir, target)
        assert type(refused.value) is KestrelError
        assert "space" not in f"{refused.value} {refused.value.cause} {refused.value.hint}"
        assert "long" in (refused.value.cause or "") or "bytes" in (refused.value.cause or "")

    async def test_a_full_disk_is_that_of_the_copy(
        self, store: SqliteStore, data_dir: Path, file: Path
    ) -> None:
        await store.commit([job(1), *(done(index) for index in range(3000))])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        try:
            with pytest.raises(StoreFull) as full:
                back_up(data_dir, file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert str(file.parent) in f"{full.value.message} {full.value.cause}"
        assert "kestrel.db" not in f"{full.value.message} {full.value.cause}"
        assert [path for path in file.parent.iterdir() if path.is_file()] == []


class TestRestore:
    async def test_whenever_it_is_interrupted_there_is_a_store(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """A manager that found none would begin anew, with numbers that were given away before."""
        await one_job_then_a_copy(store, file)
        await store.commit([job(2)])
        store.close()
        for calls in range(10):
            with monkeypatch.context() as patch:
                left = [calls]
                for name in ("rename", "link", "fsync", "replace", "unlink"):
                    patch.setattr(os, name, killed_at_last(getattr(os, name), left))
                with contextlib.suppress(Killed):
                    restore(file, data_dir, aside.with_name(f"replaced-{calls}"))
            assert checked(data_dir / DATABASE).jobs in (1, 2)
        assert checked(data_dir / DATABASE).jobs == 1, "the last one was not interrupted"

    async def test_the_manager_goes_on_from_the_copy(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        await one_job_then_a_copy(store, file)
        await store.commit([JobForgotten(1)])
        store.close()
        restore(file, data_dir, aside)
        assert [each.record.job_id for each in store.open().jobs] == [1]
        assert store.tasks(1) == [done(0)]

    async def test_no_number_of_the_replaced_store_comes_again(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        await one_job_then_a_copy(store, file)
        await store.commit([job(2), job(3)])
        for _ in range(4):
            store.close()
            store.open()
        store.close()
        restore(file, data_dir, aside)
        snapshot = store.open()
        assert snapshot.epoch == 6
        assert snapshot.next_job_id == 4

    @pytest.mark.parametrize("there", [b"", b"not a database" * 500, None])
    async def test_without_a_store_to_ask_it_counts_from_far_ahead(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path, there: bytes | None
    ) -> None:
        await one_job_then_a_copy(store, file)
        store.close()
        store.path.unlink()
        if there is not None:
            store.path.write_bytes(there)
        restore(file, data_dir, aside)
        snapshot = store.open()
        assert snapshot.epoch > 1 + MISSED_STARTS
        assert snapshot.next_job_id > 1 + MISSED_JOBS
        assert aside.exists() == (there is not None)

    async def test_a_fresh_store_that_it_replaces_is_not_taken_for_the_copys_successor(
        self, store: SqliteStore, file: Path, tmp_path: Path
    ) -> None:
        """The first manager has died; on another host one was installed, and has started."""
        await one_job_then_a_copy(store, file)
        await store.commit([job(2), job(3)])
        for _ in range(4):
            store.close()
            missed = store.open()
        elsewhere = SqliteStore(tmp_path / "elsewhere")
        fresh = elsewhere.open()
        await elsewhere.commit([job(1)])
        elsewhere.close()
        restore(file, tmp_path / "elsewhere", tmp_path / "aside")
        restored = elsewhere.open()
        elsewhere.close()
        assert restored.secret == missed.secret != fresh.secret
        assert restored.epoch > missed.epoch + MISSED_STARTS - 10
        assert restored.next_job_id > missed.next_job_id + MISSED_JOBS - 10

    async def test_a_store_that_the_copy_has_left_behind_is_not_asked_either(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path, tmp_path: Path
    ) -> None:
        """The pool went on elsewhere; a copy from there comes back to the host of before."""
        await one_job_then_a_copy(store, file)
        store.close()
        elsewhere = SqliteStore(tmp_path / "elsewhere")
        restore(file, tmp_path / "elsewhere", aside)
        there = elsewhere.open()
        await one_job_then_a_copy(elsewhere, file)
        elsewhere.close()
        restore(file, data_dir, aside)
        back = store.open()
        assert back.epoch > there.epoch + MISSED_STARTS
        assert back.next_job_id > there.next_job_id + MISSED_JOBS - 10
        assert back.term > there.term

    async def test_two_restores_of_one_copy_go_on_with_different_numbers(
        self, store: SqliteStore, file: Path, aside: Path, tmp_path: Path
    ) -> None:
        await one_job_then_a_copy(store, file)
        found = []
        for n, days in ((1, 0), (2, 1)):
            restore(file, tmp_path / str(n), aside, now=2e9 + 86_400 * days, draw=lambda m, n=n: n)
            one = SqliteStore(tmp_path / str(n))
            found.append(one.open())
            one.close()
        first, second = found
        assert (first.epoch, first.next_job_id) != (second.epoch, second.next_job_id)
        assert first.term < second.term, "the later restore counts"

    async def test_each_restore_takes_a_higher_term_whatever_the_clock_says(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        await one_job_then_a_copy(store, file)
        store.close()
        terms = []
        for now in (2e9, 1e9, 0.0):
            restore(file, data_dir, aside.with_name(f"replaced-{now:.0f}"), now=now)
            terms.append(store.open().term)
            store.close()
        assert terms == [2_000_000_000, 2_000_000_001, 2_000_000_002]

    async def test_a_store_of_an_earlier_release_can_be_replaced(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        """It knows no term yet, and is not brought up to date before."""
        await one_job_then_a_copy(store, file)
        await store.commit([job(2)])
        store.close()
        connection = sqlite3.connect(store.path)
        connection.execute("ALTER TABLE pool DROP COLUMN term")
        connection.commit()
        connection.close()
        restore(file, data_dir, aside)
        snapshot = store.open()
        assert (snapshot.epoch, snapshot.next_job_id) == (2, 3), "both have the same secret"
        assert snapshot.term > 0

    async def test_what_was_there_is_kept_whole(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        await one_job_then_a_copy(store, file)
        await store.commit([job(2)])
        store.close()
        restore(file, data_dir, aside)
        assert checked(aside / DATABASE).jobs == 2
        assert checked(data_dir / DATABASE).jobs == 1

    def test_a_running_manager_is_left_alone(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        back_up(data_dir, file)
        with pytest.raises(KestrelError, match="Another manager"):
            restore(file, data_dir, aside)
        assert not aside.exists()

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [(b"", "no intact copy"), (b"not a database" * 500, "no intact copy"), (None, "no file")],
    )
    def test_what_is_no_copy_changes_nothing(
        self, data_dir: Path, file: Path, aside: Path, content: bytes | None, complaint: str
    ) -> None:
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(KestrelError, match=complaint):
            restore(file, data_dir, aside)
        assert not data_dir.exists()

    async def test_a_copy_with_flipped_bytes_is_refused(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        await store.commit([job(1), *(done(index) for index in range(2000))])
        back_up(data_dir, file)
        store.close()
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 4096] = bytes(4096)
        file.write_bytes(content)
        with pytest.raises(KestrelError):
            restore(file, data_dir, aside)
        assert checked(data_dir / DATABASE).jobs == 1

    def test_a_copy_of_a_newer_kestrel_is_refused(
        self, store: SqliteStore, data_dir: Path, file: Path, aside: Path
    ) -> None:
        back_up(data_dir, file)
        store.close()
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA user_version = 1000")
        connection.close()
        with pytest.raises(KestrelError, match="newer Kestrel"):
            restore(file, data_dir, aside)

    async def test_a_full_disk_changes_nothing(
        self,
        store: SqliteStore,
        data_dir: Path,
        file: Path,
        aside: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        await one_job_then_a_copy(store, file)
        store.close()

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("kestrelctl.store.backup.os.fsync", full)
        with pytest.raises(StoreFull, match=DATABASE) as caught:
            restore(file, data_dir, aside)
        assert caught.value.cause is not None
        assert {path.name for path in data_dir.iterdir()} == {DATABASE, MARK, "manager.lock"}


def test_a_backup_takes_the_place_of_no_device(store: SqliteStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(KestrelError, match="cannot be written"):
        back_up(tmp_path / "manager", tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
