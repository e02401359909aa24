"""The network of a simulated flock: distances are those of shortest ways; some pools are near."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from random import Random

import pytest

from kestrel_experiments.flock_simulation.topology import Topology, _all_distances, _connected


def test_ways_between_transit_nodes_are_the_shortest_there_are() -> None:
    edges = _connected(Random(1), 7)
    found = _all_distances(edges)
    for one, other in product(range(7), repeat=2):
        between = [node for node in range(7) if node not in (one, other)]
        ways = [
            (one, *middle, other)
            for length in range(len(between) + 1)
            for middle in permutations(between, length)
        ]
        lengths = [sum(edges[a].get(b, float("inf")) for a, b in pairwise(way)) for way in ways]
        assert found[one][other] == pytest.approx(0 if one == other else min(lengths))


def test_the_way_there_is_as_long_as_the_way_back_and_the_longest_is_the_diameter() -> None:
    network = Topology(Random(2), 60, diameter_seconds=0.25)
    pairs = list(product(range(60), repeat=2))
    assert all(network.seconds(a, b) == pytest.approx(network.seconds(b, a)) for a, b in pairs)
    assert all(network.seconds(a, a) == 0 for a in range(60))
    assert max(network.seconds(a, b) for a, b in pairs) == pytest.approx(0.25)
    assert max(network.share(a, b) for a, b in pairs) == pytest.approx(1)


def test_a_pool_has_nineteen_others_nearby_and_the_rest_behind_long_ways() -> None:
    network = Topology(Random(3), 1000)
    for pool in range(0, 1000, 50):
        shares = sorted(network.share(pool, other) for other in range(1000) if other != pool)
        assert shares[18] < 0.15
        assert 1.5 * shares[18] < shares[19]


def test_one_seed_draws_one_network() -> None:
    one, same, other = (Topology(Random(seed), 40) for seed in (5, 5, 6))
    assert [one.row(n) for n in range(40)] == [same.row(n) for n in range(40)]
    assert [one.row(n) for n in range(40)] != [other.row(n) for n in range(40)]
