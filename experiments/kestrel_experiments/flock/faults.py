"""Faults for the pools in the middle of an experiment, to see that nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from kestrel_experiments.flock.pools import FlockPools
from kestrelctl.errors import KestrelError
from kestrelctl.local.pool_state import read_state


class Fault(NamedTuple):
    """Something that goes wrong.

    Attributes:
        share: when it happens, as a share of the time in which tasks come.
        pool: the letter of the pool that it happens to.
        what: its manager or its server is killed without a word, or all ways between it and the
            others are cut.
        lasts: how long ways are cut, likewise; a supervisor starts again what is killed.
    """

    share: float
    pool: str
    what: Literal["manager", "server", "ways"]
    lasts: float = 0.0

    def __str__(self) -> str:
        when = f"after {self.share:.0%} of the time in which tasks came"
        if self.what == "ways":
            return f"all ways of pool {self.pool} cut {when}, for {self.lasts:.0%} of it"
        return f"the {self.what} of pool {self.pool} killed {when}"


#: The manager of the pool that borrows most, the server of one that lends, and the ways of another.
FAULTS = (
    Fault(0.35, "D", "manager"),
    Fault(0.5, "A", "server"),
    Fault(0.65, "B", "ways", 0.1),
)


async def do_faults(
    faults: Sequence[Fault], pools: FlockPools, begin: float, seconds: float
) -> list[str]:
    """Makes each fault happen in its turn.

    Args:
        faults: the faults; those of pools that are not there are left out.
        begin: the moment 0 of the trace, on the clock of the event loop.
        seconds: how long tasks come.

    Returns:
        The faults that happened, in words.

    Raises:
        KestrelError: a pool has gone.
    """
    clock = asyncio.get_running_loop().time
    done = []
    for fault in sorted(faults):
        if fault.pool not in pools.states:
            continue
        await asyncio.sleep(max(0.0, begin + fault.share * seconds - clock()))
        if fault.what == "ways":
            await _cut(pools, fault.pool, fault.lasts * seconds)
        else:
            _kill(pools, fault.pool, fault.what)
        done.append(str(fault))
    return done


def _kill(pools: FlockPools, pool: str, what: str) -> None:
    state = read_state(Path(pools.states[pool].password_file).parent)
    if state is None:
        raise KestrelError(f"pool {pool} is gone")
    os.kill(state.manager_pid if what == "manager" else state.server_pid, signal.SIGKILL)


async def _cut(pools: FlockPools, pool: str, seconds: float) -> None:
    ways = pools.ways_of(pool)
    for way in ways:
        way.cut()
    try:
        await asyncio.sleep(seconds)
    finally:
        for way in ways:
            way.mend()
