"""Users and groups as users of the pool are shown them."""

from __future__ import annotations

import msgspec


class UserView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is set for a user, and what he has.

    Attributes:
        share: of the pool as it is now, 0 to 1: the shares of all who want something come to 1.
        running: attempts that are charged at workers.
        waiting: his other tasks without a final state.
        usage_seconds: what he has used lately, each attempt with its weight.
        limits: asset -> amount that may be charged for him at once, in its natural unit.
        mail: where he is sent word of ends of his jobs; shown to him and to admins.
        stored_bytes: what his tasks have in the file share.
        max_stored_bytes: with so much there, none begins that stores more; None for any number.
        queued_bytes: how large his jobs are together that have not ended, as encoded.
        max_queued_bytes: the most of that; None for any size.
    """

    user: str
    group: str = ""
    weight: float = 1.0
    share: float = 0.0
    running: int = 0
    waiting: int = 0
    usage_seconds: float = 0.0
    max_running: int | None = None
    max_queued: int | None = None
    limits: dict[str, float] = {}
    mail: str = ""
    stored_bytes: int = 0
    max_stored_bytes: int | None = None
    queued_bytes: int = 0
    max_queued_bytes: int | None = None


class GroupView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is set for a group, and what its members have together, as of a user.

    Attributes:
        members: how many.
        names: their accounts, as far as they are the asking user's to know, at most a hundred.
    """

    group: str
    members: int = 0
    weight: float = 1.0
    share: float = 0.0
    running: int = 0
    waiting: int = 0
    usage_seconds: float = 0.0
    max_running: int | None = None
    max_queued: int | None = None
    limits: dict[str, float] = {}
    names: list[str] = []
