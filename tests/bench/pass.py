"""What one scheduling pass takes in a large pool that is nearly full, and in one that is empty.

    .venv/bin/python tests/bench/pass.py [ROUNDS]

1,000 workers in 25 classes, or each a class of its own; 50,000 tasks in 1,000 jobs of 40 shapes and
100 users. Twenty workers fall free and get something, or all are filled at once. What a pass takes
is the processor time of `Pool.schedule`, up to the messages that are to be sent.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from statistics import median

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool

WORKERS, CLASSES = 1_000, 25
TASKS, JOBS, SHAPES, USERS = 50_000, 1_000, 40, 100
FREED = 20


class Bench:
    """A pool whose workers and jobs differ as those of a real one do, driven by hand.

    Args:
        classes: of workers.
    """

    def __init__(self, classes: int) -> None:
        self.pool = Pool(Snapshot(epoch=1, secret=bytes(32), next_job_id=1, jobs=[], workers=[]))
        self.now = 1000.0
        self.held: dict[str, list[tuple[int, int, int]]] = {}
        self.rng = random.Random(1)
        self.tell(ev.Reconnected(at=self.now))
        for n in range(WORKERS):
            kind = n % classes
            cpus = (2, 4, 4, 8, 8)[kind % 5]
            assets = {"cpus": float(cpus), "memory": float((2 + kind) * (1 << 30) * cpus)}
            ad = WorkerAd(assets=assets, tags=(f"SITE{kind % 5}",))
            self.held[f"w{n}"] = []
            self.tell(ev.Joined(at=self.now, worker=f"w{n}", incarnation="1", ad=ad, holds=[]))
        shapes = [
            {"cpus": float(1 + n % 4), "memory": float((1 + n // 4) * (1 << 29))}
            for n in range(SHAPES)
        ]
        for n in range(JOBS):
            spec = JobSpec(
                program=Program(argv=("true",)),
                count=TASKS // JOBS,
                request=self.rng.choice(shapes),
            )
            owner = f"user{self.rng.randrange(USERS)}"
            self.tell(ev.Submit(at=self.now, request=str(n), owner=owner, spec=spec))

    def tell(self, event: ev.Event) -> None:
        self._do(self.pool.handle(event))

    def _do(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Run):
                self.held[effect.worker].extend(
                    (number + k, job_id, index + k)
                    for number, job_id, index, n, _ in effect.spans
                    for k in range(n)
                )
            elif isinstance(effect, fx.Feed):
                self._do(self.pool.handle(effect.event))

    def schedule_seconds(self) -> float:
        """Hands out all that can be; returns how long that took."""
        self.now += 0.01
        gc.collect()
        began = time.process_time()
        effects = self.pool.schedule(self.now)
        seconds = time.process_time() - began
        self._do(effects)
        return seconds

    def free(self, workers: int) -> None:
        """So many workers report all that they have."""
        for name in self.rng.sample(sorted(self.held), workers):
            results = [
                Result(number, job_id, index, Outcome.DONE, self.now, 60.0)
                for number, job_id, index in self.held[name]
            ]
            self.held[name] = []
            if results:
                self.tell(ev.Reported(at=self.now, worker=name, results=results))


def main(rounds: int) -> None:
    """Measures both passes for both kinds of pools."""
    for classes in (CLASSES, WORKERS):
        filling, twenty = [], []
        for _ in range(rounds):
            bench = Bench(classes)
            filling.append(bench.schedule_seconds() * 1e3)
            handed = sum(len(held) for held in bench.held.values())
            for _ in range(10):
                bench.free(FREED)
                twenty.append(bench.schedule_seconds() * 1e3)
        print(
            f"{classes} classes: all {WORKERS} filled with {handed} tasks: {min(filling):.1f} ms "
            f"at best, {median(filling):.1f} in the middle; {FREED} that fell free: "
            f"{min(twenty):.2f} and {median(twenty):.2f} ms"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
