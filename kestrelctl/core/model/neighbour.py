"""Workers that other pools lend: how to tell them. `job.stays_home` says what never goes there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kestrelctl.core.model.worker.ad import WorkerAd

#: The node of the address at which pools talk with each other. No worker of a pool's own is called
#: so (`members.enrollment`).
FLOCK = "flock"
#: No neighbour is as near as the pool's own workers, whatever was measured.
NEAREST_SECONDS = 1e-6
#: Every worker has some processors, even one that may start nothing now: a loan of no more than
#: this lends nothing.
LEAST_CPUS = 0.001
#: The flock minutes for which guests may go on, unless told otherwise, while own tasks wait for
#: their places: most tasks are short, and what has begun is not thrown away.
RECLAIM_MINUTES = 5.0


def is_neighbour(jid: str) -> bool:
    """Whether a worker is a loan of another pool rather than a machine of the pool's own.

    Args:
        jid: its address; the resource names the class of workers that is lent.
    """
    return jid.partition("/")[0].partition("@")[0] == FLOCK


def distance_seconds_of(ad: WorkerAd | None, jid: str) -> float:
    """Returns how far away a worker is: 0 for one of the pool's own, whatever its ad says.

    Args:
        ad: None if only the address of the worker is known.
    """
    if not is_neighbour(jid):
        return 0.0
    return max(NEAREST_SECONDS, 0.0 if ad is None else ad.distance_seconds)
