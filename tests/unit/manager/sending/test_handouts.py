"""A worker gets the items and the programs of its tasks, and everything in the order decided."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from jobkit import job_spec
from managerkit import PlayedManager, settled
from storekit import QuickStore

from kestrelctl.core.effects import Run, Span
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import KestrelError, StoreFull
from kestrelctl.manager.sending import handouts
from kestrelctl.manager.sending.handouts import Handouts
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.store.item_window import ItemWindow

ADA = "ada@users.pool/1"
W1 = "w1@workers.pool/a"
WORDS = ("word",) * 1_000
PROGRAM = Program(argv=("run", *WORDS))


class SlowStore:
    """A store behind a network: it answers when it is told to. Its jobs have items of 5 tasks."""

    def __init__(self) -> None:
        self.asked: list[tuple[asyncio.Future[Any], object]] = []

    def items(self, job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        first = index - index % 5
        found = tuple(f"{job_id}/{first + n}" for n in range(5))
        return self._answer(ItemWindow(first, found, 10) if index < 10 else None)

    def program(self, job_id: int) -> asyncio.Future[Program | None]:
        return self._answer(PROGRAM)

    def _answer(self, what: object) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((future, what))
        return future

    async def answer(self, place: int = 0, error: Exception | None = None) -> None:
        future, what = self.asked.pop(place)
        if error is None:
            future.set_result(what)
        else:
            future.set_exception(error)
        await settled()


class Sent:
    """What hand-outs have sent, in order."""

    def __init__(self, store: SlowStore) -> None:
        self.all: list[object] = []
        self.runs: list[Run] = []
        self.unreadable: list[tuple[Span, str]] = []
        found: Any = store
        self.handouts = Handouts(found, self._send)

    def _send(self, effect: Run, unreadable: list[tuple[Span, str]]) -> None:
        self.all.append((effect.worker, list(effect.items)))
        self.runs.append(effect)
        self.unreadable += unreadable

    def behind(self, worker: str, word: str) -> None:
        if self.handouts.is_waiting(worker):
            self.handouts.behind(worker, lambda: self.all.append((worker, word)))
        else:
            self.all.append((worker, word))


def run(worker: str, *spans: Span, templates: tuple[Template, ...] = (), **fields: Any) -> Run:
    return Run(
        worker=worker,
        spans=list(spans),
        claims=[{"cpus": 1000}],
        templates=list(templates),
        forget=[],
        **({"items_of": frozenset({1, 2})} | fields),
    )


async def test_what_is_for_a_worker_waits_behind_its_hand_out_and_what_is_for_others_does_not() -> (
    None
):
    store = SlowStore()
    sent = Sent(store)
    sent.handouts.hand_out(run("a", (100, 1, 0, 2, 0)))
    sent.behind("a", "kill")
    sent.handouts.hand_out(run("a", (102, 3, 0, 1, 0), items_of=frozenset()))
    sent.behind("b", "ack")
    assert sent.all == [("b", "ack")]
    await store.answer()
    assert sent.all[1:] == [("a", ["1/0", "1/1"]), ("a", "kill"), ("a", [])]
    assert not sent.handouts.is_waiting("a")


async def test_a_hand_out_over_several_windows_gets_the_items_of_all() -> None:
    store = SlowStore()
    sent = Sent(store)
    sent.handouts.hand_out(run("a", (100, 1, 3, 5, 0), (105, 2, 9, 1, 0)))
    while store.asked:
        assert not sent.all
        await store.answer()
    assert sent.all == [("a", ["1/3", "1/4", "1/5", "1/6", "1/7", "2/9"])]


async def test_two_hand_outs_of_one_job_are_served_by_one_read() -> None:
    store = SlowStore()
    sent = Sent(store)
    sent.handouts.hand_out(run("a", (100, 1, 0, 1, 0)))
    sent.handouts.hand_out(run("b", (101, 1, 1, 1, 0)))
    sent.handouts.hand_out(run("c", (102, 1, 7, 1, 0)))
    assert len(store.asked) == 1
    await store.answer()
    assert sent.all == [("a", ["1/0"]), ("b", ["1/1"])]
    await store.answer()
    assert sent.all[2:] == [("c", ["1/7"])]


async def test_a_template_goes_with_its_whole_program_kept_as_the_pool_wants_it() -> None:
    store = SlowStore()
    sent = Sent(store)
    cut = Template(job_id=1, program=Program(argv=("run",), keep_logs=True))
    sent.handouts.hand_out(
        run("a", (100, 1, 0, 1, 0), templates=(cut,), programs_of={1}, items_of=frozenset())
    )
    await store.answer()
    [template] = sent.runs[0].templates
    assert template.program == Program(argv=("run", *WORDS), keep_logs=True)


async def test_attempts_whose_items_cannot_be_read_are_not_sent_and_all_others_are() -> None:
    store = SlowStore()
    sent = Sent(store)
    sent.handouts.hand_out(run("a", (100, 1, 0, 2, 0), (102, 2, 0, 1, 0)))
    await store.answer(error=KestrelError("the items of job 1 are damaged"))
    await store.answer()
    [effect] = sent.runs
    assert (effect.spans, effect.items) == ([(102, 2, 0, 1, 0)], ["2/0"])
    assert sent.unreadable == [((100, 1, 0, 2, 0), "the items of job 1 are damaged")]


async def test_a_job_whose_program_cannot_be_read_is_never_sent_again() -> None:
    """A worker that was not given the template is thought to know it."""
    store = SlowStore()
    sent = Sent(store)
    cut = Template(job_id=1, program=Program(argv=("run",)))
    span = (100, 1, 0, 1, 0)
    sent.handouts.hand_out(run("a", span, templates=(cut,), programs_of={1}, items_of=frozenset()))
    await store.answer(error=KestrelError("damaged"))
    sent.handouts.hand_out(run("a", (101, 1, 1, 1, 0), items_of=frozenset()))
    assert [effect.spans for effect in sent.runs] == [[], []]
    assert [effect.templates for effect in sent.runs] == [[], []]
    assert sent.unreadable == [(span, "damaged"), ((101, 1, 1, 1, 0), "damaged")]


async def test_what_cannot_be_read_now_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handouts, "RETRY_SECONDS", 0.0)
    store = SlowStore()
    sent = Sent(store)
    sent.handouts.hand_out(run("a", (100, 1, 0, 1, 0)))
    await store.answer(error=StoreFull(cause="no answer"))
    assert not sent.all
    await store.answer()
    assert sent.all == [("a", ["1/0"])]


async def test_what_waits_is_not_sent_by_a_manager_that_ends() -> None:
    store = SlowStore()
    sent = Sent(store)
    sent.handouts.hand_out(run("a", (100, 1, 0, 1, 0)))
    sent.handouts.drop()
    await store.answer()
    assert not sent.all


# -- a manager on SQLite ---------------------------------------------------------------------------


@pytest.fixture
async def manager(tmp_path: Path, quick_store: QuickStore) -> PlayedManager:
    return PlayedManager(tmp_path, store=quick_store)


async def joins(manager: PlayedManager, cpus: float) -> None:
    ad = WorkerAd(assets={"cpus": cpus})
    await manager.work(W1, workers.Hello(version=workers.VERSION, incarnation="x", ad=ad))


async def submit(manager: PlayedManager, spec: JobSpec) -> None:
    answer = directions.answers.decode(await manager.ask(ADA, rq.SubmitJob(spec=spec)))
    assert isinstance(answer, an.Submitted), answer


def told(manager: PlayedManager) -> list[workers.Run]:
    found = [directions.to_worker.decode(text) for to, text in manager.sent if to == W1]
    return [message for message in found if isinstance(message, workers.Run)]


async def test_each_task_gets_its_own_item(manager: PlayedManager) -> None:
    items = tuple(f"item {n}" for n in range(2_500))
    small = {"cpus": 0.1}
    await submit(
        manager, job_spec(argv=("run", "{}"), items=items, count=len(items), request=small)
    )
    await joins(manager, cpus=0.1 * len(items))
    got: dict[int, str] = {}
    for message in told(manager):
        indexes = [index + k for _, _, index, n, *_ in message.spans for k in range(n)]
        got |= dict(zip(indexes, message.items, strict=True))
    assert got == dict(enumerate(items))


async def test_a_kill_does_not_overtake_its_attempt(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStore()
    monkeypatch.setattr(manager.store, "items", slow.items)
    await submit(manager, job_spec(argv=("run", "{}"), items=("a", "b"), count=2))
    await joins(manager, cpus=2)
    assert not told(manager)
    await manager.ask(ADA, rq.CancelJobs(jobs="1"))
    await slow.answer()
    found = [directions.to_worker.decode(text) for to, text in manager.sent if to == W1]
    kinds = [type(message) for message in found]
    assert kinds[-2:] == [workers.Run, workers.Kill]


async def test_a_worker_gets_all_words_of_a_long_program(manager: PlayedManager) -> None:
    program = Program(argv=("run", *WORDS), env={"A": "b"}, cleanup=("rm", *WORDS))
    await submit(manager, JobSpec(program=program))
    await joins(manager, cpus=1)
    [message] = told(manager)
    assert [template.program for template in message.jobs] == [program]


async def test_so_it_does_after_a_restart(tmp_path: Path, quick_store: QuickStore) -> None:
    before = PlayedManager(tmp_path, store=quick_store)
    program = Program(argv=("run", "{}", *WORDS))
    await submit(before, JobSpec(program=program, items=("a", "b"), count=2))
    await before.service.close()
    manager = PlayedManager(tmp_path, store=quick_store)
    [job] = manager.service.pool.jobs
    assert job.spec.items is None
    await joins(manager, cpus=2)
    [message] = told(manager)
    assert [template.program for template in message.jobs] == [program]
    assert message.items == ["a", "b"]


async def test_tasks_whose_items_are_damaged_fail_and_say_so(
    manager: PlayedManager, quick_store: QuickStore
) -> None:
    await submit(manager, job_spec(argv=("run", "{}"), items=("a", "b"), count=2))
    quick_store._writer.execute("UPDATE texts SET body = x'00'")
    await joins(manager, cpus=2)
    await manager.settled()
    assert all(not message.spans for message in told(manager))
    answer = directions.answers.decode(await manager.ask(ADA, rq.ListTasks(job="1")))
    assert isinstance(answer, an.Tasks)
    assert {task.state for task in answer.tasks} == {"failed"}
    assert all("items of job 1 cannot be read" in task.reason for task in answer.tasks)


async def test_a_slip_in_a_read_ends_its_tasks_and_holds_nothing_else_up() -> None:
    store = SlowStore()
    sent = Sent(store)
    sent.handouts.hand_out(run("a", (100, 1, 0, 1, 0)))
    sent.behind("a", "kill")
    await store.answer(error=LookupError("nobody has thought of this"))
    assert [span for span, _ in sent.unreadable] == [(100, 1, 0, 1, 0)]
    assert sent.all[-1] == ("a", "kill")
    assert not sent.handouts.is_waiting("a")
