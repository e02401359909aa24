"""The words of a `KestrelExecutor` and its interpreters, in the frames of a task's channel.

The first frame to a task is `S`, the length of the owner's wishes, these as JSON, and the source of
`kestrelctl.client.interpreter`. All others are parts of messages: `M`, the number of the message
(8 bytes), that of the part (4), `1` or `0` for the last or not, and the part. Of a message of which
a part is missing nothing counts; both ends ask again for what they miss. A message is the length of
its header (4 bytes), the header as JSON, and then pickles, whose lengths the header says. Messages
of interpreters have a seal before them: HMAC-SHA256 with the key of the executor.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kestrelctl.client import interpreter

SEAL_BYTES = 32
_NUMBER = slice(1, 9)
_PART = slice(9, 13)
_LAST = slice(13, 14)
_HEAD_BYTES = 14
#: As this program runs it: the package may be replaced meanwhile. In a call it is no file.
_FILE = getattr(interpreter, "__file__", None)
_SOURCE = Path(_FILE).read_bytes() if _FILE else b""


class Forged(ValueError):
    """A message has not the seal of an interpreter of this executor, or makes no sense."""


def first_frame(wishes: dict[str, Any]) -> bytes:
    """Returns the frame that makes a task an interpreter."""
    text = json.dumps(wishes).encode()
    return b"S" + len(text).to_bytes(4, "big") + text + _SOURCE


def frames_of(number: int, header: dict[str, Any], blobs: Sequence[bytes]) -> Iterator[bytes]:
    """Yields the frames of a message to an interpreter.

    Args:
        number: different from that of each other message to it.
        header: the lengths of the blobs are added to it.
    """
    header["sizes"] = [len(blob) for blob in blobs]
    text = json.dumps(header).encode()
    body = b"".join((len(text).to_bytes(4, "big"), text, *blobs))
    size = interpreter.MOST_CHUNK_BYTES
    parts = range(0, len(body), size)
    for part, first in enumerate(parts):
        last = b"1" if first == parts[-1] else b"0"
        head = b"M" + number.to_bytes(8, "big") + part.to_bytes(4, "big") + last
        yield head + body[first : first + size]


class Messages:
    """Puts messages of one interpreter together.

    Args:
        key: that of the executor.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = b""
        self._parts: list[bytes] = []

    def take(self, frame: bytes) -> tuple[dict[str, Any], list[bytes]] | None:
        """Takes a frame in.

        Returns:
            The header and the pickles of a message that is whole now; None if none is.

        Raises:
            Forged: a whole message is not of an interpreter of this executor.
        """
        if frame[:1] != b"M" or len(frame) < _HEAD_BYTES:
            raise Forged("it is no part of a message")
        part = int.from_bytes(frame[_PART], "big")
        if part == 0:
            self._number, self._parts = frame[_NUMBER], []
        if frame[_NUMBER] != self._number or part != len(self._parts):
            self._number = b""
            return None
        self._parts.append(frame[_HEAD_BYTES:])
        if frame[_LAST] != b"1":
            return None
        body, self._parts = b"".join(self._parts), []
        return opened(self._key, body)


def opened(key: bytes, body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Returns the header and the pickles of a sealed message.

    Raises:
        Forged: the seal is wrong.
    """
    seal, rest = body[:SEAL_BYTES], body[SEAL_BYTES:]
    if not hmac.compare_digest(seal, hmac.new(key, rest, "sha256").digest()):
        raise Forged("its seal is wrong")
    at = 4 + int.from_bytes(rest[:4], "big")
    header: dict[str, Any] = json.loads(rest[4:at])
    blobs = []
    for size in header["sizes"]:
        blobs.append(rest[at : at + size])
        at += size
    return header, blobs
