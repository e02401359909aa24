"""Kinds of what the manager sends, told by the address that it comes from and by what it is."""

from __future__ import annotations

import enum


class SendKind(enum.StrEnum):
    """What may have a limit of its own."""

    WORK = "work"  #: from `pool@`: what workers shall do, and what they are told
    FLOCK = "flock"  #: from `flock@`: to other pools
    ANSWERS = "answers"  #: all else: to users
    POLLS = "polls"  #: to workers, for values that they tell anyway
    ALL = "all"  #: everything together


#: Of one message, in the order in which they go when all of them wait.
KINDS = (SendKind.WORK, SendKind.FLOCK, SendKind.ANSWERS, SendKind.POLLS)

#: How a message begins that asks a worker for values.
_POLL = '{"type":"read_properties"'


def kind_of(sender: str | None, text: str) -> SendKind:
    """The kind of a message.

    Args:
        sender: the address that it comes from; None for the pool's domain.
        text: its payload.
    """
    name = (sender or "").partition("@")[0]
    if name == "pool":
        return SendKind.POLLS if text.startswith(_POLL) else SendKind.WORK
    return SendKind.FLOCK if name == "flock" else SendKind.ANSWERS
