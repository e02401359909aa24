"""Who may do what, on a real pool: the server vouches for addresses, the pool decides by them."""

from __future__ import annotations

import asyncio

import pytest
from puppet import Puppet, run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.errors import NotAllowed
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers, requests
from kestrelctl.protocol.codec import encode
from kestrelctl.protocol.workers import Run
from kestrelctl.xmpp.user import UserConnection

HELLO = '{"type":"hello","version":2,"incarnation":"x","ad":{"assets":{"cpus":64}}}'


async def test_a_users_account_cannot_join_as_a_worker(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "mallory", "users") as mallory:
        mallory.session.send(HELLO, f"pool@{local_pool.domain}")
        answer = await mallory.answer()
    assert answer["type"] == "refused"
    assert answer["reason"].startswith("this account may not join as a worker; write to jobs@")


async def test_a_workers_account_cannot_submit(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "w99", "workers") as worker:
        request = requests.SubmitJob(id="1", spec=JobSpec(program=Program(argv=("true",))))
        worker.session.send(encode(request), f"jobs@{local_pool.domain}")
        answer = await worker.answer()
    assert (answer["type"], answer["code"], answer["id"]) == ("error", "not-allowed", "1")


async def test_a_user_cannot_touch_or_read_anothers_job_but_an_admin_can(
    local_pool: PoolState, user: UserConnection, admin: UserConnection
) -> None:
    ended = str((await run_job(user, JobSpec(program=Program(argv=("true",))))).job_id)
    spec = JobSpec(program=Program(argv=("sleep", "60")))
    submitted = await user.ask(requests.SubmitJob(spec=spec, watch=True))
    assert isinstance(submitted, answers.Submitted)
    at_work = str(submitted.job_id)
    async with Puppet(local_pool, "mallory", "users") as mallory:
        for request in (
            requests.CancelJobs(jobs=at_work),
            requests.Logs(job=at_work, task_id=0),
            requests.Logs(job=ended, task_id=0),
            requests.ForgetJobs(jobs=ended),
        ):
            mallory.session.send(encode(request), f"jobs@{local_pool.domain}")
            answer = await mallory.answer()
            assert (answer["type"], answer["code"]) == ("error", "not-allowed"), request
        for request in (requests.ListJobs(jobs=at_work), requests.Watch(jobs=at_work)):
            mallory.session.send(encode(request), f"jobs@{local_pool.domain}")
            [seen] = (await mallory.answer())["jobs"]
            assert (seen["name"], seen["spec"]["program"]) == ("", {"argv": []}), request
            assert seen["owner"] == local_pool.user
    cancelled = await admin.ask(requests.CancelJobs(jobs=at_work))
    assert cancelled == answers.Changed(id=cancelled.id, what=[at_work], tasks=1)
    ended = await anext(aiter(user.pushed()))  # what it ran is gone from its worker then
    assert (str(ended.job.job_id), ended.job.state) == (at_work, "cancelled")


async def test_only_an_admin_drains_workers(user: UserConnection, admin: UserConnection) -> None:
    with pytest.raises(NotAllowed):
        await user.ask(requests.DrainWorkers(names=["w1"]))
    await admin.ask(requests.DrainWorkers(names=["w1"]))
    workers = await user.ask(requests.ListWorkers())
    assert isinstance(workers, answers.Workers)
    assert [worker.state for worker in workers.workers] == ["draining", "idle"]
    await admin.ask(requests.ResumeWorkers(names=["w1"]))
    workers = await user.ask(requests.ListWorkers())
    assert isinstance(workers, answers.Workers)
    assert [worker.state for worker in workers.workers] == ["idle", "idle"]


async def test_a_forged_sender_is_not_believed(local_pool: PoolState, user: UserConnection) -> None:
    """Mallory sends a result in a real worker's name. The server does not pass that on."""
    submitted = await user.ask(
        requests.SubmitJob(spec=JobSpec(program=Program(argv=("sleep", "2"))), watch=True)
    )
    assert isinstance(submitted, answers.Submitted)
    forged = f'{{"type":"report","results":[[1,{submitted.job_id},0,1,0.0,0.0]]}}'
    async with Puppet(local_pool, "mallory", "users") as mallory:
        workers = await user.ask(requests.ListWorkers())
        assert isinstance(workers, answers.Workers)
        for worker in workers.workers:
            mallory.session.send(forged, f"pool@{local_pool.domain}", sender=worker.worker)
        ended = await anext(aiter(user.pushed()))
    assert (ended.job.job_id, ended.job.done) == (submitted.job_id, 1)


async def test_a_worker_ignores_work_from_anybody_but_its_pool(
    local_pool: PoolState, user: UserConnection, tmp_path: str
) -> None:
    witness = f"{tmp_path}/witness"
    workers = await user.ask(requests.ListWorkers())
    assert isinstance(workers, answers.Workers)
    template = Template(job_id=99, program=Program(argv=("touch", str(witness))))
    run = encode(Run(spans=[(1, 99, 0, 1)], jobs=[template]))
    async with Puppet(local_pool, "mallory", "users") as mallory:
        for worker in workers.workers:
            mallory.session.send(run, worker.worker)
        job = await run_job(
            user,
            JobSpec(program=Program(argv=("/bin/sh", "-c", f"sleep 0.5; test ! -e {witness}"))),
        )
    assert job.done == 1


async def test_what_is_typed_into_a_chat_window_is_answered_there(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "ada", "users") as ada:
        ada.session.send_body('{"type": "pool_status"}', f"jobs@{local_pool.domain}")
        answer = await asyncio.wait_for(ada.chat.get(), 10)
    assert '"type":"pool"' in answer
