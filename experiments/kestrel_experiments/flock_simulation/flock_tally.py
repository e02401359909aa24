"""The figures of a simulated flock."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kestrel_experiments.flock_simulation.flock_world import FlockWorld, FlockWorldPlan
from kestrelctl.flock.rules.flock_settings import MINUTE_SECONDS

#: Shares of the network's diameter within which tasks are counted.
NEAR_SHARES = tuple(percent / 100 for percent in range(0, 101, 2))


class PoolFigures(msgspec.Struct, frozen=True):
    """The spread of a figure over pools."""

    p50: float
    p90: float
    most: float


class FlockTally(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a flock. Times are in minutes of the source; messages are those of one pool.

    Attributes:
        lost: tasks that have not ended; it has to be 0. A task that ends twice raises.
        run_again: tasks that were ended because a lender's own tasks waited, and ran elsewhere.
        near: the share of tasks that ran within each share of the diameter, of `NEAR_SHARES`.
        completions: the time when the last task of each pool ended, the earliest first.
        hearers: how many pools hear of one, on average; `copies`: with how many messages.
        announcement_messages: messages of announcements in a minute, including forwarded ones;
            `overlay_messages`, `wishes`, `grants`: likewise.
        peak_bytes: the most memory that the process has had until the run ended.
    """

    plan: FlockWorldPlan
    tasks: int
    lost: int
    run_again: int
    minutes: float
    completion: PoolFigures
    mean_wait: PoolFigures
    most_wait: PoolFigures
    local: float
    near: list[float]
    completions: list[float]
    hearers: float = 0.0
    copies: float = 0.0
    announcement_messages: float = 0.0
    overlay_messages: float = 0.0
    wishes: float = 0.0
    grants: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    def within(self, share: float) -> float:
        """Returns the share of tasks that ran within a share of the diameter from home."""
        return self.near[NEAR_SHARES.index(share)]


def tally(world: FlockWorld) -> FlockTally:
    """Computes the figures of a flock that has come to its end."""
    models, members = world.models, world.members
    tasks = sum(len(model.states) for model in models)
    done = sum(model.done for model in models)
    ran: list[tuple[float, int]] = [
        (world.network.share(model.number, pool), count)
        for model in models
        for pool, count in model.ran_at.items()
    ]
    completions = sorted(model.last_end / MINUTE_SECONDS for model in models)
    pool_minutes = len(models) * completions[-1]
    return FlockTally(
        plan=world.plan,
        tasks=tasks,
        lost=tasks - done,
        run_again=sum(model.killed for model in models),
        minutes=completions[-1],
        completion=spread(completions),
        mean_wait=spread(m.sum_wait / MINUTE_SECONDS / max(1, m.done) for m in models),
        most_wait=spread(m.most_wait / MINUTE_SECONDS for m in models),
        local=sum(model.ran_at.get(model.number, 0) for model in models) / done,
        near=[sum(count for far, count in ran if far <= near) / done for near in NEAR_SHARES],
        completions=completions,
        hearers=sum(len(member.hearers) for member in members) / len(models),
        copies=sum(member.copies for member in members) / len(models),
        announcement_messages=sum(member.sent for member in members) / pool_minutes,
        overlay_messages=world.upkeep_per_minute,
        wishes=sum(member.asked for member in members) / pool_minutes,
        grants=sum(member.granted for member in members) / pool_minutes,
    )


def spread(values: Iterable[float]) -> PoolFigures:
    """Computes the median, the 90th percentile and the most of some values."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return PoolFigures(ordered[round(0.5 * last)], ordered[round(0.9 * last)], ordered[last])
