"""Channels to running tasks: the worker listens at a socket in the scratch directory of each.

The worker listens and the task connects, never the reverse: a task cannot have the worker connect
to what it has put in the place of a socket. Whoever can write into the scratch directory of a task
can speak for it, which is the task itself and what its isolation lets in.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from kestrelctl.core.model.job.channel_rules import MOST_FRAME_BYTES, SOCKET
from kestrelctl.core.pacing.pace import Pace
from kestrelctl.timer import Timer

log = logging.getLogger(__name__)

#: The most bytes that wait for a task which does not read.
MOST_WAITING_BYTES = 8 << 20
#: Frames that a task may write in a second, and at once after a rest.
FRAMES_PER_SECOND = 500.0
BURST_FRAMES = 500.0
#: The time between two looks whether the worker's connection has room again.
LOOK_SECONDS = 0.005
_LENGTH_BYTES = 4
_READ_BYTES = 1 << 16


class _Channel:
    """The channel to one task, from its start to its end."""

    def __init__(self, number: int, listening: socket.socket, owner: TaskChannels) -> None:
        self._number = number
        self._socket = listening
        self._owner = owner
        self._loop = owner.loop
        self._connected = False
        self._writing = False
        self._read = bytearray()
        self._unwritten = bytearray()
        self._pace = Pace(FRAMES_PER_SECOND, BURST_FRAMES)
        self._again = Timer(self._resume, self._loop)
        self._loop.add_reader(listening.fileno(), self._accept)

    def write(self, data: bytes) -> bool:
        """Writes a frame, now or when the task has connected and reads.

        Returns:
            False if it was dropped: too much waits.
        """
        if len(self._unwritten) + len(data) > MOST_WAITING_BYTES or self._socket.fileno() < 0:
            return False
        self._unwritten += len(data).to_bytes(_LENGTH_BYTES, "big") + data
        if self._connected and not self._writing:
            self._flush()
        return True

    def close(self) -> None:
        self._again.stop()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("attempt %d: its channel: %s", self._number, error)
            self.close()
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()  # one task, one connection
        connection.setblocking(False)
        self._socket = connection
        self._connected = True
        self._loop.add_reader(connection.fileno(), self._readable)
        self._owner.said(self._number, b"")
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unwritten:
                sent = self._socket.send(self._unwritten[:_READ_BYTES])
                del self._unwritten[:sent]
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._socket.fileno(), self._flush)
            return
        except OSError:
            self.close()
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._read += data
        self._take_frames()

    def _take_frames(self) -> None:
        """Passes whole frames on, and reads no more while that would be too many, or no room."""
        while len(self._read) >= _LENGTH_BYTES:
            size = int.from_bytes(self._read[:_LENGTH_BYTES], "big")
            if size > MOST_FRAME_BYTES:
                log.warning("attempt %d: a frame of %d bytes ends its channel", self._number, size)
                self.close()
                return
            end = _LENGTH_BYTES + size
            if len(self._read) < end:
                return
            pause = 0.0 if self._pace.takes(self._loop.time()) else 1.0 / FRAMES_PER_SECOND
            if pause or not self._owner.has_room():
                if not self._again.is_set:
                    self._loop.remove_reader(self._socket.fileno())
                self._again.set(pause or LOOK_SECONDS)
                return
            frame = bytes(self._read[_LENGTH_BYTES:end])
            del self._read[:end]
            self._owner.said(self._number, frame)

    def _resume(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._readable)
        self._take_frames()


class TaskChannels:
    """The channels to all tasks of a worker process that have one.

    Attributes:
        said: called with the number of an attempt and each frame that it wrote; the first is empty
            and says that it has connected.
        has_room: tells whether more frames may be passed on now.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.said: Callable[[int, bytes], None] = lambda number, data: None
        self.has_room: Callable[[], bool] = lambda: True
        self._channels: dict[int, _Channel] = {}

    def open(self, number: int, scratch: int) -> None:
        """Listens in the scratch directory of an attempt that has started.

        Args:
            scratch: the open directory; it stays open.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A path of its own may be too long for a socket: there is room for 107 bytes.
            listening.bind(f"/proc/self/fd/{scratch}/{SOCKET}")
            listening.listen(1)
            listening.setblocking(False)
        except OSError as error:
            log.warning("attempt %d: it has no channel: %s", number, os.strerror(error.errno or 0))
            listening.close()
            return
        self.close(number)
        self._channels[number] = _Channel(number, listening, self)

    def write(self, number: int, data: bytes) -> bool:
        """Writes a frame to a task.

        Returns:
            Whether there is such a task with a channel, and room.
        """
        channel = self._channels.get(number)
        return channel is not None and channel.write(data)

    def close(self, number: int) -> None:
        """Closes the channel of an attempt that has ended, if it has one."""
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()

    def close_all(self) -> None:
        """Closes every channel."""
        for number in list(self._channels):
            self.close(number)
