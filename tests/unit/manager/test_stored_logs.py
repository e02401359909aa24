"""Where logs are in the file share: told to their owner, whether their worker lives or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from managerkit import NOW, PlayedManager
from msgspec.structs import replace
from store_samples import STORED

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.result import TAIL_BYTES, Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"
ROOT = "root@users.pool/1"
WORKER = "w1@workers.pool/1"
TAIL = b"x" * TAIL_BYTES


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


async def logs(manager: PlayedManager, whom: str = ADA, **fields: Any) -> an.Log:
    answer = await asked(manager, rq.Logs(job="1", task_id=0, **fields), whom)
    assert isinstance(answer, an.Log), answer
    return answer


async def ended(manager: PlayedManager, outcome: int = Outcome.DONE, **result: Any) -> workers.Run:
    """The only task of job 1 has ended, on a worker that has gone."""
    hello = workers.Hello(
        version=workers.VERSION, incarnation="one", greeting=1, ad=WorkerAd(assets={"cpus": 1.0})
    )
    await manager.work(WORKER, hello)
    await asked(manager, rq.SubmitJob(spec=JobSpec(program=Program(argv=("loud",)))))
    sent = [directions.to_worker.decode(text) for to, text in manager.sent if to == WORKER]
    [run] = [each for each in sent if isinstance(each, workers.Run)]
    [(number, job_id, index, *_)] = run.spans
    found = Result(number, job_id, index, outcome, NOW, 0.0, **result)
    await manager.work(WORKER, workers.Report(results=[found]))
    manager.listener.on_presence(WORKER, "pool@pool", "unavailable")
    return run


LOUD: dict[str, Any] = {
    "stdout": TAIL,
    "stdout_bytes": STORED.size_bytes,
    "stdout_stored": STORED,
}


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.FAILED])
async def test_its_owner_and_admins_are_told_where_all_of_a_log_is(
    tmp_path: Path, outcome: int
) -> None:
    manager = PlayedManager(tmp_path)
    await ended(manager, outcome, **LOUD)
    for whom in (ADA, ROOT):
        found = await logs(manager, whom, stored=True)
        assert (found.stored, found.size_bytes) == (STORED, STORED.size_bytes)
        assert (found.data, found.skipped_bytes, found.cut_bytes) == (b"", 0, 0)


async def test_nobody_else_is_told(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path)
    await ended(manager, **LOUD)
    refusal = await asked(manager, rq.Logs(job="1", task_id=0, stored=True), BOB)
    assert isinstance(refusal, an.Failed)
    assert refusal.code == "not-allowed"
    assert "share.pool" not in "".join(text for to, text in manager.sent if to == BOB)


async def test_who_does_not_ask_for_it_is_given_the_tail(tmp_path: Path) -> None:
    """Such as an earlier version, or whoever finds that the share has it no more."""
    manager = PlayedManager(tmp_path)
    await ended(manager, **LOUD)
    found = await logs(manager)
    assert (found.stored, found.data) == (None, TAIL)
    assert found.skipped_bytes == STORED.size_bytes - TAIL_BYTES
    assert "is away" in found.why_missing


async def test_a_stream_that_is_not_stored_is_as_it_was(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path)
    await ended(manager, **LOUD, stderr=b"short", stderr_bytes=5)
    found = await logs(manager, stream="stderr", stored=True)
    assert (found.stored, found.data) == (None, b"short")


async def test_what_was_beyond_the_limit_is_missing_though_the_rest_is_stored(
    tmp_path: Path,
) -> None:
    manager = PlayedManager(tmp_path)
    await ended(manager, **(LOUD | {"stdout_bytes": STORED.size_bytes + 70}))
    found = await logs(manager, stored=True)
    assert (found.cut_bytes, found.stored) == (70, STORED)
    assert "a worker keeps no more than" in found.why_missing


async def test_lists_of_tasks_say_whether_all_of_the_logs_is_in_the_share(tmp_path: Path) -> None:
    for place, (more, whole) in enumerate(
        (({}, True), ({"stderr_bytes": 5}, True), ({"stderr_bytes": TAIL_BYTES + 1}, False))
    ):
        manager = PlayedManager(tmp_path / str(place))
        await ended(manager, **LOUD, **more)
        page = await asked(manager, rq.ListTasks(job="1"))
        assert isinstance(page, an.Tasks)
        assert page.tasks[0].logs_stored is whole
    manager = PlayedManager(tmp_path / "short")
    await ended(manager, stdout=b"short", stdout_bytes=5)
    page = await asked(manager, rq.ListTasks(job="1"))
    assert isinstance(page, an.Tasks)
    assert not page.tasks[0].logs_stored


async def test_a_log_that_cannot_be_had_is_not_kept(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path)
    strange = replace(STORED, size_bytes=1)
    await ended(manager, **(LOUD | {"stdout_stored": strange, "stderr_stored": STORED}))
    [row] = manager.store.tasks(1)
    assert row.result is not None
    assert (row.result.stdout_stored, row.result.stderr_stored) == (None, STORED)


async def test_workers_are_told_to_keep_the_logs_of_all_jobs_if_the_pool_says_so(
    tmp_path: Path,
) -> None:
    for keep in (False, True):
        run = await ended(PlayedManager(tmp_path / str(keep), keep_logs=keep))
        assert run.jobs[0].program.keep_logs is keep
    with_it = Template.of(1, JobSpec(program=Program(argv=("loud",), keep_logs=True)))
    assert with_it.program.keep_logs
    assert b"keep_logs" not in msgspec.json.encode(
        Template.of(1, JobSpec(program=Program(argv=("loud",))))
    )


def test_a_pool_keeps_no_logs_unless_told_to() -> None:
    options = ManagerOptions(domain="pool", secret_file=Path("x"), data_dir=Path("y"))
    assert not options.config().keep_logs


def test_a_silent_success_says_nothing_of_logs() -> None:
    silent = codec.encode(workers.Report(results=[Result(1, 1, 0, Outcome.DONE, 1.5, 0.25)]))
    assert silent == '{"type":"report","results":[[1,1,0,0,1.5,0.25,0.0,0.0,0]]}'
