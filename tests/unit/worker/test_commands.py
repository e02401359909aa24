"""An admin has workers run what they offer; nothing else is run, and nobody else has it run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from managerkit import PlayedManager, settled

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.protocol import codec, directions
from kestrelctl.protocol import workers as work
from kestrelctl.protocol.commands import (
    CommandDone,
    CommandsHere,
    ListCommands,
    OfferedCommand,
    RunAtWorkers,
    RunCommand,
)
from kestrelctl.protocol.request import Request
from kestrelctl.protocol.requests import SetWorkerGroup

W1, W2, W3 = (f"w{n}@workers.pool/a" for n in (1, 2, 3))
ROOT, ADA = "root@users.pool/1", "ada@users.pool/1"
CLEAN = OfferedCommand("clean", (("days", "int"),), 5.0)


class Pool:
    """Three workers, of which two offer a command."""

    def __init__(self, directory: Path, store: Any = None) -> None:
        hosts: dict[str, Any] = {
            "worker_hosts": ("workers.pool",),
            "user_hosts": ("users.pool",),
        }
        self.played = PlayedManager(directory, store=store, **hosts)

    async def begin(self) -> None:
        for worker in (W1, W2, W3):
            ad = WorkerAd(tags=("gpu",) if worker == W2 else ())
            await self.played.work(
                worker, work.Hello(version=work.VERSION, incarnation="one", ad=ad)
            )
            if worker != W3:
                await self.played.work(worker, CommandsHere(commands=[CLEAN]))
        await self.asked(SetWorkerGroup(group=WorkerGroup(name="gpu", tags=("gpu",))))

    async def asked(self, request: Request, who: str = ROOT) -> Any:
        return directions.answers.decode(await self.played.ask(who, request))

    def begins(self, request: Request, who: str = ROOT) -> None:
        """Asks for what is answered later."""
        self.played.sent.clear()
        self.played.listener.on_payload(who, "jobs@pool", codec.encode(request))

    def orders(self) -> dict[str, RunCommand]:
        """What workers were told to run."""
        found = {}
        for to, text in self.played.sent:
            if '"run_command"' in text:
                message = directions.to_worker.decode(text)
                assert isinstance(message, RunCommand)
                found[to] = message
        return found

    def answers(self) -> list[Any]:
        return [directions.answers.decode(text) for to, text in self.played.sent if to == ROOT]


@pytest.fixture
async def pool(tmp_path: Path) -> Pool:
    found = Pool(tmp_path)
    await found.begin()
    return found


async def test_all_that_offer_it_run_it_and_their_answers_come_together(pool: Pool) -> None:
    pool.begins(RunAtWorkers(name="clean", values={"days": "3"}))
    await settled()
    orders = pool.orders()
    assert set(orders) == {W1, W2}
    assert orders[W1].values == {"days": 3}
    await pool.played.work(W1, CommandDone(request=orders[W1].request, value=7))
    assert pool.answers() == []
    await pool.played.work(W2, CommandDone(request=orders[W2].request, error="exit status 1"))
    [answer] = pool.answers()
    assert [(each.worker, each.value, each.error) for each in answer.results] == [
        (W1, 7, ""),
        (W2, None, "exit status 1"),
    ]


async def test_it_runs_where_it_is_wanted(pool: Pool) -> None:
    for request in (
        RunAtWorkers(name="clean", values={"days": "3"}, workers=["w2"]),
        RunAtWorkers(name="clean", values={"days": "3"}, group="gpu"),
    ):
        pool.begins(request)
        await settled()
        assert set(pool.orders()) == {W2}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (RunAtWorkers(name="clean", values={"days": "three"}), "usage"),
        (RunAtWorkers(name="clean"), "usage"),
        (RunAtWorkers(name="clean", values={"days": "3", "rm": "x"}), "usage"),
        (RunAtWorkers(name="reboot"), "not-found"),
        (RunAtWorkers(name="clean", values={"days": "3"}, workers=["w3"]), "not-found"),
        (RunAtWorkers(name="clean", values={"days": "3"}, workers=[""]), "usage"),
        (RunAtWorkers(name="clean", values={"days": "3"}, workers=["none"]), "not-found"),
        (RunAtWorkers(name="clean", values={"days": "3"}, group="none"), "not-found"),
    ],
)
async def test_nothing_is_run_that_cannot_be_meant(
    pool: Pool, request_: RunAtWorkers, code: str
) -> None:
    assert (await pool.asked(request_)).code == code
    assert pool.orders() == {}


async def test_only_an_admin_has_it_run(pool: Pool) -> None:
    answer = await pool.asked(RunAtWorkers(name="clean", values={"days": "3"}), ADA)
    assert answer.code == "not-allowed"
    assert pool.orders() == {}
    found = await pool.asked(ListCommands(), ADA)
    assert [(each.name, each.parameters, each.workers) for each in found.commands] == [
        ("clean", (("days", "int"),), 2)
    ]


async def test_nobody_answers_for_another(pool: Pool) -> None:
    pool.begins(RunAtWorkers(name="clean", values={"days": "3"}, workers=["w1"]))
    await settled()
    request = pool.orders()[W1].request
    await pool.played.work(W2, CommandDone(request=request, value=666))
    assert pool.answers() == []
    await pool.played.work(W1, CommandDone(request=request, value=7))
    assert [each.value for each in pool.answers()[0].results] == [7]
    await pool.played.work(W1, CommandDone(request=request, value=8))
    assert len(pool.answers()) == 1


async def test_a_worker_that_goes_answers_by_that(pool: Pool) -> None:
    pool.begins(RunAtWorkers(name="clean", values={"days": "3"}, workers=["w1"]))
    await settled()
    pool.played.listener.on_presence(W1, "pool@pool", "unavailable")
    await settled()
    [answer] = pool.answers()
    assert answer.results[0].error == "the worker has gone"
    [left] = (await pool.asked(ListCommands())).commands
    assert left.workers == 1


async def test_a_worker_that_says_nothing_is_not_waited_for_without_end(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kestrelctl.manager.requests import worker_commands

    monkeypatch.setattr(worker_commands, "ANSWER_SECONDS", -4.95)
    pool.begins(RunAtWorkers(name="clean", values={"days": "3"}, workers=["w1"]))
    async with asyncio.timeout(10):
        while not pool.answers():
            await asyncio.sleep(0.01)
    assert pool.answers()[0].results[0].error == "the worker does not answer"


async def test_a_worker_that_would_be_waited_for_without_end_is_not_heard(pool: Pool) -> None:
    for_ever = OfferedCommand("clean", (), 1e9)
    pool.played.sent.clear()
    await pool.played.work(W3, CommandsHere(commands=[for_ever]))
    [found] = (await pool.asked(ListCommands())).commands
    assert (found.workers, found.timeout_seconds) == (2, 5.0)


async def test_what_workers_print_is_cut_where_the_answer_would_be_too_large(pool: Pool) -> None:
    workers = [f"v{n}@workers.pool/a" for n in range(900)]
    for worker in workers:
        hello = work.Hello(version=work.VERSION, incarnation="one", ad=WorkerAd())
        pool.played.listener.on_payload(worker, "pool@pool", codec.encode(hello))
        offered = CommandsHere(commands=[OfferedCommand("say", (), 5.0)])
        pool.played.listener.on_payload(worker, "pool@pool", codec.encode(offered))
    pool.begins(RunAtWorkers(name="say"))
    await settled()
    for worker, order in pool.orders().items():
        done = CommandDone(request=order.request, value="<&>" * 300 + worker)
        pool.played.listener.on_payload(worker, "pool@pool", codec.encode(done))
    await settled()
    [answer] = pool.answers()
    assert [each.worker for each in answer.results] == workers
    assert all(each.value.startswith("<&><&>") for each in answer.results)
    assert all(each.value.endswith("…") for each in answer.results)


async def test_one_that_offers_it_no_more_does_not_spoil_the_answers_of_others(
    tmp_path: Path,
) -> None:
    for turns in range(12):
        pool = Pool(tmp_path)
        await pool.begin()
        pool.begins(RunAtWorkers(name="clean", values={"days": "3"}))
        for _ in range(turns):
            await asyncio.sleep(0)
        await pool.played.work(W1, CommandsHere(commands=[]))
        for worker, order in pool.orders().items():
            await pool.played.work(worker, CommandDone(request=order.request, value=7))
        [answer] = pool.answers()
        assert [each.value for each in answer.results if each.worker == W2] == [7], answer


async def test_a_new_manager_takes_no_answer_to_an_earlier_one_for_its_own(tmp_path: Path) -> None:
    before = Pool(tmp_path)
    await before.begin()
    wanted = RunAtWorkers(name="clean", values={"days": "3"}, workers=["w1"])
    before.begins(wanted)
    await settled()
    old = before.orders()[W1].request
    pool = Pool(tmp_path, before.played.store)
    await pool.begin()
    pool.begins(wanted)
    await settled()
    await pool.played.work(W1, CommandDone(request=old, value=666))
    assert pool.answers() == []
    await pool.played.work(W1, CommandDone(request=pool.orders()[W1].request, value=7))
    assert [each.value for each in pool.answers()[0].results] == [7]


async def test_one_that_is_back_before_its_end_is_durable_offers_what_it_offers_now(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = RunAtWorkers(name="clean", values={"days": "3"}, workers=["w1"])
    pool.begins(wanted)
    await settled()
    disk = asyncio.Event()
    commit = pool.played.store.commit

    async def slow(*args: Any) -> None:
        await disk.wait()
        await commit(*args)

    monkeypatch.setattr(pool.played.store, "commit", slow)
    pool.played.listener.on_presence(W1, "pool@pool", "unavailable")
    await settled()
    hello = work.Hello(version=work.VERSION, incarnation="two", ad=WorkerAd())
    for message in (hello, CommandsHere(commands=[CLEAN])):
        pool.played.listener.on_payload(W1, "pool@pool", codec.encode(message))
        await settled()
    pool.played.listener.on_payload(ROOT, "jobs@pool", codec.encode(wanted))
    await settled()
    disk.set()
    await pool.played.settled()
    [answer] = pool.answers()
    assert answer.results[0].error == "the worker has gone", "the one that was asked before"
    await pool.played.work(W1, CommandDone(request=pool.orders()[W1].request, value=7))
    assert pool.answers()[1].results[0].value == 7
    [offered] = (await pool.asked(ListCommands())).commands
    assert offered.workers == 2


async def test_what_one_offers_that_is_away_is_not_kept(pool: Pool) -> None:
    """It says it again when it is back. One that goes for good would leave it here for ever."""
    pool.played.listener.on_presence(W1, "pool@pool", "unavailable")
    await settled()
    await pool.played.work(W1, CommandsHere(commands=[CLEAN]))
    [command] = (await pool.asked(ListCommands())).commands
    assert command.workers == 1, "that is the other one"
