"""What a worker's shell says of the stages of its tasks; the pool is the test."""

from __future__ import annotations

from itertools import pairwise

import pytest
from byhand import Worker

from kestrel_worlds.truth import Fate, StageFate
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.result import Outcome
from kestrelctl.protocol import workers
from kestrelctl.worker.connection.stage_reports import PAUSE_SECONDS

ALL = tuple(Stage(name=name, argv=(name, "{n}")) for name in ("setup", "in", "out"))


@pytest.fixture
def worker() -> Worker:
    found = Worker()
    found.welcome()
    return found


def told(worker: Worker) -> list[tuple[float, list[tuple[int, str]]]]:
    return [(at, m.stages) for at, m in worker.pool.heard if isinstance(m, workers.Staged)]


def hello_stages(worker: Worker) -> list[tuple[int, str]]:
    return worker.hellos()[-1][1].stages


def test_the_pool_hears_which_stage_a_task_has_begun(worker: Worker) -> None:
    worker.run(100, 1, stages=ALL)
    worker.wait(12.0)
    assert [stages for _, stages in told(worker)] == [
        [(100, "setup")],
        [(100, "in")],
        [(100, "run")],
    ]


def test_stages_that_begin_within_a_second_are_told_together_and_the_latest_counts(
    worker: Worker,
) -> None:
    worker.stage_fate = StageFate(0.2, 1, True)
    worker.run(100, 2, stages=ALL)
    worker.wait(30.0)
    assert [stages for _, stages in told(worker)] == [[(100, "run"), (101, "run")]]


def test_messages_about_stages_are_a_second_apart(worker: Worker) -> None:
    worker.stage_fate = StageFate(0.3, 1, True)
    worker.fate = Fate(0.3, Outcome.DONE)
    worker.run(100, 40, stages=ALL)
    worker.wait(30.0)
    moments = [at for at, _ in told(worker)]
    assert len(moments) > 5
    assert all(after - before >= PAUSE_SECONDS - 0.01 for before, after in pairwise(moments))


def test_of_what_is_over_within_a_second_nothing_is_told(worker: Worker) -> None:
    worker.stage_fate = StageFate(0.1, 1, True)
    worker.fate = Fate(0.1, Outcome.DONE)
    worker.run(100, 1, stages=ALL)
    worker.wait(30.0)
    assert worker.outcomes() == {100: Outcome.DONE}
    assert told(worker) == []


def test_of_jobs_without_stages_nothing_is_told(worker: Worker) -> None:
    worker.run(100, 2)
    worker.wait(30.0)
    worker.tell(workers.Who())
    assert (told(worker), hello_stages(worker)) == ([], [])


def test_a_hello_names_the_stage_of_what_runs(worker: Worker) -> None:
    worker.run(100, 1, stages=ALL)
    worker.wait(7.0)
    worker.tell(workers.Who())
    assert hello_stages(worker) == [(100, "in")]


def test_a_hello_names_no_stage_of_what_is_over(worker: Worker) -> None:
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.run(100, 1, stages=ALL)
    worker.wait(30.0)
    worker.tell(workers.Who())
    assert hello_stages(worker) == []


def test_what_began_before_the_welcome_is_told_after_it(worker: Worker) -> None:
    worker.run(100, 1, stages=ALL)
    worker.tell(workers.Who())
    worker.wait(7.0)
    assert hello_stages(worker) == [(100, "setup")]
    assert told(worker) == []
    worker.welcome()
    worker.wait(2.0)
    assert [stages for _, stages in told(worker)] == [[(100, "in")]]


def test_a_result_says_how_each_stage_went(worker: Worker) -> None:
    worker.stage_fate = StageFate(5.0, 3, True)
    worker.fate = Fate(2.0, Outcome.DONE)
    worker.run(100, 1, stages=ALL)
    worker.wait(60.0)
    [result] = [r for report in worker.pool.of(workers.Report) for r in report.results]
    assert [(run.name, run.wall_seconds, run.tries) for run in result.stages] == [
        ("setup", 5.0, 3),
        ("in", 5.0, 3),
        ("run", 2.0, 1),
        ("out", 5.0, 3),
    ]


def test_a_task_whose_last_stage_failed_has_failed(worker: Worker) -> None:
    worker.fate = Fate(2.0, Outcome.DONE)
    worker.stage_fate = StageFate(5.0, 1, False)
    worker.run(100, 1, stages=ALL[2:])
    worker.wait(60.0)
    [result] = [r for report in worker.pool.of(workers.Report) for r in report.results]
    assert (result.outcome, result.reason) == (Outcome.FAILED, "stage out: exit code 3")
    assert [run.name for run in result.stages] == ["run", "out"]
