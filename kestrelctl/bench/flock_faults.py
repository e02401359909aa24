"""What is done to the pools of an experiment in the middle, to see that nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kestrelctl.errors import KestrelError
from kestrelctl.local.pool_state import PoolState, read_state


class Kill(NamedTuple):
    """A process that is killed without a word.

    Attributes:
        share: when, of the time in which tasks come.
        pool: whose it is, by its letter.
        what: `manager` or `server`.
    """

    share: float
    pool: str
    what: str

    def __str__(self) -> str:
        return f"killed the {self.what} of pool {self.pool} after {self.share:.0%} of the trace"


#: The manager of the pool that borrows most, and the server of one that lends.
KILLS = (Kill(0.4, "D", "manager"), Kill(0.6, "A", "server"))


async def carry_out(
    kills: Sequence[Kill], states: dict[str, PoolState], begin: float, seconds: float
) -> list[str]:
    """Kills what is named, each in its turn; its supervisor starts it again.

    Args:
        kills: those of pools that are not there are left out.
        states: of the pools, by their letters.
        begin: the moment 0 of the trace, on the clock of the event loop.
        seconds: how long tasks come.

    Returns:
        What was done, in words.

    Raises:
        KestrelError: a pool has gone.
    """
    clock = asyncio.get_running_loop().time
    done = []
    for kill in sorted(kills):
        if kill.pool not in states:
            continue
        await asyncio.sleep(max(0.0, begin + kill.share * seconds - clock()))
        state = read_state(Path(states[kill.pool].password_file).parent)
        if state is None:
            raise KestrelError(f"pool {kill.pool} is gone")
        os.kill(state.manager_pid if kill.what == "manager" else state.server_pid, signal.SIGKILL)
        done.append(str(kill))
    return done
