"""Keys from a terminal, which is afterwards as it was before."""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import Iterator

import pytest

from kestrelctl.cli.top.keyboard import keys_pressed


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal: where somebody types, and where a program reads."""
    near, far = os.openpty()
    yield near, far
    for fd in (near, far):
        try:
            os.close(fd)
        except OSError:
            continue


async def test_keys_come_without_a_line_and_without_an_echo(terminal: tuple[int, int]) -> None:
    near, far = terminal
    keys: asyncio.Queue[str] = asyncio.Queue()
    before = termios.tcgetattr(far)
    with keys_pressed(far, keys.put_nowait):
        os.write(near, b"j\x1b[Aq")
        assert [await keys.get() for _ in range(3)] == ["j", "up", "q"]
        os.set_blocking(near, False)
        with pytest.raises(BlockingIOError):
            os.read(near, 1)
    assert termios.tcgetattr(far) == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
async def test_the_terminal_is_put_back_whatever_happens(
    terminal: tuple[int, int], error: type[BaseException]
) -> None:
    _, far = terminal
    before = termios.tcgetattr(far)

    def fail() -> None:
        with keys_pressed(far, lambda _: None):
            assert termios.tcgetattr(far) != before
            raise error

    with pytest.raises(error):
        fail()
    assert termios.tcgetattr(far) == before


async def test_interrupts_stay_and_stops_do_not(terminal: tuple[int, int]) -> None:
    _, far = terminal
    with keys_pressed(far, lambda _: None):
        flags, control = termios.tcgetattr(far)[3], termios.tcgetattr(far)[6]
    assert flags & termios.ISIG
    assert control[termios.VINTR] == b"\x03"
    assert control[termios.VSUSP] == control[termios.VQUIT] == b"\x00"


async def test_what_is_no_terminal_is_left_alone() -> None:
    near, far = os.pipe()
    keys: list[str] = []
    with keys_pressed(near, keys.append):
        os.write(far, b"q")
        await asyncio.sleep(0)
    assert os.read(near, 1) == b"q"
    assert keys == []
    os.close(near)
    os.close(far)


async def test_a_terminal_that_goes_away_is_the_end(terminal: tuple[int, int]) -> None:
    near, far = terminal
    keys: asyncio.Queue[str] = asyncio.Queue()
    with keys_pressed(far, keys.put_nowait):
        os.close(near)
        assert await keys.get() == "q"
