"""A network of pools in which some are near and others far: a transit-stub graph, as by GT-ITM.

Transit nodes are a random connected graph of long edges; a cluster of pools hangs at each by short
edges. So a pool has about twenty others nearby, and all others behind one or more long hops.

Zegura, Calvert and Bhattacharjee, "How to Model an Internetwork", INFOCOM 1996.
"""

from __future__ import annotations

import heapq
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

#: The limits of the random weights of edges: between transit nodes, and from a pool to its node.
_TRANSIT_WEIGHTS = (20.0, 40.0)
_STUB_WEIGHTS = (5.0, 10.0)
#: Edges between transit nodes beyond those that connect them, for each node.
_MORE_EDGES = 1.0
#: How many pools hang at a transit node.
_POOLS_PER_TRANSIT = 20


class Topology:
    """The distances of pools from each other.

    Attributes:
        pools: the number of pools; they are numbered from 0.
        diameter_seconds: the longest distance between two of them.
    """

    def __init__(self, random: Random, pools: int, diameter_seconds: float = 0.1) -> None:
        """Draws a network.

        Args:
            pools: at least two; twenty at each transit node.
            diameter_seconds: the longest distance of two pools after scaling; one way.
        """
        self.pools = pools
        self.diameter_seconds = diameter_seconds
        transit = max(1, -(-pools // _POOLS_PER_TRANSIT))
        between = _all_distances(_connected(random, transit))
        home = [pool % transit for pool in range(pools)]
        stub = [random.uniform(*_STUB_WEIGHTS) for _ in range(pools)]
        self._rows = [
            array(
                "d",
                (
                    0.0 if one == other else stub[one] + between[at][home[other]] + stub[other]
                    for other in range(pools)
                ),
            )
            for one, at in enumerate(home)
        ]
        scale = diameter_seconds / max(max(row) for row in self._rows)
        for row in self._rows:
            for other, distance in enumerate(row):
                row[other] = distance * scale

    def seconds(self, one: int, other: int) -> float:
        """Returns how long a message takes from one pool to another; 0 to itself."""
        return self._rows[one][other]

    def row(self, pool: int) -> array[float]:
        """Returns `seconds` from this pool to each other one. To be read only."""
        return self._rows[pool]

    def share(self, one: int, other: int) -> float:
        """Returns two pools' distance as a share of the diameter: the source's locality."""
        return self._rows[one][other] / self.diameter_seconds


def _connected(random: Random, nodes: int) -> list[dict[int, float]]:
    """Draws a random connected graph: a random tree, and as many edges again at random."""
    edges: list[dict[int, float]] = [{} for _ in range(nodes)]

    def join(one: int, other: int) -> None:
        if one != other and other not in edges[one]:
            edges[one][other] = edges[other][one] = random.uniform(*_TRANSIT_WEIGHTS)

    for node in range(1, nodes):
        join(node, random.randrange(node))
    for _ in range(int(_MORE_EDGES * nodes)):
        join(random.randrange(nodes), random.randrange(nodes))
    return edges


def _all_distances(edges: list[dict[int, float]]) -> list[list[float]]:
    """Computes the length of the shortest way between any two nodes."""
    return [_distances(edges, node) for node in range(len(edges))]


def _distances(edges: list[dict[int, float]], start: int) -> list[float]:
    """Computes the length of the shortest way from one node to each, by Dijkstra's algorithm."""
    found = [float("inf")] * len(edges)
    found[start] = 0.0
    ahead = [(0.0, start)]
    while ahead:
        passed, node = heapq.heappop(ahead)
        if passed > found[node]:
            continue
        for other, weight in edges[node].items():
            if passed + weight < found[other]:
                found[other] = passed + weight
                heapq.heappush(ahead, (passed + weight, other))
    return found
