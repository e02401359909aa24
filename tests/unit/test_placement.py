"""How good placements are, on average over random instances; docs/performance.md has the table."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import mean

import pytest
from placementkit import (
    Instance,
    best_fit,
    first_fit,
    flow,
    must_be_valid,
    one_asset,
    optimum,
    placed,
    two_assets,
)


@pytest.mark.parametrize(
    ("make", "instances", "best_fit_share", "flow_share"),
    [
        (lambda r: one_asset(r, workers=100), 25, 0.97, 1.0),
        (two_assets, 120, 0.95, 0.98),
    ],
    ids=["one asset limits", "processors and memory limit"],
)
def test_placements_come_this_close_to_the_optimum(
    make: Callable[[random.Random], Instance],
    instances: int,
    best_fit_share: float,
    flow_share: float,
) -> None:
    shares: dict[str, list[float]] = {"first": [], "best": [], "flow": []}
    for seed in range(instances):
        instance = make(random.Random(seed))
        most = optimum(instance)
        if not most:
            continue
        for name, place in (("first", first_fit), ("best", best_fit), ("flow", flow)):
            found = place(instance)
            must_be_valid(instance, found)
            assert placed(found) <= most
            shares[name].append(placed(found) / most)
    assert mean(shares["best"]) >= best_fit_share
    assert mean(shares["flow"]) >= flow_share
    assert mean(shares["first"]) < mean(shares["best"]) < mean(shares["flow"])
