"""Which runs an experiment has, what it keeps of one that ends early, and how it is called."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchkit import MACHINE
from cli_fake_pool import FakePool, run
from flockbenchkit import a_run

from kestrel_experiments.flock import faults as flock_faults
from kestrel_experiments.flock import run as flock_run
from kestrel_experiments.flock.audit import FlockAudit
from kestrel_experiments.flock.faults import Fault, do_faults
from kestrel_experiments.flock.pools import FlockPools
from kestrel_experiments.flock.relay import Relay
from kestrel_experiments.flock.result import FlockRun
from kestrel_experiments.flock.run import Experiment, ExperimentPlan, PlannedFlockRun, planned_runs
from kestrelctl.errors import KestrelError, UsageError


class Runs:
    """Stands in for real runs: each takes a turn of the loop, and says that it began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.begun: list[PlannedFlockRun] = []
        self.side_by_side = 0
        self.fails_at: PlannedFlockRun | None = None
        self._running = 0
        self._changes = changes
        monkeypatch.setattr(flock_run, "one_flock_run", self._one)

    async def _one(self, plan: ExperimentPlan, planned: PlannedFlockRun) -> FlockRun:
        self.begun.append(planned)
        self._running += 1
        self.side_by_side = max(self.side_by_side, self._running)
        await asyncio.sleep(0)
        self._running -= 1
        if planned == self.fails_at:
            raise KestrelError("the pool did not come up")
        changes = {"delay_ms": planned.delay_ms} | self._changes
        return a_run(planned.mode, planned.seed, **changes)


def test_each_seed_is_run_in_every_mode_before_the_next() -> None:
    found = planned_runs(ExperimentPlan(seeds=2, first_seed=5))
    assert found == [
        ("without", 5, 0.0), ("with", 5, 0.0), ("without", 6, 0.0), ("with", 6, 0.0),
    ]  # fmt: skip


def test_pools_alone_are_run_once_whatever_lies_between_the_others() -> None:
    found = planned_runs(ExperimentPlan(modes=("without", "with", "static"), delays_ms=(0.0, 60.0)))
    assert [(run.mode, run.delay_ms) for run in found] == [
        ("without", 0.0), ("with", 0.0), ("with", 60.0), ("static", 0.0), ("static", 60.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "plan",
    [
        ExperimentPlan(seeds=0),
        ExperimentPlan(unit_seconds=1e-9),
        ExperimentPlan(modes=("without",), kill=True),
        ExperimentPlan(modes=("without",), delays_ms=(40.0,)),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(plan: ExperimentPlan) -> None:
    with pytest.raises(UsageError):
        planned_runs(plan)


@pytest.mark.parametrize("at_once", [1, 3])
async def test_as_many_run_side_by_side_as_were_asked_for(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch)
    experiment = Experiment(ExperimentPlan(seeds=3, at_once=at_once))
    await experiment.run()
    assert runs.side_by_side == at_once
    assert sorted(runs.begun) == sorted(experiment.planned)


async def test_an_experiment_that_fails_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    experiment = Experiment(ExperimentPlan(seeds=3))
    runs.fails_at = experiment.planned[3]
    with pytest.raises(KestrelError):
        await experiment.run()
    result = experiment.result(MACHINE, None, "an error")
    assert [(run.mode, run.seed) for run in result.runs] == [
        ("without", 1), ("with", 1), ("without", 2),
    ]  # fmt: skip
    assert result.ended_early == "an error after 3 of 6 runs"


def _bench(monkeypatch: pytest.MonkeyPatch, *words: str, **changes: Any) -> Any:
    Runs(monkeypatch, **changes)
    return run(FakePool(), "bench", "flock", *words)


def test_without_a_word_pools_are_run_alone_and_in_a_flock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = _bench(monkeypatch)
    assert result.exit_code == 0
    assert "run 2 of 2: with, seed 1: 4 tasks waited" in result.stderr
    assert "10.0 (10.0-10.0)" in result.stdout


def test_options_say_what_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ("--with", "--static", "--delay", "0,40", "--seeds", "2", "-o", "json")
    result = _bench(monkeypatch, *words, "--report", str(tmp_path))
    found = json.loads(result.stdout)
    assert len(found["runs"]) == 8
    assert [each["delay_ms"] for each in found["summary"]] == [0.0, 40.0, 0.0, 40.0]
    assert sorted(os.listdir(tmp_path)) == ["flock-longest.svg", "flock.html", "flock.json"]
    again = _bench(monkeypatch, "--with", "--compare", str(tmp_path))
    assert f"beside {tmp_path}:" in again.stdout


def test_what_the_audit_finds_is_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = FlockAudit(
        tasks=4, lost=1, twice=0, breaches=["pool D: task D-7 has no accepted result"]
    )
    result = _bench(monkeypatch, audit=lost)
    assert result.exit_code == 1
    assert "task D-7 has no accepted result" in result.stderr


@pytest.mark.parametrize("word", ["x", "-1", "nan", "1e9"])
def test_what_is_no_delay_is_refused(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _bench(monkeypatch, f"--delay={word}").exit_code == 2


async def test_faults_come_in_their_turn_and_what_was_cut_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    def kill(pools: FlockPools, pool: str, what: str) -> None:
        done.append(f"kill {what} {pool}")

    monkeypatch.setattr(flock_faults, "_kill", kill)
    ways = {pair: _Way("".join(pair), done) for pair in (("A", "B"), ("B", "A"), ("A", "D"))}
    pools = FlockPools({"A": None, "B": None, "D": None}, ways)  # type: ignore[arg-type]
    faults: Sequence[Fault] = (
        Fault(0.2, "B", "ways", 0.1), Fault(0.1, "D", "manager"), Fault(0.3, "X", "server"),
    )  # fmt: skip
    said = await do_faults(faults, pools, asyncio.get_running_loop().time(), 0.01)
    assert done == ["kill manager D", "cut AB", "cut BA", "mend AB", "mend BA"]
    assert said == [
        "the manager of pool D killed after 10% of the time in which tasks came",
        "all ways of pool B cut after 20% of the time in which tasks came, for 10% of it",
    ]


class _Way(Relay):
    """One that only says what it was told."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(lambda: ("", 0), 0.0)
        self._name = name
        self._log = log

    def cut(self) -> None:
        self._log.append(f"cut {self._name}")

    def mend(self) -> None:
        self._log.append(f"mend {self._name}")
