"""What it costs a manager that workers tell values: `python tests/bench/properties.py [workers]
[values] [ticks] [seconds]`.

Each worker tells so many values that are new at each tick. Prints the manager's use of a core in
per cent, without any values and with them, and how many came in. The server's comes on top.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import psutil

from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.properties import ListProperties, PropertyList
from kestrelctl.xmpp.user import UserConnection

#: Prints another number each time.
DEFINITION = """[value_{number}]
command = /bin/date
parameters = +%N
return_type = int
ticks = {ticks:g}
"""


async def measure(workers: int, values: int, ticks: float, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "properties.ini")
        file.write_text(
            "".join(DEFINITION.format(number=number, ticks=ticks) for number in range(values))
        )
        properties = (file,) if values else ()
        async with (
            throw_away_pool(workers, "inline", properties=properties) as pool,
            connect_local(pool) as user,
        ):
            while values and await told(user) < workers * values:
                await asyncio.sleep(1.0)
            await asyncio.sleep(20)  # until all have been told the interval of a pool of this size
            manager = psutil.Process(pool.manager_pid)
            before = sum(manager.cpu_times()[:2])
            await asyncio.sleep(seconds)
            used = 100 * (sum(manager.cpu_times()[:2]) - before) / seconds
            print(
                f"{workers:,} workers with {values} values each {ticks:g} s: {used:.2f} % of a "
                f"core, {manager.memory_info().rss / 1e6:.0f} MB",
                flush=True,
            )
            return used


async def told(user: UserConnection) -> int:
    """How many values the manager has."""
    found = await user.ask(ListProperties(names=[]))
    assert isinstance(found, PropertyList)
    return sum(each.summary.count for each in found.properties)


def main(workers: float, values: float, ticks: float, seconds: float) -> None:
    without = asyncio.run(measure(int(workers), 0, ticks, seconds))
    with_values = asyncio.run(measure(int(workers), int(values), ticks, seconds))
    print(f"the values alone: {with_values - without:.2f} % of a core")


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    usual = [1_000.0, 20.0, 10.0, 60.0]
    main(*given, *usual[len(given) :])
