"""Changes of a worker as a member of the pool."""

from __future__ import annotations

from kestrelctl.core.model.worker.ad import WorkerAd

#: The kinds, and what each says:
#:
#: - `join`: it is there.
#: - `leave`: it is gone, as it had announced, or because its account was taken away.
#: - `failed`: it is gone, and had not said so.
#: - `update`: what it offers, or says of itself, is another.
#: - `quarantine`, `quarantine-end`: it is given nothing for a while; that is over.
#: - `drain`, `drain-end`: it is given nothing more, on somebody's wish; that is over.
MEMBER_KINDS = (
    "join",
    "leave",
    "failed",
    "update",
    "quarantine",
    "quarantine-end",
    "drain",
    "drain-end",
)

_PLAIN = ("units", "shared", "unknown", "host", "os", "arch", "version", "start", "ends_at")


def what_changed(before: WorkerAd, after: WorkerAd) -> str:
    """Names what differs between two ads of a worker, in few words; empty for nothing.

    Values of properties do not count.
    """
    words = [f"+{tag}" for tag in after.tags if tag not in before.tags]
    words += [f"-{tag}" for tag in before.tags if tag not in after.tags]
    words += [
        f"{asset} {before.assets.get(asset, 0.0):.10g} to {after.assets.get(asset, 0.0):.10g}"
        for asset in sorted(before.assets.keys() | after.assets.keys())
        if before.assets.get(asset) != after.assets.get(asset)
    ]
    words += [
        name
        for name in sorted(before.attributes.keys() | after.attributes.keys())
        if before.attributes.get(name) != after.attributes.get(name)
    ]
    words += [name for name in _PLAIN if getattr(before, name) != getattr(after, name)]
    return ", ".join(words)
