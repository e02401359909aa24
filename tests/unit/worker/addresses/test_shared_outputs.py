"""What a worker writes to directories of its machine, and to which it does not write."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kestrelctl.errors import KestrelError, NoSpace, NotAllowed, Unreachable, UsageError
from kestrelctl.files.archive import pack
from kestrelctl.worker.addresses import shared_outputs
from kestrelctl.worker.addresses.shared_outputs import SharedOutputs
from kestrelctl.worker.files.output_archive import OutputsRefused
from kestrelctl.worker.files.output_stage import GIVE_UP_SECONDS, OutputStage

ADA = "ada@users.pool"
BOB = "bob@users.pool"
FILES = {"a.csv": b"1\n", "plots/deep/1.svg": b"<svg>"}


class Disk:
    """A directory that an operator has named, and what workers are to write there."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "shared"
        self.path.mkdir()
        self.elsewhere = directory / "elsewhere"
        self.elsewhere.mkdir()
        self.archive = directory / "archive.tar"
        self.writer = SharedOutputs([directory / "other", self.path])
        self.own = self.path / ADA

    def packed(self, files: dict[str, bytes], mode: int = 0o644) -> Path:
        with tarfile.open(
            self.archive, "w", format=tarfile.GNU_FORMAT, errors="surrogateescape"
        ) as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), mode
                archive.addfile(entry, io.BytesIO(data))
        return self.archive

    async def put(
        self,
        place: Path,
        owner: str = ADA,
        files: dict[str, bytes] | None = None,
        writer: SharedOutputs | None = None,
    ) -> None:
        archive = self.packed(files or FILES)
        await (writer or self.writer).put(archive, f"file://{place}", owner)

    def all_names(self) -> set[str]:
        return {str(p.relative_to(self.path)) for p in self.path.rglob("*") if not p.is_dir()}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def test_files_come_below_the_directory_of_their_owner(disk: Disk) -> None:
    await disk.put(disk.own / "run" / "7")
    assert (disk.own / "run" / "7" / "a.csv").read_bytes() == b"1\n"
    assert (disk.own / "run" / "7" / "plots" / "deep" / "1.svg").read_bytes() == b"<svg>"
    assert disk.all_names() == {f"{ADA}/run/7/a.csv", f"{ADA}/run/7/plots/deep/1.svg"}


async def test_names_are_bytes_and_programs_stay_programs(disk: Disk) -> None:
    name = os.fsdecode(b"\xff\n")
    archive = disk.packed({name: b"go"}, 0o755)
    await disk.writer.put(archive, f"file://{disk.own}/r%20un/7", ADA)
    made = disk.own / "r un" / "7" / name
    assert made.read_bytes() == b"go"
    assert os.access(made, os.X_OK)
    await disk.put(disk.own / "7")
    assert not os.access(disk.own / "7" / "a.csv", os.X_OK)


async def test_a_further_attempt_replaces_what_one_before_has_written(disk: Disk) -> None:
    await disk.put(disk.own / "7")
    await disk.put(disk.own / "7", files={"a.csv": b"2\n"})
    assert (disk.own / "7" / "a.csv").read_bytes() == b"2\n"
    assert disk.all_names() == {f"{ADA}/7/a.csv", f"{ADA}/7/plots/deep/1.svg"}


@pytest.mark.parametrize("below", ["run/7", f"{BOB}/7", f"{ADA}x/7", "7", ""])
async def test_nobody_writes_to_the_directory_of_another(disk: Disk, below: str) -> None:
    (disk.path / BOB / "7").mkdir(parents=True)
    (disk.path / BOB / "7" / "a.csv").write_text("bob's")
    with pytest.raises(NotAllowed) as refused:
        await disk.put(disk.path / below)
    assert f"file://{disk.path}/{ADA}/" in (refused.value.cause or "")
    assert disk.all_names() == {f"{BOB}/7/a.csv"}
    assert (disk.path / BOB / "7" / "a.csv").read_text() == "bob's"


async def test_nothing_else_of_the_machine_is_written(disk: Disk, tmp_path: Path) -> None:
    for place in (disk.elsewhere / ADA / "7", Path(f"{disk.path}x", ADA, "7"), Path("/", ADA, "7")):
        with pytest.raises(NotAllowed):
            await disk.put(place)
    with pytest.raises(NotAllowed, match="does not write"):
        await disk.put(disk.own / "7", writer=SharedOutputs())
    with pytest.raises(UsageError):
        await disk.put(Path(f"{disk.own}/../{BOB}/7"))
    assert list(disk.elsewhere.iterdir()) == []
    assert disk.all_names() == set()


@pytest.mark.parametrize("link", ["", "run", "run/7", "run/7/plots"])
async def test_a_link_on_the_way_is_not_followed(disk: Disk, link: str) -> None:
    there = disk.own / link
    there.parent.mkdir(parents=True, exist_ok=True)
    there.symlink_to(disk.elsewhere)
    with pytest.raises(UsageError, match="in the way"):
        await disk.put(disk.own / "run" / "7", files={"plots/1.svg": b"x"})
    assert list(disk.elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo"])
async def test_what_has_the_name_of_a_file_is_replaced_and_not_written_through(
    disk: Disk, kind: str
) -> None:
    secret = disk.elsewhere / "secret"
    secret.write_text("secret")
    place = disk.own / "7"
    place.mkdir(parents=True)
    if kind == "link":
        (place / "a.csv").symlink_to(secret)
    elif kind == "hard link":
        os.link(secret, place / "a.csv")
    else:
        os.mkfifo(place / "a.csv")
    await disk.put(place)
    assert (place / "a.csv").read_bytes() == b"1\n"
    assert (place / "a.csv").lstat().st_nlink == 1
    assert secret.read_text() == "secret"


async def test_links_come_as_links_and_replace_what_has_their_name(disk: Disk) -> None:
    source = disk.elsewhere / "left"
    (source / "plots" / "v2").mkdir(parents=True)
    (source / "plots" / "v2" / "1.svg").write_text("<svg>")
    (source / "plots" / "latest").symlink_to("v2")
    pack({"plots": source / "plots"}, disk.archive)
    place = disk.own / "7"
    (place / "plots").mkdir(parents=True)
    (place / "plots" / "latest").symlink_to("v1")
    for _ in range(2):
        await disk.writer.put(disk.archive, f"file://{place}", ADA)
        assert (place / "plots" / "latest").readlink() == Path("v2")
        assert (place / "plots" / "latest" / "1.svg").read_text() == "<svg>"
    assert not any(".kestrel-" in name for name in disk.all_names())
    (place / "plots" / "latest").unlink()
    (place / "plots" / "latest").mkdir()
    with pytest.raises(UsageError, match="in the way"):
        await disk.writer.put(disk.archive, f"file://{place}", ADA)
    assert not any(".kestrel-" in name for name in disk.all_names())


@pytest.mark.parametrize("blocked", ["a.csv", "plots"])
async def test_what_is_of_another_kind_stays_and_is_told(disk: Disk, blocked: str) -> None:
    place = disk.own / "7"
    place.mkdir(parents=True)
    if blocked == "a.csv":
        (place / "a.csv").mkdir()
    else:
        (place / "plots").write_text("mine")
    with pytest.raises(UsageError, match="in the way"):
        await disk.put(place)
    assert not any(".kestrel-" in name for name in disk.all_names())


async def test_a_file_has_its_name_only_when_it_is_whole(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full, as some file systems say it: when the file is flushed."""

    def full(_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    await disk.put(disk.own / "7", files={"a.csv": b"old"})
    monkeypatch.setattr(shared_outputs.os, "fsync", full)
    with pytest.raises(NoSpace, match="no space at file:"):
        await disk.put(disk.own / "7")
    assert disk.all_names() == {f"{ADA}/7/a.csv"}
    assert (disk.own / "7" / "a.csv").read_bytes() == b"old"


async def test_a_directory_that_is_read_only_is_a_refusal(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(shared_outputs.os, "mkdir", refuse)
    with pytest.raises(NotAllowed, match="may not write"):
        await disk.put(disk.own / "7")


async def test_a_directory_of_the_operator_is_never_made(disk: Disk) -> None:
    """Where nothing is mounted, files would come to the disk of the worker."""
    disk.path.rmdir()
    with pytest.raises(Unreachable):
        await disk.put(disk.own / "7")
    assert not disk.path.exists()


async def test_on_a_pool_of_its_own_a_user_has_files_written_where_he_may_write(
    disk: Disk,
) -> None:
    own = SharedOutputs(own_user=True)
    (disk.path / "link").symlink_to(disk.elsewhere)
    await disk.put(disk.path / "link" / "run" / "7", writer=own)
    assert (disk.elsewhere / "run" / "7" / "a.csv").exists()
    (disk.elsewhere / "run" / "8").symlink_to(disk.path)
    with pytest.raises(UsageError, match="in the way"):
        await disk.put(disk.elsewhere / "run" / "8", writer=own)


# ---- as the worker does it


class Stage:
    """Writes what is in a scratch directory; pauses cost no time, and may change something."""

    def __init__(self, disk: Disk, scratch: Path) -> None:
        self.seconds = 0.0
        self.pauses: list[Callable[[], object]] = []
        self._scratch = scratch
        scratch.mkdir()
        self.stage = OutputStage(
            scratch.parent / "outgoing",
            self,
            is_online=lambda: True,
            writer=disk.writer,
            limit_bytes=100,
            now=lambda: self.seconds,
            sleep=self._sleep,
        )

    async def put(self, path: Path) -> None:  # type: ignore[override]
        raise AssertionError("it went to the share")

    async def _sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.pauses:
            self.pauses.pop(0)()

    async def write(self, place: Path, *globs: str) -> tuple[int, str]:
        scratch = os.open(self._scratch, os.O_RDONLY)
        try:
            packed = await self.stage.write(3, scratch, globs, f"file://{place}", ADA)
            return packed.files, packed.left_out
        except OutputsRefused as error:
            return 0, error.reason
        finally:
            os.close(scratch)


@pytest.fixture
def stage(disk: Disk, tmp_path: Path) -> Stage:
    found = Stage(disk, tmp_path / "scratch")
    (tmp_path / "scratch" / "a").write_text("alpha")
    (tmp_path / "scratch" / "link").symlink_to(disk.elsewhere)
    return found


async def test_what_a_task_leaves_is_read_as_for_the_share(
    disk: Disk, stage: Stage, tmp_path: Path
) -> None:
    files, left_out = await stage.write(disk.own / "7", "**")
    assert files == 1
    assert left_out == "outputs-incomplete: 'link' is a link that leads out of what is stored"
    assert disk.all_names() == {f"{ADA}/7/a"}
    reason = (await stage.write(disk.own / "8", "a", "b"))[1]
    assert reason == "outputs-missing: no file is 'b'"
    (tmp_path / "scratch" / "big").write_text("x" * 101)
    assert (await stage.write(disk.own / "8", "*"))[1].startswith("outputs-too-large: ")
    assert disk.all_names() == {f"{ADA}/7/a"}


async def test_a_directory_that_is_away_is_waited_for(disk: Disk, stage: Stage) -> None:
    disk.path.rmdir()
    stage.pauses = [lambda: None, disk.path.mkdir]
    assert await stage.write(disk.own / "7", "a") == (1, "")
    assert stage.seconds > 0
    assert (disk.own / "7" / "a").read_text() == "alpha"


async def test_after_a_while_the_task_has_failed_and_says_why(disk: Disk, stage: Stage) -> None:
    disk.path.rmdir()
    files, reason = await stage.write(disk.own / "7", "a")
    assert (files, stage.seconds > GIVE_UP_SECONDS / 2) == (0, True)
    assert reason.startswith(f"outputs-failed: file://{disk.own}/7 cannot be written now: ")


async def test_no_space_is_waited_for_and_then_named(
    disk: Disk, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither the task's fault nor this worker's: each other one would see the same."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shared_outputs.os, "fsync", full)
    files, reason = await stage.write(disk.own / "7", "a")
    assert (files, stage.seconds > GIVE_UP_SECONDS / 2) == (0, True)
    assert reason == f"outputs-failed: no space at file://{disk.own}/7: No space left on device"


async def test_what_no_further_try_changes_fails_at_once(disk: Disk, stage: Stage) -> None:
    _, reason = await stage.write(disk.path / BOB / "7", "a")
    assert reason.startswith("outputs-failed: this worker does not write to file:")
    assert stage.seconds == 0


async def test_a_cancel_ends_it_also_where_the_disk_does_not_answer(
    disk: Disk, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        hangs.set()
        goes_on.wait()

    monkeypatch.setattr(shared_outputs.os, "fsync", hang)
    writing = asyncio.create_task(stage.write(disk.own / "7", "a"))
    try:
        await asyncio.to_thread(hangs.wait)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    finally:
        goes_on.set()
    disk.writer._threads.shutdown()
    assert disk.all_names() == set(), "what comes late is not there"


async def test_a_worker_without_such_directories_says_so(disk: Disk, tmp_path: Path) -> None:
    stage = Stage(disk, tmp_path / "scratch")
    stage.stage._writer = None
    reason = (await stage.write(disk.own / "7", "a"))[1]
    assert reason == "outputs-failed: this worker writes to no addresses"


def test_errors_are_told_by_what_another_try_could_change() -> None:
    kinds: dict[int, type[KestrelError]] = {
        errno.ENOSPC: NoSpace,
        errno.EACCES: NotAllowed,
        errno.ENAMETOOLONG: UsageError,
        errno.ESTALE: Unreachable,
        errno.EIO: Unreachable,
    }
    for number, kind in kinds.items():
        told = shared_outputs._told(OSError(number, os.strerror(number)), "file:///x")
        assert type(told) is kind


async def test_holes_of_files_stay_holes(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "nothing").touch()
    os.truncate(tmp_path / "nothing", 1 << 30)
    pack({"nothing": tmp_path / "nothing"}, disk.archive)
    await disk.writer.put(disk.archive, f"file://{disk.own}/run", ADA)
    made = (disk.own / "run" / "nothing").stat()
    assert made.st_size == 1 << 30
    assert made.st_blocks * 512 < 1 << 20
