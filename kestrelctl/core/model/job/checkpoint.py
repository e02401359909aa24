"""A checkpoint to go on from: as the worker of a program stores it, and as the pool keeps it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kestrelctl.core.model.files.stored_file import StoredFile, problem_with_stored_file

#: Checkpoints of a task are counted from 1, over all of its attempts.
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=(1 << 62) - 1)]

#: Between two checkpoints, unless a job says otherwise.
DEFAULT_SECONDS = 600.0

#: The longest address of a piece, and the most that a stored file takes in a message: it travels
#: with the attempt that goes on from it.
MOST_URL_CHARACTERS = 1024
MOST_STORED_BYTES = 150_000


class MadeCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint that an attempt has made.

    Attributes:
        n: which one of its task it is.
        stored: its files, as one archive.
    """

    n: Ordinal
    stored: StoredFile


class Checkpoint(msgspec.Struct, frozen=True):
    """The checkpoint from which the next attempt of a task goes on.

    Attributes:
        number: of the attempt that made it.
        n: which one of its task it is.
        stored: its files, as one archive.
        at: when the pool heard of it, in seconds since the epoch.
    """

    number: int
    n: int
    stored: StoredFile
    at: float

    def is_older_than(self, number: int, n: int) -> bool:
        """Whether this is of an earlier attempt, or an earlier checkpoint of the same attempt."""
        return (self.number, self.n) < (number, n)


def can_be_given(stored: StoredFile) -> bool:
    """Whether it can be fetched, and fits into a message beside what else an attempt takes."""
    text = msgspec.json.encode(stored)
    escapes = text.count(b"&") + text.count(b"<") + text.count(b">")
    return (
        all(len(piece.url) <= MOST_URL_CHARACTERS for piece in stored.pieces)
        and len(text) + 4 * escapes <= MOST_STORED_BYTES
        and problem_with_stored_file(stored) is None
    )
