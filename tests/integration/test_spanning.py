"""Programs that span workers, with real processes: MPI by Debian's Open MPI, kills, a restart."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from daemons import Spawn, answering, until
from jobkit import job_spec

from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = Path(__file__).with_name("allreduce.py").read_text()


@dataclass
class House:
    """A server, a manager and three workers, each a process."""

    user: UserConnection
    manager: Callable[[], subprocess.Popen[str]]
    worker: Callable[[int], subprocess.Popen[str]]
    workers: list[subprocess.Popen[str]]
    managers: list[subprocess.Popen[str]]

    async def submit(self, *argv: str, span: int = 2, **spec: object) -> int:
        job = job_spec(argv=argv, count=span, span=span, **spec)
        answer = await self.user.ask(rq.SubmitJob(spec=job))
        assert isinstance(answer, an.Submitted)
        return answer.job_id

    async def view(self, job_id: int) -> an.JobView:
        answer = await self.user.ask(rq.ListJobs(jobs=str(job_id), details=True))
        assert isinstance(answer, an.Jobs)
        return answer.jobs[0]

    async def ended(self, job_id: int) -> an.JobView:
        while (view := await self.view(job_id)).ended_at is None:
            await asyncio.sleep(0.05)
        return view

    async def tasks(self, job_id: int) -> list[an.TaskView]:
        answer = await self.user.ask(rq.ListTasks(job=str(job_id)))
        assert isinstance(answer, an.Tasks)
        return answer.tasks

    async def output(self, job_id: int, index: int = 0) -> str:
        answer = await self.user.ask(rq.Logs(job=str(job_id), task_id=index))
        assert isinstance(answer, an.Log)
        return answer.data.decode()


@pytest.fixture
async def house(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> AsyncIterator[House]:
    server = private_server
    (tmp_path / "secret").write_text(server.secret)
    (tmp_path / "shared").mkdir()
    workers = [f"w{n}@{server.workers_domain}" for n in range(3)]
    for n, worker in enumerate(workers):
        (tmp_path / f"w{n}").write_text(f"{worker} {server.add_account(worker)}\n")
        (tmp_path / f"w{n}").chmod(0o600)
    ada = f"ada@{server.users_domain}"
    password = server.add_account(ada)

    def manager() -> subprocess.Popen[str]:
        return spawn(
            "manager", "run", "--domain", server.domain, "--secret-file", tmp_path / "secret",
            "--port", server.component_port, "--data-dir", tmp_path / "manager",
        )  # fmt: skip

    def worker(n: int) -> subprocess.Popen[str]:
        return spawn(
            "worker", "run", "--pool", server.domain, "--credentials", tmp_path / f"w{n}",
            "--port", server.client_port, "--cpus", "1", "--no-tls",
            "--data-dir", tmp_path / f"worker{n}", "--share", tmp_path / "shared",
        )  # fmt: skip

    started = [manager()]
    here = ("127.0.0.1", server.client_port)
    async with (
        asyncio.timeout(120),
        connect_user(ada, password, server.domain, *here, tls=False) as user,
    ):
        found = House(user, manager, worker, [worker(n) for n in range(3)], started)
        await answering(user)
        while not isinstance(answer := await user.ask(rq.ListWorkers()), an.Workers) or (
            len(answer.workers) < 3
        ):
            await asyncio.sleep(0.05)
        yield found


async def test_an_mpi_program_runs_by_the_script_of_the_page(house: House) -> None:
    [script] = re.findall(r"^```sh\n(.*?)^```$", (DOCS / "spanning.md").read_text(), re.M | re.S)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env = root if os.geteuid() == 0 else {}
    words = ("sh", "-c", script, "mpi.sh", "python3", "-c", PROGRAM)
    job_id = await house.submit(*words, span=3, env=env)
    view = await house.ended(job_id)
    said = await house.output(job_id)
    host = os.uname().nodename
    assert sorted(said.splitlines()) == [f"process {rank} on {host}: 111" for rank in range(3)]
    assert (view.state, view.done) == ("done", 3)


async def test_members_find_each_other(house: House) -> None:
    lines = 'echo $KESTREL_RANK of $KESTREL_SPAN; echo $KESTREL_HOSTS; cat "$KESTREL_HOSTFILE"'
    job_id = await house.submit("sh", "-c", lines)
    await house.ended(job_id)
    host = os.uname().nodename
    for rank in range(2):
        said = (await house.output(job_id, rank)).splitlines()
        assert said == [f"{rank} of 2", f"{host},{host}", host, host]
    assert len({task.worker for task in await house.tasks(job_id)}) == 2


async def test_a_killed_worker_costs_all_members_a_new_start_and_none_its_result(
    house: House, tmp_path: Path
) -> None:
    """Each start of a member writes a line; who finds the way open ends well."""
    shared = tmp_path / "shared"
    script = (
        f"echo x >> {shared}/starts$KESTREL_RANK; while [ ! -e {shared}/open ]; do sleep 0.05; done"
    )
    job_id = await house.submit("sh", "-c", script, span=2)

    def starts() -> list[int]:
        files = sorted(shared.glob("starts*"))
        return [len(file.read_text().split()) for file in files]

    await until(lambda: starts() == [1, 1], 30)
    busy = {task.worker for task in await house.tasks(job_id)}
    victim = next(n for n in range(3) if any(name.startswith(f"w{n}@") for name in busy))
    house.workers[victim].kill()
    house.workers[victim].wait()
    await until(lambda: starts() == [2, 2], 60)
    (shared / "open").touch()
    view = await house.ended(job_id)
    assert (view.state, view.done, view.failed, view.lost) == ("done", 2, 0, 0)


async def test_a_manager_that_is_killed_while_one_member_has_ended_goes_on_as_before(
    house: House, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    script = (
        f"echo x >> {shared}/start$KESTREL_RANK; [ $KESTREL_RANK = 0 ] && exit 0; "
        f"while [ ! -e {shared}/open ]; do sleep 0.05; done"
    )
    job_id = await house.submit("sh", "-c", script, span=2)
    await until(lambda: (shared / "start0").exists() and (shared / "start1").exists(), 30)
    await asyncio.sleep(0.5)
    assert (await house.view(job_id)).done == 0, "the first waits for the second"
    house.managers[0].kill()
    house.managers[0].wait()
    house.managers.append(house.manager())
    (shared / "open").touch()
    view = await house.ended(job_id)
    assert (view.state, view.done) == ("done", 2)
    starts = [(shared / f"start{rank}").read_text().split() for rank in range(2)]
    assert starts == [["x"], ["x"]], "nothing ran twice"
