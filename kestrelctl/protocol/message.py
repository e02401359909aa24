"""The base of all messages."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Anything that travels: one JSON object, told apart by `type`. Unknown fields are ignored.

    Attributes:
        silent_end: what the arrays in it may end with and mean nothing by, so that it is left out;
            empty for nothing.
    """

    silent_end: ClassVar[bytes] = b""
