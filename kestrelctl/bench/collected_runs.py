"""Keeps what a bench has measured so far, so that a bench that ends early loses none of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kestrelctl.bench import knee
from kestrelctl.bench.estimate import Expectation
from kestrelctl.bench.machine import prosody_version, this_machine
from kestrelctl.bench.result import PLAIN, BenchResult, BenchRun, Sweep

#: (run, its number from 1 on, of how many): called when a run has ended.
OnRun = Callable[[BenchRun, int, int], None]
OnBegin = Callable[[Expectation | None], None]


class CollectedRuns:
    """Collects the runs of one bench.

    Args:
        on_run: is told of each run that has ended, when the bare rate after it is known.
        on_begin: is told which runs are to come; None if their time cannot be estimated.

    Attributes:
        runs: the runs that have ended, in their order.
        spawn_rates_per_second: bare rates of this machine, measured before, between and after the
            runs; none for a given pool.
        planned_runs: the number of runs that are planned.
        cell_seconds: the time of each cell of a sweep; None if this is no sweep.
    """

    def __init__(self, on_run: OnRun | None = None, on_begin: OnBegin | None = None) -> None:
        self.runs: list[BenchRun] = []
        self.spawn_rates_per_second: list[float] = []
        self.planned_runs = 0
        self.cell_seconds: float | None = None
        self._on_run = on_run
        self._on_begin = on_begin
        self._told = 0
        self._machine = this_machine("")  # now: the checkout may change before a long bench ends

    @property
    def spawn_limit_per_second(self) -> float | None:
        """The best of the bare rates: other programs on the machine can only lower them."""
        return max(self.spawn_rates_per_second, default=None)

    def begin(self, expected: Expectation | None) -> None:
        """Tells that the runs begin, and how long they are expected to take."""
        if self._on_begin is not None:
            self._on_begin(expected)

    def add(self, run: BenchRun) -> None:
        """Adds a run that has ended."""
        self.runs.append(run)

    def tell(self) -> None:
        """Reports each run that has ended and was not reported yet."""
        while self._told < len(self.runs):
            self._told += 1
            if self._on_run is not None:
                self._on_run(self.runs[self._told - 1], self._told, self.planned_runs)

    def result(
        self, command: str | None, isolation: str = PLAIN, ended_by: str | None = None
    ) -> BenchResult:
        """Returns all that was measured, for people and for files.

        Args:
            ended_by: what ended the bench before its last run, e.g. `SIGTERM`.
        """
        sweep = None
        if self.cell_seconds is not None:
            knees = [curve.knee for curve in knee.curves(self.runs)]
            sweep = Sweep(self.cell_seconds, knees)
        early = None
        if ended_by is not None:
            early = f"{ended_by} after {len(self.runs)} of {self.planned_runs} runs"
        machine = self._machine
        if self.spawn_rates_per_second:  # a pool of this machine
            machine = msgspec.structs.replace(machine, prosody=prosody_version())
        return BenchResult(
            machine=machine,
            spawn_limit_per_second=self.spawn_limit_per_second,
            runs=list(self.runs),
            command=command,
            isolation=isolation,
            sweep=sweep,
            spawn_rates_per_second=[round(rate, 1) for rate in self.spawn_rates_per_second],
            ended_early=early,
        )
