"""A long output that is read in messages: several pieces are on their way at a time."""

from __future__ import annotations

import asyncio

import pytest

from kestrelctl.access.share import Share
from kestrelctl.client.logs import LogReader
from kestrelctl.errors import Unreachable
from kestrelctl.protocol.job_answers import Log
from kestrelctl.protocol.job_requests import Logs

PIECE_BYTES = 10
OUTPUT = bytes(range(95))


def no_share() -> Share:
    raise AssertionError("these outputs are not in the share")


class Pool:
    """Answers requests for an output, each when all that were asked before have been answered.

    Attributes:
        output: what there is of it; it may grow.
        offsets: those that were asked for.
        at_once: the most requests that were unanswered at a time.
    """

    def __init__(self, output: bytes = OUTPUT) -> None:
        self.output = output
        self.offsets: list[int] = []
        self.at_once = 0
        self.short: dict[int, int] = {}  #: pieces that have fewer bytes, by offset
        self.away_at: int | None = None
        self._unanswered = 0

    async def ask(self, request: Logs) -> Log:
        self.offsets.append(request.offset)
        self._unanswered += 1
        self.at_once = max(self.at_once, self._unanswered)
        try:
            await asyncio.sleep(0)
            if request.offset == self.away_at:
                raise Unreachable("the pool is away")
            return self.piece(request.offset)
        finally:
            self._unanswered -= 1

    def piece(self, offset: int) -> Log:
        end = offset + self.short.get(offset, PIECE_BYTES)
        data = self.output[offset:end]
        more = end < len(self.output)
        return Log(
            id="",
            data=data,
            size_bytes=len(self.output),
            next_offset=end if more else None,
            job_id=1,
            task_id=0,
        )

    async def read(self) -> list[bytes]:
        reader = LogReader(no_share, lambda: None)
        return [log.data async for log in reader.whole(self.piece(0), "stdout", self.ask)]


async def test_several_pieces_are_on_their_way_at_a_time_and_come_in_order() -> None:
    pool = Pool()
    assert b"".join(await pool.read()) == OUTPUT
    assert pool.at_once == 4
    assert pool.offsets == list(range(10, 95, 10)), "each is asked for once"


async def test_no_piece_is_asked_for_that_cannot_be_there() -> None:
    pool = Pool(OUTPUT[:25])
    assert await pool.read() == [OUTPUT[:10], OUTPUT[10:20], OUTPUT[20:25]]
    assert pool.offsets == [10, 20]


async def test_after_a_piece_of_another_size_those_that_do_not_fit_are_asked_for_anew() -> None:
    pool = Pool()
    pool.short = {20: 3, 43: 1}
    assert b"".join(await pool.read()) == OUTPUT
    assert pool.offsets[:8] == [10, 20, 30, 40, 23, 33, 43, 53]


async def test_what_is_written_meanwhile_is_read_too() -> None:
    pool = Pool(OUTPUT[:45])
    found = b""
    reader = LogReader(no_share, lambda: None)
    async for log in reader.whole(pool.piece(0), "stdout", pool.ask):
        found += log.data
        pool.output = OUTPUT
    assert found == OUTPUT


async def test_an_error_comes_after_what_was_read_before_it_and_nothing_goes_on() -> None:
    pool = Pool()
    pool.away_at = 40
    reader = LogReader(no_share, lambda: None)
    pieces = reader.whole(pool.piece(0), "stdout", pool.ask)
    assert [(await anext(pieces)).next_offset for _ in range(4)] == [10, 20, 30, 40]
    with pytest.raises(Unreachable):
        await anext(pieces)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_whoever_reads_no_further_leaves_no_request_behind() -> None:
    pool = Pool()
    reader = LogReader(no_share, lambda: None)
    pieces = reader.whole(pool.piece(0), "stdout", pool.ask)
    for _ in range(3):
        await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined]
    assert asyncio.all_tasks() == {asyncio.current_task()}
