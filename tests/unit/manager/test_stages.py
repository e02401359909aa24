"""Stages at the manager: from a submission to a worker, and from a worker to the owner."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobkit import job_spec
from managerkit import NOW, PlayedManager
from storekit import QuickStore

from kestrelctl.core.model.job.stage import Stage, StageRun
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"
WORKER = "w1@workers.pool/1"
STAGES = (
    Stage(name="setup", argv=("load",), tries=3),
    Stage(name="out", argv=("put", "{n}"), time_limit_seconds=60.0),
)


@pytest.fixture
async def manager(tmp_path: Path, quick_store: QuickStore) -> PlayedManager:
    found = PlayedManager(tmp_path, store=quick_store)
    ad = WorkerAd(assets={"cpus": 2.0}, tags=("stages",))
    await found.work(
        WORKER, workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=ad)
    )
    return found


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


async def submit(manager: PlayedManager, **spec: object) -> list[workers.Run]:
    """A job of two tasks; returns what its worker is sent."""
    job = job_spec(count=2, **({"stages": STAGES} | spec))
    assert isinstance(await asked(manager, rq.SubmitJob(spec=job)), an.Submitted)
    sent = [directions.to_worker.decode(text) for to, text in manager.sent if to == WORKER]
    return [message for message in sent if isinstance(message, workers.Run)]


async def test_a_worker_is_sent_the_stages_with_the_job(manager: PlayedManager) -> None:
    [message] = await submit(manager)
    assert message.jobs[0].program.stages == STAGES


async def test_nothing_is_sent_of_stages_where_there_are_none(manager: PlayedManager) -> None:
    await submit(manager, stages=())
    assert not any("stage" in text for _, text in manager.sent)


async def test_an_owner_sees_in_which_stage_his_tasks_are(manager: PlayedManager) -> None:
    [message] = await submit(manager)
    number = message.spans[0][0]
    await manager.work(WORKER, workers.Staged(stages=[(number, "setup"), (number + 1, "nonsense")]))
    page = await asked(manager, rq.ListTasks(job="1"))
    assert isinstance(page, an.Tasks)
    assert page.stages == ["setup", "out"]
    assert [task.stage for task in page.tasks] == ["setup", ""]


async def test_an_owner_sees_how_stages_went(manager: PlayedManager) -> None:
    [message] = await submit(manager)
    number, job_id, index, *_ = message.spans[0]
    runs = (StageRun("setup", 4.0, 3), StageRun("run", 1.0), StageRun("out", 0.5))
    good = Result(number, job_id, index, Outcome.DONE, NOW, 1.0, stages=runs)
    bad = Result(
        number + 1, job_id, index + 1, Outcome.FAILED, NOW, 0.0,
        reason="stage setup: exit code 3", stages=(StageRun("setup", 2.0, 1),),
    )  # fmt: skip
    manager.now += 60.0
    await manager.work(WORKER, workers.Report(results=[good, bad]))
    page = await asked(manager, rq.ListTasks(job="1"))
    assert isinstance(page, an.Tasks)
    assert [task.stages for task in page.tasks] == [runs, (StageRun("setup", 2.0, 1),)]
    answer = await asked(manager, rq.ListJobs(jobs="1", details=True))
    assert isinstance(answer, an.Jobs)
    [view] = answer.jobs
    assert view.spec.program.stages == STAGES
    assert [(s.name, s.tasks, s.mean_seconds, s.repeated) for s in view.stage_sums] == [
        ("setup", 2, 3.0, 2),
        ("run", 1, 1.0, 0),
        ("out", 1, 0.5, 0),
    ]


async def test_nobody_else_sees_the_commands_of_stages(manager: PlayedManager) -> None:
    await submit(manager)
    answer = await asked(manager, rq.ListJobs(jobs="1", details=True), BOB)
    assert isinstance(answer, an.Jobs)
    assert [(v.spec.program.stages, v.stage_sums) for v in answer.jobs] == [((), [])]


def test_a_report_of_a_job_without_stages_is_as_short_as_before() -> None:
    silent = Result(5 << 40, 7, 16, Outcome.DONE, NOW, 1.5, 0.01, 0.02, 3 << 20)
    text = codec.encode(workers.Report(results=[silent]))
    assert text.endswith(",1.5,0.01,0.02,3145728]]}")
    decoded = directions.from_worker.decode(text)
    assert isinstance(decoded, workers.Report)
    assert decoded.results == [silent]
