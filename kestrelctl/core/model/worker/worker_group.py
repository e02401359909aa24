"""The definition of a group of workers; `core.members.worker_groups` finds out who is in."""

from __future__ import annotations

from kestrelctl.core.model.setting import Setting


class WorkerGroup(Setting, frozen=True, kw_only=True, omit_defaults=True):
    """A group: the workers of which all that it asks for is true.

    Attributes:
        tags: they have all of these.
        names: their address or name fits one of these globs; empty for any.
        where: an expression on their ads that comes to true; empty for any.
    """

    tags: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    where: str = ""
