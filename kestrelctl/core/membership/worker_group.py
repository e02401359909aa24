"""What a group of workers asks of them; who is in, `worker_groups` finds out."""

from __future__ import annotations

import msgspec


class WorkerGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group: the workers of which all that it asks for is true.

    Attributes:
        tags: they have all of these.
        names: their address or name fits one of these globs; empty for any.
        where: an expression on their ads that comes to true; empty for any.
    """

    name: str
    tags: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    where: str = ""


class WorkerGroupGone(msgspec.Struct, frozen=True):
    """A group that there is no more."""

    name: str
