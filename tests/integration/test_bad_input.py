"""Rubbish, on a real pool: each gets a clear error, and nothing else is disturbed."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import psutil
import pytest
from puppet import Puppet, run_job

from kestrelctl.core.model import JobSpec
from kestrelctl.errors import StoreFull, UsageError
from kestrelctl.local.state import PoolState
from kestrelctl.protocol import answers, requests
from kestrelctl.xmpp.user import UserConnection


async def first_task(user: UserConnection, job_id: int) -> answers.TaskView:
    page = await user.ask(requests.ListTasks(job=str(job_id)))
    assert isinstance(page, answers.Tasks)
    return page.tasks[0]


@pytest.fixture(autouse=True)
async def nothing_else_is_disturbed(local_pool: PoolState, user: UserConnection):  # type: ignore[no-untyped-def]
    """After every test the same processes run, and a job of two tasks goes through."""
    before = (local_pool.manager_pid, local_pool.server_pid, *local_pool.worker_pids)
    yield
    for pid in before:
        assert psutil.pid_exists(pid)
    job = await run_job(user, JobSpec(argv=("true",), count=2))
    assert job.done == 2


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("{not json", "malformed"),
        ('{"type": "dance", "id": "7"}', "dance"),
        ('{"type": "submit", "id": "7", "spec": {"argv": "sleep 1"}}', "argv"),
        ('{"type": "submit", "id": "7", "spec": {"argv": ["x"], "cpus": "two"}}', "cpus"),
        ('{"type": "submit", "id": "7", "spec": {"argv": ["x"], "count": 1e99}}', "count"),
        ('{"type": "submit", "id": "7"}', "spec"),
        ("[]", "object"),
        ('{"type": "logs", "id": "7", "job": "last", "task_id": {}}', "task_id"),
    ],
)
async def test_a_request_that_is_none_is_refused_with_the_reason(
    local_pool: PoolState, payload: str, why: str
) -> None:
    async with Puppet(local_pool, "ada", "users") as ada:
        ada.session.send(payload, f"jobs@{local_pool.domain}")
        answer = await ada.answer()
    assert (answer["type"], answer["code"]) == ("error", "usage")
    assert why in answer["cause"]
    assert answer.get("id", "") == ("7" if '"7"' in payload else "")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (JobSpec(argv=()), "empty"),
        (JobSpec(argv=("x",), count=0), "0"),
        (JobSpec(argv=("x",), cpus=0), "cpus"),
        (JobSpec(argv=("x",), priority=300), "priorities"),
        (JobSpec(argv=("x\0y",)), "NUL"),
        (JobSpec(argv=("x",), items=("a", "b")), "2 items"),
        (JobSpec(argv=("x",), env={"A=B": "1"}), "="),
    ],
)
async def test_a_job_that_makes_no_sense_is_refused(
    user: UserConnection, spec: JobSpec, why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        await user.ask(requests.Submit(spec=spec))
    assert why in (refused.value.cause or "")


async def test_a_worker_that_sends_rubbish_hears_why(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "w98", "workers") as worker:
        for payload in (
            "{",
            '{"type":"dance"}',
            '{"type":"hello","version":99,"incarnation":"x","ad":{}}',
            '{"type":"hello","version":1,"incarnation":"x","ad":{"cpus":-1}}',
        ):
            worker.session.send(payload, f"pool@{local_pool.domain}")
            answer = await worker.answer()
            assert answer["type"] == "refused"
            assert answer["reason"]


async def test_ten_megabytes_cost_the_sender_his_session_and_nobody_else(
    local_pool: PoolState,
) -> None:
    async with Puppet(local_pool, "ada", "users") as ada:
        ada.session.send("x" * 10_000_000, f"jobs@{local_pool.domain}")
        why = await asyncio.wait_for(ada.offline.get(), 20)
    assert why


async def test_a_payload_above_the_protocols_limit_is_refused(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "ada", "users") as ada:
        ada.session.send('{"type":"x","y":"' + "z" * 600_000 + '"}', f"jobs@{local_pool.domain}")
        answer = await ada.answer()
    assert "600" in answer["cause"]
    assert "limit" in answer["cause"]


async def test_a_command_that_does_not_exist_fails_with_its_name(user: UserConnection) -> None:
    job = await run_job(user, JobSpec(argv=("no-such-command",)))
    assert job.failed == 1
    task = await first_task(user, job.job_id)
    assert "no-such-command" in task.reason


async def test_a_task_that_writes_a_gigabyte_fails_with_its_reason(user: UserConnection) -> None:
    job = await run_job(user, JobSpec(argv=("head", "-c", "1000000000", "/dev/zero")), 60)
    assert job.failed == 1
    task = await first_task(user, job.job_id)
    assert task.reason == "output-limit"


async def test_a_task_that_prints_what_xml_cannot_carry_is_reported(user: UserConnection) -> None:
    printed = r"\377\376 \001 \033[31m \357\277\277 <&>\"'"
    job = await run_job(user, JobSpec(argv=("printf", printed)))
    assert job.done == 1
    log = await user.ask(requests.Logs(job=str(job.job_id), task_id=0))
    assert isinstance(log, answers.Log)
    assert log.size_bytes > 0


async def test_a_daemon_that_a_task_leaves_behind_dies_with_it(
    user: UserConnection, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    script = (
        f"setsid sh -c 'echo $$ > {note}; exec sleep 1000' & while ! test -s {note}; do :; done"
    )
    job = await run_job(user, JobSpec(argv=("/bin/sh", "-c", script)))
    assert job.done == 1
    pid = int(note.read_text())
    for _ in range(100):
        if not psutil.pid_exists(pid):
            break
        await asyncio.sleep(0.05)
    assert not psutil.pid_exists(pid)


async def test_a_full_disk_at_the_store_is_said_and_healed(
    local_pool: PoolState, user: UserConnection
) -> None:
    pid = local_pool.manager_pid
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        with pytest.raises(StoreFull):
            await user.ask(requests.Submit(spec=JobSpec(argv=("true",))), timeout_seconds=10)
        with pytest.raises(StoreFull):
            await user.ask(requests.Submit(spec=JobSpec(argv=("true",))), timeout_seconds=10)
        status = await user.ask(requests.PoolStatus())
        assert isinstance(status, answers.Pool)
        assert status.store_error
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    async with asyncio.timeout(10):
        while True:
            status = await user.ask(requests.PoolStatus())
            assert isinstance(status, answers.Pool)
            if not status.store_error:
                break
            await asyncio.sleep(0.1)


async def test_a_full_disk_at_the_spool_loses_no_result(
    local_pool: PoolState, user: UserConnection
) -> None:
    agents = [psutil.Process(pid).children()[0].pid for pid in local_pool.worker_pids]
    for pid in agents:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        job = await run_job(user, JobSpec(argv=("true",), count=50))
    finally:
        for pid in agents:
            resource.prlimit(
                pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
    assert job.done == 50


async def test_numbers_that_no_store_can_hold_are_refused(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "w97", "workers") as worker:
        report = f'{{"type":"report","results":[[1,1,0,0,0.0,0.0,0.0,0.0,{2**63}]]}}'
        worker.session.send(report, f"pool@{local_pool.domain}")
        answer = await worker.answer()
        assert answer["type"] == "refused"
    async with Puppet(local_pool, "ada", "users") as ada:
        for request in (
            f'{{"type":"tasks","job":"last","after":{2**64}}}',
            f'{{"type":"job_status","jobs":"{2**70}"}}',
            f'{{"type":"submit","spec":{{"argv":["x"],"first":{2**70}}}}}',
        ):
            ada.session.send(request, f"jobs@{local_pool.domain}")
            answer = await ada.answer()
            assert answer["type"] == "error"
            assert answer["code"] in ("usage", "not-found")
