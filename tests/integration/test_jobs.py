"""What users do with jobs, on a real pool with real tasks."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from puppet import run_job

from kestrelctl.core.model.spec import JobSpec
from kestrelctl.core.model.task_state import TaskState
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection


def shell(script: str, **more: object) -> JobSpec:
    return JobSpec(argv=("/bin/sh", "-c", script), **more)  # type: ignore[arg-type]


async def tasks_of(user: UserConnection, job: int | str, **how: object) -> list[an.TaskView]:
    page = await user.ask(rq.ListTasks(job=str(job), **how))  # type: ignore[arg-type]
    assert isinstance(page, an.Tasks)
    return page.tasks


async def output_of(
    user: UserConnection, job: int, task_id: int = 0, stream: str = "stdout"
) -> bytes:
    found, offset = b"", 0
    while True:
        log = await user.ask(rq.Logs(job=str(job), task_id=task_id, stream=stream, offset=offset))
        assert isinstance(log, an.Log)
        found += base64.b64decode(log.data)
        if log.next_offset is None:
            return found
        offset = log.next_offset


async def view(user: UserConnection, job: int) -> an.JobView:
    answer = await user.ask(rq.ListJobs(jobs=str(job)))
    assert isinstance(answer, an.Jobs)
    return answer.jobs[0]


async def test_each_task_of_an_array_knows_who_it_is(user: UserConnection) -> None:
    script = 'echo "$KESTREL_JOB_ID $KESTREL_TASK_ID $KESTREL_TASK_INDEX $KESTREL_TASK_COUNT $1"'
    spec = JobSpec(argv=("/bin/sh", "-c", script, "sh", "{n}"), count=3, first=10, step=5)
    job = await run_job(user, spec)
    printed = [await output_of(user, job.job_id, task_id) for task_id in (10, 15, 20)]
    assert printed == [f"{job.job_id} {n} {i} 3 {n}\n".encode() for i, n in enumerate((10, 15, 20))]


async def test_items_fill_placeholders(user: UserConnection) -> None:
    lines = await run_job(user, JobSpec(argv=("echo", "<{}>"), count=2, items=("a b", "$HOME")))
    assert await output_of(user, lines.job_id, 0) == b"<a b>\n"
    assert await output_of(user, lines.job_id, 1) == b"<$HOME>\n"
    item = '{"name":"x","size":3}'
    fields = await run_job(user, JobSpec(argv=("echo", "{name}={size}"), count=1, items=(item,)))
    assert await output_of(user, fields.job_id) == b"x=3\n"


async def test_a_failure_has_its_exit_code_and_both_outputs(user: UserConnection) -> None:
    job = await run_job(user, shell("echo out; echo err >&2; exit 3"))
    (task,) = await tasks_of(user, job.job_id)
    assert (job.state, task.state, task.exit_code, task.failures) == ("failed", "failed", 3, 1)
    assert await output_of(user, job.job_id) == b"out\n"
    assert await output_of(user, job.job_id, stream="stderr") == b"err\n"


async def test_long_output_is_fetched_whole_from_the_worker(user: UserConnection) -> None:
    job = await run_job(user, shell("seq 100000"))
    expected = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    assert await output_of(user, job.job_id) == expected


async def test_what_happened_to_a_job_and_its_task_can_be_told_afterwards(
    user: UserConnection,
) -> None:
    job = await run_job(user, shell("exit 3", count=3, first=10))
    found = await user.ask(rq.TellStory(job="last", task_ids=[11]))
    assert isinstance(found, an.Story)
    assert (found.job.job_id, found.more) == (job.job_id, False)
    assert [(entry.task_id, entry.what) for entry in found.entries] == [
        (None, "submitted"),
        (11, "started"),
        (11, "ended"),
        (None, "ended"),
    ]
    started, ended = found.entries[1:3]
    assert "@workers." in started.worker
    assert (ended.cause, ended.number) == ("failed", started.number)
    assert "exit code 3" in ended.detail


async def test_output_can_be_read_while_the_task_runs(user: UserConnection) -> None:
    submitted = await user.ask(rq.SubmitJob(spec=shell("echo begun; sleep 60")))
    assert isinstance(submitted, an.Submitted)
    async with asyncio.timeout(10):
        while True:
            try:
                if await output_of(user, submitted.job_id) == b"begun\n":
                    break
            except NotFound:
                await asyncio.sleep(0.05)
    await user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))


async def test_a_failed_task_is_tried_again_as_often_as_asked(
    user: UserConnection, tmp_path: Path
) -> None:
    script = f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3"
    job = await run_job(user, shell(script, max_failures=3))
    (task,) = await tasks_of(user, job.job_id)
    assert (job.state, task.failures) == ("done", 2)


async def test_retry_runs_what_failed_and_only_that(user: UserConnection, tmp_path: Path) -> None:
    script = f'echo "$KESTREL_TASK_ID" >> {tmp_path}/ran; test $1 != 1 -o -e {tmp_path}/mended'
    spec = JobSpec(argv=("/bin/sh", "-c", script, "sh", "{n}"), count=3)
    job = await run_job(user, spec)
    assert (job.done, job.failed) == (2, 1)
    (tmp_path / "mended").touch()
    await user.ask(rq.RetryJobs(jobs=str(job.job_id)))
    async with asyncio.timeout(10):
        while (again := await view(user, job.job_id)).state == "active":
            await asyncio.sleep(0.05)
    assert (again.state, again.done) == ("done", 3)
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "1", "1", "2"]
    with pytest.raises(UsageError):
        await user.ask(rq.RetryJobs(jobs=str(job.job_id)))


async def test_cancel_kills_what_runs_and_a_retry_brings_the_rest_back(
    user: UserConnection, tmp_path: Path
) -> None:
    script = f"test -e {tmp_path}/quick || (echo x >> {tmp_path}/begun; sleep 60)"
    submitted = await user.ask(rq.SubmitJob(spec=shell(script, count=1000)))
    assert isinstance(submitted, an.Submitted)
    begun = tmp_path / "begun"
    async with asyncio.timeout(10):
        while not begun.exists() or len(begun.read_text().split()) < 2:
            await asyncio.sleep(0.02)
        changed = await user.ask(rq.CancelJobs(jobs="last"))
        assert isinstance(changed, an.Changed)
        assert changed.tasks == 1000
        while (job := await view(user, submitted.job_id)).state == "cancelling":
            await asyncio.sleep(0.02)
    assert (job.state, job.cancelled, job.running) == ("cancelled", 1000, 0)
    states = {task.state for task in await tasks_of(user, job.job_id)}
    assert states == {TaskState.CANCELLED}
    (tmp_path / "quick").touch()
    await user.ask(rq.RetryJobs(jobs=str(job.job_id)))
    async with asyncio.timeout(30):
        while (job := await view(user, job.job_id)).state == "active":
            await asyncio.sleep(0.05)
    assert (job.state, job.done, job.cancelled) == ("done", 1000, 0)


async def test_a_task_over_its_time_limit_is_stopped_with_that_reason(user: UserConnection) -> None:
    job = await run_job(user, JobSpec(argv=("sleep", "60"), time_limit_seconds=0.3))
    (task,) = await tasks_of(user, job.job_id)
    assert (task.state, task.reason) == ("failed", "time-limit")
    assert task.wall_seconds is not None
    assert task.wall_seconds >= 0.3


async def test_higher_priority_goes_first(user: UserConnection, tmp_path: Path) -> None:
    note = f'echo "$KESTREL_ATTEMPT $KESTREL_JOB_NAME" >> {tmp_path}/order'
    blocker = await user.ask(rq.SubmitJob(spec=shell("sleep 1", count=2)))
    assert isinstance(blocker, an.Submitted)
    for name, priority in (("low", 10), ("high", 200)):
        await user.ask(
            rq.SubmitJob(spec=shell(note, name=name, priority=priority, count=3), watch=True)
        )
    ends = 0
    async for _ in user.pushed():
        ends += 1
        if ends == 2:
            break
    handed_out = sorted(line.split() for line in (tmp_path / "order").read_text().splitlines())
    assert [name for _, name in handed_out] == ["high"] * 3 + ["low"] * 3


async def test_what_no_worker_offers_waits_and_is_explained(user: UserConnection) -> None:
    submitted = await user.ask(rq.SubmitJob(spec=shell("true", requires=("matlab",))))
    assert isinstance(submitted, an.Submitted)
    why = await user.ask(rq.ExplainJob(job=str(submitted.job_id)))
    assert isinstance(why, an.JobExplanation)
    assert not why.ever
    (obstacle,) = why.obstacles
    assert (obstacle.workers, obstacle.refusal.reason) == (2, "missing-tags")
    assert obstacle.refusal.wanted == "MATLAB"
    await user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))


async def test_an_ended_job_can_be_forgotten_and_an_active_one_not(user: UserConnection) -> None:
    job = await run_job(user, shell("true"))
    active = await user.ask(rq.SubmitJob(spec=shell("sleep 60")))
    assert isinstance(active, an.Submitted)
    with pytest.raises(UsageError):
        await user.ask(rq.ForgetJobs(jobs=str(active.job_id)))
    await user.ask(rq.ForgetJobs(jobs=str(job.job_id)))
    with pytest.raises(NotFound):
        await view(user, job.job_id)
    await user.ask(rq.CancelJobs(jobs="all"))


async def test_tasks_are_listed_by_state_and_page_by_page(user: UserConnection) -> None:
    spec = JobSpec(argv=("/bin/sh", "-c", "exit $(( $1 % 10 == 0 ))", "sh", "{n}"), count=100)
    job = await run_job(user, spec)
    assert (job.done, job.failed) == (90, 10)
    failed = await tasks_of(user, job.job_id, states=[TaskState.FAILED])
    assert [task.task_id for task in failed] == list(range(0, 100, 10))
    found: list[int] = []
    after: int | None = -1
    while after is not None:
        page = await user.ask(rq.ListTasks(job=str(job.job_id), after=after, limit=7))
        assert isinstance(page, an.Tasks)
        found.extend(task.task_id for task in page.tasks)
        after = page.after
    assert found == list(range(100))


async def test_a_million_tasks_take_the_manager_hardly_any_memory(user: UserConnection) -> None:
    def rss(status: object) -> int:
        assert isinstance(status, an.PoolSummary)
        return status.manager_rss_bytes

    before = rss(await user.ask(rq.PoolStatus()))
    submitted = await user.ask(rq.SubmitJob(spec=shell("sleep 60", count=1_000_000)))
    grown = rss(await user.ask(rq.PoolStatus())) - before
    assert isinstance(submitted, an.Submitted)
    await user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))
    assert grown < 5e6
