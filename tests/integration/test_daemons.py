"""Daemons as an operator meets them: how they start, stop, and say what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import psutil
from daemons import Spawn, sleeping_below, until
from puppet import run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local
from kestrelctl.local.pool_state import PoolState, is_alive, read_state
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.worker.process import ONE_WISH_SECONDS
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection


def worker_words(pool: PoolState, directory: Path, name: str, *, password: str = "") -> list[str]:
    """The command line of one more worker for a pool."""
    server = PrivateServer(
        Path(pool.password_file).parent / "server", pool.domain, pool.port, 0, ""
    )
    jid = f"{name}@workers.{pool.domain}"
    credentials = directory / "credentials"
    credentials.write_text(f"{jid} {password or server.add_account(jid)}\n")
    credentials.chmod(0o600)
    return [
        "worker", "run", "--pool", pool.domain, "--port", str(pool.port), "--no-tls",
        "--credentials", str(credentials), "--data-dir", str(directory / "data"),
        "--cpus", "1", "--tags", name, "--share", str(directory),
    ]  # fmt: skip


async def known(user: UserConnection, name: str) -> str:
    """A worker's state, or an empty text if the pool does not know it."""
    page = await user.ask(rq.ListWorkers(names=[f"{name}@"]))
    assert isinstance(page, an.Workers)
    return page.workers[0].state if page.workers else ""


async def joined(user: UserConnection, name: str, state: str = "idle") -> None:
    async with asyncio.timeout(15):
        while await known(user, name) != state:
            await asyncio.sleep(0.05)


async def test_the_first_sigterm_drains_a_worker(
    local_pool: PoolState, user: UserConnection, spawn: Spawn, tmp_path: Path
) -> None:
    worker = spawn(*worker_words(local_pool, tmp_path, "drained"))
    await joined(user, "drained")
    script = f"touch {tmp_path}/begun; sleep 1"
    spec = JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=3, requires=("drained",))
    submitted = await user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(submitted, an.Submitted)
    await until((tmp_path / "begun").exists)
    worker.send_signal(signal.SIGTERM)
    await until(lambda: worker.poll() is not None)
    assert worker.returncode == 0
    answer = await user.ask(rq.ListJobs(jobs=str(submitted.job_id)))
    assert isinstance(answer, an.Jobs)
    job = answer.jobs[0]
    assert (job.done, job.waiting, job.lost) == (1, 2, 0), (
        "what ran was finished, the rest given back"
    )
    await user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))


async def test_a_worker_that_pulls_runs_what_it_asks_for(
    local_pool: PoolState, user: UserConnection, spawn: Spawn, tmp_path: Path
) -> None:
    spawn(*worker_words(local_pool, tmp_path, "puller"), "--pull")
    await joined(user, "puller")
    job = await run_job(
        user, JobSpec(program=Program(argv=("true",)), count=200, requires=("puller",))
    )
    assert job.done == 200
    answer = await user.ask(rq.PoolTraffic())
    assert isinstance(answer, an.Traffic)
    asked = {kind: messages for kind, way, messages, _ in answer.messages if way == "in"}
    assert asked["want"] >= 50, "two wait at most"


async def test_a_worker_leaves_when_its_lifetime_is_over_and_gives_back_what_runs(
    local_pool: PoolState, user: UserConnection, spawn: Spawn, tmp_path: Path
) -> None:
    worker = spawn(*worker_words(local_pool, tmp_path, "lent"), "--lifetime", "8s")
    await joined(user, "lent")
    script = f"touch {tmp_path}/begun; exec sleep 60"
    runs = JobSpec(program=Program(argv=("/bin/sh", "-c", script)), requires=("lent",))
    never = JobSpec(program=Program(argv=("true",)), requires=("lent",), time_request_seconds=20.0)
    ids = []
    for spec in (runs, never):
        submitted = await user.ask(rq.SubmitJob(spec=spec))
        assert isinstance(submitted, an.Submitted)
        ids.append(submitted.job_id)
    await until((tmp_path / "begun").exists)
    why = await user.ask(rq.ExplainJob(job=str(ids[1])))
    assert isinstance(why, an.JobExplanation)
    assert "lifetime" in {each.refusal.reason for each in why.obstacles}
    await until(lambda: worker.poll() is not None, 30.0)
    assert worker.returncode == 0
    answer = await user.ask(rq.ListJobs(jobs=",".join(map(str, ids))))
    assert isinstance(answer, an.Jobs)
    assert [(job.waiting, job.failed, job.lost) for job in answer.jobs] == [(1, 0, 0), (1, 0, 0)]
    await user.ask(rq.CancelJobs(jobs=",".join(map(str, ids))))


async def test_the_second_sigterm_stops_it(
    local_pool: PoolState, user: UserConnection, spawn: Spawn, tmp_path: Path
) -> None:
    worker = spawn(*worker_words(local_pool, tmp_path, "stopped"))
    await joined(user, "stopped")
    script = f"touch {tmp_path}/begun; exec sleep 60"
    spec = JobSpec(program=Program(argv=("/bin/sh", "-c", script)), requires=("stopped",))
    submitted = await user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(submitted, an.Submitted)
    await until((tmp_path / "begun").exists)
    worker.send_signal(signal.SIGTERM)
    await joined(user, "stopped", "draining")
    await asyncio.sleep(ONE_WISH_SECONDS)
    worker.send_signal(signal.SIGTERM)
    await until(lambda: worker.poll() is not None)
    assert worker.returncode == 143
    await user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))


async def test_json_logs_are_json(
    local_pool: PoolState, user: UserConnection, spawn: Spawn, tmp_path: Path
) -> None:
    worker = spawn(*worker_words(local_pool, tmp_path, "logged"), "--log-format", "json")
    await joined(user, "logged")
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=15)
    entries = [json.loads(line) for line in errors.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(entries[0])
    assert any("draining" in entry["message"] for entry in entries)


async def test_a_worker_with_a_wrong_password_says_so_and_ends(
    local_pool: PoolState, spawn: Spawn, tmp_path: Path
) -> None:
    worker = spawn(*worker_words(local_pool, tmp_path, "w1", password="wrong"))
    _, errors = worker.communicate(timeout=15)
    assert worker.returncode == 4
    assert "error: the worker was refused" in errors
    assert "credentials" in errors


def test_credentials_that_others_can_read_are_refused(
    local_pool: PoolState, spawn: Spawn, tmp_path: Path
) -> None:
    words = worker_words(local_pool, tmp_path, "open")
    (tmp_path / "credentials").chmod(0o644)
    worker = spawn(*words)
    _, errors = worker.communicate(timeout=15)
    assert worker.returncode == 2
    assert "chmod 600" in errors


async def test_credentials_can_come_from_standard_input(
    local_pool: PoolState, user: UserConnection, spawn: Spawn, tmp_path: Path
) -> None:
    words = worker_words(local_pool, tmp_path, "handed")
    credentials = tmp_path / "credentials"
    words[words.index(str(credentials))] = "-"
    with credentials.open() as file:
        credentials.unlink()
        spawn(*words, stdin=file)
    await joined(user, "handed")


def test_two_managers_on_one_store_are_refused(local_pool: PoolState, spawn: Spawn) -> None:
    directory = Path(local_pool.password_file).parent
    manager = spawn(
        "manager", "run", "--domain", local_pool.domain,
        "--secret-file", directory / "component.secret", "--data-dir", directory / "manager",
    )  # fmt: skip
    _, errors = manager.communicate(timeout=15)
    assert manager.returncode == 1
    assert errors.count("error:") == 1
    assert "hint:" in errors


async def test_a_manager_with_a_wrong_secret_says_so_and_ends(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("wrong")
    manager = spawn(
        "manager", "run", "--domain", private_server.domain, "--port",
        private_server.component_port, "--secret-file", tmp_path / "secret", "--data-dir", tmp_path
        / "data",
    )  # fmt: skip
    _, errors = await asyncio.to_thread(manager.communicate, timeout=15)
    assert manager.returncode == 4
    assert "secret" in errors


def local_up(spawn: Spawn, home: Path, name: str) -> PoolState:
    environment = {**os.environ, "XDG_STATE_HOME": str(home)}
    up = spawn("up", "--name", name, "--workers", "2", env=environment)
    out, errors = up.communicate(timeout=60)
    assert up.returncode == 0, errors
    assert f"pool {name} is up" in out + errors
    state = read_state(home / "kestrel" / "pools" / name)
    assert state is not None
    return state


def descendants(state: PoolState) -> list[psutil.Process]:
    parent = psutil.Process(state.pid)
    return [parent, *parent.children(recursive=True)]


async def test_two_local_pools_side_by_side_and_nothing_of_them_after_down(
    spawn: Spawn, tmp_path: Path
) -> None:
    one, two = (local_up(spawn, tmp_path, name) for name in ("one", "two"))
    processes = descendants(one) + descendants(two)
    assert len(processes) == 18, "supervisor, server, manager, and two keepers, workers, launchers"
    for state in (one, two):
        async with connect_local(state) as user:
            job = await run_job(user, JobSpec(program=Program(argv=("true",)), count=20))
            assert job.done == 20
            await user.ask(rq.SubmitJob(spec=JobSpec(program=Program(argv=("sleep", "1000")))))
            async with asyncio.timeout(10):
                while not sleeping_below(psutil.Process(state.pid)):
                    await asyncio.sleep(0.05)
            processes += sleeping_below(psutil.Process(state.pid))
    for name in ("one", "two"):
        words = ("down", "--name", name, "--delete")
        down = spawn(*words, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
        assert down.wait(60) == 0
    assert not [process for process in processes if is_alive(process.pid)]
    assert list((tmp_path / "kestrel" / "pools").iterdir()) == []


async def test_a_crash_of_the_supervisor_leaves_no_process_behind(
    spawn: Spawn, tmp_path: Path
) -> None:
    state = local_up(spawn, tmp_path, "crash")
    async with connect_local(state) as user:
        await user.ask(rq.SubmitJob(spec=JobSpec(program=Program(argv=("sleep", "1000")), count=2)))
        async with asyncio.timeout(10):
            while len(sleeping_below(psutil.Process(state.pid))) < 2:
                await asyncio.sleep(0.05)
    processes = descendants(state)
    os.kill(state.pid, signal.SIGKILL)

    await until(lambda: not [process for process in processes if is_alive(process.pid)])
    again = local_up(spawn, tmp_path, "crash")
    down = spawn("down", "--name", "crash", env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
    assert down.wait(60) == 0
    assert not is_alive(again.pid)


def test_a_password_does_not_leave_the_machine_in_the_clear(
    local_pool: PoolState, spawn: Spawn, tmp_path: Path
) -> None:
    words = worker_words(local_pool, tmp_path, "clear")
    worker = spawn(*words, "--host", "kestrel.example.org")
    _, errors = worker.communicate(timeout=15)
    assert worker.returncode == 2
    assert "in the clear" in errors
