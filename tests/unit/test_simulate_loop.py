"""A process of the simulated world that is killed leaves nothing of its loop behind."""

from __future__ import annotations

import asyncio
import gc
from random import Random

from kestrel_worlds.loop import Loop
from kestrel_worlds.simulation_clock import SimulationClock


def raised(error: BaseException) -> None:
    raise error


def test_what_a_killed_process_begins_on_its_way_out_is_closed_too() -> None:
    """Otherwise it belongs to a loop that is made for it, and both are complained of later."""
    clock = SimulationClock()
    loop = Loop(clock, Random(1), raised)
    done: list[str] = []
    loops: list[object] = []

    async def tidy(what: str) -> None:
        done.append(what)

    async def works() -> None:
        try:
            await loop.create_future()
        finally:
            loops.append(asyncio.get_running_loop())
            await asyncio.gather(tidy("files"), tidy("sessions"))

    loop.create_task(works())
    clock.run_until(clock.now + 1.0)
    loop.kill()
    gc.collect()
    assert (loops, done) == ([loop], [])
