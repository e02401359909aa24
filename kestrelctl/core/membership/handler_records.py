"""Records of handlers that the store keeps: the events that each has still to be told."""

from __future__ import annotations

import msgspec

from kestrelctl.core.membership.handler_words import ToldEvent


class HandlerAwaits(msgspec.Struct, frozen=True):
    """An event that a handler is still to be told.

    Attributes:
        handler: its name.
        number: the place in its line: the higher the later.
    """

    handler: str
    number: int
    told: ToldEvent


class HandlerSettled(msgspec.Struct, frozen=True):
    """The events that a handler had to be told up to this place in its line wait no more."""

    handler: str
    up_to: int
