"""The figures that the first Kestrel reached in 2009.

Source: Lance Stout, Mike Murphy, Sebastien Goasguen, "Kestrel: An XMPP-Based Framework for Many
Task Computing Applications", slides of the talk at MTAGS 2009, section "Results".
"""

from __future__ import annotations

from dataclasses import dataclass

from kestrelctl.bench.bounds import parse_sleep

SOURCE = (
    "Lance Stout, Mike Murphy, Sebastien Goasguen: “Kestrel: An XMPP-Based Framework for Many Task "
    "Computing Applications”, slides of the talk at MTAGS 2009, section “Results”."
)


@dataclass(frozen=True, slots=True)
class Reference:
    """One run of 2009: `tasks` tasks of `sleep` seconds each, on `workers` workers of a cluster."""

    sleep: str
    workers: int
    makespan_seconds: float
    tasks: int = 50_000
    note: str = ""

    @property
    def tasks_per_second(self) -> float:
        return self.tasks / self.makespan_seconds

    @property
    def utilisation(self) -> float:
        """Share of the workers' time that was spent inside tasks; for a range, of its mean."""
        task_seconds = self.tasks * parse_sleep(self.sleep).mean
        return task_seconds / self.workers / self.makespan_seconds


_RUNS = (
    Reference("0", 917, 103.0),
    Reference("1", 910, 108.0),
    Reference(
        "10",
        914,
        543.0,
        note="543 s is below the bound of 547 s (500,000 s of sleep on 914 workers), so the "
        "published worker count or time cannot be exact.",
    ),
    Reference(
        "0-10",
        902,
        387.0,
        note="The slides say only “between 0 and 10 seconds”; a uniform draw is assumed.",
    ),
)

REFERENCE_2009: dict[str, Reference] = {run.sleep: run for run in _RUNS}

#: The runs of 2009 as they are given to `--sleep`, with their numbers of workers.
SLEEPS_2009 = tuple(f"{run.sleep}:{run.workers}" for run in _RUNS)


def had_workers(sleep: str, workers: int) -> bool:
    """Whether 2009 had a run of this sleep time on as many workers, give or take a fiftieth."""
    then = REFERENCE_2009.get(sleep)
    return then is not None and abs(workers - then.workers) <= then.workers / 50
