"""This build beside an older one and beside xargs: `python tests/bench/pairs.py REVISION`.

Each round runs `/bin/sleep 0` under `xargs -n1 -P2`, in the pool that `up` makes and on 917
workers, and tasks that cost nothing on 917 workers (`--executor inline`); the pools once of each
build, in turn, because rates of different minutes cannot be compared on a shared machine. It prints
a line for each, and the medians of the ratios within a round. REVISION is anything that git knows;
without one this build alone is measured. `--tasks N` and `--rounds N` say how much.

`--commands` measures commands of a moment instead, as whole processes, against a local pool of each
build: their processor time and the time from start to end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from kestrelctl.bench.spawn_rate import task_environment

CHECKOUT = Path(__file__).parents[2]
NOW, BEFORE = "now", "before"
POOL = "pairs"
SESSIONS = 917
COMMANDS = ("job list", "job logs 1", "submit -- true", "submit --wait -- true")
#: Tasks that cost nothing need more of them for as long a run.
INLINE_TIMES = 5


class Measured(NamedTuple):
    """One run of a pool: its rate, and the processor time of each task besides itself."""

    tasks_per_second: float
    server_us: float
    manager_us: float
    worker_us: float

    @property
    def own_us(self) -> float:
        """What a task costs besides itself."""
        return self.server_us + self.manager_us + self.worker_us

    def __str__(self) -> str:
        shares = f"server {self.server_us:.0f}, manager {self.manager_us:.0f}"
        return (
            f"{self.tasks_per_second:,.0f}/s, own {self.own_us:.0f} us a task "
            f"({shares}, worker {self.worker_us:.0f})"
        )


class Build:
    """A checkout whose pools are measured, with a directory of its own for them."""

    def __init__(self, checkout: Path, state: Path) -> None:
        self._checkout = checkout
        self._environment = os.environ | {"XDG_STATE_HOME": str(state)}
        self._pool = state / "kestrel" / "pools" / POOL / "pool.json"

    def _says(self, *words: str) -> str:
        said = subprocess.run(
            [str(self._checkout / "kestrel"), *words],
            cwd=self._checkout,  # older builds look there for what they compile
            env=self._environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        return said.stdout.decode()

    def up(self, tasks: int) -> Measured:
        """A run in the pool that `up` makes: one worker with all processors of this machine."""
        self._says("up", "--name", POOL)
        try:
            before = self._cpu_seconds()
            array = ("--array", f"0-{tasks - 1}")
            self._says("submit", "--pool", POOL, *array, "--wait", "-q", "--", "/bin/sleep", "0")
            costs = [
                1e6 * (after - so_far) / tasks
                for after, so_far in zip(self._cpu_seconds(), before, strict=True)
            ]
            job = json.loads(self._says("job", "info", "last", "--pool", POOL, "-o", "json"))
            return Measured(tasks / (job["ended_at"] - job["submitted_at"]), *costs)
        finally:
            self._down()

    @contextmanager
    def pool(self) -> Iterator[None]:
        """A pool that is up, with one job that has ended."""
        self._says("up", "--name", POOL)
        try:
            self._says("submit", "--pool", POOL, "--wait", "-q", "--", "echo", "hello")
            yield
        finally:
            self._down()

    def _down(self) -> None:
        """Ends the pool and forgets it: builds do so by themselves, by an option, or not at all."""
        self._says("down", "--name", POOL)
        shutil.rmtree(self._pool.parent, ignore_errors=True)

    def command(self, words: str) -> tuple[float, float]:
        """Runs a command; returns its processor time and the time that it took, in seconds."""
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [self._checkout / ".venv/bin/kestrelctl", *words.split()],
            env=self._environment | {"KESTREL_POOL": POOL},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return spent, time.monotonic() - began

    def _cpu_seconds(self) -> tuple[float, float, float]:
        """Of server, manager and all processes of the workers; no task runs just now."""
        pool = json.loads(self._pool.read_text())
        keepers = [psutil.Process(pid) for pid in pool["worker_pids"]]
        below = [each for keeper in keepers for each in keeper.children(recursive=True)]
        server, manager = psutil.Process(pool["server_pid"]), psutil.Process(pool["manager_pid"])
        return _own(server), _own(manager), sum(map(_own, below))

    def sessions(self, tasks: int, executor: str = "process") -> Measured:
        """A run on 917 workers."""
        sleep = ("--workers", str(SESSIONS), "--sleep", "0", "--executor", executor)
        (run,) = json.loads(self._says("bench", "--jobs", str(tasks), *sleep, "-o", "json"))["runs"]
        processes = ("server", "manager", "worker")
        costs = [1e6 * run[f"{name}_cpu_seconds"] / tasks for name in processes]
        return Measured(run["tasks_per_second"], *costs)


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def xargs_rate(tasks: int) -> float:
    """Tasks a second of xargs alone, with the environment that tasks of a pool have."""
    command = ["xargs", "-n1", "-P2", "/bin/sleep"]
    began = time.monotonic()
    subprocess.run(command, input=b"0\n" * tasks, env=task_environment(), check=True)
    return tasks / (time.monotonic() - began)


def measure(builds: dict[str, Build], tasks: int, rounds: int) -> None:
    """Prints all runs and the medians of their ratios."""
    ratios: dict[str, list[float]] = defaultdict(list)
    own: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        order = sorted(builds, reverse=bool(number % 2))
        bare = xargs_rate(tasks)
        print(f"xargs {bare:,.0f}/s", flush=True)
        for what in ("up", f"{SESSIONS} workers", "inline"):
            found: dict[str, Measured] = {}
            for name in order:
                build = builds[name]
                if what == "up":
                    found[name] = build.up(tasks)
                elif what == "inline":
                    found[name] = build.sessions(INLINE_TIMES * tasks, "inline")
                else:
                    found[name] = build.sessions(tasks)
                own[f"{what}, {name}"].append(found[name].own_us)
                if what != "inline":
                    beside = found[name].tasks_per_second / bare
                    ratios[f"{what}, {name}, over xargs"].append(beside)
                print(f"{what}, {name}: {found[name]}", flush=True)
            if BEFORE in found:
                times = found[NOW].tasks_per_second / found[BEFORE].tasks_per_second
                ratios[f"{what}, now over before"].append(times)
    print()
    for what, each in ratios.items():
        print(f"{what}: {statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})")
    for what, each in own.items():
        print(f"{what}, own: {statistics.median(each):.0f} us ({min(each):.0f} to {max(each):.0f})")


def measure_commands(builds: dict[str, Build], rounds: int) -> None:
    """Prints what each command takes, and the medians of the ratios of its rounds."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with ExitStack() as stack:
        for build in builds.values():
            stack.enter_context(build.pool())
        for number in range(rounds + 1):
            for name in sorted(builds, reverse=bool(number % 2)):
                for words in COMMANDS:
                    spent = builds[name].command(words)
                    if number:  # the first compiles, and is not counted
                        found[words, name].append(spent)
    for words in COMMANDS:
        for name in builds:
            cpu, wall = zip(*found[words, name], strict=True)
            print(
                f"{words}, {name}: {statistics.median(cpu):.3f} s of processor time "
                f"({min(cpu):.3f} to {max(cpu):.3f}), {statistics.median(wall):.3f} s"
            )
        if BEFORE in builds:
            pairs = zip(found[words, NOW], found[words, BEFORE], strict=True)
            ratios = [now / before for (now, _), (before, _) in pairs]
            print(f"{words}, now over before: {statistics.median(ratios):.2f}")


def main() -> None:
    """Reads the command line and measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commands", action="store_true")
    asked = parser.parse_args()

    def measure_what_is_asked() -> None:
        if asked.commands:
            measure_commands(builds, asked.rounds)
        else:
            measure(builds, asked.tasks, asked.rounds)

    with tempfile.TemporaryDirectory() as kept:
        builds = {NOW: Build(CHECKOUT, Path(kept) / NOW)}
        if asked.revision is None:
            measure_what_is_asked()
            return
        older = Path(kept) / "checkout"
        git = ["git", "-C", str(CHECKOUT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", older, asked.revision], check=True)
        try:
            builds[BEFORE] = Build(older, Path(kept) / BEFORE)
            measure_what_is_asked()
        finally:
            subprocess.run([*git, "remove", "--force", older], check=True)


if __name__ == "__main__":
    main()
