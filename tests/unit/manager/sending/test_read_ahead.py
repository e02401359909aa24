"""Items are read by windows, the next one before it is asked for, in so much memory and no more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kestrelctl.core.model.job.program import Program
from kestrelctl.errors import KestrelError
from kestrelctl.manager.sending.read_ahead import MOST_WINDOWS, ReadAhead
from kestrelctl.store.item_window import ItemWindow
from kestrelctl.store.port import at_hand

#: How many items are read at a time, and how many each job has.
TEN, ALL = 10, 100
ITEMS = tuple(f"item {n}" for n in range(ALL))


def window(index: int) -> ItemWindow | None:
    first = index - index % TEN
    found = ITEMS[first : first + TEN]
    return ItemWindow(first, found, ALL) if found else None


class Stored:
    """A store whose jobs all have the same items; it answers at once, or when it is told to."""

    def __init__(self, *, waits: bool = False) -> None:
        self.reads: list[tuple[int, int]] = []
        self.programs: list[int] = []
        self.coming: list[tuple[asyncio.Future[Any], ItemWindow | None]] = []
        self._waits = waits

    def items(self, job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        self.reads.append((job_id, index))
        if not self._waits:
            return at_hand(lambda: window(index))
        future: asyncio.Future[ItemWindow | None] = asyncio.get_running_loop().create_future()
        self.coming.append((future, window(index)))
        return future

    def program(self, job_id: int) -> asyncio.Future[Program | None]:
        self.programs.append(job_id)
        return at_hand(lambda: Program(argv=("run", "x" * 1_000)))

    async def answer(self) -> None:
        future, found = self.coming.pop(0)
        future.set_result(found)
        await asyncio.sleep(0)


def ahead_of(store: Stored, most_bytes: int = 1 << 20) -> ReadAhead:
    found: Any = store
    return ReadAhead(found, most_bytes)


async def test_the_next_window_is_read_when_the_one_before_is_used() -> None:
    store = Stored()
    ahead = ahead_of(store)
    assert ahead.window(1, 3) is None
    assert ahead.read(1, 3).result() == window(3)
    assert store.reads == [(1, 3)]
    assert ahead.window(1, 3) == window(3)
    assert store.reads == [(1, 3), (1, 10)]
    for index in range(4, 20):
        assert ahead.window(1, index) == window(index)
    assert store.reads == [(1, 3), (1, 10), (1, 20)]


async def test_nothing_is_read_beyond_the_last_item() -> None:
    store = Stored()
    ahead = ahead_of(store)
    ahead.read(1, 95)
    assert ahead.window(1, 95) == window(95)
    assert store.reads == [(1, 95)]


async def test_what_is_being_read_is_not_read_twice() -> None:
    store = Stored(waits=True)
    ahead = ahead_of(store)
    first = ahead.read(1, 0)
    assert ahead.read(1, 25) is first
    assert ahead.read(2, 0) is not first
    await store.answer()
    assert ahead.read(1, 25) is not first
    assert store.reads == [(1, 0), (2, 0), (1, 25)]


async def test_a_job_that_jumps_about_keeps_the_latest_windows() -> None:
    store = Stored()
    ahead = ahead_of(store)
    for place in range(MOST_WINDOWS + 1):
        ahead.read(1, 20 * place)
    assert ahead.window(1, 0) is None
    assert ahead.window(1, 20) == window(20)


async def test_what_was_used_least_lately_goes_when_there_is_too_much() -> None:
    store = Stored()
    alone = ahead_of(store)
    alone.read(1, 95)
    ahead = ahead_of(store, 2 * alone.memory_bytes)
    ahead.read(1, 95)
    ahead.read(2, 95)
    assert ahead.window(1, 95) is not None
    ahead.read(3, 95)
    assert ahead.memory_bytes == 2 * alone.memory_bytes
    assert [job for job in (1, 2, 3) if ahead.window(job, 95)] == [1, 3]


async def test_the_latest_is_kept_however_large_it_is() -> None:
    store = Stored()
    ahead = ahead_of(store, 0)
    ahead.read(1, 95)
    assert ahead.window(1, 95) is not None
    ahead.read_program(2)
    assert ahead.program(2) is not None
    assert ahead.window(1, 95) is None


async def test_a_program_counts_with_the_items_of_its_job() -> None:
    store = Stored()
    ahead = ahead_of(store)
    ahead.read(1, 95)
    before = ahead.memory_bytes
    assert ahead.program(1) is None
    ahead.read_program(1)
    assert ahead.memory_bytes > before + 1_000
    assert ahead.program(1) == Program(argv=("run", "x" * 1_000))
    assert store.programs == [1]


async def test_what_cannot_be_read_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Stored()
    ahead = ahead_of(store)

    def fails(job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        def read() -> ItemWindow | None:
            raise KestrelError("they cannot be read")

        return at_hand(read)

    monkeypatch.setattr(store, "items", fails)
    with pytest.raises(KestrelError):
        ahead.read(1, 0).result()
    assert ahead.window(1, 0) is None
    assert ahead.memory_bytes == 0
