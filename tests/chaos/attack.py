"""An attack on a real pool, then a look at it: `python tests/chaos/attack.py ROLE [...]`.

user      accounts of users send nasty requests as fast as they are answered, and in odd order
worker    accounts of workers do so, and lie about the tasks that they are handed
removed   somebody whose account is closed does not want to go, and comes back under the same name
operator  whoever runs the pool has wrong habits

Meanwhile and afterwards, and after `down` and `up`, an innocent user's jobs must run, each task of
them be accepted once, each request be answered with what a user's program can read, and no command
and no log may show a traceback. Ends with status 1 if something did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable
from random import Random

from attacked import Attack, Attacked, attacked_pool
from careless_operator import CarelessOperator
from removed_person import RemovedPerson
from user_attack import Users
from worker_attack import Workers

ROLES: dict[str, Callable[[Attacked, Random], Attack]] = {
    "user": Users,
    "worker": Workers,
    "removed": RemovedPerson,
    "operator": CarelessOperator,
}


async def main(options: argparse.Namespace) -> int:
    rounds = told = 0
    async with attacked_pool(options.patience) as attacked:
        attack = ROLES[options.role](attacked, Random(options.seed))
        await attacked.up()
        await attacked.keep()
        began = time.monotonic()
        while time.monotonic() < began + options.seconds:
            await attack.attack()
            await attacked.look()
            rounds += 1
            print(f"{time.monotonic() - began:.0f} s: {dict(attacked.counts)}", flush=True)
            for finding in attacked.findings[told:]:
                print(f"so far: {finding}", flush=True)
            told = len(attacked.findings)
            if attacked.findings and not options.go_on:
                break
        await attacked.down()
        await attacked.up()
        await attacked.look()
        await attacked.settle()
        await attacked.type_commands()
        attacked.read_logs()
    for finding in dict.fromkeys(attacked.findings):
        print(f"FOUND: {finding}")
    held = "it did not hold" if attacked.findings else "it held"
    took = time.monotonic() - began
    print(f"{held}; {options.role}, seed {options.seed}, {rounds} rounds, {took:.0f} s")
    return 1 if attacked.findings else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("role", choices=tuple(ROLES), help="as whom")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--go-on", action="store_true", help="also after a finding")
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="SECONDS",
        help="how long anything may take; more on a machine that is busy",
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the pool ends with it
    sys.exit(asyncio.run(main(arguments())))
