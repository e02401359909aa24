"""`submit --no-flock`, and that a job is a guest: what users can say, and what they are shown."""

from __future__ import annotations

from pathlib import Path

import msgspec
from cli_fake_pool import EXPLANATION, JOB, FakePool, job_with, run
from flockkit import guest
from managerkit import PlayedManager
from msgspec.structs import replace

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.manager.views import job_view, summary
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import GraphJob

ADA = "ada@users.pool/1"
NO_USER = "no user can say that a job is a guest of the pool"


def submitted(*words: str) -> JobSpec:
    pool = FakePool()
    result = run(pool, "submit", *words)
    assert result.exit_code == 0, result.stderr
    return pool.last(rq.SubmitJob).spec


def test_submit_and_job_files_say_that_a_job_stays(tmp_path: Path) -> None:
    assert submitted("--no-flock", "--", "true").stays
    assert not submitted("--", "true").stays
    path = tmp_path / "job.toml"
    path.write_text('command = ["true"]\nno-flock = true\n')
    assert submitted(str(path)).stays


def test_a_job_shows_that_it_stays_and_whose_guest_it_is() -> None:
    views = [job_with(JOB, stays=True, guest=guest())]
    shown = run(FakePool(ListJobs=an.Jobs(id="", jobs=views)), "job", "info", "7").stdout
    assert "guest of        home.example\n" in shown
    assert "neighbours      none: it stays on the pool's own workers\n" in shown
    shown = run(FakePool(ListJobs=an.Jobs(id="", jobs=[JOB])), "job", "info", "7").stdout
    assert "guest of" not in shown
    assert "neighbours" not in shown


async def asked(manager: PlayedManager, request: rq.Request) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(ADA, request))


async def test_a_job_of_a_user_that_says_it_is_a_guest_is_refused(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path)
    spec = JobSpec(program=Program(argv=("true",)), guest=guest())
    refused = await asked(manager, rq.SubmitJob(spec=spec))
    assert isinstance(refused, an.Failed), refused
    assert refused.cause == NO_USER
    assert manager.store.jobs() == []


async def test_among_several_jobs_as_one_it_is_refused_as_well(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path)
    job = GraphJob(spec=JobSpec(program=Program(argv=("true",)), guest=guest()))
    lines = [msgspec.json.encode(job).decode()]
    await asked(manager, rq.UploadItems(upload="u", lines=lines))
    refused = await asked(manager, rq.SubmitJobs(upload="u"))
    assert isinstance(refused, an.Failed), refused
    assert refused.cause == NO_USER
    assert manager.store.jobs() == []


async def test_a_view_says_whose_guest_a_job_is_to_everybody(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path)
    await asked(manager, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)), stays=True)))
    (record,) = manager.store.jobs()
    assert (job_view(record, None).spec.stays, job_view(record, None).guest_of) == (True, "")
    theirs = replace(record, spec=replace(record.spec, guest=guest()))
    assert summary(job_view(theirs, None)).guest_of == "home.example"


def test_why_it_waits_says_that_only_neighbours_are_there() -> None:
    refusal = Refusal(Reason.STAYS_HOME, found="lent by a neighbour")
    obstacle = an.Obstacle(workers=2, example="flock@near.example/0a", refusal=refusal)
    told = replace(EXPLANATION, obstacles=[obstacle], could_run=0, ever=False, job_reasons=[])
    why, _ = conclusion(told)
    assert why.startswith("no worker could ever run it; the closest is")
    assert why.endswith("which a neighbour lends: it stays on the pool's own")
