"""`kestrelctl pool traffic`: the network traffic of advertisements, predicted and measured."""

from __future__ import annotations

import asyncio
from math import ceil

import click
import msgspec

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Record, Table, plain
from kestrelctl.core.counting.traffic import (
    CondorTraffic,
    HeartbeatTraffic,
    UsageTraffic,
    condor_traffic,
    heartbeat_traffic,
    usage_traffic,
)
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.use import Use
from kestrelctl.errors import Unreachable
from kestrelctl.grammar.click_types import Number, WholeNumber
from kestrelctl.grammar.quantities import duration, short_number
from kestrelctl.protocol import codec
from kestrelctl.protocol import workers as work
from kestrelctl.protocol.answers import Traffic
from kestrelctl.protocol.requests import PoolTraffic
from kestrelctl.xmpp import stanza

#: The addresses and the ad of an ordinary worker in an ordinary pool.
_POOL = "pool@pool.internal"
_WORKER = "node-0001@workers.pool.internal/node-0001"
_AD = WorkerAd(
    assets={"cpus": 4.0, "memory": 16 * 2**30},
    host="node-0001",
    os="linux",
    arch="x86_64",
    version="0.1.0",
)


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of stanzas without TLS and TCP: as a worker sends them, as the manager gets them."""

    ad_sent: int
    ad_received: int
    heartbeat_sent: int
    heartbeat_received: int
    usage_received: int  #: for a message that tells of the average number of tasks


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of one kind of message at the manager; bytes are those of the JSON text."""

    kind: str
    direction: str
    messages_per_second: float
    bytes_per_second: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A live pool over `seconds`, beside the traffic that is predicted for its workers."""

    seconds: float
    workers: int
    predicted: HeartbeatTraffic
    predicted_usage: UsageTraffic
    rates: list[Rate]


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `pool traffic`; rates are those at the manager, of all workers together."""

    cores: int
    idle: HeartbeatTraffic
    usage: UsageTraffic
    messages_per_second: float
    sizes: Sizes
    received_bytes_per_second: float
    condor: CondorTraffic
    measured: Measured | None = None


@click.command("traffic", cls=CliCommand)
@click.option(
    "--workers", type=WholeNumber(1), default=10_000, show_default=True, help="Number of workers."
)
@click.option(
    "--cores", type=WholeNumber(1), default=4, show_default=True, help="Processors of each worker."
)
@click.option(
    "--running", type=WholeNumber(0), help="Number of tasks that run.  [default: one on each core]"
)
@click.option("--measure", is_flag=True, help="Measure what the pool's manager receives.")
@click.option(
    "--seconds",
    type=Number(1.0, 3600.0),
    default=30.0,
    show_default=True,
    help="Seconds to measure for.",
)
@pass_invocation
def traffic(
    invocation: Invocation,
    workers: int,
    cores: int,
    running: int | None,
    measure: bool,
    seconds: float,
) -> None:
    """Calculate or measure the messages that keep a pool known to its manager.

    The same is calculated for a Condor pool of that size.
    """
    told = forecast(workers, cores, workers * cores if running is None else running)

    if not measure:
        asyncio.run(invocation.show(report(told)))
        return

    async def work(connection: Connection) -> CommandOutput:
        invocation.screen.say(f"looking for {duration(seconds)}")
        return report(msgspec.structs.replace(told, measured=await watch(connection, seconds)))

    invocation.talk(work)


def forecast(workers: int, cores: int, running: int) -> Forecast:
    """Predicts the traffic of a pool of that size.

    Args:
        cores: processors of each worker; here they make no difference.
        running: tasks that run, and have run for long.
    """
    idle = heartbeat_traffic(workers, Config())
    usage = usage_traffic(workers, running, Config().usage_seconds)
    found = sizes(ceil(usage.tasks_per_message))
    received = idle.heartbeats_per_second * found.heartbeat_received
    return Forecast(
        cores=cores,
        idle=idle,
        usage=usage,
        messages_per_second=idle.heartbeats_per_second + usage.messages_per_second,
        sizes=found,
        received_bytes_per_second=received + usage.messages_per_second * found.usage_received,
        condor=condor_traffic(workers, cores, running),
    )


def sizes(tasks: int = 1) -> Sizes:
    """Measures how large an ad, a sign of life, and a usage report of tasks are on the wire.

    Args:
        tasks: the tasks that one usage report tells of.
    """
    uses = [Use((3 << 40) + n, 86_400.125, 172_800.25, 1 << 30) for n in range(tasks)]
    usage = codec.encode(work.RunningUsage(uses=uses))
    hello = codec.encode(work.Hello(version=work.VERSION, incarnation="0" * 16, ad=_AD))
    heartbeat = codec.encode(work.Heartbeat())
    return Sizes(
        ad_sent=len(stanza.message(hello, _POOL)),
        ad_received=len(stanza.message(hello, _POOL, _WORKER)),
        heartbeat_sent=len(stanza.message(heartbeat, _POOL)),
        heartbeat_received=len(stanza.message(heartbeat, _POOL, _WORKER)),
        usage_received=len(stanza.message(usage, _POOL, _WORKER)),
    )


async def watch(connection: Connection, seconds: float) -> Measured:
    """Measures what a manager receives and sends in that time.

    Raises:
        Unreachable: the manager was started anew meanwhile.
    """
    before = await ask(connection, PoolTraffic(), Traffic)
    await asyncio.sleep(seconds)
    after = await ask(connection, PoolTraffic(), Traffic)
    if after.epoch != before.epoch:
        raise Unreachable(
            "the manager was started anew meanwhile", hint="look again: nothing is wrong now"
        )
    passed = after.at - before.at
    counted = {(kind, way): (n, size) for kind, way, n, size in before.messages}
    rates = []
    for kind, way, messages, size in after.messages:
        earlier = counted.get((kind, way), (0, 0))
        if messages > earlier[0]:
            rates.append(
                Rate(
                    kind=kind,
                    direction=way,
                    messages_per_second=(messages - earlier[0]) / passed,
                    bytes_per_second=(size - earlier[1]) / passed,
                )
            )
    return Measured(
        seconds=passed,
        workers=after.workers,
        predicted=heartbeat_traffic(max(1, after.workers), Config()),
        predicted_usage=usage_traffic(after.workers, after.running, after.usage_seconds),
        rates=sorted(rates, key=lambda rate: -rate.messages_per_second),
    )


def report(told: Forecast) -> Record:
    """Shows the forecast, and what was measured, for people and for programs."""
    idle, condor = told.idle, told.condor
    blocks: list[tuple[str, str] | Table | str] = [
        ("workers", f"{idle.workers:,}, of {told.cores} cores: one ad each, whatever the cores"),
        ("ad", f"once, when it joins: {told.sizes.ad_sent} bytes"),
        (
            "signs of life",
            f"{idle.heartbeats_per_second:.1f}/s, of an idle pool; a busy one needs fewer",
        ),
        ("", f"{told.sizes.heartbeat_received} bytes each at the manager"),
        ("each worker", f"one in {duration(idle.interval_seconds)}"),
        ("manager", f"receives {told.received_bytes_per_second / 1000:.1f} kB/s"),
        ("silence", f"a worker is given up after {duration(idle.lease_seconds)} of it"),
        (
            "running tasks",
            f"{told.usage.messages_per_second:.1f} updates/s, of "
            f"{short_number(told.usage.tasks_per_message)} tasks each; none of a task that has not "
            f"run for {duration(Config().usage_seconds)}",
        ),
        ("", f"{told.sizes.usage_received} bytes each at the manager"),
        ("together", f"{told.messages_per_second:.1f} messages/s"),
        (
            "Condor",
            f"{ceil(condor.ads_per_second):,} ads/s; of running jobs "
            f"{ceil(condor.schedd_updates_per_second):,} and "
            f"{ceil(condor.shadow_updates_per_second):,} updates/s",
        ),
    ]
    measured = told.measured
    if measured is not None:
        blocks.append(
            (
                "measured",
                f"{measured.workers:,} workers over {duration(measured.seconds)}; idle ones would "
                f"send {measured.predicted.heartbeats_per_second:.1f} signs of life a second, and "
                f"long tasks {measured.predicted_usage.messages_per_second:.2f} updates",
            )
        )
        headings = [("KIND", False), ("WAY", False), ("MESSAGES/S", True), ("JSON BYTES/S", True)]
        rows = [
            [r.kind, r.direction, f"{r.messages_per_second:.2f}", f"{r.bytes_per_second:,.0f}"]
            for r in measured.rates
        ]
        if rows:
            blocks.append(Table(headings, rows))
    return Record(f"{told.messages_per_second:.1f}", plain(told), blocks)
