"""What all answers to users have in common."""

from __future__ import annotations

from kestrelctl.protocol.work import Message


class Reply(Message, frozen=True, kw_only=True):
    """Anything the pool says to a user; `id` is that of the request."""

    id: str
