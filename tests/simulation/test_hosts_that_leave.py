"""A host that leaves while it starts an environment: another one serves the demand, and once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from seeds import due

from kestrel_experiments.imbalance.class_load import ClassTask, tag_of
from kestrel_experiments.imbalance.hosting_machine import HostingMachine
from kestrel_experiments.imbalance.imbalance_world import (
    BEFORE_SECONDS,
    ImbalanceWorld,
    ImbalanceWorldPlan,
)
from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources
from kestrelctl.manager.environments.service import GIVES_UP_SECONDS

#: An environment takes so long until its worker connects, and its host leaves after so long.
START_SECONDS = (4.0, 5.0)
LEAVES_AFTER_SECONDS = 2.0
#: Until another host has the order, if the first one leaves in order; and if it vanishes: after a
#: restart of the server all hosts are away for seconds.
SOON_SECONDS = 1.5
VANISHED_SECONDS = GIVES_UP_SECONDS + SOON_SECONDS
#: So late all hosts are there again, or else the world does not come to rest.
LATE_SECONDS = 300.0

Leaves = Callable[[ImbalanceWorld, HostingMachine], None]


def is_killed(world: ImbalanceWorld, host: HostingMachine) -> None:
    """What it has begun to start goes on."""
    host.kill()
    host.start_again(LATE_SECONDS)


def loses_power(world: ImbalanceWorld, host: HostingMachine) -> None:
    host.lose_power()
    host.start_again(LATE_SECONDS)


def is_killed_and_comes_back(world: ImbalanceWorld, host: HostingMachine) -> None:
    host.kill()
    host.start_again(1.0)


def is_cut_off(world: ImbalanceWorld, host: HostingMachine) -> None:
    host.cut()
    world.clock.after(50.0, host.heal)


def ends_in_order(world: ImbalanceWorld, host: HostingMachine) -> None:
    host.terminate()
    host.start_again(LATE_SECONDS)


def is_drained(world: ImbalanceWorld, host: HostingMachine) -> None:
    world.nodes.operator.drain(host.address)
    world.clock.after(LATE_SECONDS, world.nodes.operator.resume, host.address)


def world_in_which_a_host(leaves: Leaves, seed: int, maximum: int) -> ImbalanceWorld:
    """Two hosts and one task; whichever starts the environment for it leaves meanwhile."""
    cls = EnvironmentClass(
        name="a", kind="venv", tags=(tag_of("a"),), resources=EnvironmentResources(cpus=1.0),
        maximum=maximum, idle_seconds=2.0,
    )  # fmt: skip
    world = ImbalanceWorld(
        seed,
        ImbalanceWorldPlan(
            hosts=2, classes=[cls], tasks=[ClassTask(0.0, 1.0, "a")], start_seconds=START_SECONDS,
            check=True,
        ),
    )  # fmt: skip

    def leave() -> None:
        [there] = world.environments()
        [host] = [each for each in world.hosts if each.address == there.host]
        leaves(world, host)

    world.clock.after(BEFORE_SECONDS + LEAVES_AFTER_SECONDS, leave)
    world.run_to_the_end()
    assert not world.audit.problems
    return world


@pytest.mark.parametrize("maximum", [1, 2])
@pytest.mark.parametrize(
    ("leaves", "within_seconds"),
    [
        (is_killed, SOON_SECONDS),
        (loses_power, VANISHED_SECONDS),
        (is_killed_and_comes_back, 1.0 + SOON_SECONDS),
        (is_cut_off, 15.0 + VANISHED_SECONDS),
        (ends_in_order, SOON_SECONDS),
        (is_drained, SOON_SECONDS),
    ],
)
@pytest.mark.parametrize("seed", due(3, parts=3))
def test_what_waits_is_served_soon_and_once_and_nothing_is_left(
    seed: int, leaves: Leaves, within_seconds: float, maximum: int
) -> None:
    world = world_in_which_a_host(leaves, seed, maximum)
    [ran] = world.audit.executions.values()
    latest_seconds = LEAVES_AFTER_SECONDS + within_seconds + START_SECONDS[1]
    assert ran.began_at - world.began_at < latest_seconds
    spans = sorted(world.watch.spans.values(), key=lambda span: span.number)
    assert len(spans) == (1 if leaves is is_killed else 2)
    assert (spans[0].ready_at is None) == (len(spans) == 2), "nothing new where a host leaves"
    assert not world.environments(), "the manager knows of none"
    assert not [each.name for each in world.nodes.workers if each.name.startswith("env-")]
