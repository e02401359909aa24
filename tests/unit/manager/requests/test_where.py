"""Lists of what an expression is true of."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import PlayedManager

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.manager.requests import where
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol import workers as work

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    manager = PlayedManager(tmp_path)
    for n in range(6):
        ad = WorkerAd(assets={"cpus": n + 1.0}, attributes={"rack": n % 2} if n else {})
        hello = work.Hello(version=work.VERSION, incarnation="one", greeting=1, ad=ad)
        await manager.work(f"w{n}@workers.pool/1", hello)
    return manager


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


async def workers(manager: PlayedManager, text: str, limit: int = 1000) -> list[str]:
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await asked(manager, rq.ListWorkers(where=text, after=after, limit=limit))
        assert isinstance(page, an.Workers), page
        found += [view.worker.partition("@")[0] for view in page.workers]
        after = page.after
    return found


async def jobs(manager: PlayedManager, text: str, whom: str = ADA, limit: int = 100) -> list[int]:
    found: list[int] = []
    before: int | None = None
    while True:
        request = rq.ListJobs(where=text, before=before, limit=limit)
        page = await asked(manager, request, whom)
        assert isinstance(page, an.Jobs), page
        found[:0] = [view.job_id for view in page.jobs]
        before = page.before
        if before is None:
            return found


async def test_workers_are_found_by_what_they_are_and_what_they_do(manager: PlayedManager) -> None:
    assert await workers(manager, "Cpus > 3 && Rack == 1") == ["w3", "w5"]
    assert await workers(manager, "isUndefined(Rack)") == ["w0"]
    assert await workers(manager, 'State == "idle" && MY.FreeCpus < 2') == ["w0"]
    assert await workers(manager, 'regexp("^w[12]@", Name)') == ["w1", "w2"]
    assert await workers(manager, "Cpus > 100") == []


async def test_pages_may_be_empty_and_all_are_found(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kestrelctl.manager.requests.pool.MOST_LOOKED_AT", 2)
    assert await workers(manager, "Cpus >= 3") == ["w2", "w3", "w4", "w5"]
    assert await workers(manager, "Cpus >= 3", limit=1) == ["w2", "w3", "w4", "w5"]
    assert where.MOST_LOOKED_AT >= 100


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Cpus > > 2", "a value is expected"),
        ("Cpuss > 2", "no worker has the attribute Cpuss; there are Arch, Cpus"),
        ("TARGET.Cpus > 2", "in a list there is no other side"),
        ('Cpus + "a" > 2', "for w0@workers.pool/1 it comes to an error"),
        ("Name", "for w0@workers.pool/1 it comes to the text 'w0@workers.pool/1'"),
        ("time() > 2", "time() is not the same each time"),
    ],
)
async def test_a_mistake_has_a_clear_word(manager: PlayedManager, text: str, cause: str) -> None:
    answer = await asked(manager, rq.ListWorkers(where=text))
    assert isinstance(answer, an.Failed)
    assert cause in (answer.cause or "")


async def test_one_worker_with_an_odd_attribute_keeps_nobody_from_a_list_of_the_others(
    manager: PlayedManager,
) -> None:
    """Each machine says its attributes itself."""
    ad = WorkerAd(assets={"cpus": 9.0}, attributes={"rack": "in the cellar"})
    hello = work.Hello(version=work.VERSION, incarnation="one", greeting=1, ad=ad)
    await manager.work("w9@workers.pool/1", hello)
    assert await workers(manager, "Rack + 1 > 1") == ["w1", "w3", "w5"]
    assert await workers(manager, "Rack + 1 > 1", limit=1) == ["w1", "w3", "w5"]
    answer = await asked(manager, rq.ListWorkers(names=["w9"], where="Rack + 1 > 1"))
    assert isinstance(answer, an.Failed)
    assert answer.cause == "for w9@workers.pool/1 it comes to an error"


async def test_one_job_of_which_nothing_can_be_said_keeps_nobody_from_a_list_of_the_others(
    manager: PlayedManager,
) -> None:
    for name in ("4", "four"):
        spec = JobSpec(program=Program(argv=("x",)), name=name, request={"cpus": 100.0})
        assert isinstance(await asked(manager, rq.SubmitJob(spec=spec)), an.Submitted)
    assert await jobs(manager, "12 / (JobId - 2) == -12") == [1]


async def test_jobs_are_found_as_they_are_shown_to_who_asks(manager: PlayedManager) -> None:
    for n in range(5):
        spec = JobSpec(
            program=Program(argv=("x",)), name=f"job{n}", priority=n, request={"cpus": 100.0 + n}
        )
        assert isinstance(await asked(manager, rq.SubmitJob(spec=spec)), an.Submitted)
    assert await jobs(manager, "JobPrio > 2 && Waiting == 1") == [4, 5]
    assert await jobs(manager, 'JobName == "job1" || RequestCpus == 104') == [2, 5]
    assert await jobs(manager, "JobId != 3", limit=2) == [1, 2, 4, 5]
    assert await jobs(manager, 'JobName == "job1"', whom=BOB) == []
    answer = await asked(manager, rq.ListJobs(where="Waitin > 2"))
    assert isinstance(answer, an.Failed)
    assert "no job has the attribute Waitin" in (answer.cause or "")
