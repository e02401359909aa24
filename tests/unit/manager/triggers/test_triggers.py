"""Triggers at work: they look at the pool, fire, and have done what they want as an admin would."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from managerkit import FarStore, PlayedManager, settled
from neighbourskit import on_its_own_clock
from storekit import QuickStore
from triggerkit import SOURCES_EXAMPLE

from kestrelctl.core import events as ev
from kestrelctl.core.membership.handler_definition import read_handlers
from kestrelctl.core.membership.handler_words import ToldEvent
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.triggers.recorded_moment import MomentRecorded
from kestrelctl.errors import Unreachable, UsageError
from kestrelctl.manager.handlers.service import HandlerService
from kestrelctl.manager.triggers import log, moments
from kestrelctl.manager.triggers.files import open_triggers, read_all_triggers
from kestrelctl.manager.triggers.service import (
    COLLECT_SECONDS,
    RECORD_SECONDS,
    TriggerService,
)
from kestrelctl.protocol import codec, directions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol import workers as work
from kestrelctl.protocol.commands import CommandsHere, OfferedCommand
from kestrelctl.protocol.properties import PropertiesHere, ToldReading
from kestrelctl.protocol.request import Request
from kestrelctl.protocol.requests import SetWorkerGroup
from kestrelctl.protocol.triggers import EnableTrigger, ListFired, ListTriggers, TryTrigger
from kestrelctl.store.kept_text import TextFile

W1, W2 = "w1@workers.pool/a", "w2@workers.pool/a"
ROOT, ADA = "root@users.pool/1", "ada@users.pool/1"
OWNER = """
[owner]
expr = any(w.properties.users > 0 for w in workers)
cmd = drain([w for w in workers if w.properties.users > 0])
ticks = 30
on_update_check = yes
"""


KEPT = 3_600.0


class Notes:
    """A handler's way that keeps what it is told."""

    together = 1

    def __init__(self) -> None:
        self.told: list[ToldEvent] = []

    async def tell(self, told: Any) -> None:
        self.told += told


class Pool:
    """A manager with two workers and triggers."""

    def __init__(self, directory: Path, store: QuickStore | FarStore) -> None:
        self.directory = directory
        self.played = PlayedManager(
            directory, store=store, worker_hosts=("workers.pool",), user_hosts=("users.pool",)
        )
        self.notes = Notes()
        handlers = read_handlers("[admin]\non = failed\nrun = /bin/true\n", "h")
        self.handlers = HandlerService(self.played.service, handlers, {"admin": self.notes})
        self.desk: TriggerService

    async def begin(self, text: str) -> None:
        for worker in (W1, W2):
            hello = work.Hello(version=work.VERSION, incarnation="one", ad=WorkerAd())
            await self.played.work(worker, hello)
            offered = OfferedCommand("clean", (("days", "int"),), 5.0)
            await self.played.work(worker, CommandsHere(commands=[offered]))
            await self.reads(worker, anew=True, users=0)
        self.opens(text)

    def opens(self, *texts: str) -> None:
        """Has the triggers of these texts, a file each."""
        files = [self.directory / f"{place}.ini" for place in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        kept = TextFile(self.directory / "disabled")
        triggers = read_all_triggers(files, self.handlers.lines, ())
        self.desk = open_triggers(
            self.played.service, self.played.dispatcher, triggers, kept, None, self.handlers, KEPT
        )

    async def reads(self, worker: str, *, anew: bool = False, **values: Any) -> None:
        readings = [ToldReading(name, 5.0, value) for name, value in values.items()]
        await self.played.work(worker, PropertiesHere(readings=readings, anew=anew))

    async def looks(self, name: str) -> None:
        self.played.sent.clear()
        self.desk.look(self.desk.trigger(name))
        await settled()

    async def asked(self, request: Request, who: str = ROOT) -> Any:
        return directions.answers.decode(await self.played.ask(who, request))

    def draining(self) -> list[str]:
        workers = self.played.service.pool.workers
        return [jid for jid, each in workers.items() if each.draining]

    def told(self) -> dict[str, str]:
        return dict(self.played.sent)


@pytest.fixture
async def pool(tmp_path: Path, quick_store: QuickStore) -> Pool:
    return Pool(tmp_path, quick_store)


async def test_the_example_of_the_source_asks_all_for_their_values(pool: Pool) -> None:
    await pool.begin(SOURCES_EXAMPLE)
    await pool.looks("client_query")
    assert pool.told() == dict.fromkeys((W1, W2), '{"type":"read_properties"}')
    for worker in (W1, W2):
        pool.played.listener.on_presence(worker, "pool@pool", "unavailable")
    await settled()
    await pool.looks("client_query")
    assert pool.told() == {}, "there is nobody, and a set of Python's would always be true"


async def test_who_sits_at_a_machine_has_it_drained_as_soon_as_that_is_told(pool: Pool) -> None:
    await pool.begin(OWNER)
    await pool.reads(W2, users=1)
    assert pool.draining() == []
    await asyncio.sleep(2 * COLLECT_SECONDS)
    await settled()
    assert pool.draining() == [W2]
    await pool.reads(W2, load=5)
    await asyncio.sleep(2 * COLLECT_SECONDS)
    fired = (await pool.asked(ListFired())).fired
    assert [(each.trigger, each.actions) for each in fired] == [("owner", [f"drain({W2})"])]


def rule(cmd: str, expr: str = "True") -> str:
    return f"[t]\nexpr = {expr}\ncmd = {cmd}\nticks = 30\n"


async def test_jobs_are_held_and_released(pool: Pool) -> None:
    wanted = "[j for j in queue.jobs if j.name == 'fit-1']"
    release = "[r]\nexpr = queue.jobs\ncmd = release(queue.jobs)\nticks = 5\n"
    await pool.begin(rule(f"hold({wanted}); hold('x')", "queue.waiting > 2") + release)
    spec = JobSpec(program=Program(argv=("true",)), name="fit-1", count=5, request={"cpus": 64.0})
    submitted = await pool.asked(rq.SubmitJob(spec=spec), ADA)
    await pool.looks("t")
    job = pool.played.service.pool.job(submitted.job_id)
    assert job is not None
    assert job.hold is not None
    assert job.hold.reason == "trigger t"
    await pool.looks("r")
    assert job.hold is None


async def test_commands_are_run_where_they_are_wanted(pool: Pool) -> None:
    await pool.begin(rule("run_command('clean', days=1 + 2, workers=[workers[1]])"))
    await pool.looks("t")
    assert pool.told() == {
        W2: '{"type":"run_command","request":"2-1","name":"clean","values":{"days":3}}'
    }


async def test_a_list_of_nobody_is_not_everybody(pool: Pool) -> None:
    nobody = "[w for w in workers if w.cpus > 64]"
    await pool.begin(rule(f"query(workers={nobody}); run_command('clean', workers={nobody}); "
                          f"drain({nobody}); resume({nobody})"))  # fmt: skip
    await pool.looks("t")
    assert pool.told() == {}
    assert pool.draining() == []


async def test_workers_are_drained_once_and_resumed(pool: Pool) -> None:
    await pool.begin(rule("drain('w1')") + "[r]\nexpr = True\ncmd = resume(workers)\nticks = 5\n")
    await pool.looks("t")
    assert pool.draining() == [W1]
    await pool.looks("t")
    await pool.looks("r")
    assert pool.draining() == []


async def test_a_handler_is_told(pool: Pool) -> None:
    await pool.begin(
        rule("notify('admin', 'all is lost'); notify('nobody' if workers else '', 'x')")
    )
    running = asyncio.ensure_future(pool.handlers.run())
    await pool.looks("t")
    [told] = pool.notes.told
    assert (told.event, told.worker, told.reason) == ("trigger", "t", "all is lost")
    [fired] = (await pool.asked(ListFired())).fired
    assert fired.problems == ["there is no handler nobody"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_there_is_not_is_told_and_ends_nothing(pool: Pool) -> None:
    venv = "'venv' if workers else ''"  # computed: one that is written so is noticed before
    await pool.begin(
        rule(f"start_environment({venv}); stop_environment({venv}); query(group='no')")
    )
    await pool.looks("t")
    [fired] = (await pool.asked(ListFired(name="t"))).fired
    assert fired.problems == [
        "this pool has no classes of environments",
        "this pool has no classes of environments",
        "there is no group of workers 'no'",
    ]
    assert (await pool.asked(ListFired(name="nosuch"))).code == "not-found"


async def test_one_that_cannot_be_computed_says_why_and_does_not_fire(pool: Pool) -> None:
    await pool.begin(rule("query()", "workers[0].cpus / 0 > 1"))
    await pool.looks("t")
    [view] = (await pool.asked(ListTriggers(), ADA)).triggers
    assert (view.times, view.enabled) == (0, True)
    assert "division" in view.problem


async def test_one_that_is_disabled_does_nothing_also_after_a_restart(pool: Pool) -> None:
    await pool.begin(rule("drain('w1')"))
    assert (await pool.asked(EnableTrigger(name="t", enabled=False), ADA)).code == "not-allowed"
    assert (await pool.asked(EnableTrigger(name="x", enabled=False))).code == "not-found"
    await pool.asked(EnableTrigger(name="t", enabled=False))
    await pool.looks("t")
    pool.opens(rule("drain('w1')"))
    await pool.looks("t")
    assert pool.draining() == []
    await pool.asked(EnableTrigger(name="t", enabled=True))
    pool.opens(rule("drain('w1')"))
    await pool.looks("t")
    assert pool.draining() == [W1]


async def test_what_cannot_be_kept_is_not_switched(pool: Pool) -> None:
    await pool.begin(rule("drain('w1')"))
    (pool.directory / "disabled").mkdir()
    assert (await pool.asked(EnableTrigger(name="t", enabled=False))).code == "store-full"
    [view] = (await pool.asked(ListTriggers())).triggers
    assert view.enabled


async def test_one_that_rests_rests_also_after_a_restart_and_the_log_is_there(pool: Pool) -> None:
    text = rule("run_command('clean', days=1)") + "cooldown = 600\n"
    await pool.begin(text)
    await pool.looks("t")
    assert set(pool.told()) == {W1, W2}
    again = Pool(pool.directory, pool.played.store)
    again.played.now += 300.0
    await again.begin(text)
    await again.looks("t")
    assert again.told() == {}
    [fired] = (await again.asked(ListFired(name="t"))).fired
    assert (fired.at, fired.actions) == (pool.played.now, ["run_command(clean, days=1)"])
    again.played.now += 301.0
    await again.looks("t")
    assert set(again.told()) == {W1, W2}
    [view] = (await again.asked(ListTriggers())).triggers
    assert (view.times, view.fired_at) == (2, again.played.now)


async def test_a_clock_that_was_set_back_lengthens_no_rest(pool: Pool) -> None:
    text = rule("run_command('clean', days=1)") + "cooldown = 600\n"
    await pool.begin(text)
    await pool.looks("t")
    again = Pool(pool.directory, pool.played.store)
    again.played.now -= 86_400.0
    await again.begin(text)
    await again.looks("t")
    assert again.told() == {}
    again.played.now += 601.0
    await again.looks("t")
    assert set(again.told()) == {W1, W2}


async def test_none_fires_before_those_are_heard_that_were_there(pool: Pool) -> None:
    text = "[t]\nexpr = len(workers) < 2\ncmd = notify('admin', 'where are they?')\nticks = 5\n"
    await pool.begin(text)
    again = Pool(pool.directory, pool.played.store)
    again.opens(text)
    await again.looks("t")
    assert (await again.asked(ListFired())).fired == []
    again.played.now += Config().reconcile_seconds + 2.0
    again.played.service.handle(ev.Tick(at=again.played.now, cause="tick"))
    await again.looks("t")
    assert len((await again.asked(ListFired())).fired) == 1


async def test_only_admins_see_what_was_done_because_it_names_jobs_of_all(pool: Pool) -> None:
    await pool.begin(rule("hold(queue.jobs)", "queue.waiting > 0"))
    await pool.asked(
        rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)), request={"cpus": 64.0})), ADA
    )
    await pool.looks("t")
    assert (await pool.asked(ListFired(), "eve@users.pool/1")).code == "not-allowed"
    [fired] = (await pool.asked(ListFired())).fired
    assert fired.actions == ["hold(1)"]


async def test_the_log_has_an_end(pool: Pool) -> None:
    await pool.begin(rule("resume('w1')"))
    for number in range(2 * log.TIDY_EACH):
        pool.desk.log.add("t", pool.played.now + number, ["x" * 9_999] * 20, ["no"])
    await settled()
    found = pool.played.store.fired(limit=10 * log.MOST_FIRED)
    assert len(found) == 2 * log.TIDY_EACH
    assert len(found[0].actions[0]) == log.MOST_CHARACTERS
    shown = await pool.asked(ListFired())
    assert 0 < len(shown.fired) < log.TIDY_EACH, "as many as one answer holds"
    assert shown.fired[-1].at == found[-1].at
    pool.played.now += 1e9
    await pool.desk.log.tidy()
    await settled()
    assert len(pool.played.store.fired(limit=99)) == 1, "they are older than what is kept"


async def test_the_log_is_tidied_while_a_store_behind_a_network_is_asked(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    store = FarStore(quick_store)
    pool = Pool(tmp_path, store)
    await pool.begin(rule("resume('w1')"))
    for number in range(2):
        pool.desk.log.add("t", float(number), [], [])
    await settled()
    store.is_far = True
    store.answers.clear()
    tidying = asyncio.create_task(pool.desk.log.tidy())
    await settled()
    assert not tidying.done()
    pool.desk.log.add("t", pool.played.now, [], [])
    store.answers.set()
    await tidying
    await settled()
    assert [each.number for each in quick_store.fired(limit=9)] == [3]


async def test_a_test_does_nothing_and_says_when_it_would_have_fired(pool: Pool) -> None:
    await pool.begin(OWNER)
    watch, history = pool.desk.watch, pool.desk.history
    for users in (0, 1, 1, 0, 1):
        pool.played.now += 60.0
        await pool.reads(W1, users=users)
        history.add(watch.look())
    await settled()
    begin = history.since
    assert begin is not None
    found = await pool.asked(TryTrigger(name="owner"))
    assert (found.is_true, found.actions, found.problem) == (True, [f"drain({W1})"], "")
    assert [at - begin for at in found.would_have_fired] == [60.0, 120.0, 240.0]
    assert (found.recorded, found.recorded_since) == (5, begin)
    assert pool.draining() == []
    other = OWNER + "for = 60\n"
    again = await pool.asked(TryTrigger(name="owner", text=other))
    assert [at - begin for at in again.would_have_fired] == [120.0]
    assert (await pool.asked(TryTrigger(name="owner"), ADA)).code == "not-allowed"
    assert (await pool.asked(TryTrigger(name="x", text=other))).code == "usage"


async def test_the_first_trigger_of_a_pool_can_be_tested_before_it_has_any(pool: Pool) -> None:
    await pool.begin(OWNER)
    pool.opens()
    await pool.reads(W1, users=1)
    assert (await pool.asked(ListTriggers())).triggers == []
    assert (await pool.asked(ListFired())).fired == []
    found = await pool.asked(TryTrigger(name="owner", text=OWNER))
    assert (found.is_true, found.actions, found.problem) == (True, [f"drain({W1})"], "")
    assert (found.recorded, found.recorded_since) == (0, None)
    assert pool.draining() == []
    assert (await pool.asked(TryTrigger(name="owner"))).code == "not-found"
    assert (await pool.asked(EnableTrigger(name="owner", enabled=True))).code == "not-found"


async def test_a_tested_trigger_names_what_is_there_as_an_installed_one_must(pool: Pool) -> None:
    pool.opens()
    refused = await pool.asked(TryTrigger(name="t", text=rule('notify("nobody", "x")')))
    assert (refused.code, refused.cause) == ("usage", "there is no handler nobody")
    refused = await pool.asked(TryTrigger(name="t", text=rule('start_environment("none")')))
    assert (refused.code, refused.cause) == ("usage", "there is no environment none")
    assert (await pool.asked(TryTrigger(name="t", text=rule('notify("admin", "x")')))).is_true


SUMS = """
[t]
expr = properties.users.max > 0 and groups.all.properties.users.count == 2
cmd = query()
ticks = 30
"""


async def records(pool: Pool, *users: int) -> list[float]:
    """The pool is recorded with so many at the first machine, minute after minute; returns when."""
    found = []
    for each in users:
        pool.played.now += 60.0
        await pool.reads(W1, users=each)
        pool.desk.history.add(pool.desk.watch.look())
        await settled()
        found.append(pool.played.now)
    return found


async def test_a_test_sees_sums_as_they_were_also_after_a_restart(pool: Pool) -> None:
    await pool.begin(SUMS)
    await pool.asked(SetWorkerGroup(group=WorkerGroup(name="all", names=("*",))))
    _, second, _, fourth, _ = await records(pool, 0, 3, 0, 3, 0)
    found = await pool.asked(TryTrigger(name="t"))
    assert found.would_have_fired == [second, fourth]
    again = Pool(pool.directory, pool.played.store)
    again.opens(SUMS)
    found = await again.asked(TryTrigger(name="t"))
    assert found.would_have_fired == [second, fourth]
    assert found.recorded == 5


async def test_so_many_moments_are_kept_and_one_that_cannot_be_read_is_left_out(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "MOST_MOMENTS", 3)
    await pool.begin(SUMS)
    times = await records(pool, 1, 1, 1, 1, 1)
    kept = pool.played.store.moments(after=0, limit=99)
    assert [each.at for each in kept] == times[2:]
    assert pool.desk.history.since == times[2]
    await pool.played.store.commit([MomentRecorded(kept[0].number, kept[0].at, b"rubbish")])
    assert [each.at async for each in pool.desk.history.moments()] == times[3:]


async def test_the_pool_goes_on_while_a_trigger_is_tested(pool: Pool) -> None:
    await pool.begin(SUMS)
    await records(pool, *[1] * 20)
    pool.played.sent.clear()
    for request in (TryTrigger(name="t"), ListTriggers()):
        pool.played.listener.on_payload(ROOT, "jobs@pool", codec.encode(request))
    await settled()
    answers = [type(directions.answers.decode(text)).__name__ for to, text in pool.played.sent]
    assert answers == ["TriggerList", "TriggerTest"]


async def test_they_are_looked_at_at_their_ticks(pool: Pool) -> None:
    await pool.begin("[t]\nexpr = True\ncmd = drain('w1')\nticks = 1\n")
    running = asyncio.ensure_future(pool.desk.run())
    async with asyncio.timeout(20):
        while pool.draining() != [W1]:
            await asyncio.sleep(0.05)
    assert len(pool.desk.history) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_files_are_read_together(tmp_path: Path) -> None:
    file = tmp_path / "t.ini"
    file.write_text(SOURCES_EXAMPLE)
    assert [each.name for each in read_all_triggers([file], (), ())] == ["client_query"]
    with pytest.raises(UsageError, match="client_query is defined twice"):
        read_all_triggers([file, file], (), ())
    with pytest.raises(UsageError, match="cannot be read"):
        read_all_triggers([tmp_path / "none"], (), ())


@pytest.mark.parametrize(
    ("cmd", "cause"),
    [
        ('query(); notify("nobody", "x")', "there is no handler nobody"),
        ('start_environment("none")', "there is no environment none"),
        ('stop_environment("none")', "there is no environment none"),
    ],
)
def test_who_is_named_and_is_not_there_is_noticed_before_anything_fires(
    cmd: str, cause: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.ini"
    file.write_text(f"[t]\nexpr = True\ncmd = {cmd}\nticks = 1\n")
    with pytest.raises(UsageError, match="the trigger t is wrong") as caught:
        read_all_triggers([file], {"admin"}, {"science"})
    assert caught.value.cause == cause


def test_a_handler_and_a_class_that_are_there_may_be_named_and_computed_ones_too(
    tmp_path: Path,
) -> None:
    file = tmp_path / "t.ini"
    named = 'notify("admin", "x"); start_environment("science"); notify(workers[0].name, "x")'
    file.write_text(f"[t]\nexpr = True\ncmd = {named}\nticks = 1\n")
    assert len(read_all_triggers([file], {"admin"}, {"science"})) == 1


@on_its_own_clock
async def test_a_store_that_is_away_for_a_while_ends_no_trigger(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    store = FarStore(quick_store)
    pool = Pool(tmp_path, store)
    await pool.begin(rule("drain('w1')"))
    store.trouble = Unreachable("the database does not answer")
    running = asyncio.ensure_future(pool.desk.run())
    await asyncio.sleep(RECORD_SECONDS)
    store.trouble = None
    await asyncio.sleep(2 * RECORD_SECONDS)
    assert len(pool.desk.history) >= 2
    assert pool.draining() == [W1]
    running.cancel()
