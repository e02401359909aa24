"""What operators have set about assets: what tasks are charged, and what the whole pool has."""

from __future__ import annotations

import msgspec

from kestrelctl.protocol.reply import Reply


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """A consumption policy.

    Attributes:
        workers: an expression: those that it is for.
        in_force: for how many workers it is the one that counts.
    """

    name: str
    workers: str
    text: str
    in_force: int = 0


class AssetView(msgspec.Struct, frozen=True, kw_only=True):
    """An asset of the whole pool, in tokens.

    Attributes:
        held: by attempts, from their hand-out to their end.
        waiting: tasks that ask for it and that no worker has.
    """

    name: str
    total: int
    held: int = 0
    waiting: int = 0


class Policies(Reply, frozen=True, kw_only=True, tag="policies"):
    """All policies of the pool, by name: of those that are for a worker the first counts."""

    policies: list[PolicyView]


class Assets(Reply, frozen=True, kw_only=True, tag="assets"):
    """All assets of the whole pool, by name."""

    assets: list[AssetView]
