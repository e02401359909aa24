"""`kestrelctl pool traffic`: what advertisements cost the network, predicted and measured."""

from __future__ import annotations

import asyncio
from math import ceil

import click
import msgspec

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.command_output import CommandOutput, Record, Table, plain
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.grid import Grid
from kestrelctl.cli.quantities import duration
from kestrelctl.core.counting.traffic import (
    CondorTraffic,
    HeartbeatTraffic,
    condor_traffic,
    heartbeat_traffic,
)
from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.config import Config
from kestrelctl.errors import Unreachable
from kestrelctl.protocol import codec, work
from kestrelctl.protocol.answers import Traffic
from kestrelctl.protocol.requests import PoolTraffic
from kestrelctl.xmpp import stanza

#: An ordinary worker in an ordinary pool.
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
    """Bytes of a stanza without TLS and TCP: as a worker sends it, and as the manager gets it."""

    ad_sent: int
    ad_received: int
    heartbeat_sent: int
    heartbeat_received: int


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """What the manager saw of one kind of message; bytes are those of the JSON text."""

    kind: str
    direction: str
    messages_per_second: float
    bytes_per_second: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A live pool over `seconds`, beside what its workers should send when they have no tasks."""

    seconds: float
    workers: int
    predicted: HeartbeatTraffic
    rates: list[Rate]


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What `pool traffic` says."""

    cores: int
    idle: HeartbeatTraffic
    sizes: Sizes
    received_bytes_per_second: float
    condor: CondorTraffic
    measured: Measured | None = None


@click.command("traffic", cls=CliCommand)
@click.option("--workers", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--cores", type=click.IntRange(1), default=4, show_default=True, help="Of each.")
@click.option(
    "--running", type=click.IntRange(0), help="Tasks that run.  [default: one on each core]"
)
@click.option("--measure", is_flag=True, help="Look at what the pool's manager really receives.")
@click.option(
    "--seconds",
    type=click.FloatRange(1.0, 3600.0),
    default=30.0,
    show_default=True,
    help="How long to look.",
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
    """How many messages keep a pool known to its manager; in a Condor pool, and here."""
    told = forecast(workers, cores, workers * cores if running is None else running)

    if not measure:
        asyncio.run(invocation.show(report(told)))
        return

    async def work(connection: Connection) -> CommandOutput:
        invocation.screen.say(f"looking for {duration(seconds)}")
        return report(msgspec.structs.replace(told, measured=await watch(connection, seconds)))

    invocation.talk(work)


def forecast(workers: int, cores: int, running: int) -> Forecast:
    """The traffic of a pool of that size.

    Args:
        cores: of each worker; here they make no difference.
        running: jobs that run, for the other system's updates.
    """
    idle, found = heartbeat_traffic(workers, Config()), sizes()
    return Forecast(
        cores=cores,
        idle=idle,
        sizes=found,
        received_bytes_per_second=idle.heartbeats_per_second * found.heartbeat_received,
        condor=condor_traffic(workers, cores, running),
    )


def sizes() -> Sizes:
    """How large an ad and a sign of life are on the wire."""
    hello = codec.encode(work.Hello(version=work.VERSION, incarnation="0" * 16, ad=_AD))
    heartbeat = codec.encode(work.Heartbeat())
    return Sizes(
        ad_sent=len(stanza.message(hello, _POOL)),
        ad_received=len(stanza.message(hello, _POOL, _WORKER)),
        heartbeat_sent=len(stanza.message(heartbeat, _POOL)),
        heartbeat_received=len(stanza.message(heartbeat, _POOL, _WORKER)),
    )


async def watch(connection: Connection, seconds: float) -> Measured:
    """What a manager received and sent in that time.

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
        rates=sorted(rates, key=lambda rate: -rate.messages_per_second),
    )


def report(told: Forecast) -> Record:
    """The forecast, and what was measured, for people and for programs."""
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
        ("running tasks", "no updates: the worker's lease stands for them"),
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
                f"send {measured.predicted.heartbeats_per_second:.1f} signs of life a second",
            )
        )
        headings = [("KIND", False), ("WAY", False), ("MESSAGES/S", True), ("JSON BYTES/S", True)]
        rows = [
            [r.kind, r.direction, f"{r.messages_per_second:.2f}", f"{r.bytes_per_second:,.0f}"]
            for r in measured.rates
        ]
        if rows:
            blocks.append(Table(Grid(headings), rows))
    return Record(f"{idle.heartbeats_per_second:.1f}", plain(told), blocks)
