"""Tasks with large arguments fill the manager's connection; questions are answered all the same."""

from __future__ import annotations

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol import answers, requests

WORKERS = 16
JOBS = 60
#: Together nearly as large as a message may be, each as large as a program may be given.
ARGUMENTS = ("x" * 100_000,) * 4


async def test_answers_come_while_large_tasks_are_handed_out() -> None:
    """All of these are handed out at once, and the first answer would come when all have ended."""
    async with (
        throw_away_pool(WORKERS) as pool,
        connect_local(pool) as user,
        connect_local(pool, admin=True) as admin,
    ):
        await admin.ask(requests.ChangeUser(user=pool.user, max_queued_bytes=None))
        for _ in range(JOBS):
            spec = JobSpec(program=Program(argv=("true", *ARGUMENTS)), held=True)
            await user.ask(requests.SubmitJob(spec=spec))
        await user.ask(requests.ReleaseJobs(jobs="all"))
        unfinished = []
        while True:
            status = await user.ask(requests.PoolStatus(), 120.0)
            assert isinstance(status, answers.PoolSummary)
            left = status.tasks_waiting + status.tasks_running
            if not left:
                break
            unfinished.append(left)
        assert len(unfinished) > 5
        assert max(unfinished) > JOBS // 2
