"""Rubbish, on a real pool: each gets a clear error, and nothing else is disturbed."""

from __future__ import annotations

import asyncio
import json
import resource
from pathlib import Path

import psutil
import pytest
from puppet import Puppet, run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import StoreFull, UsageError
from kestrelctl.local.pool_state import PoolState
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
    job = await run_job(user, JobSpec(program=Program(argv=("true",)), count=2))
    assert job.done == 2


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("{not json", "malformed"),
        ('{"type": "dance", "id": "7"}', "dance"),
        ('{"type": "submit", "id": "7", "spec": {"program": {"argv": "sleep 1"}}}', "argv"),
        (
            '{"type": "submit", "id": "7", "spec": {"program": {"argv": ["x"]}, '
            '"request": {"cpus": "two"}}}',
            "request",
        ),
        (
            '{"type": "submit", "id": "7", "spec": {"program": {"argv": ["x"]}, "count": 1e99}}',
            "count",
        ),
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


@pytest.mark.parametrize("field", ["id", "type"])
@pytest.mark.parametrize(
    ("host", "to"), [("users", "jobs"), ("workers", "jobs"), ("workers", "pool")]
)
async def test_a_refusal_does_not_grow_until_the_server_ends_the_connection(
    local_pool: PoolState, field: str, host: str, to: str
) -> None:
    """A `>` that is one byte when it comes is four when it is quoted."""
    address = f"{to}@{local_pool.domain}"
    payload = json.dumps({"type": "dance", field: ">" * 300_000})
    manager_log = Path(local_pool.password_file).parent / "manager.log"
    before = manager_log.read_text().count("is away")
    async with Puppet(local_pool, "grace", host) as grace:
        grace.shout(payload, address)
        answer = await grace.answer()
        assert answer["type"] in ("error", "refused")
        grace.session.send('{"type": "pool_status"}', address)
        assert (await grace.answer())["type"] in ("error", "refused", "pool")
    assert manager_log.read_text().count("is away") == before


async def test_a_job_that_no_message_can_hand_out_is_refused(local_pool: PoolState) -> None:
    payload = json.dumps({"type": "submit", "spec": {"program": {"argv": ["true", ">" * 300_000]}}})
    async with Puppet(local_pool, "grace", "users") as grace:
        grace.shout(payload, f"jobs@{local_pool.domain}")
        assert "limit" in (await grace.answer())["cause"]


async def test_large_items_and_long_commands_go_through(user: UserConnection) -> None:
    spec = JobSpec(program=Program(argv=("true", "x" * 50_000), env={"LARGE": "y" * 60_000}))
    for _ in range(12):
        assert (await run_job(user, spec)).done == 1
    listed = await user.ask(requests.ListJobs(limit=12))
    assert isinstance(listed, answers.Jobs)
    assert [len(view.spec.program.argv[1]) < 1000 for view in listed.jobs] == [True] * 12
    last = await user.ask(requests.ListJobs(jobs="last"))
    assert isinstance(last, answers.Jobs)
    assert last.jobs[0].spec.program.argv == spec.program.argv
    items = tuple("<" * 40_000 for _ in range(60))
    for start in range(0, 60, 3):
        await user.ask(requests.UploadItems(upload="u", lines=list(items[start : start + 3])))
    await user.ask(
        requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",))), upload="u", watch=True)
    )
    async with asyncio.timeout(30.0):
        async for ended in user.pushed():
            assert ended.job.done == 60
            break


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (JobSpec(program=Program(argv=())), "empty"),
        (JobSpec(program=Program(argv=("x",)), count=0), "0"),
        (JobSpec(program=Program(argv=("x",)), request={"cpus": 0}), "cpus"),
        (JobSpec(program=Program(argv=("x",)), priority=300), "priorities"),
        (JobSpec(program=Program(argv=("x\0y",))), "NUL"),
        (JobSpec(program=Program(argv=("x",)), items=("a", "b")), "2 items"),
        (JobSpec(program=Program(argv=("x",), env={"A=B": "1"})), "="),
    ],
)
async def test_a_job_that_makes_no_sense_is_refused(
    user: UserConnection, spec: JobSpec, why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        await user.ask(requests.SubmitJob(spec=spec))
    assert why in (refused.value.cause or "")


async def test_a_worker_that_sends_rubbish_hears_why(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "w98", "workers") as worker:
        for payload in (
            "{",
            '{"type":"dance"}',
            '{"type":"hello","version":99,"incarnation":"x","ad":{}}',
            '{"type":"hello","version":2,"incarnation":"x","ad":{"assets":{"cpus":-1}}}',
        ):
            worker.session.send(payload, f"pool@{local_pool.domain}")
            answer = await worker.answer()
            assert answer["type"] == "refused"
            assert answer["reason"]


async def test_ten_megabytes_cost_the_sender_his_session_and_nobody_else(
    local_pool: PoolState,
) -> None:
    async with Puppet(local_pool, "ada", "users") as ada:
        ada.shout("x" * 10_000_000, f"jobs@{local_pool.domain}")
        why = await asyncio.wait_for(ada.offline.get(), 20)
    assert why


async def test_a_payload_above_the_protocols_limit_is_refused(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "ada", "users") as ada:
        ada.session.send('{"type":"x","y":"' + "z" * 600_000 + '"}', f"jobs@{local_pool.domain}")
        answer = await ada.answer()
    assert "600" in answer["cause"]
    assert "limit" in answer["cause"]


async def test_a_command_that_does_not_exist_fails_with_its_name(user: UserConnection) -> None:
    job = await run_job(user, JobSpec(program=Program(argv=("no-such-command",))))
    assert job.failed == 1
    task = await first_task(user, job.job_id)
    assert "no-such-command" in task.reason


async def test_a_task_that_writes_a_gigabyte_fails_with_its_reason(user: UserConnection) -> None:
    job = await run_job(
        user, JobSpec(program=Program(argv=("head", "-c", "1000000000", "/dev/zero"))), 60
    )
    assert job.failed == 1
    task = await first_task(user, job.job_id)
    assert task.reason == "output-limit"


async def test_a_task_that_prints_what_xml_cannot_carry_is_reported(user: UserConnection) -> None:
    printed = r"\377\376 \001 \033[31m \357\277\277 <&>\"'"
    job = await run_job(user, JobSpec(program=Program(argv=("printf", printed))))
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
    job = await run_job(user, JobSpec(program=Program(argv=("/bin/sh", "-c", script))))
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
            await user.ask(
                requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))),
                timeout_seconds=10,
            )
        with pytest.raises(StoreFull):
            await user.ask(
                requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))),
                timeout_seconds=10,
            )
        status = await user.ask(requests.PoolStatus())
        assert isinstance(status, answers.PoolSummary)
        assert status.store_error
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    async with asyncio.timeout(10):
        while True:
            status = await user.ask(requests.PoolStatus())
            assert isinstance(status, answers.PoolSummary)
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
        job = await run_job(user, JobSpec(program=Program(argv=("true",)), count=50))
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
            f'{{"type":"submit","spec":{{"program":{{"argv":["x"]}},"first":{2**70}}}}}',
        ):
            ada.session.send(request, f"jobs@{local_pool.domain}")
            answer = await ada.answer()
            assert answer["type"] == "error"
            assert answer["code"] in ("usage", "not-found")
