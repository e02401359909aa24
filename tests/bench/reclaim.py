"""What it costs to take machines back from guests soon, on the traces of the source of flocking.

Four ideal pools: nothing takes any time, everybody knows what is free, own tasks go first, and
pools with nothing to do take the oldest task of any other. While own tasks wait, guests may go on
for a while; then as many as are needed are given back and begin anew.

    .venv/bin/python tests/bench/reclaim.py [SEEDS]
"""

from __future__ import annotations

import heapq
import sys
from random import Random
from statistics import fmean, median

from kestrel_experiments.flock.source import MACHINES, traces

TIMES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
SEEDS = 30


class Flock:
    """One trace, and a time after which guests are given back."""

    def __init__(self, seed: int, reclaim: float) -> None:
        self.tasks = traces(seed)
        self.reclaim = reclaim
        self.dice = Random(seed)
        self.queue: dict[str, list[int]] = {pool: [] for pool in self.tasks}
        self.free = dict.fromkeys(self.tasks, MACHINES)
        self.wanted_since: dict[str, float] = {}
        self.running: dict[int, tuple[str, int, str, float]] = {}
        self.waited: dict[tuple[str, int], float] = {}
        self.given_back = self.starts = 0
        self.events: list[tuple[float, int, str, str, int]] = []
        for pool, tasks in self.tasks.items():
            for index, task in enumerate(tasks):
                self.plan(task.at, "came", pool, index)

    def plan(self, at: float, what: str, pool: str, number: int) -> None:
        heapq.heappush(
            self.events, (at, len(self.events) + self.starts * 10_000, what, pool, number)
        )

    def run(self) -> None:
        while self.events:
            now, _, what, pool, number = heapq.heappop(self.events)
            if what == "came":
                self.queue[pool].append(number)
            elif what == "ended" and number in self.running:
                self.free[self.running.pop(number)[2]] += 1
            self.place(now)
            for owner in self.tasks:
                self.take_back(owner, now)

    def place(self, now: float) -> None:
        while True:
            for pool, waiting in self.queue.items():
                while waiting and self.free[pool]:
                    self.start(pool, waiting.pop(0), pool, now)
            homes = [pool for pool, waiting in self.queue.items() if waiting]
            lenders = [pool for pool, free in self.free.items() if free]
            if not homes or not lenders:
                return
            home = self.dice.choice(homes)
            self.start(home, self.queue[home].pop(0), self.dice.choice(lenders), now)

    def start(self, home: str, index: int, lender: str, now: float) -> None:
        task = self.tasks[home][index]
        self.starts += 1
        self.free[lender] -= 1
        self.running[self.starts] = home, index, lender, now
        self.waited[home, index] = now - task.at
        self.plan(now + task.seconds, "ended", lender, self.starts)

    def take_back(self, owner: str, now: float) -> None:
        if not self.queue[owner]:
            self.wanted_since.pop(owner, None)
            return
        if owner not in self.wanted_since:
            self.wanted_since[owner] = now
            self.plan(now + self.reclaim, "due", owner, 0)
        if now - self.wanted_since[owner] < self.reclaim - 1e-9:
            return
        guests = [n for n, (home, _, at, _) in self.running.items() if at == owner != home]
        latest_first = sorted(guests, key=lambda number: -self.running[number][3])
        for number in latest_first[: len(self.queue[owner])]:
            home, index, _, _ = self.running.pop(number)
            self.queue[home].insert(0, index)
            self.free[owner] += 1
            self.given_back += 1
        self.place(now)
        if not self.queue[owner]:
            del self.wanted_since[owner]


def figures(seed: int, reclaim: float) -> tuple[float, ...]:
    flock = Flock(seed, reclaim)
    flock.run()
    of = {
        pool: [flock.waited[pool, index] for index in range(len(tasks))]
        for pool, tasks in flock.tasks.items()
    }
    everybody = [wait for waits in of.values() for wait in waits]
    grown = max(fmean(of["A"]), fmean(of["B"]))
    return max(of["D"]), fmean(everybody), grown, float(flock.given_back)


def cells(reclaim: float, seeds: int) -> list[str]:
    """A row of the table: medians of the seeds."""
    found = [figures(seed, reclaim) for seed in range(1, 1 + seeds)]
    return [f"{reclaim:g}", *(f"{median(each[place] for each in found):.3g}" for place in range(4))]


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    print(
        "| guests may go on for, units | D waits at most | all wait on average | "
        "A or B on average | given back |"
    )
    print("|---|---|---|---|---|")
    for reclaim in TIMES:
        print(f"| {' | '.join(cells(reclaim, seeds))} |", flush=True)


if __name__ == "__main__":
    main()
