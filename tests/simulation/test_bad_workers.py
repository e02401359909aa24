"""Workers that break or lie, and jobs that look as if they did."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from seeds import due

from kestrel_worlds import faults
from kestrel_worlds.course import log_told
from kestrel_worlds.faults import Kind
from kestrel_worlds.nodes import Nodes
from kestrel_worlds.settings import WorldSettings
from kestrel_worlds.workload import Submission
from kestrel_worlds.world import World
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.state import State


class Watched(World):
    """A world that the test looks into while it is left alone: nobody mends or resumes anything."""

    @property
    def state(self) -> State:
        assert self.nodes.manager.pool is not None
        return self.nodes.manager.pool.state

    def worker(self, which: int) -> Worker:
        return self.state.workers[self.nodes.workers[which].address]

    def live(self, seconds: float) -> None:
        with log_told(self.clock, self.audit):
            self.clock.run_until(self.clock.now + seconds)

    def live_until(self, over: Callable[[], bool], seconds: float) -> float:
        """Lets time pass until something is so; returns how long that took."""
        began = self.clock.now
        while not over() and self.clock.now < began + seconds:
            self.live(0.05)
        assert over(), "it did not come about"
        return self.clock.now - began

    def told(self, what: str) -> list[str]:
        return [line for line in self.clock.lines() if what in line]

    def job(self) -> Job:
        """The first that is handed in."""
        self.live_until(lambda: bool(self.state.jobs), 5.0)
        return next(iter(self.state.jobs.values()))

    def finish(self) -> None:
        self.close()
        assert not self.audit.problems, self.audit.problems[:5]


def world(
    seed: int,
    workers: int,
    *specs: JobSpec,
    cpus: float = 2,
    broken: int = 0,
    kinds: dict[Kind, float] | None = None,
    seconds: float = 20.0,
    story: bool = True,
    first_cpus: float | None = None,
) -> Watched:
    """A pool into which all workers have come; the jobs are handed in a moment later."""
    ads = [WorkerAd(assets={"cpus": cpus})] * workers
    if first_cpus is not None:
        ads[0] = WorkerAd(assets={"cpus": first_cpus})
    found = Watched(
        seed,
        WorldSettings(
            ads=ads,
            submissions=[Submission(at_seconds=1.0, spec=spec) for spec in specs],
            faults=broken,
            fault_kinds=kinds or {},
            fault_seconds=seconds,
            check=False,
            keep_story=story,
        ),
    )
    found.live(0.9)
    return found


def spec(kind: str, count: int, **more: object) -> JobSpec:
    return JobSpec(program=Program(argv=("task",)), name=kind, count=count, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", due(4, parts=2))
@pytest.mark.parametrize("cpus", [1, 4])
def test_a_job_that_fails_everywhere_from_somewhere_on_stops_nobody(seed: int, cpus: float) -> None:
    found = world(seed, 4, spec("ends", 2000), cpus=cpus)
    job = found.job()
    found.live_until(lambda: job.counts.failed > 20, 60.0)
    found.nodes.owners[0].hand_in(spec("second", 4))
    took = found.live_until(
        lambda: any(other is not job and other.running for other in found.state.jobs.values()), 10.0
    )
    assert took < 2.0
    assert job.remaining, "the other one has not come to its end"
    found.live_until(lambda: not found.state.jobs, 600.0)
    assert found.state.totals.workers_quarantined == 0
    found.finish()


@pytest.mark.parametrize(
    ("kind", "cpus"), [("second", 2), ("second", 16), ("long", 2), ("trivial", 2)]
)
@pytest.mark.parametrize("seed", due(2, parts=2))
def test_a_worker_that_reports_success_at_once_gets_a_small_part_of_a_job(
    kind: str, cpus: float, seed: int
) -> None:
    found = world(seed, 5, spec(kind, 20_000), story=False, first_cpus=cpus)
    found.nodes.hollow.add("w0")
    found.live_until(lambda: found.state.totals.quarantines["speed"] > 0, 120.0)
    assert found.worker(0).quarantined_until > found.clock.now
    swallowed = found.worker(0).tasks_done
    print(kind, cpus, "swallowed", swallowed, "after", found.clock.now - found.clock.start)
    assert swallowed < 10_000
    found.live(30.0)
    assert found.state.totals.workers_quarantined == 1, "and nobody else is doubted"
    found.finish()


@pytest.mark.parametrize("kind", ["trivial", "mixed", "flaky", "medium", "short", "tiny"])
@pytest.mark.parametrize("seed", due(3, parts=3))
def test_good_workers_are_not_doubted_for_tasks_that_take_very_different_times(
    kind: str, seed: int
) -> None:
    found = world(seed, 8, spec(kind, 4000, max_failures=3), cpus=Random(seed).choice((1, 2, 8)))
    found.job()
    found.live_until(lambda: not found.state.jobs, 3000.0)
    assert found.state.totals.workers_quarantined == 0
    found.finish()


def test_a_machine_that_fails_everything_is_soon_out_and_comes_back() -> None:
    found = world(1, 4, spec("short", 50_000))
    found.nodes.broken.add("w0")
    found.live_until(lambda: found.state.totals.quarantines["failures"] > 0, 20.0)
    assert found.worker(0).quarantined_until > found.clock.now
    assert found.state.totals.tasks_failed < 1000
    found.nodes.broken.clear()
    found.live_until(lambda: found.worker(0).tasks_done > 0, 90.0)
    assert found.state.totals.workers_quarantined == 1
    found.finish()


def test_a_worker_that_comes_and_goes_costs_no_task() -> None:
    """It dies a sixth of a second after each start, for half a minute."""
    found = world(1, 4, spec("medium", 400, max_losses=5))
    flapping = found.nodes.workers[0]

    def die() -> None:
        flapping.start_again(0.02)
        flapping.kill()

    for which in range(196):
        found.clock.after(1.0 + which * 0.15, die)
    job = found.job()
    found.live_until(lambda: not found.state.jobs, 600.0)
    assert job.counts.done == 400
    assert found.state.totals.quarantines["losses"] >= 1
    found.finish()


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("seed", due(4, parts=2))
def test_tasks_that_end_their_worker_do_not_take_those_beside_them_along(
    workers: int, seed: int
) -> None:
    found = world(seed, workers, spec("three killers", 8))
    job = found.job()
    found.live_until(lambda: not found.state.jobs, 600.0)
    assert (job.counts.done, job.counts.lost) == (5, 3)
    found.finish()


def crash(nodes: Nodes, random: Random, _seconds: float) -> None:
    faults.crash_worker(nodes, random, random.uniform(0.2, 20.0))


def freeze(nodes: Nodes, random: Random, _seconds: float) -> None:
    faults.hang_worker(nodes, random, random.uniform(1.0, 60.0))


def cut(nodes: Nodes, random: Random, _seconds: float) -> None:
    faults.cut_worker(nodes, random, random.uniform(1.0, 60.0))


@pytest.mark.parametrize("seed", due(2, parts=2))
def test_200_workers_that_die_freeze_and_are_cut_off_for_ten_minutes(seed: int) -> None:
    found = world(
        seed,
        200,
        spec("long", 20_000),
        broken=600,
        kinds={crash: 1.0, freeze: 1.0, cut: 1.0},
        seconds=600.0,
        story=False,
    )
    found.live(601.0)
    ran = {(run.job_id, run.index) for run in found.audit.executions.values()}
    [job] = found.state.jobs.values()
    lost = [
        row for row in found.nodes.store.tasks(job.id, limit=20_000) if row.state is TaskState.LOST
    ]
    assert [row for row in lost if (row.job_id, row.index) not in ran] == []
    assert not lost
    # The last faults pass, and each worker takes up work again.
    found.live(100.0)
    assert [w.jid for w in found.state.workers.values() if not w.held] == []
    assert len(found.state.workers) == 200
    found.finish()
