"""The rungs of isolation between the tasks of a worker, and the tags that stand for them.

A worker on one rung advertises the tags of its own rung and of all weaker ones, so "at least as
well isolated as" is the ordinary match of tags.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

#: Best first.
RUNGS = ("systemd", "bubblewrap", "namespace", "plain")

#: Tags with this prefix (in any case) are what a worker says of its isolation, and nothing else is.
TAG_PREFIX = "isolation:"

_FILES = (
    "files of other tasks",
    "files of the worker",
    "the worker's home and credentials in files",
    "the rest of the file system",
)
_APPROXIMATE = (
    "memory between two looks",
    "number of processes between two looks",
)
_SHARED = ("network", "processor time")

#: The things that are not kept from a task, or not kept exactly, on each rung.
NOT_ENFORCED = {
    "systemd": _SHARED,
    "bubblewrap": (*_APPROXIMATE, *_SHARED),
    "namespace": (*_FILES, "local sockets", *_APPROXIMATE, *_SHARED),
    "plain": (
        "signals to other tasks and to the worker",
        "memory and environment of other tasks",
        "processes that detach, while other tasks run",
        *_FILES,
        "local sockets",
        *_APPROXIMATE,
        *_SHARED,
    ),
}


def tag(rung: str) -> str:
    """The tag that says: isolated at least so well."""
    return TAG_PREFIX + rung


def tags_of(rung: str) -> tuple[str, ...]:
    """The tags of a worker on this rung: for the rung and all weaker ones."""
    return tuple(map(tag, RUNGS[RUNGS.index(rung) :]))


def is_reserved(name: str) -> bool:
    """Whether an operator may not give this tag to a worker."""
    return name.lower().startswith(TAG_PREFIX)


def without_isolation(tags: Iterable[str]) -> list[str]:
    """The tags that are not about isolation."""
    return [name for name in tags if not is_reserved(name)]


def rung_of(tags: Collection[str]) -> str:
    """The rung of a worker with these tags (in any case); empty if it says none."""
    said = {name.lower() for name in tags}
    return next((rung for rung in RUNGS if tag(rung) in said), "")
