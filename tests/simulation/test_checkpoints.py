"""Tasks that go on from checkpoints, in pools whose workers are drained, killed and frozen."""

from __future__ import annotations

import pytest
from golden_traces import KINDS
from seeds import due

from kestrel_worlds import WorldSettings, run
from kestrel_worlds.settings import checkpointing
from kestrel_worlds.simulated_steps import STEP_SECONDS, STEPS
from kestrel_worlds.workload import Submission
from kestrel_worlds.world import World
from kestrelctl.core.attempts import hand_out
from kestrelctl.core.handlers import checkpoints, verdict
from kestrelctl.core.jobs.job import Task
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.checkpoint import Checkpoint, MadeCheckpoint
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.state import State


@pytest.mark.parametrize("seed", due(160, parts=4, first=KINDS["checkpointing"][0]))
def test_all_promises_are_kept(seed: int) -> None:
    run(seed, checkpointing(seed)).raise_problems()


def test_what_is_durable_is_never_run_again() -> None:
    for seed in range(40):
        run(seed, checkpointing(seed)).raise_problems()


def small_site(checkpoint_exit: int | None) -> WorldSettings:
    """Two workers, and a task on one of them."""
    ad = WorkerAd(assets={"cpus": 1.0}, tags=("checkpoints",))
    spec = JobSpec(
        program=Program(
            argv=("task",),
            checkpoints=("state",),
            checkpoint_seconds=1.0,
            checkpoint_exit=checkpoint_exit,
        ),
        name="steps",
    )
    return WorldSettings(ads=[ad, ad], submissions=[Submission(at_seconds=0.0, spec=spec)])


def test_a_worker_that_is_drained_is_soon_empty() -> None:
    world = World(1, small_site(85))
    clock, nodes = world.clock, world.nodes
    clock.run_until(clock.now + STEPS * STEP_SECONDS / 2)
    pool = nodes.manager.pool
    assert pool is not None
    [first] = [worker for worker in pool.workers.values() if worker.held]
    nodes.operator.drain(first.jid)
    clock.run_until(clock.now + 1.0)
    assert not first.held
    [second] = [worker for worker in pool.workers.values() if worker.held]
    assert second is not first
    while pool.jobs:
        clock.run_until(clock.now + 1.0)
    found = world.audit.checkpoints
    assert STEPS <= found.steps[1, 0] <= STEPS + 1
    assert (found.resumed, found.gone_on) == (1, 1)
    assert world.audit.problems == []
    world.close()


# -- the auditor finds what breaks that ------------------------------------------------------------


def problems(text: str, first: int = 0, seeds: int = 40) -> bool:
    return any(
        text in line
        for seed in range(first, first + seeds)
        for line in run(seed, checkpointing(seed)).problems
    )


def test_it_notices_that_a_task_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = hand_out._resumed

    def forgets(*words: object) -> MadeCheckpoint:
        found = resumed(*words)  # type: ignore[arg-type]
        return MadeCheckpoint(found.n, StoredFile(sha256="0" * 64, size_bytes=0, pieces=()))

    monkeypatch.setattr(hand_out, "_resumed", forgets)
    assert problems("goes on from step 0")


def test_it_notices_that_an_older_checkpoint_replaces_a_newer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Checkpoint, "is_older_than", lambda self, number, n: True)
    assert problems("has kept", first=45)


def test_it_notices_the_checkpoint_of_another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    latest: list[Checkpoint] = []
    resumed = hand_out._resumed

    def mixes_up(state: State, worker: object, task: Task, number: int) -> MadeCheckpoint:
        resumed(state, worker, task, number)  # type: ignore[arg-type]
        assert task.checkpoint is not None
        latest.append(task.checkpoint)
        return MadeCheckpoint(latest[0].n, latest[0].stored)

    monkeypatch.setattr(hand_out, "_resumed", mixes_up)
    assert problems("which is no earlier attempt's of its own")
    latest.clear()


def test_it_notices_that_who_goes_on_is_counted_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(state: State, task: Task, attempt: object, result: Result) -> None:
        task.failures += 1
        checkpoints.go_on(state, task, attempt, result)  # type: ignore[arg-type]

    monkeypatch.setattr(verdict, "go_on", fails)
    assert problems("failures became")


def test_it_notices_that_what_is_told_of_a_checkpoint_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keeps_nothing(state: State, task: Task, number: int, made: MadeCheckpoint) -> bool:
        return False

    monkeypatch.setattr(verdict, "keep_checkpoint", keeps_nothing)
    assert problems("goes on from nothing")
