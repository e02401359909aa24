"""The worlds are worth something only if they find defects: here some are planted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kestrelctl import simulate
from kestrelctl.core import effects
from kestrelctl.core.agent.agent import Agent, AgentAttempt
from kestrelctl.core.attempts import adoption
from kestrelctl.core.events import Event
from kestrelctl.core.handlers import leases
from kestrelctl.core.jobs.job import Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.claim import Claim
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.core.pool import Pool
from kestrelctl.core.state import State
from kestrelctl.manager.service import Service
from kestrelctl.simulate import faults
from kestrelctl.simulate.workload import Submission


def is_found(problem: str, seeds: int = 60) -> bool:
    """Whether one of so many worlds shows the problem."""
    return any(problem in line for seed in range(seeds) for line in simulate.run(seed).problems)


def test_a_result_acknowledged_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects.Acknowledge, "after_commit", False)
    assert is_found("was acknowledged and dropped")


def test_a_job_acknowledged_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects.Answer, "after_commit", False)
    assert is_found("was acknowledged twice")


def test_a_worker_that_reports_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_welcome(self: Agent, greeting: int, kill: Sequence[int], now: float) -> list[int]:
        self.welcomed = True
        return self.on_kill(kill, now)

    monkeypatch.setattr(Agent, "on_welcome", on_welcome)
    assert is_found("the world does not come to rest")


def test_a_worker_that_runs_too_much_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def startable(self: Agent) -> list[AgentAttempt]:
        starts = list(self.queue)
        self.queue.clear()
        for attempt in starts:
            attempt.claim.charge(self.free)
            self.running[attempt.number] = attempt
        return starts

    monkeypatch.setattr(Agent, "startable", startable)
    assert is_found("at once, it has")


def test_kills_that_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    do = Service._do

    def forgetful(self: Service, effect: effects.Effect) -> None:
        if not isinstance(effect, effects.Kill):
            do(self, effect)

    monkeypatch.setattr(Service, "_do", forgetful)
    assert is_found("runs though its task is over")


def test_attempts_that_a_hello_brings_back_to_life(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = adoption._keep

    def credulous(state: State, worker: Worker, number: int, task: Task, claim: Claim) -> bool:
        task.concluded = 0
        return keep(state, worker, number, task, claim)

    monkeypatch.setattr(adoption, "_keep", credulous)
    assert is_found("was accepted twice", seeds=200)


def test_tasks_of_a_cancelled_job_that_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def put_back(state: State, task: Task, jid: str) -> None:
        task.job.make_ready(task)
        state.touch_job(task.job)

    monkeypatch.setattr(leases, "put_back", put_back)
    spec = JobSpec(argv=("task",), name="long", count=12)
    world = simulate.Settings(
        ads=[WorkerAd()] * 4,
        submissions=[Submission(at_seconds=0.0, spec=spec, cancel_after_seconds=6.0)],
        faults=12,
        fault_kinds={faults.crash_manager: 1.0, faults.crash_worker: 2.0},
        latency_seconds=(0.3, 0.6),
    )
    problems = [line for seed in range(60) for line in simulate.run(seed, world).problems]
    assert any("cancelled task" in line for line in problems)


def test_leases_that_never_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Pool.handle

    def hopeful(self: Pool, event: Event) -> list[effects.Effect]:
        for worker in self.state.workers.values():
            worker.lease_until = float("inf")
        return handle(self, event)

    monkeypatch.setattr(Pool, "handle", hopeful)
    world = simulate.Settings(
        ads=[WorkerAd()],
        submissions=[],
        faults=8,
        fault_kinds={faults.hang_worker: 1.0},
        fault_seconds=60.0,
        config=Config(min_heartbeat_seconds=1.0, late_seconds=0.5),
    )
    problems = [line for seed in range(5) for line in simulate.run(seed, world).problems]
    assert any("w0 is believed to be there" in line for line in problems)
