"""Placements of idle pools: tasks placed as a share of the optimum, and what they cost.

.venv/bin/python tests/bench/placement.py [INSTANCES]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from placementkit import Instance, best_fit, first_fit, flow, one_asset, optimum, placed, two_assets

PLACEMENTS = (("first fit", first_fit), ("best fit", best_fit), ("flow", flow))


def quality(make: Callable[[random.Random], Instance], instances: int) -> dict[str, list[float]]:
    """Of each placement, the share of the optimum in each instance."""
    found: dict[str, list[float]] = {name: [] for name, _ in PLACEMENTS}
    for seed in range(instances):
        instance = make(random.Random(seed))
        most = optimum(instance)
        if most:
            for name, place in PLACEMENTS:
                found[name].append(placed(place(instance)) / most)
    return found


def main() -> None:
    """Prints the table of docs/performance.md."""
    instances = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    large = one_asset(random.Random(0))
    tasks = sum(shape.tasks for shape in large.shapes)
    scaled = [
        type(shape)(round(shape.tasks * 50_000 / tasks), shape.asks, shape.classes)
        for shape in large.shapes
    ]
    large = Instance(large.workers, large.has, scaled)
    small = quality(lambda r: one_asset(r, workers=100), instances)
    both = quality(two_assets, instances)
    print(f"placement   one asset (worst)   two assets (worst)   time   ({instances:,} instances)")
    for name, place in PLACEMENTS:
        took = []
        for _ in range(5):
            began = time.perf_counter()
            place(large)
            took.append(time.perf_counter() - began)
        cells = [f"{sum(s) / len(s):7.1%} ({min(s):.1%})" for s in (small[name], both[name])]
        print(f"{name:10}  {cells[0]:>18}  {cells[1]:>19}   {min(took) * 1000:.1f} ms")


if __name__ == "__main__":
    main()
