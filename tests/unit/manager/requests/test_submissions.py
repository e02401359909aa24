"""What the answer to a submission, and to a question for logs, says without a second request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from managerkit import NOW, PlayedManager
from msgspec import json
from msgspec.structs import replace

from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.manager.requests import graphs
from kestrelctl.manager.requests import jobs as job_requests
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import GraphJob, GraphSubmitted

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"
WORKER = "w1@workers.pool/1"
ONE = JobSpec(program=Program(argv=("true",)))
TOO_LARGE = JobSpec(program=Program(argv=("true",)), request={"cpus": 64.0})


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    """A manager with a worker of two processors."""
    played = PlayedManager(tmp_path)
    ad = WorkerAd(assets={"cpus": 2.0})
    hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, at=0.0, ad=ad)
    await played.work(WORKER, hello)
    return played


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> Any:
    return directions.answers.decode(await manager.ask(whom, request))


# -- submissions -----------------------------------------------------------------------------------


async def test_who_submits_hears_at_once_that_nothing_could_ever_run_it(
    manager: PlayedManager,
) -> None:
    submitted = await asked(manager, rq.SubmitJob(spec=TOO_LARGE, explain=True))
    explained = await asked(manager, rq.ExplainJob(job=str(submitted.job_id)))
    assert submitted.hopeless.is_hopeless
    assert submitted.hopeless == replace(explained, id="")


@pytest.mark.parametrize(
    ("spec", "explain"),
    [(TOO_LARGE, False), (ONE, True), (JobSpec(program=Program(argv=("true",)), count=9), True)],
    ids=["nobody asks", "it runs", "some of it waits for the rest"],
)
async def test_nothing_more_is_said_of_a_job(
    manager: PlayedManager, spec: JobSpec, explain: bool
) -> None:
    submitted = await asked(manager, rq.SubmitJob(spec=spec, explain=explain))
    assert isinstance(submitted, an.Submitted)
    assert submitted.hopeless is None


async def test_a_job_that_is_there_already_is_explained_too(manager: PlayedManager) -> None:
    first = rq.SubmitJob(spec=TOO_LARGE, key="k")
    assert (await asked(manager, first)).hopeless is None
    again = await asked(manager, replace(first, explain=True))
    assert again.repeated
    assert again.hopeless.is_hopeless


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[JobSpec]:
    """The jobs that are checked by the manager, in order."""
    found: list[JobSpec] = []

    def check(spec: JobSpec) -> str | None:
        found.append(spec)
        return problem_with_job(spec)

    monkeypatch.setattr(job_requests, "problem_with_job", check)
    monkeypatch.setattr(graphs, "problem_with_job", check)
    return found


async def test_the_manager_checks_a_job_once(
    manager: PlayedManager, checked: list[JobSpec]
) -> None:
    assert isinstance(await asked(manager, rq.SubmitJob(spec=ONE)), an.Submitted)
    assert checked == [ONE]


async def submitted_as_one(manager: PlayedManager, *jobs: GraphJob) -> Any:
    lines = [json.encode(job).decode() for job in jobs]
    await asked(manager, rq.UploadItems(upload="u", lines=lines))
    return await asked(manager, rq.SubmitJobs(upload="u"))


async def test_the_manager_checks_each_of_several_jobs_once(
    manager: PlayedManager, checked: list[JobSpec]
) -> None:
    pair = GraphJob(spec=ONE), GraphJob(spec=ONE, after_each=0)
    assert isinstance(await submitted_as_one(manager, *pair), GraphSubmitted)
    assert checked == [ONE, ONE]


async def test_a_job_of_a_file_and_one_that_was_there_are_told_apart(
    manager: PlayedManager,
) -> None:
    """The second of a file is no job 2: its tasks may be waited for beside all of job 2."""
    await asked(manager, rq.SubmitJob(spec=ONE))
    await asked(manager, rq.SubmitJob(spec=ONE))
    third = GraphJob(spec=replace(ONE, after=(After(2, 2),)), after_each=1)
    found = await submitted_as_one(manager, GraphJob(spec=ONE), GraphJob(spec=ONE), third)
    assert isinstance(found, GraphSubmitted), found


# -- logs ------------------------------------------------------------------------------------------


async def ran(manager: PlayedManager, spec: JobSpec) -> None:
    """A job is submitted, and its first task ends well and says so."""
    await asked(manager, rq.SubmitJob(spec=spec))
    sent = [directions.to_worker.decode(text) for to, text in manager.sent if to == WORKER]
    [number, job_id, index, *_] = [each for each in sent if isinstance(each, workers.Run)][
        -1
    ].spans[0]
    result = Result(number, job_id, index, Outcome.DONE, NOW, 0.0, stdout=b"hi\n", stdout_bytes=3)
    await manager.work(WORKER, workers.Report(results=[result]))


async def test_the_output_of_the_only_task_is_had_without_its_id(manager: PlayedManager) -> None:
    await ran(manager, JobSpec(program=Program(argv=("echo", "hi")), first=7, name="greets"))
    log = await asked(manager, rq.Logs(job="last"))
    assert isinstance(log, an.Log), log
    assert (log.data, log.job_id, log.name, log.task_id) == (b"hi\n", 1, "greets", 7)
    assert log == await asked(manager, rq.Logs(job="1", task_id=7))


async def test_of_several_tasks_one_must_be_named(manager: PlayedManager) -> None:
    await ran(manager, JobSpec(program=Program(argv=("echo", "hi")), count=2, first=5))
    refused = await asked(manager, rq.Logs(job="1"))
    assert isinstance(refused, an.Failed)
    assert (refused.code, refused.message, refused.hint) == (
        "usage",
        "job 1 has 2 tasks; whose output?",
        "kestrelctl job logs 1 5, or --all",
    )
    assert (await asked(manager, rq.Logs(job="1", task_id=5))).data == b"hi\n"


async def test_who_may_not_have_it_does_not_hear_how_many_tasks_there_are(
    manager: PlayedManager,
) -> None:
    await ran(manager, JobSpec(program=Program(argv=("echo", "hi")), count=3))
    refused = await asked(manager, rq.Logs(job="1"), BOB)
    assert (refused.code, "3 tasks" in refused.message) == ("not-allowed", False)
