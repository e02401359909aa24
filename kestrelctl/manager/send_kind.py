"""Kinds of what the manager sends, told by the address that it comes from."""

from __future__ import annotations

import enum


class SendKind(enum.StrEnum):
    """What may have a limit of its own."""

    WORK = "work"  #: from `pool@`: what workers shall do, and what they are told
    FLOCK = "flock"  #: from `flock@`: to other pools
    ANSWERS = "answers"  #: all else: to users
    ALL = "all"  #: everything together


#: Of one message, in the order in which they go when all of them wait.
KINDS = (SendKind.WORK, SendKind.FLOCK, SendKind.ANSWERS)


def kind_of(sender: str | None) -> SendKind:
    """The kind of a message.

    Args:
        sender: the address that it comes from; None for the pool's domain.
    """
    name = (sender or "").partition("@")[0]
    if name == "pool":
        return SendKind.WORK
    return SendKind.FLOCK if name == "flock" else SendKind.ANSWERS
