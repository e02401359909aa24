"""Limits on sending: so many messages and so many bytes a second (a token bucket of each)."""

from __future__ import annotations

import enum
from math import inf

import msgspec

#: The seconds' worth that may be sent at once after a rest: a low limit has no large bursts.
BURST_SECONDS = 0.1


class SendKind(enum.StrEnum):
    """The kinds of messages that may have a limit of their own."""

    WORK = "work"  #: from `pool@`: what workers shall do, and what they are told
    FLOCK = "flock"  #: from `flock@`: to other pools
    ANSWERS = "answers"  #: all else: to users
    POLLS = "polls"  #: to workers, for values that they tell anyway
    ALL = "all"  #: everything together


class SendLimit(msgspec.Struct, frozen=True):
    """The limit of one kind of messages, or of all.

    Attributes:
        messages_per_second, bytes_per_second: above 0; infinite for any number.
    """

    messages_per_second: float = inf
    bytes_per_second: float = inf


class Bucket:
    """The rest of a limit at a moment.

    A message goes when there is room for one and no debt of bytes; however large it is, it goes
    whole, and the next ones wait until it has been paid off.
    """

    __slots__ = ("_at", "_bytes", "_limit", "_messages", "_most_bytes", "_most_messages")

    def __init__(self, limit: SendLimit) -> None:
        self._limit = limit
        self._most_messages = max(1.0, limit.messages_per_second * BURST_SECONDS)
        self._most_bytes = limit.bytes_per_second * BURST_SECONDS
        self._messages = self._most_messages
        self._bytes = self._most_bytes
        self._at = -inf

    def pause_seconds(self, now: float) -> float:
        """The time until the next message may go; 0 if it may now."""
        self._fill(now)
        pause = 0.0
        if self._messages < 1.0:
            pause = (1.0 - self._messages) / self._limit.messages_per_second
        if self._bytes < 0.0:
            pause = max(pause, -self._bytes / self._limit.bytes_per_second)
        return pause

    def take(self, size_bytes: int, now: float) -> None:
        """Notes that a message goes."""
        self._fill(now)
        if self._messages != inf:
            self._messages -= 1.0
        if self._bytes != inf:
            self._bytes -= size_bytes

    def _fill(self, now: float) -> None:
        passed_seconds = now - self._at
        if passed_seconds > 0.0:
            self._at = now
            limit = self._limit
            self._messages = min(
                self._most_messages, self._messages + passed_seconds * limit.messages_per_second
            )
            self._bytes = min(
                self._most_bytes, self._bytes + passed_seconds * limit.bytes_per_second
            )
