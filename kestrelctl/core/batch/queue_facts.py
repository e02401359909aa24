"""The facts common to all batch systems: jobs that wait or run, nodes that idle or do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: Phases of jobs. Jobs that wait for anything but nodes (a hold, another job, a date) have neither.
PENDING, RUNNING = "pending", "running"
#: Phases of nodes. Nodes that are down, drained, or do not answer have neither.
IDLE, ALLOCATED = "idle", "allocated"


class UnreadableOutput(Exception):
    """A program of the batch system has printed what cannot be read; the text says what."""


class BatchJobs(NamedTuple):
    """Jobs that are alike: one, or those tasks of an array that are in one phase.

    Attributes:
        phase: `PENDING` or `RUNNING`.
        jobs: how many.
        nodes: how many each asks for, or has.
        features: those that it names among what it needs, in small letters.
        partitions: those in which it may run; empty for any.
    """

    phase: str
    jobs: int
    nodes: int
    features: frozenset[str]
    partitions: frozenset[str]


class BatchNode(NamedTuple):
    """A node.

    Attributes:
        phase: `IDLE`, `ALLOCATED`, or empty if nothing could run there.
        features: in small letters.
        partitions: those that it belongs to; empty for any.
    """

    name: str
    phase: str
    features: frozenset[str]
    partitions: frozenset[str]


def merged(nodes: Iterable[BatchNode]) -> list[BatchNode]:
    """Merges nodes that are listed once for each partition or part of theirs: one of each name.

    A node that works anywhere is allocated, and one with a part out of order does not idle.
    """
    found: dict[str, BatchNode] = {}
    for node in nodes:
        before = found.get(node.name)
        if before is None:
            found[node.name] = node
            continue
        phases = {before.phase, node.phase}
        found[node.name] = BatchNode(
            node.name,
            ALLOCATED if ALLOCATED in phases else node.phase if len(phases) == 1 else "",
            before.features | node.features,
            before.partitions | node.partitions,
        )
    return list(found.values())
