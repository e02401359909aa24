"""Simulates flocks and says what came of it: as JSON, as a table, and on a page with plots."""

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
from kestrelctl.bench.report.svg import picture
from kestrelctl.errors import UsageError


class FlockSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """Flocks that were simulated, and by which command."""

    command: str
    runs: list[FlockTally]


def simulate(
    plans: Iterable[FlockWorldPlan], on_run: Callable[[FlockTally], None]
) -> list[FlockTally]:
    """Runs flocks one after the other.

    Args:
        on_run: is told of each that has come to its end.

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
        gc.disable()  # events are millions, and no circles
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
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_flock_report(directory: Path, result: FlockSimulation) -> Path:
    """Writes `flock.html`, `flock.json` and the plots as SVG; returns the page.

    Raises:
        UsageError: it cannot be written.
    """
    files = {
        "flock.html": flock_page(result.runs, result.command).encode(),
        "flock.json": msgspec.json.encode(result),
        "flock-locality.svg": picture(locality_plot(result.runs).markup()).encode(),
        "flock-completion.svg": picture(completion_plot(result.runs).markup()).encode(),
    }
    return write_files(directory, files)[0]
