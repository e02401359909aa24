"""Whatever happened to an overlay, once it is quiet each pool knows those that it should know."""

from __future__ import annotations

import pytest
from overlaykit import MINUTE, Network

#: From the last trouble until all is right: the slowest thing is a slot for which only a few pools
#: know somebody, whom each hears of by its walks.
CALM_MINUTES = 240


def trouble(network: Network, pools: int) -> None:
    """An hour in which messages are lost, and pools come, leave, die and start again."""
    random = network.random
    network.loss, network.repeats = random.choice([0.0, 0.05, 0.2]), random.choice([0.0, 0.1])
    network.jitter_seconds = random.choice([0.0, 0.5, 3.0])
    network.bounces = random.random() < 0.5
    network.grow(pools)
    gone: list[str] = []
    for number in range(random.randrange(2, pools)):
        here = sorted(network.pools)
        one = random.choice(here)
        match random.choice(["join", "kill", "leave", "again"]):
            case "join":
                network.start(f"late{number}.example.org", one)
            case "kill" if len(here) > 2:
                network.kill(one)
                gone.append(one)
            case "leave" if len(here) > 2:
                network.leave(one)
                gone.append(one)
            case "again" if gone:
                network.start(gone.pop(), one)
        network.run(random.expovariate(1 / 60))
    network.loss = network.repeats = network.jitter_seconds = 0.0
    most, *others = [sorted(group) for group in network.groups()]
    for group in others:  # all whom they knew have died, so somebody has to name another pool
        network.pools[group[0]].join(most[0], network.now)
        network.post(group[0])


@pytest.mark.parametrize("seed", range(24))
def test_when_things_calm_down_each_pool_knows_whom_it_should(seed: int) -> None:
    network = Network(seed)
    trouble(network, network.random.choice([3, 5, 9, 17, 18, 30, 60]))
    network.settle(CALM_MINUTES)
    assert network.wrong_leaves() == []
    assert network.empty_slots() == []
    assert network.remembered_dead() == []
    for _ in range(30):
        first, key = network.random.choice(sorted(network.pools)), network.random.getrandbits(128)
        assert network.route(first, key)[-1] == network.nearest(key)


@pytest.mark.parametrize("seed", range(6))
def test_what_was_cut_in_two_becomes_one_again(seed: int) -> None:
    network = Network(seed)
    names = network.grow(network.random.choice([4, 16, 40]))
    network.run(30 * MINUTE)
    half = set(names[: len(names) // 2])
    network.cut = lambda one, other: (one in half) != (other in half)
    network.run(180 * MINUTE)
    for domain, pool in network.pools.items():
        assert all((domain in half) == (other in half) for other in pool.known())
    network.cut = lambda one, other: False
    network.settle(CALM_MINUTES)
    assert network.is_settled()
