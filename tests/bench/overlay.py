"""What the overlay of a flock costs, by how many pools there are, on simulated time:
`python tests/bench/overlay.py [POOLS ...]`.

Pools join one after the other, two seconds apart, each by any that is there. Then, after an hour:
entries in the routing table; messages that a pool sends in a minute in which nothing happens; pools
that are asked on the walk of one that joins, and messages to and from it in its first ten minutes;
pools on the way to the one that is nearest to a random id; how long the round trips to the pools of
the table are, beside those to the nearest pool for each slot; and processor time of all for an
hour, with that of the network of the measurement.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from overlaykit import MINUTE, Network, sent

from kestrelctl.flock.overlay.pool_ids import pool_id

HEAD = (
    f"{'pools':>5} {'entries':>8} {'messages/min':>13} {'join: asked':>12} {'messages':>9} "
    f"{'hops':>5} {'most':>5} {'round trips':>12} {'CPU s/h':>8}"
)


def measure(pools: int) -> str:
    network = Network(1)
    network.grow(pools)
    network.run(60 * MINUTE)
    before, began = sent(network.pools.values()), time.process_time()
    network.run(60 * MINUTE)
    cpu_seconds = time.process_time() - began
    per_minute = (sent(network.pools.values()) - before) / 60
    entries = statistics.mean(len(pool.table()) for pool in network.pools.values())
    hops = []
    for _ in range(500):
        key = network.random.getrandbits(128)
        path = network.route(network.random.choice(sorted(network.pools)), key)
        assert path[-1] == network.nearest(key)
        hops.append(len(path) - 1)
    nearness = round_trips(network)
    wrong = len(network.wrong_leaves()) + len(network.empty_slots())
    assert not wrong, f"{wrong} places are not filled as they should"
    asked, cost = joins(network)
    return (
        f"{pools:5d} {entries:8.1f} {per_minute / pools:13.1f} {asked:12.1f} {cost:9.0f} "
        f"{statistics.mean(hops):5.2f} {max(hops):5d} {nearness:12.2f} {cpu_seconds:8.2f}"
    )


def round_trips(network: Network) -> float:
    """Those of all tables, in those of tables that nobody could better."""
    ours = best = 0.0
    for domain, pool in network.pools.items():
        nearest: dict[object, float] = {}
        for other in network.pools.keys() - {domain}:
            slot = pool._tables.routing.slot_of(pool_id(other))
            seconds = network.seconds(domain, other)
            nearest[slot] = min(seconds, nearest.get(slot, seconds))
        best += sum(nearest.values())
        ours += sum(network.seconds(domain, other) for other in pool.table())
    return ours / best


def joins(network: Network) -> tuple[float, float]:
    """Pools that one asks which joins, and messages to and from it in its first ten minutes."""
    asked, cost = [], []
    for number in range(10):
        via = network.random.choice(sorted(network.pools))
        pool = network.start(f"late{number}.example.org", via)
        network.run(MINUTE / 2)
        asked.append(pool.hops)
        network.run(MINUTE * 9.5)
        cost.append(pool.sent.total() + pool.received.total())
    return statistics.mean(asked), statistics.mean(cost)


if __name__ == "__main__":
    print(HEAD)
    for pools in map(int, sys.argv[1:] or ["10", "30", "100", "300", "1000"]):
        print(measure(pools), flush=True)
