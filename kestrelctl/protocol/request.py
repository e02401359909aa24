"""What all requests of users have in common."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kestrelctl.protocol.work import Message

#: Short, because whatever is answered repeats it.
RequestId = Annotated[str, msgspec.Meta(max_length=100)]


class Request(Message, frozen=True, kw_only=True):
    """Anything a user asks."""

    id: RequestId = ""
