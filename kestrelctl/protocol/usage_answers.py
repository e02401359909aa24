"""Answers to what users have used."""

from __future__ import annotations

import msgspec

from kestrelctl.protocol.reply import Reply


class UserLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the attempts of a user's jobs took whose results became known in some days.

    Attributes:
        user: or the group, if that was asked; then it is empty for users who are in none.
        tasks: how many of them ended their task.
        memory_byte_seconds: the peak of memory times the run time, of attempts whose memory is
            known; None if it is known of none.
        peak_bytes: the most that an attempt took; None if it is known of none.
        stored_bytes: what tasks have in the file share now, whenever they put it there.
        max_stored_bytes: of a user the most of that; None for any number.
        queued_bytes: how large jobs are together that have not ended, as encoded.
        max_queued_bytes: of a user the most of that; None for any size.
    """

    user: str
    attempts: int = 0
    tasks: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    wait_seconds: float = 0.0
    memory_byte_seconds: float | None = None
    peak_bytes: int | None = None
    stored_bytes: int = 0
    max_stored_bytes: int | None = None
    queued_bytes: int = 0
    max_queued_bytes: int | None = None


class UsedByUsers(Reply, frozen=True, kw_only=True, tag="user_usage"):
    """A page of users.

    Attributes:
        since: the beginning of the first day that counts, seconds since the epoch.
        after: asks for the next page; None if this was the last.
    """

    since: float
    users: list[UserLine]
    after: str | None = None
