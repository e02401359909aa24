"""What a worker keeps of the inputs of tasks: fetched once, verified, bounded, each owner's own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from shutil import rmtree

import pytest
from inputkit import ADA, BOB, Share, an_input

from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.errors import FileDamaged, FileExpired, NoSpace, Unreachable
from kestrelctl.files.archive import pack
from kestrelctl.worker.addresses.address_reader import AddressReader
from kestrelctl.worker.files import input_cache
from kestrelctl.worker.files.gathered import Gathered
from kestrelctl.worker.files.input_cache import InputCache, InputRefused


def a_directory(text: str) -> Input:
    """The archive of a directory, as `unpacking` reads it."""
    found = an_input(text)
    return Input(name="in", stored=found.stored, directory=True)


@pytest.fixture
def unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives here are a text, and become a directory with one file below another."""

    def unpack(archive: Path, directory: Path, most_bytes: int) -> None:
        (directory / "sub").mkdir(parents=True)
        (directory / "sub" / "text").write_text(archive.read_text())

    monkeypatch.setattr(input_cache, "unpack", unpack)
    monkeypatch.setattr(input_cache, "unpacked_bytes", lambda archive: archive.stat().st_size)


@pytest.fixture
def share() -> Share:
    return Share()


Caches = Callable[..., InputCache]


@pytest.fixture
async def caches(tmp_path: Path, share: Share) -> AsyncIterator[Caches]:
    """Makes caches of one directory, each after the one before."""
    made: list[InputCache] = []

    def make(limit_bytes: int = 1000, pool: str = "pool") -> InputCache:
        made.append(InputCache(tmp_path / "inputs", limit_bytes, share.get, AddressReader(), pool))
        return made[-1]

    yield make
    await made[-1].close()


async def used(cache: InputCache, wanted: Input, owner: str = ADA) -> str:
    """Takes an input, reads it and releases it, as a short task does."""
    entry = await cache.take(owner, wanted)
    try:
        return Path(entry.path).read_text()
    finally:
        cache.release(entry)


async def test_a_file_is_fetched_once_for_all_tasks_of_its_owner(
    caches: Caches, share: Share
) -> None:
    cache = caches()
    for _ in range(3):
        assert await used(cache, an_input("alpha")) == "alpha"
    assert share.gets == ["a"]
    assert (cache.hits, cache.misses, cache.fetched_bytes) == (2, 1, 5)


async def test_many_tasks_that_wait_for_one_file_wait_for_one_download(
    caches: Caches, share: Share
) -> None:
    cache = caches()
    share.open.clear()
    tasks = [asyncio.create_task(used(cache, an_input("alpha"))) for _ in range(100)]
    await asyncio.sleep(0)
    share.open.set()
    assert set(await asyncio.gather(*tasks)) == {"alpha"}
    assert share.gets == ["a"]


async def test_one_owner_s_file_is_not_served_to_another_though_it_is_the_same(
    caches: Caches, share: Share
) -> None:
    cache = caches()
    await used(cache, an_input("alpha"), ADA)
    await used(cache, an_input("alpha"), BOB)
    assert share.gets == ["a", "a"]
    mine = await cache.take(ADA, an_input("alpha"))
    assert mine.path.startswith(cache.directory_of(ADA) + "/")
    assert not mine.path.startswith(cache.directory_of(BOB) + "/")
    cache.release(mine)


async def test_what_one_pool_had_sent_here_is_given_to_nobody_of_another(
    caches: Caches, share: Share
) -> None:
    first = caches()
    await used(first, an_input("alpha"))
    await first.close()
    second = caches(pool="another")
    await used(second, an_input("alpha"))
    assert share.gets == ["a", "a"]
    assert first.directory_of(ADA) != second.directory_of(ADA)


async def test_a_cache_that_somebody_has_removed_to_make_room_begins_anew(
    caches: Caches, share: Share, tmp_path: Path
) -> None:
    cache = caches()
    await used(cache, an_input("alpha"))
    rmtree(tmp_path / "inputs")
    assert await used(cache, an_input("bravo")) == "bravo"
    assert await used(cache, an_input("alpha")) == "alpha"
    assert share.gets == ["a", "b", "a"]


async def test_what_was_used_least_recently_goes_first(caches: Caches, share: Share) -> None:
    cache = caches(limit_bytes=12)
    await used(cache, an_input("alpha"))
    await used(cache, an_input("bravo"))
    await used(cache, an_input("alpha"))
    await used(cache, an_input("cargo"))
    share.gets.clear()
    await used(cache, an_input("alpha"))
    assert share.gets == []
    assert cache.used_bytes <= 12
    await used(cache, an_input("bravo"))
    assert share.gets == ["b"]


async def test_what_a_task_uses_never_goes(caches: Caches, share: Share) -> None:
    cache = caches(limit_bytes=12)
    first = await cache.take(ADA, an_input("alpha"))
    second = await cache.take(ADA, an_input("bravo"))
    with pytest.raises(InputRefused, match="does not fit into the worker's cache now"):
        await cache.take(ADA, an_input("cargo"))
    assert Path(first.path).read_text() == "alpha"
    cache.release(first)
    assert await used(cache, an_input("cargo")) == "cargo"
    assert Path(second.path).read_text() == "bravo"
    cache.release(second)


async def test_room_is_set_aside_for_what_is_under_way(caches: Caches, share: Share) -> None:
    cache = caches(limit_bytes=12)
    share.open.clear()
    tasks = [asyncio.create_task(used(cache, an_input(t))) for t in ("alpha", "bravo", "cargo")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert cache.used_bytes <= 12
    share.open.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(each, InputRefused) for each in found) == 1


async def test_a_file_that_is_larger_than_the_cache_is_refused_unread(
    caches: Caches, share: Share
) -> None:
    cache = caches(limit_bytes=12)
    await used(cache, an_input("alpha"))
    with pytest.raises(InputRefused, match=r"no-input: 'in' does not fit.* 13 bytes of 12"):
        await cache.take(ADA, an_input("large", size_bytes=13))
    assert share.gets == ["a"]
    await used(cache, an_input("alpha"))
    assert share.gets == ["a"], "nothing went for its sake"


@pytest.mark.parametrize("how", ["write", "replace", "remove", "touch", "directory"])
async def test_a_file_that_was_changed_here_is_fetched_anew(
    caches: Caches, share: Share, how: str
) -> None:
    cache = caches()
    entry = await cache.take(ADA, an_input("alpha"))
    cache.release(entry)
    path = Path(entry.path)
    before = path.stat()
    if how == "write":
        path.chmod(0o644)
        path.write_text("OMEGA")
        path.chmod(0o444)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif how == "touch":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    else:
        path.unlink()
        if how == "replace":
            path.write_text("OMEGA")
        elif how == "directory":
            path.mkdir()
            (path / "in").touch()
    assert await used(cache, an_input("alpha")) == "alpha"
    assert share.gets == ["a", "a"]


async def test_a_task_goes_on_with_what_was_changed_while_others_get_it_anew(
    caches: Caches, share: Share
) -> None:
    cache = caches()
    first = await cache.take(ADA, an_input("alpha"))
    Path(first.path).chmod(0o644)
    second = await cache.take(ADA, an_input("alpha"))
    assert second.path != first.path
    assert Path(first.path).exists(), "its task may be about to open it"
    assert cache.used_bytes == 10
    cache.release(first)
    assert not Path(first.path).exists()
    assert Path(second.path).read_text() == "alpha"
    assert cache.used_bytes == 5
    cache.release(second)


async def test_a_directory_is_unpacked_for_reading_and_a_change_below_is_seen(
    caches: Caches, share: Share, unpacking: None
) -> None:
    cache = caches(100_000)
    for _ in range(2):
        entry = await cache.take(ADA, a_directory("alpha"))
        text = Path(entry.path) / "sub" / "text"
        assert text.read_text() == "alpha"
        assert [p.stat().st_mode & 0o222 for p in (text, text.parent, text.parent.parent)] == [
            0
        ] * 3
        cache.release(entry)
    assert share.gets == ["a"]
    text.chmod(0o644)
    text.write_text("OMEGA")
    entry = await cache.take(ADA, a_directory("alpha"))
    text = Path(entry.path) / "sub" / "text"
    assert text.read_text() == "alpha"
    assert share.gets == ["a", "a"]
    assert entry.size_bytes >= text.stat().st_blocks * 512
    cache.release(entry)


async def test_a_file_is_for_reading_and_a_program_for_execution(caches: Caches) -> None:
    cache = caches()
    plain = await cache.take(ADA, an_input("alpha"))
    program = await cache.take(ADA, an_input("alpha", executable=True))
    modes = [os.stat(entry.path).st_mode & 0o777 for entry in (plain, program)]
    assert modes == [0o444, 0o555]
    cache.release(plain)
    cache.release(program)


async def test_it_is_kept_over_a_restart_and_what_is_in_no_index_goes(
    caches: Caches, share: Share, tmp_path: Path
) -> None:
    first = caches()
    await used(first, an_input("alpha"))
    await used(first, an_input("bravo"))
    entry = await first.take(ADA, an_input("alpha"))
    first.release(entry)
    await first.close()
    stray = Path(entry.path).with_name("stray")
    stray.touch()
    left = tmp_path / "inputs" / "fetching" / "7"
    left.mkdir()
    second = caches(limit_bytes=9)
    assert not stray.exists()
    assert not left.exists()
    share.gets.clear()
    await used(second, an_input("alpha"))
    assert share.gets == [], "the least recently used went when there was less room"
    await used(second, an_input("bravo"))
    assert share.gets == ["b"]


@pytest.mark.parametrize("index", [b"[[", b'[["\xff",""]]'])
async def test_an_index_that_cannot_be_read_is_as_none(
    caches: Caches, share: Share, tmp_path: Path, index: bytes
) -> None:
    first = caches()
    await used(first, an_input("alpha"))
    await first.close()
    (tmp_path / "inputs" / "index.json").write_bytes(index)
    assert await used(caches(), an_input("alpha")) == "alpha"
    assert share.gets == ["a", "a"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FileExpired("it has expired"), "no-input: 'in': it has expired"),
        (FileDamaged("another hash"), "no-input: 'in': another hash"),
        (Unreachable("cut off", cause="refused"), "no-input: 'in': cut off: refused"),
        (NoSpace("the disk is full"), "no-space: 'in': the disk is full"),
        (OSError(28, "No space left on device"), "no-space: 'in': No space left on device"),
    ],
)
async def test_a_file_that_cannot_be_had_is_told_of_and_the_next_task_asks_anew(
    caches: Caches, share: Share, error: Exception, told: str
) -> None:
    cache = caches()
    share.errors = [error]
    with pytest.raises(InputRefused, match=told):
        await cache.take(ADA, an_input("alpha"))
    assert (share.gets, cache.used_bytes) == (["a"], 0)
    assert await used(cache, an_input("alpha")) == "alpha"


async def test_what_nobody_waits_for_any_more_is_not_fetched_any_further(
    caches: Caches, share: Share
) -> None:
    cache = caches()
    share.open.clear()
    tasks = [asyncio.create_task(cache.take(ADA, an_input("alpha"))) for _ in range(2)]
    await asyncio.sleep(0.0)
    await asyncio.sleep(0.0)
    assert share.gets == ["a"]
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    assert share.ended == 0, "another task still waits"
    tasks[1].cancel()
    await asyncio.wait(tasks)
    for _ in range(3):
        await asyncio.sleep(0.0)
    assert (share.ended, cache.used_bytes) == (1, 0)
    share.open.set()
    assert await used(cache, an_input("alpha")) == "alpha"


async def test_of_what_nobody_waits_for_any_more_nothing_stays_though_it_was_being_unpacked(
    tmp_path: Path, share: Share, unpacking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unpacking makes directories as it goes on, also in a place that was removed."""
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slowly(archive: Path, directory: Path, most_bytes: int) -> None:
        begun.set()
        go_on.wait()
        (directory / "sub").mkdir(parents=True)
        (directory / "sub" / "text").write_text("more")
        ended.set()

    monkeypatch.setattr(input_cache, "unpack", slowly)
    cache = InputCache(tmp_path / "inputs", 1000, share.get, AddressReader(), "pool")
    taking = asyncio.create_task(cache.take(ADA, a_directory("alpha")))
    await asyncio.to_thread(begun.wait)
    taking.cancel()
    await asyncio.wait([taking])
    for _ in range(5):
        await asyncio.sleep(0.0)
    go_on.set()
    await asyncio.to_thread(ended.wait)
    await cache.close()
    assert os.listdir(tmp_path / "inputs" / "fetching") == []


def left(*texts: str) -> Gathered:
    """What tasks 1, 2, … left."""
    parts = tuple((n, an_input(text).stored) for n, text in enumerate(texts, 1))
    return Gathered("parts", parts)


@pytest.mark.usefixtures("unpacking")
async def test_what_several_tasks_left_is_one_directory_that_is_fetched_once(
    caches: Caches, share: Share
) -> None:
    cache = caches()
    for _ in range(2):
        entry = await cache.take(ADA, left("alpha", "bravo"))
        texts = [Path(entry.path, str(n), "sub", "text").read_text() for n in (1, 2)]
        assert texts == ["alpha", "bravo"]
        assert sorted(os.listdir(entry.path)) == ["1", "2"]
        assert not os.stat(f"{entry.path}/1/sub/text").st_mode & 0o222
        cache.release(entry)
    assert share.gets == ["a", "b"]
    cache.release(await cache.take(ADA, left("alpha", "cargo")))
    assert share.gets == ["a", "b", "a", "c"], "it is another directory"


@pytest.mark.usefixtures("unpacking")
async def test_of_what_tasks_left_a_few_archives_lie_beside_it_while_they_are_unpacked(
    caches: Caches, share: Share
) -> None:
    cache = caches(44)
    texts = ("alpha", "bravo", "cargo", "delta", "eagle")
    with pytest.raises(InputRefused, match="does not fit into the worker's cache: it needs 45"):
        await cache.take(ADA, left(*texts))
    assert share.gets == []


@pytest.mark.usefixtures("unpacking")
async def test_one_archive_that_cannot_be_had_refuses_all(caches: Caches, share: Share) -> None:
    cache = caches()
    share.errors = [FileExpired("the file has expired")]
    with pytest.raises(InputRefused, match="no-input: 'parts': the file has expired"):
        await cache.take(ADA, left("alpha", "bravo"))
    assert cache.used_bytes == 0


async def test_of_several_failures_at_once_the_one_that_can_be_told_is(
    caches: Caches, share: Share
) -> None:
    share.errors = [FileExpired("the file has expired"), OSError("it went away")]
    with pytest.raises(InputRefused, match="no-input: 'parts': the file has expired"):
        await caches().take(ADA, left("alpha", "bravo"))


async def test_nothing_that_was_left_is_an_empty_directory(caches: Caches) -> None:
    cache = caches()
    entry = await cache.take(ADA, left())
    assert os.listdir(entry.path) == []
    cache.release(entry)


class Archives(Share):
    """Gives an archive that the test has packed."""

    def __init__(self, archive: bytes) -> None:
        super().__init__()
        self.archive = archive

    async def get(self, stored: StoredFile, target: Path) -> None:
        target.write_bytes(self.archive)


async def test_a_small_archive_that_holds_more_than_the_cache_is_refused_before_it_is_unpacked(
    tmp_path: Path,
) -> None:
    (tmp_path / "nothing").touch()
    os.truncate(tmp_path / "nothing", 1 << 40)
    pack({"nothing": tmp_path / "nothing"}, tmp_path / "bomb.tar")
    share = Archives((tmp_path / "bomb.tar").read_bytes())
    cache = InputCache(tmp_path / "inputs", 20_000_000, share.get, AddressReader(), "pool")
    bomb = a_directory("bomb")
    for wanted in (bomb, Gathered("in", ((1, stored_of(bomb)), (2, stored_of(bomb))))):
        with pytest.raises(InputRefused, match="does not fit into the worker's cache"):
            await cache.take(ADA, wanted)
    assert cache.used_bytes == 0
    assert not [path for path in tmp_path.rglob("nothing") if path.parent != tmp_path]
    await cache.close()


async def test_a_file_with_holes_counts_as_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "nothing").touch()
    os.truncate(tmp_path / "nothing", 10_000_000)
    pack({"nothing": tmp_path / "nothing"}, tmp_path / "holes.tar")
    share = Archives((tmp_path / "holes.tar").read_bytes())
    cache = InputCache(tmp_path / "inputs", 20_000_000, share.get, AddressReader(), "pool")
    entry = await cache.take(ADA, a_directory("holes"))
    assert Path(entry.path, "nothing").stat().st_size == 10_000_000
    assert cache.used_bytes < 100_000
    cache.release(entry)
    await cache.close()


def stored_of(wanted: Input) -> StoredFile:
    assert wanted.stored is not None
    return wanted.stored
