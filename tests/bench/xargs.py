"""A pool of 917 workers beside xargs: `python tests/bench/xargs.py [tasks] [pairs]`.

Runs `/bin/sleep 0` under `xargs -n1 -P2` and in a pool of its own, in turn, because rates of
different minutes cannot be compared on a shared machine. Prints each pair and the medians, and what
a task costs in processor time besides itself.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

KESTREL = Path(__file__).parents[2] / "kestrel"
PROCESSES = ("server", "manager", "worker")


def xargs_rate(tasks: int) -> float:
    """Tasks a second of xargs alone."""
    began = time.monotonic()
    subprocess.run(
        ["xargs", "-n1", "-P2", "/bin/sleep"], input="0\n" * tasks, text=True, check=True
    )
    return tasks / (time.monotonic() - began)


def pool_run(tasks: int) -> dict[str, float]:
    """The figures of one run of the bench."""
    command = [str(KESTREL), "bench", "--jobs", str(tasks), "--sleep", "0", "-o", "json"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    (run,) = json.loads(answer)["runs"]
    return dict(run)


def main(tasks: int = 50_000, pairs: int = 5) -> None:
    ratios, own = [], []
    for number in range(pairs):
        if number % 2:
            run, bare = pool_run(tasks), xargs_rate(tasks)
        else:
            bare, run = xargs_rate(tasks), pool_run(tasks)
        costs = [1e6 * run[f"{name}_cpu_seconds"] / tasks for name in PROCESSES]
        ratios.append(run["tasks_per_second"] / bare)
        own.append(sum(costs))
        shares = ", ".join(f"{n} {c:.0f}" for n, c in zip(PROCESSES, costs, strict=True))
        print(
            f"xargs {bare:,.0f}/s, pool {run['tasks_per_second']:,.0f}/s: {ratios[-1]:.2f}; "
            f"own {own[-1]:.0f} us a task ({shares})",
            flush=True,
        )
    print(f"medians: {statistics.median(ratios):.2f} of xargs, {statistics.median(own):.0f} us")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
