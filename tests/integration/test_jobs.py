"""What users do with jobs, on a real pool with real tasks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest
from jobkit import job_spec
from puppet import run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection


def shell(script: str, **more: object) -> JobSpec:
    return job_spec(argv=("/bin/sh", "-c", script), **more)


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
        found += log.data
        if log.next_offset is None:
            return found
        offset = log.next_offset


async def view(user: UserConnection, job: int) -> an.JobView:
    answer = await user.ask(rq.ListJobs(jobs=str(job)))
    assert isinstance(answer, an.Jobs)
    return answer.jobs[0]


async def test_each_task_of_an_array_knows_who_it_is(user: UserConnection) -> None:
    script = 'echo "$KESTREL_JOB_ID $KESTREL_TASK_ID $KESTREL_TASK_INDEX $KESTREL_TASK_COUNT $1"'
    spec = JobSpec(
        program=Program(argv=("/bin/sh", "-c", script, "sh", "{n}")), count=3, first=10, step=5
    )
    job = await run_job(user, spec)
    printed = [await output_of(user, job.job_id, task_id) for task_id in (10, 15, 20)]
    assert printed == [f"{job.job_id} {n} {i} 3 {n}\n".encode() for i, n in enumerate((10, 15, 20))]


async def test_an_array_may_have_gaps(user: UserConnection) -> None:
    spec = JobSpec(
        program=Program(argv=("echo", "{n} {i}")), count=6, first=1, further=((5, 1, 2), (10, 5, 1))
    )
    job = await run_job(user, spec)
    assert job.ids == "1-3,5-6,10"
    ids = [task.task_id for task in await tasks_of(user, job.job_id)]
    assert ids == [1, 2, 3, 5, 6, 10]
    printed = [await output_of(user, job.job_id, task_id) for task_id in ids]
    assert printed == [f"{n} {i}\n".encode() for i, n in enumerate(ids)]


async def test_a_job_says_which_ends_are_a_success_and_how_it_is_stopped(
    user: UserConnection,
) -> None:
    spec = shell("exit {n}", count=4, first=2, success_exits=((0, 0), (3, 4)))
    job = await run_job(user, spec)
    found = [(task.state, task.exit_code) for task in await tasks_of(user, job.job_id)]
    done, failed = TaskState.DONE, TaskState.FAILED
    assert found == [(failed, 2), (done, 3), (done, 4), (failed, 5)]
    script = "trap 'echo saved; exit 0' INT; sleep 60 & wait"
    ended = await run_job(
        user, shell(script, time_limit_seconds=0.5, stop_signal="INT", stop_grace_seconds=20.0)
    )
    (task,) = await tasks_of(user, ended.job_id)
    assert (task.state, task.exit_code, task.reason) == (failed, 0, "time-limit")
    assert await output_of(user, ended.job_id) == b"saved\n"


async def test_a_task_that_ran_out_of_memory_runs_again_with_more(user: UserConnection) -> None:
    mebibyte = 1 << 20
    code = f"x = b'x' * {200 * mebibyte}; import time; time.sleep(3)"
    spec = JobSpec(
        program=Program(argv=(sys.executable, "-c", code)),
        request={"cpus": 1.0, "memory": 100.0 * mebibyte},
        retry_memory_bytes=(150 * mebibyte, 400 * mebibyte),
    )
    job = await run_job(user, spec)
    (task,) = await tasks_of(user, job.job_id)
    assert (task.state, task.failures) == (TaskState.DONE, 0)
    story = await user.ask(rq.TellStory(job=str(job.job_id)))
    assert isinstance(story, an.Story)
    told = [entry.detail for entry in story.entries if entry.what == "more-memory"]
    assert [text.rpartition("asks for ")[2] for text in told] == [
        "150 MiB memory",
        "400 MiB memory",
    ]


async def test_a_deadline_stops_what_has_not_ended(user: UserConnection) -> None:
    spec = JobSpec(
        program=Program(argv=("sleep", "{}")), count=2, items=("0", "60"), deadline_seconds=3.0
    )
    job = await run_job(user, spec)
    assert (job.state, job.stopped_by, job.done, job.cancelled) == ("cancelled", "deadline", 1, 1)
    found = [(task.state, task.reason) for task in await tasks_of(user, job.job_id)]
    assert found == [(TaskState.DONE, ""), (TaskState.CANCELLED, "deadline")]


async def test_a_service_goes_on_and_is_scaled(user: UserConnection) -> None:
    spec = shell("sleep 0.2", count=1, service=True, backoff_seconds=0.1, max_backoff_seconds=0.2)
    submitted = await user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(submitted, an.Submitted)
    job_id = str(submitted.job_id)
    changed = await user.ask(rq.ScaleJob(job=job_id, copies=3))
    assert isinstance(changed, an.Changed)
    assert changed.tasks == 2
    again: set[int | None] = set()
    async with asyncio.timeout(30):
        while again != {0, 1, 2}:
            story = await user.ask(rq.TellStory(job=job_id, task_ids=[0, 1, 2]))
            assert isinstance(story, an.Story)
            again = {entry.task_id for entry in story.entries if entry.what == "restarted"}
            await asyncio.sleep(0.1)
    found = await view(user, submitted.job_id)
    assert (found.spec.service, found.state, found.tasks, found.failed) == (True, "active", 3, 0)
    await user.ask(rq.ScaleJob(job=job_id, copies=1))
    async with asyncio.timeout(30):
        while (await view(user, submitted.job_id)).cancelled != 2:
            await asyncio.sleep(0.05)
    await user.ask(rq.CancelJobs(jobs=job_id))
    async with asyncio.timeout(30):
        while (await view(user, submitted.job_id)).state != "cancelled":
            await asyncio.sleep(0.05)


async def test_items_fill_placeholders(user: UserConnection) -> None:
    lines = await run_job(
        user, JobSpec(program=Program(argv=("echo", "<{}>")), count=2, items=("a b", "$HOME"))
    )
    assert await output_of(user, lines.job_id, 0) == b"<a b>\n"
    assert await output_of(user, lines.job_id, 1) == b"<$HOME>\n"
    item = '{"name":"x","size":3}'
    fields = await run_job(
        user, JobSpec(program=Program(argv=("echo", "{name}={size}")), count=1, items=(item,))
    )
    assert await output_of(user, fields.job_id) == b"x=3\n"


async def test_a_failure_has_its_exit_code_and_both_outputs(user: UserConnection) -> None:
    job = await run_job(user, shell("echo out; echo err >&2; exit 3"))
    (task,) = await tasks_of(user, job.job_id)
    assert (job.state, task.state, task.exit_code, task.failures) == ("failed", "failed", 3, 1)
    assert await output_of(user, job.job_id) == b"out\n"
    assert await output_of(user, job.job_id, stream="stderr") == b"err\n"


@pytest.mark.parametrize("size", [300, TAIL_BYTES, TAIL_BYTES + 1, 200_000])
async def test_output_comes_back_byte_for_byte(user: UserConnection, size: int) -> None:
    script = (
        "import random, sys;"
        f" [each.buffer.write(random.Random(name).randbytes({size}))"
        " for name, each in ((1, sys.stdout), (2, sys.stderr))]"
    )
    job = await run_job(user, JobSpec(program=Program(argv=(sys.executable, "-c", script))))
    assert await output_of(user, job.job_id) == Random(1).randbytes(size)
    assert await output_of(user, job.job_id, stream="stderr") == Random(2).randbytes(size)


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
    spec = JobSpec(program=Program(argv=("/bin/sh", "-c", script, "sh", "{n}")), count=3)
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


#: Ends with status 0 when it is asked to end, as servers and shells do.
OBLIGING = "trap 'exit 0' TERM; echo begun; sleep 60 & wait"


async def test_a_cancelled_task_is_no_success_whatever_it_says(user: UserConnection) -> None:
    submitted = await user.ask(rq.SubmitJob(spec=shell(OBLIGING)))
    assert isinstance(submitted, an.Submitted)
    job_id = submitted.job_id
    async with asyncio.timeout(10):
        while (await view(user, job_id)).running == 0 or not await output_of(user, job_id):
            await asyncio.sleep(0.02)
        await user.ask(rq.CancelJobs(jobs=str(job_id)))
        while (job := await view(user, job_id)).state in ("active", "cancelling"):
            await asyncio.sleep(0.02)
    assert (job.state, job.done, job.cancelled) == ("cancelled", 0, 1)


async def test_a_task_over_its_time_limit_is_no_success_whatever_it_says(
    user: UserConnection,
) -> None:
    job = await run_job(user, shell(OBLIGING, time_limit_seconds=0.3))
    (task,) = await tasks_of(user, job.job_id)
    assert (task.state, task.reason, task.exit_code) == ("failed", "time-limit", 0)


async def test_a_task_over_its_time_limit_is_stopped_with_that_reason(user: UserConnection) -> None:
    job = await run_job(
        user, JobSpec(program=Program(argv=("sleep", "60"), time_limit_seconds=0.3))
    )
    (task,) = await tasks_of(user, job.job_id)
    assert (task.state, task.reason) == ("failed", "time-limit")
    assert task.wall_seconds is not None
    assert task.wall_seconds >= 0.3


async def test_higher_priority_goes_first(user: UserConnection, tmp_path: Path) -> None:
    note = f'echo "$KESTREL_ATTEMPT_ID $KESTREL_JOB_NAME" >> {tmp_path}/order'
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
    spec = JobSpec(
        program=Program(argv=("/bin/sh", "-c", "exit $(( $1 % 10 == 0 ))", "sh", "{n}")), count=100
    )
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
