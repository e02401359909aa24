"""Simulates flocks and tells the results: as JSON, as a table, and on a page with plots."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from kestrel_experiments.flock_simulation.flock_tally import FlockTally, tally
from kestrel_experiments.flock_simulation.flock_world import FlockWorld, FlockWorldPlan
from kestrel_experiments.flock_simulation.page import (
    completion_plot,
    flock_page,
    locality_plot,
)
from kestrelctl.bench.report.files import write_files
from kestrelctl.errors import UsageError


class FlockSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """The flocks that were simulated, and the command that did it."""

    command: str
    runs: list[FlockTally]


def simulate(
    plans: Iterable[FlockWorldPlan], on_run: Callable[[FlockTally], None]
) -> list[FlockTally]:
    """Runs flocks one after the other.

    Args:
        on_run: is told of each flock that has come to its end.

    Raises:
        UsageError: a plan makes no sense.
    """
    found = []
    for plan in plans:
        if plan.pools < 2 or plan.scale <= 0:
            raise UsageError("a flock needs two pools, and a scale above 0")
        if plan.core and plan.failing:
            raise UsageError("pools that have a core do not fail: leave --core or --failing away")
        begun = time.process_time()
        gc.disable()  # there are millions of events, and no cycles
        try:
            world = FlockWorld(plan)
            world.run()
        finally:
            gc.enable()
        spent = time.process_time() - begun
        run = msgspec.structs.replace(
            tally(world), cpu_seconds=round(spent, 1), peak_bytes=_peak_bytes()
        )
        on_run(run)
        found.append(run)
    return found


def _peak_bytes() -> int:
    """Returns the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_flock_report(directory: Path, result: FlockSimulation) -> Path:
    """Writes `flock.html`, `flock.json` and the plots as SVG; returns the page.

    Raises:
        UsageError: it cannot be written.
    """
    files = {
        "flock.html": flock_page(result.runs, result.command).encode(),
        "flock.json": msgspec.json.encode(result),
        "flock-locality.svg": locality_plot(result.runs).picture(),
        "flock-completion.svg": completion_plot(result.runs).picture(),
    }
    return write_files(directory, files)[0]
