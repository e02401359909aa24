"""What the store keeps of handlers: which events each has still to be told."""

from __future__ import annotations

import msgspec

from kestrelctl.core.membership.handler_words import ToldEvent


class HandlerAwaits(msgspec.Struct, frozen=True):
    """A handler is still to be told this.

    Attributes:
        handler: its name.
        number: the place in its line: the higher the later.
    """

    handler: str
    number: int
    told: ToldEvent


class HandlerSettled(msgspec.Struct, frozen=True):
    """What a handler had to be told up to this place in its line waits no more."""

    handler: str
    up_to: int
