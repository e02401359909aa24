"""What tasks wrote as users of the pool are shown it."""

from __future__ import annotations

import msgspec

from kestrelctl.protocol.reply import Reply


class TaskOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """The output of one task of many; an array, because pages of a thousand travel.

    Attributes:
        data: base64 in JSON; empty if `more`.
        size_bytes: how much it wrote, as far as the manager knows.
        more: whether its worker, or the file share, has more than the manager: `logs` asks for it.
        why_missing: why nothing of it can be had.
    """

    task_id: int
    data: bytes = b""
    size_bytes: int = 0
    more: bool = False
    why_missing: str = ""


class AttemptOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of what one attempt of a task has written so far.

    Attributes:
        attempt: its number.
        count: which attempt of its task it is; 0 if that is not known any more.
        over: how it ended, or that it was given up; empty while it runs.
        data: base64 in JSON.
        more: whether there is more of it already.
        skipped_bytes: how much before this piece cannot be had.
        cut_bytes: how much after the last piece was never kept.
        why_missing: why that is so.
    """

    attempt: int
    worker: str = ""
    count: int = 0
    over: str = ""
    data: bytes = b""
    more: bool = False
    skipped_bytes: int = 0
    cut_bytes: int = 0
    why_missing: str = ""


class FollowedLog(Reply, frozen=True, kw_only=True, tag="followed_log"):
    """The state of a task, and a piece of output; None if there is none to be read now."""

    state: str
    piece: AttemptOutput | None = None
