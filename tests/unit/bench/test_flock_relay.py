"""The relay between pools that are far from each other: delayed, in order, bounded, and cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from kestrel_experiments.flock.relay import DelayLine, Relay
from kestrelctl.errors import NotFound
from kestrelctl.xmpp.prosody import LOOPBACK

Find = Callable[[], tuple[str, int]]

PIECE = bytes(range(256)) * 4096


@contextlib.asynccontextmanager
async def an_echo() -> AsyncIterator[Find]:
    """A server that sends back what it reads; where it is."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(4096):
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield lambda: (LOOPBACK, port)
    finally:
        server.close()


def test_a_piece_is_due_its_delay_after_it_came() -> None:
    line = DelayLine(0.06)
    line.put(b"first", 10.0)
    line.put(b"second", 10.01)
    assert line.next_due == pytest.approx(10.06)
    assert line.take_due(10.059) == b""
    assert line.take_due(10.065) == b"first"
    assert line.next_due == pytest.approx(10.07)


def test_pieces_that_come_together_arrive_together() -> None:
    """A delay is no bottleneck: a thousand pieces do not wait for each other."""
    line = DelayLine(0.06)
    for number in range(1000):
        line.put(number.to_bytes(2, "big"), 10.0)
    assert line.take_due(10.07) == b"".join(n.to_bytes(2, "big") for n in range(1000))
    assert line.next_due is None


def test_no_more_is_held_than_was_agreed() -> None:
    line = DelayLine(0.06, most_held_bytes=8)
    line.put(b"12345678", 0.0)
    assert not line.has_room
    line.take_due(0.1)
    assert line.has_room
    assert line.held_bytes == 0


@pytest.mark.parametrize("most_held_bytes", [1, 100_000])
async def test_what_goes_through_comes_out_in_order_and_whole(most_held_bytes: int) -> None:
    """Also where there is room for one piece at a time only."""
    async with an_echo() as find, Relay(find, 0.001, most_held_bytes).open() as relay:
        reader, writer = await asyncio.open_connection(LOOPBACK, relay.port)
        writer.write(PIECE)
        writer.write_eof()
        assert await reader.read(-1) == PIECE
        writer.close()


async def test_nothing_comes_through_a_long_line_before_its_time() -> None:
    loop = asyncio.get_running_loop()
    async with an_echo() as find, Relay(find, 0.02).open() as relay:
        reader, writer = await asyncio.open_connection(LOOPBACK, relay.port)
        sent = loop.time()
        writer.write(b"there and back")
        assert await reader.read(100) == b"there and back"
        assert loop.time() - sent >= 0.04
        writer.close()


async def test_a_cut_resets_what_goes_on_and_what_comes_until_it_is_mended() -> None:
    async with an_echo() as find, Relay(find, 0.0).open() as relay:
        reader, writer = await asyncio.open_connection(LOOPBACK, relay.port)
        writer.write(b"one")
        assert await reader.read(100) == b"one"
        relay.cut()
        await _ends(reader)
        late_reader, late = await asyncio.open_connection(LOOPBACK, relay.port)
        late.write(b"two")
        await _ends(late_reader)
        relay.mend()
        again, third = await asyncio.open_connection(LOOPBACK, relay.port)
        third.write(b"three")
        assert await again.read(100) == b"three"
        for each in (writer, late, third):
            each.close()


async def test_where_nobody_listens_the_connection_ends() -> None:
    async with an_echo() as find:
        pass
    async with Relay(find, 0.0).open() as relay:
        reader, writer = await asyncio.open_connection(LOOPBACK, relay.port)
        await _ends(reader)
        writer.close()


async def test_a_server_that_is_not_known_yet_ends_the_connection_alone() -> None:
    """The next connection may find it."""

    def find() -> tuple[str, int]:
        if not known:
            raise NotFound("it does not run yet")
        return known[0]()

    known: list[Find] = []
    async with an_echo() as echo, Relay(find, 0.0).open() as relay:
        reader, writer = await asyncio.open_connection(LOOPBACK, relay.port)
        await _ends(reader)
        known.append(echo)
        again, second = await asyncio.open_connection(LOOPBACK, relay.port)
        second.write(b"hello")
        assert await again.read(100) == b"hello"
        writer.close()
        second.close()


async def _ends(reader: asyncio.StreamReader) -> None:
    """Reads until the connection has ended, one way or the other."""
    with contextlib.suppress(ConnectionError):
        assert await reader.read(100) == b""
