"""Faults in a flock, between pools and inside of them; each passes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kestrel_worlds import faults
from kestrel_worlds.flock_worlds.flock_nodes import FlockedPool
from kestrel_worlds.flock_worlds.streams import Stream

#: Something that can go wrong between pools, for a number of seconds.
FlockKind = Callable[[list[FlockedPool], Random, float], None]


def _inside(kind: faults.Kind) -> FlockKind:
    """Makes a fault of a flock from one inside of a pool."""

    def befall(pools: list[FlockedPool], random: Random, seconds: float) -> None:
        kind(random.choice(pools).nodes, random, seconds)

    return befall


def _streams(pools: list[FlockedPool], random: Random) -> list[Stream]:
    """Picks the streams between two pools, of one direction or both, or all of one pool."""
    one, other = random.sample(pools, 2)
    there, back = (
        one.server.streams[other.domain],
        other.server.streams[one.domain],
    )
    if random.random() < 0.2:
        return [there]
    if random.random() < 0.5:
        return [there, back]
    return [
        stream
        for pool in pools
        if pool is not one
        for stream in (one.server.streams[pool.domain], pool.server.streams[one.domain])
    ]


def break_stream(pools: list[FlockedPool], random: Random, seconds: float) -> None:
    """Breaks streams, with what is in flight."""
    for stream in _streams(pools, random):
        stream.drop()


def hold_streams(pools: list[FlockedPool], random: Random, seconds: float) -> None:
    """Cuts a network between pools; what is sent arrives later, or is lost after all."""
    for stream in _streams(pools, random):
        stream.hold()
        if random.random() < 0.5:
            stream.clock.after(seconds * random.random(), stream.drop)
        stream.clock.after(seconds, stream.heal)


def refuse_streams(pools: list[FlockedPool], random: Random, seconds: float) -> None:
    """Keeps servers from finding each other; what is sent comes back."""
    for stream in _streams(pools, random):
        stream.refuse()
        stream.clock.after(seconds, stream.heal)


#: Every kind of fault and how often it comes, relative to the others.
KINDS: dict[FlockKind, float] = {
    break_stream: 4,
    hold_streams: 5,
    refuse_streams: 4,
    _inside(faults.crash_manager): 6,
    _inside(faults.restart_manager): 3,
    _inside(faults.hang_manager): 2,
    _inside(faults.drop_manager): 2,
    _inside(faults.cut_manager): 2,
    _inside(faults.restart_server): 4,
    _inside(faults.crash_worker): 4,
    _inside(faults.hang_worker): 1,
    _inside(faults.cut_worker): 1,
    _inside(faults.drop_worker): 1,
    _inside(faults.leave): 2,
    _inside(faults.break_machine): 1,
    _inside(faults.fill_disk): 1,
    _inside(faults.slow_commits): 1,
    _inside(faults.fill_store): 1,
    _inside(faults.drain): 2,
}
