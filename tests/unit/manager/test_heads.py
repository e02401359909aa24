"""Lists work with heads of jobs; what runs tasks, or shows one job, has all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import PlayedManager

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import HEAD_CHARACTERS, JobSpec
from kestrelctl.manager.views import LONGEST_COMMAND
from kestrelctl.protocol import answers, directions, requests

ADA = "ada@users.pool/desk"
LONG = JobSpec(
    program=Program(argv=("./run", "{}", "x" * 50_000), env={"A": "1"}, cleanup=("rm", "tmp")),
    count=2,
    items=("first", "second"),
    requires=tuple(f"tag-{n}" for n in range(2_000)),
)


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    """Ada has a job that has ended."""
    manager = PlayedManager(tmp_path)
    await manager.ask(ADA, requests.SubmitJob(id="s", spec=LONG))
    await manager.ask(ADA, requests.CancelJobs(id="c", jobs="1"))
    assert manager.service.pool.job(1) is None
    return manager


async def views(manager: PlayedManager, jobs: str) -> list[answers.JobView]:
    found = directions.answers.decode(await manager.ask(ADA, requests.ListJobs(id="l", jobs=jobs)))
    assert isinstance(found, answers.Jobs)
    return found.jobs


async def test_a_job_that_has_ended_is_retried_with_all_that_it_had(
    manager: PlayedManager,
) -> None:
    await manager.ask(ADA, requests.RetryJobs(id="r", jobs="1"))
    job = manager.service.pool.job(1)
    assert job is not None
    assert job.spec.requires == LONG.requires, "by these it is decided where it runs"
    stored = manager.store.job(1)
    assert stored.state == "active"
    assert stored.spec == LONG


@pytest.mark.parametrize("active", [False, True])
async def test_a_job_alone_in_an_answer_is_shown_with_its_whole_command(
    manager: PlayedManager, active: bool
) -> None:
    if active:
        await manager.ask(ADA, requests.RetryJobs(id="r", jobs="1"))
    [alone] = await views(manager, "1")
    assert alone.spec.program.argv == LONG.program.argv
    assert alone.spec.requires == LONG.requires
    await manager.ask(
        ADA, requests.SubmitJob(id="s", spec=JobSpec(program=Program(argv=("true",))))
    )
    first, second = await views(manager, "1-2")
    assert first.spec.program.argv == ("./run", "{}", "x" * (LONGEST_COMMAND - 9) + "…")
    assert second.spec.program.argv == ("true",)


@pytest.mark.parametrize(
    ("argv", "whole"),
    [
        (("x" * (HEAD_CHARACTERS - 1),), True),
        (("x" * HEAD_CHARACTERS,), False),
        (("x",) * (HEAD_CHARACTERS // 2), True),
        (("x",) * (HEAD_CHARACTERS // 2 + 1), False),
        (("x", "") * HEAD_CHARACTERS, False),
    ],
)
def test_a_head_knows_whether_it_was_cut(argv: tuple[str, ...], whole: bool) -> None:
    for spec in (
        JobSpec(program=Program(argv=argv)),
        JobSpec(program=Program(argv=("true",)), requires=argv),
    ):
        head = spec.head()
        assert (head == spec) is whole
        assert head.shows_all() is whole
        assert sum(map(len, head.program.argv + head.requires)) <= HEAD_CHARACTERS + 5
