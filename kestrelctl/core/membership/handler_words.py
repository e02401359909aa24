"""Puts an event into the words that handlers are told: as an object, and as variables."""

from __future__ import annotations

import msgspec

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.model.worker.ad import WorkerAd


class ToldEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event, with what its worker says of itself.

    Attributes:
        event: as in `MembershipEvent.kind`.
        host, tags, assets: empty if nobody knows the worker any more.
    """

    pool: str
    handler: str
    number: int
    at: float
    event: str
    worker: str
    groups: tuple[str, ...] = ()
    reason: str = ""
    host: str = ""
    tags: tuple[str, ...] = ()
    assets: dict[str, float] = {}


def told_event(
    event: MembershipEvent, member: WorkerAd | None, *, pool: str, handler: str
) -> ToldEvent:
    """Puts together what a handler is told of an event.

    Args:
        member: what the worker says of itself; None if nobody knows it any more.
        pool: the pool's domain.
        handler: the handler's name.
    """
    known = member or WorkerAd(assets={})
    return ToldEvent(
        pool=pool,
        handler=handler,
        number=event.number,
        at=event.at,
        event=event.kind,
        worker=event.worker,
        groups=event.groups,
        reason=event.reason,
        host=known.host,
        tags=known.tags,
        assets=known.assets,
    )


def variables(told: ToldEvent) -> dict[str, str]:
    """The same as variables of a program: `KESTREL_EVENT`, `KESTREL_WORKER` …

    What a worker says of itself has no character that cannot be printed.
    """
    found = {
        "POOL": told.pool,
        "HANDLER": told.handler,
        "NUMBER": str(told.number),
        "TIME": f"{told.at:.3f}",
        "EVENT": told.event,
        "WORKER": told.worker,
        "GROUPS": ",".join(told.groups),
        "REASON": told.reason,
        "HOST": told.host,
        "TAGS": ",".join(told.tags),
        "CPUS": f"{told.assets.get('cpus', 0.0):.10g}",
        "MEMORY": f"{told.assets.get('memory', 0.0):.0f}",
    }
    return {f"KESTREL_{name}": _printable(text) for name, text in found.items()}


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
