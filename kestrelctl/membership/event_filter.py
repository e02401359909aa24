"""Which events a handler is for: `failed,quarantine`, `failed:gpu`, `*`."""

from __future__ import annotations

from typing import NamedTuple

from kestrelctl.errors import UsageError
from kestrelctl.membership.membership_event import MembershipEvent, must_be_kind

ANY = "*"


class _Term(NamedTuple):
    kind: str
    group: str


class EventFilter:
    """Kinds of events, each of any worker or of those in a group, as Serf writes them.

    Args:
        text: kinds between commas, each perhaps with a colon and a group; `*` is any kind.
        group: counts for kinds that name none.

    Raises:
        UsageError: it is nothing of the kind.
    """

    def __init__(self, text: str, group: str = "") -> None:
        self.text = text
        self._terms = tuple(_term(word, group) for word in text.split(","))

    def takes(self, event: MembershipEvent) -> bool:
        """Whether the event is one of these."""
        return any(
            term.kind in (ANY, event.kind) and (not term.group or term.group in event.groups)
            for term in self._terms
        )


def _term(word: str, default_group: str) -> _Term:
    kind, colon, group = word.strip().partition(":")
    if colon and not group:
        raise UsageError(
            f"{word.strip()!r} names no group", hint="write failed:gpu, or failed for any worker"
        )
    return _Term(kind if kind == ANY else must_be_kind(kind), group or default_group)
