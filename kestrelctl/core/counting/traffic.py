"""The cost of a pool's advertisements on the network, computed from its intervals alone.

The question and the figures of the other system are those of Matthew Farrellee, "Network use by
advertisements in a Condor based Grid", 2009-04-11: every core and every machine advertises itself
each five minutes, and every running job is reported on twice, each five and each fifteen minutes.

A Kestrel worker is an aggregate: one ad for the machine, however many cores it has. The full ad
goes once, when it joins; then signs of life renew it, unless the worker has something else to say.
Running tasks are reported on every five minutes, all of a worker in one message, and only those
that have run for so long; its worker's lease says that a task still runs.
"""

from __future__ import annotations

import math

import msgspec

from kestrelctl.core.model.config import Config

_CONDOR_AD_SECONDS = 300.0
_CONDOR_STARTER_SECONDS = 300.0
_CONDOR_SHADOW_SECONDS = 900.0


class CondorTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Messages a second in a Condor pool with its default intervals."""

    ads_per_second: float
    schedd_updates_per_second: float
    shadow_updates_per_second: float


class HeartbeatTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The signs of life of an idle pool; a busy one sends fewer.

    Attributes:
        heartbeat_seconds: the longest that a worker may stay silent.
        interval_seconds: the mean time between two signs of life of a worker.
        lease_seconds: the silence after which a worker counts as lost.
    """

    workers: int
    heartbeat_seconds: float
    interval_seconds: float
    lease_seconds: float
    heartbeats_per_second: float


class UsageTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of workers on what running tasks use, if all of these run for long.

    Attributes:
        tasks_per_message: on average.
        interval_seconds: the mean time between two messages of a worker; 0 if they send none.
    """

    running: int
    interval_seconds: float
    messages_per_second: float
    tasks_per_message: float


def condor_traffic(nodes: int, cores: int, running: int) -> CondorTraffic:
    """Computes the traffic of a Condor pool by the source's formulas.

    Args:
        nodes: machines, each with a master ad and an ad for each core.
        cores: of each node.
        running: jobs that run.
    """
    return CondorTraffic(
        ads_per_second=(nodes + nodes * cores) / _CONDOR_AD_SECONDS,
        schedd_updates_per_second=running / _CONDOR_SHADOW_SECONDS,
        shadow_updates_per_second=running / _CONDOR_STARTER_SECONDS,
    )


def heartbeat_traffic(workers: int, config: Config) -> HeartbeatTraffic:
    """Computes what that many idle workers send."""
    heartbeat_seconds = config.heartbeat_seconds(workers)
    interval = mean_interval_seconds(heartbeat_seconds)
    return HeartbeatTraffic(
        workers=workers,
        heartbeat_seconds=heartbeat_seconds,
        interval_seconds=interval,
        lease_seconds=config.lease_seconds(heartbeat_seconds),
        heartbeats_per_second=workers / interval,
    )


def usage_traffic(workers: int, running: int, usage_seconds: float) -> UsageTraffic:
    """Computes what that many workers send about their running tasks.

    Args:
        running: tasks that run for long, spread evenly.
        usage_seconds: the longest interval (`Config.usage_seconds`); 0 for none.
    """
    busy = min(workers, running)
    mean_seconds = 0.95 * usage_seconds  # nine to ten tenths
    return UsageTraffic(
        running=running,
        interval_seconds=mean_seconds,
        messages_per_second=busy / mean_seconds if mean_seconds else 0.0,
        tasks_per_message=running / busy if busy and mean_seconds else 0.0,
    )


def mean_interval_seconds(heartbeat_seconds: float) -> float:
    """The mean wait of workers: nine to ten tenths of the interval, down to a whole second.

    Below a second they wait for the time that they drew.
    """
    shortest, longest = 0.9 * heartbeat_seconds, heartbeat_seconds
    total, position = 0.0, shortest
    while position < longest:
        whole = math.floor(position)
        upper = min(whole + 1.0, longest)
        total += (whole or (position + upper) / 2) * (upper - position)
        position = upper
    return total / (longest - shortest)
