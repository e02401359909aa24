"""Several jobs in one message: each is taken or refused as if it had come by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jobkit import job_spec
from managerkit import PlayedManager

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import KestrelError, StoreFull, UsageError
from kestrelctl.manager.caller import Caller, no_answer
from kestrelctl.manager.requests import jobs
from kestrelctl.manager.requests.dispatch import JOBS_IN_A_TURN, _turns_of
from kestrelctl.manager.sending.turns import MOST_UNFINISHED, LineBounds
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.store.port import StoreRecord

ADA = "ada@users.pool/1"
EMPTY = JobSpec(program=Program(argv=()))


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    """A manager without workers."""
    return PlayedManager(tmp_path)


def job(name: str = "", **fields: Any) -> rq.SubmitJob:
    return rq.SubmitJob(spec=job_spec(name=name), **fields)


async def asked(manager: PlayedManager, *jobs: rq.SubmitJob) -> list[an.Submitted | an.Failed]:
    answer = directions.answers.decode(
        await manager.ask(ADA, rq.SubmitEach(id="7", jobs=list(jobs)))
    )
    assert isinstance(answer, an.SubmittedEach), answer
    assert answer.id == "7"
    return answer.answers


async def test_each_is_answered_as_if_it_had_come_by_itself(manager: PlayedManager) -> None:
    alone = directions.answers.decode(await manager.ask(ADA, rq.SubmitJob(spec=EMPTY, id="1")))
    several = [job("a", key="a"), rq.SubmitJob(spec=EMPTY, id="1"), job("c"), job("a", key="a"),
            job("other", key="a")]  # fmt: skip
    first, empty, third, again, other = await asked(manager, *several)
    assert first == an.Submitted(id="", job_id=1, tasks=1)
    assert empty == alone
    assert third == an.Submitted(id="", job_id=2, tasks=1)
    assert again == an.Submitted(id="", job_id=1, tasks=1, repeated=True)
    assert isinstance(other, an.Failed), "its key is that of another job"
    assert [record.spec.name for record in manager.store.jobs()] == ["a", "c"]


async def test_the_end_of_one_that_is_watched_is_told_by_itself(manager: PlayedManager) -> None:
    await asked(manager, job(watch=True), job())
    await manager.ask(ADA, rq.CancelJobs(jobs="1-2"))
    ended = [each for each in manager.told(ADA) if isinstance(each, an.Ended)]
    assert [each.job.job_id for each in ended] == [1]
    assert sum(isinstance(each, an.SubmittedEach) for each in manager.told(ADA)) == 1


async def test_none_of_them_is_explained(manager: PlayedManager) -> None:
    """A hundred explanations may fit into no message."""
    ad = WorkerAd(assets={"cpus": 2.0})
    hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, at=0.0, ad=ad)
    await manager.work("w1@workers.pool/1", hello)
    large = rq.SubmitJob(spec=job_spec(request={"cpus": 64.0}), explain=True)
    alone = directions.answers.decode(await manager.ask(ADA, large))
    assert isinstance(alone, an.Submitted)
    assert alone.hopeless is not None
    [one] = await asked(manager, large)
    assert isinstance(one, an.Submitted)
    assert one.hopeless is None


async def test_those_for_which_the_line_has_no_room_are_refused_each(
    manager: PlayedManager,
) -> None:
    manager.dispatcher.turns._bounds = LineBounds(2, 1 << 20, 1 << 20)
    found = await asked(manager, *(job() for _ in range(4 * JOBS_IN_A_TURN + 5)))
    codes = [each.code if isinstance(each, an.Failed) else "taken" for each in found]
    taken = 3 * JOBS_IN_A_TURN
    assert codes == ["taken"] * taken + ["busy"] * (JOBS_IN_A_TURN + 5), (
        "some at once, and those of two turns that wait"
    )


async def test_those_of_a_turn_are_stored_at_once(manager: PlayedManager) -> None:
    written: list[int] = []
    commit = manager.store.commit

    async def count(records: Sequence[StoreRecord], *rest: Any) -> None:
        written.append(sum(isinstance(each, JobRecord) for each in records))
        await commit(records, *rest)

    manager.store.commit = count  # type: ignore[method-assign]
    await asked(manager, *(job() for _ in range(JOBS_IN_A_TURN)))
    assert written == [JOBS_IN_A_TURN]


async def test_what_cannot_be_read_for_one_costs_the_others_nothing(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_of_key = manager.store.job_of_key

    def damaged(owner: str, key: str) -> JobRecord | None:
        if key == "damaged":
            raise KestrelError("job 4 cannot be read in the store")
        return job_of_key(owner, key)

    monkeypatch.setattr(manager.store, "job_of_key", damaged)
    first, bad, last = await asked(manager, job(key="a"), job(key="damaged"), job(key="b"))
    assert first == an.Submitted(id="", job_id=1, tasks=1)
    assert isinstance(bad, an.Failed)
    assert bad.message == "job 4 cannot be read in the store"
    assert last == an.Submitted(id="", job_id=2, tasks=1)


async def test_a_full_disk_hides_from_nobody_what_is_wrong_with_a_job(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise StoreFull("no space left")

    monkeypatch.setattr(manager.dispatcher.pending._service, "must_store", full)
    found = await asked(manager, job(), rq.SubmitJob(spec=EMPTY))
    codes = [each.code for each in found if isinstance(each, an.Failed)]
    assert codes == [StoreFull.code, UsageError.code]


def test_lines_that_were_sent_ahead_have_a_turn_to_themselves() -> None:
    ada = Caller(ADA, admin=False, reply=no_answer)
    short, long = (ada, job()), (ada, job(upload="lines"))
    turns = _turns_of([short] * 12 + [long, long, short])
    assert [len(each) for each in turns] == [JOBS_IN_A_TURN, 2, 1, 1, 1]


async def test_a_mistake_of_the_manager_is_told_to_each(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_spec: JobSpec) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(jobs, "problem_with_job", fails)
    found = await asked(manager, job(), job())
    assert [each.code for each in found if isinstance(each, an.Failed)] == ["error"] * 2
    assert "a mistake" in caplog.text


async def test_many_of_these_do_not_wait_for_each_other_for_ever(manager: PlayedManager) -> None:
    count = 2 * MOST_UNFINISHED
    for number in range(count):
        request = rq.SubmitEach(id=str(number), jobs=[job(), job()])
        manager.listener.on_payload(ADA, "jobs@pool", codec.encode(request))
    await manager.settled()
    await manager.settled()
    answers = [each for each in manager.told(ADA) if isinstance(each, an.SubmittedEach)]
    assert sorted(int(each.id) for each in answers) == list(range(count))


async def test_no_message_has_more_than_a_hundred(manager: PlayedManager) -> None:
    many = rq.SubmitEach(jobs=[job() for _ in range(rq.MOST_TOGETHER + 1)])
    assert isinstance(directions.answers.decode(await manager.ask(ADA, many)), an.Failed)
    assert manager.store.jobs() == []
