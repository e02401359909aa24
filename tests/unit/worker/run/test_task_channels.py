"""Channels of tasks: what a task writes and reads, and what a hostile one gets away with."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kestrelctl.core.model.job.channel_rules import MOST_FRAME_BYTES, SOCKET
from kestrelctl.worker.run.task_channels import BURST_FRAMES, MOST_WAITING_BYTES, TaskChannels


async def until(condition: Callable[[], object]) -> None:
    """Lets the loop turn until it is so."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Task:
    """A task in a scratch directory, and the worker that listens there.

    Attributes:
        wrote: the frames that the worker passed on.
    """

    def __init__(self, scratch: Path) -> None:
        self.wrote: list[bytes] = []
        self.scratch = scratch
        self.channels = TaskChannels(asyncio.get_running_loop())
        self.channels.said = lambda number, data: self.wrote.append(data)
        self._socket = socket.socket(socket.AF_UNIX)

    def begin(self) -> None:
        directory = os.open(self.scratch, os.O_RDONLY)
        self.channels.open(7, directory)
        os.close(directory)

    async def connect(self) -> None:
        before = os.getcwd()
        os.chdir(self.scratch)  # a longer path does not fit into an address
        try:
            self._socket.connect(SOCKET)
        finally:
            os.chdir(before)
        await until(lambda: self.wrote)

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    async def read(self, size: int) -> bytes:
        self._socket.setblocking(False)
        found = b""
        while len(found) < size:
            found += await asyncio.get_running_loop().sock_recv(self._socket, size - len(found))
        return found

    async def is_cut_off(self) -> bool:
        self._socket.setblocking(False)
        async with asyncio.timeout(5):
            return await asyncio.get_running_loop().sock_recv(self._socket, 1) == b""

    def end(self) -> None:
        self.channels.close_all()
        self._socket.close()


@pytest.fixture
async def task(tmp_path: Path) -> Iterator[Task]:  # type: ignore[misc]
    scratch = tmp_path / ("deep" * 30)
    scratch.mkdir()
    found = Task(scratch)
    yield found
    found.end()


async def test_frames_travel_whole_and_in_order_both_ways(task: Task) -> None:
    task.begin()
    assert task.channels.write(7, b"before it connects")
    await task.connect()
    assert task.wrote == [b""], "it has opened its end"
    large = os.urandom(MOST_FRAME_BYTES)
    assert task.channels.write(7, large)
    assert await task.read(4 + 18 + 4 + len(large)) == framed(b"before it connects") + framed(large)
    task.write(framed(b"one") + framed(b"")[:2])
    task.write(framed(b"")[2:] + framed(b"three"))
    await until(lambda: len(task.wrote) == 4)
    assert task.wrote == [b"", b"one", b"", b"three"]


async def test_a_frame_that_is_too_large_ends_the_channel_unread(task: Task) -> None:
    task.begin()
    await task.connect()
    task.write((MOST_FRAME_BYTES + 1).to_bytes(4, "big"))
    assert await task.is_cut_off()
    assert not task.channels.write(7, b"late")


async def test_only_one_connects(task: Task) -> None:
    task.begin()
    await task.connect()
    second = Task(task.scratch)
    with pytest.raises(OSError, match="refused"):
        await second.connect()
    second.end()


async def test_a_task_that_reads_nothing_is_written_no_more_than_a_bound(task: Task) -> None:
    task.begin()
    await task.connect()
    frame = bytes(MOST_FRAME_BYTES)
    most = 2 + 2 * MOST_WAITING_BYTES // len(frame)
    assert sum(task.channels.write(7, frame) for _ in range(most)) < most


async def test_a_flood_waits_at_its_own_end(task: Task) -> None:
    task.begin()
    await task.connect()
    room = True
    task.channels.has_room = lambda: room
    task.write(framed(b"x") * 20)
    await until(lambda: len(task.wrote) == 21)
    room = False
    task.write(framed(b"x") * 20)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(task.wrote) == 21, "the connection has no room"
    room = True
    await until(lambda: len(task.wrote) == 41)
    await asyncio.get_running_loop().sock_sendall(
        _non_blocking(task), framed(b"x") * int(2 * BURST_FRAMES)
    )
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(task.wrote) < 41 + 2 * BURST_FRAMES


def _non_blocking(task: Task) -> socket.socket:
    task._socket.setblocking(False)
    return task._socket


async def test_what_lies_in_the_place_of_the_socket_is_left_alone(task: Task) -> None:
    other = socket.socket(socket.AF_UNIX)
    elsewhere = task.scratch.parent / "else"
    other.bind(os.path.relpath(elsewhere))
    other.listen()
    other.setblocking(False)
    (task.scratch / SOCKET).symlink_to(elsewhere)
    task.begin()
    assert not task.channels.write(7, b"for the owner's task alone")
    with pytest.raises(BlockingIOError):
        other.accept()
    other.close()


async def test_nothing_is_said_of_a_task_that_has_ended(task: Task) -> None:
    task.begin()
    await task.connect()
    task.channels.close(7)
    assert await task.is_cut_off()
    assert not task.channels.write(7, b"late")
    assert not task.channels.write(8, b"to nobody")
