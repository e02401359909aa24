"""A worker that speaks the first Kestrel's messages, in a pool that speaks its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from managerkit import PlayedManager, settled

from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import TimedOut
from kestrelctl.manager.chat.profile_pings import keep_pinging, lost, ping, silent
from kestrelctl.protocol import requests
from kestrelctl.xmpp.xmpp_session import IqRefused

WORKER, POOL, USER = "w1@workers.pool/home", "pool@pool", "ada@users.pool/1"


class Client:
    """A worker that knows nothing but JSON in chat messages.

    Attributes:
        heard: what it was told and has not looked at yet.
    """

    def __init__(self, manager: PlayedManager, jid: str = WORKER) -> None:
        self.manager = manager
        self.jid = jid
        self._seen = len(manager.chats)

    async def say(self, **message: Any) -> None:
        self.manager.listener.on_body(self.jid, POOL, json.dumps(message))
        await settled()

    async def show(self, kind: str = "available") -> None:
        self.manager.listener.on_presence(self.jid, POOL, kind)
        await settled()

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """What it was told since it last listened, of one kind."""
        fresh, self._seen = self.manager.chats[self._seen :], len(self.manager.chats)
        told = [json.loads(text) for to, text in fresh if to == self.jid]
        return [message for message in told if message["type"] == kind]

    async def join(self, **more: Any) -> None:
        await self.show()
        await self.say(type="profile", os="Linux", ram=4096, cores=2, provides=["FOO"], **more)


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    return PlayedManager(tmp_path)


@pytest.fixture
async def client(manager: PlayedManager) -> Client:
    client = Client(manager)
    await client.join()
    return client


async def submit(manager: PlayedManager, **job: Any) -> int:
    text = json.dumps({"type": "job", "command": "./run", **job})
    manager.listener.on_body(USER, "jobs@pool", text)
    await settled()
    answers = [json.loads(text) for to, text in manager.sent if to == USER]
    assert answers[-1]["type"] == "submitted", answers
    return int(answers[-1]["job_id"])


def states(manager: PlayedManager, job_id: int) -> list[str]:
    return [record.state for record in manager.store.tasks(job_id)]


async def test_it_joins_and_is_known_by_what_it_says(
    manager: PlayedManager, client: Client
) -> None:
    assert client.heard("welcome") == [{"type": "welcome"}]
    worker = manager.service.pool.workers[WORKER]
    assert worker.online
    assert worker.cls.capacity == {"cpus": 2000, "memory": (4096 << 20) * 1000}
    assert worker.cls.tags == {"FOO", "LINUX", "PLACEHOLDERS"}


async def test_it_is_sent_as_much_as_fits_and_more_when_something_ended(
    manager: PlayedManager, client: Client
) -> None:
    job_id = await submit(manager, queue=3, requires="foo linux", cleanup="./clean")
    first = client.heard("task")
    assert [task["command"] for task in first] == ["./run 0", "./run 1"]
    assert first[0]["cleanup"] == "./clean 0"
    await client.say(type="finish", id=first[0]["id"], output="hello\n")
    [last] = client.heard("task")
    assert last["command"] == "./run 2"
    await client.say(type="finish", id=first[1]["id"], status=3, error="no\n")
    await client.say(type="finish", id=last["id"])
    assert states(manager, job_id) == ["done", "failed", "done"]
    tasks = list(manager.store.tasks(job_id))
    assert tasks[0].result.stdout == b"hello\n"
    assert tasks[1].result.exit_code == 3
    [told] = [text for to, text in manager.sent if to == USER.partition("/")[0]]
    assert "2 done, 1 failed" in told
    assert not manager.service.pool.workers[WORKER].held


async def test_a_machine_message_may_carry_the_same(manager: PlayedManager, client: Client) -> None:
    other = Client(manager, "w2@workers.pool/1")
    manager.listener.on_payload(other.jid, POOL, '{"type": "profile", "cores": 1}')
    await settled()
    assert other.heard("welcome")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"type": "profile", "cores": "many"}, "cores"),
        ({"type": "profile", "cores": 1e9}, "cpus"),
        ({"type": "profile", "cores": 1e306}, "cpus"),
        ({"type": "profile", "ram": 1e305}, "memory"),
        ({"type": "profile", "provides": ["isolation:systemd"]}, "isolated"),
        ({"type": "finish", "id": "of my own"}, "of my own"),
        ({"type": "beet"}, "beet"),
    ],
)
async def test_rubbish_is_refused_in_a_chat_message(
    manager: PlayedManager, message: dict[str, Any], why: str
) -> None:
    client = Client(manager)
    await client.say(**message)
    [refused] = client.heard("refused")
    assert why in refused["reason"]
    assert WORKER not in manager.service.pool.workers
    assert WORKER not in manager.service.profiles


async def test_a_profile_that_is_refused_changes_nothing(
    manager: PlayedManager, client: Client
) -> None:
    job_id = await submit(manager, queue=3)
    first, second = client.heard("task")
    await client.say(type="profile", os="x" * 300, cores=100)
    assert client.heard("refused")
    await client.say(type="finish", id=first["id"])
    [third] = client.heard("task")
    for task in (second, third):
        await client.say(type="finish", id=task["id"])
    assert states(manager, job_id) == ["done", "done", "done"]


async def test_an_agent_is_refused_where_it_listens(manager: PlayedManager) -> None:
    client = Client(manager)
    manager.listener.on_payload(WORKER, POOL, '{"type": "profile", "provides": ["a b"]}')
    await settled()
    assert client.heard("refused")


async def test_a_user_is_no_worker_though_he_says_so(manager: PlayedManager) -> None:
    client = Client(manager, USER)
    await client.join()
    [refused] = client.heard("refused")
    assert "may not join" in refused["reason"]
    assert USER not in manager.service.pool.workers


async def test_its_tasks_go_to_others_when_it_is_gone(
    manager: PlayedManager, client: Client
) -> None:
    job_id = await submit(manager, queue=2)
    assert len(client.heard("task")) == 2
    other = Client(manager, "w2@workers.pool/1")
    await other.join()
    await client.show("unavailable")
    again = other.heard("task")
    assert sorted(task["task"] for task in again) == [0, 1]
    for task in again:
        await other.say(type="finish", id=task["id"])
    assert states(manager, job_id) == ["done", "done"]


async def test_a_task_that_was_not_sent_to_it_it_cannot_end(
    manager: PlayedManager, client: Client
) -> None:
    job_id = await submit(manager)
    [task] = client.heard("task")
    mallory = Client(manager, "w9@workers.pool/1")
    await mallory.join()
    await mallory.say(type="finish", id=task["id"])
    assert states(manager, job_id) == []
    assert manager.service.pool.state.totals.attempts_unproven == 1


async def test_what_waits_at_the_manager_it_cannot_end(
    manager: PlayedManager, client: Client
) -> None:
    job_id = await submit(manager, queue=20)
    sent = client.heard("task")
    for task in sent:
        await client.say(type="finish", id=task["id"], seconds=0.01)
    fresh = client.heard("task")
    told = {int(task["id"].partition(".")[0]) for task in fresh}
    held = manager.service.pool.workers[WORKER].held
    made_up = [f"{n}.{n}.{job_id}.{task.index}.1.0" for n, task in held.items()]
    assert len(made_up) > len(told) == 2, "some wait at the manager"
    for each in made_up:
        await client.say(type="finish", id=each)
    assert len(client.heard("refused")) == len(made_up)
    assert states(manager, job_id) == ["done", "done"]


async def test_it_is_told_to_cancel_and_says_when_it_has(
    manager: PlayedManager, client: Client
) -> None:
    job_id = await submit(manager, queue=3)
    running = client.heard("task")
    await manager.ask(USER, requests.CancelJobs(jobs=str(job_id)))
    assert [told["id"] for told in client.heard("cancel")] == [task["id"] for task in running]
    for task in running:
        await client.say(type="finish", id=task["id"], status=-9)
    assert set(states(manager, job_id)) == {"cancelled"}
    assert client.heard("task") == []


async def test_what_it_still_runs_it_keeps_if_it_says_so(
    manager: PlayedManager, client: Client
) -> None:
    job_id = await submit(manager, queue=2)
    kept, dropped = client.heard("task")
    manager.listener.on_offline("the server is away")
    manager.listener.on_online()
    await settled()
    assert client.heard("who")
    await client.join(running=[kept["id"], "rubbish"])
    [again] = client.heard("task")
    assert (again["task"], again["id"] != dropped["id"]) == (1, True)
    await client.say(type="finish", id=kept["id"])
    await client.say(type="finish", id=again["id"])
    assert states(manager, job_id) == ["done", "done"]
    assert manager.service.pool.state.totals.attempts_lost == 0


async def test_a_manager_that_was_restarted_asks_it_and_believes_the_seal(
    manager: PlayedManager, client: Client, tmp_path: Path
) -> None:
    job_id = await submit(manager, queue=2)
    first, second = client.heard("task")
    after = PlayedManager(tmp_path, store=manager.store)
    await settled()
    again = Client(after)
    again._seen = 0
    assert again.heard("who"), "in a chat message: it reads no other"
    await again.say(type="finish", id=first["id"])
    assert [record.index for record in after.store.tasks(job_id)] == [0]
    await again.join(running=[second["id"]])
    await again.say(type="finish", id=second["id"])
    assert states(after, job_id) == ["done", "done"]


async def test_what_it_runs_over_a_restart_takes_as_much_as_before(
    manager: PlayedManager, client: Client, tmp_path: Path
) -> None:
    await submit(manager, queue=4)
    running = [task["id"] for task in client.heard("task")]
    again = Client(PlayedManager(tmp_path, store=manager.store))
    await again.join(running=running)
    assert again.heard("task") == []
    await again.say(type="profile", cores=3)
    assert len(again.heard("task")) == 1, "there is one core more"
    await again.say(type="finish", id=running[0])
    assert len(again.heard("task")) == 1


async def test_a_task_is_told_which_attempt_it_is(manager: PlayedManager, client: Client) -> None:
    spec = JobSpec(program=Program(argv=("false",)), max_failures=2)
    await manager.ask(USER, requests.SubmitJob(spec=spec))
    [first] = client.heard("task")
    await client.say(type="finish", id=first["id"], status=1)
    manager.now += 60.0
    await client.say(type="profile", cores=2)
    [second] = client.heard("task")
    assert [task["env"]["KESTREL_ATTEMPT"] for task in (first, second)] == ["1", "2"]


async def test_who_says_again_what_he_offers_goes_on_with_what_he_runs(
    manager: PlayedManager, client: Client
) -> None:
    await submit(manager, queue=4)
    assert len(client.heard("task")) == 2
    await client.say(type="profile", cores=3)
    assert len(client.heard("task")) == 1, "there is one core more"


async def test_a_session_that_nobody_saw_begin_runs_nothing_of_the_one_before(
    manager: PlayedManager,
) -> None:
    client = Client(manager)
    await client.say(type="profile")
    await submit(manager)
    [before] = client.heard("task")
    await client.say(type="profile")
    [after] = client.heard("task")
    assert (after["task"], after["id"] == before["id"]) == (0, False)


async def test_an_output_that_was_cut_cannot_be_had(manager: PlayedManager, client: Client) -> None:
    job_id = await submit(manager)
    [task] = client.heard("task")
    await client.say(type="finish", id=task["id"], output="x" * 10_000)
    answer = json.loads(await manager.ask(USER, requests.Logs(job=str(job_id), task_id=0)))
    assert answer["type"] == "log"
    assert answer["size_bytes"] == 10_000
    assert "keeps no outputs" in answer["why_missing"]


async def test_a_task_that_fits_into_no_message_fails(
    manager: PlayedManager, client: Client
) -> None:
    items = ("x" * 130_000,)
    spec = JobSpec(program=Program(argv=("echo", *["{}"] * 4), cleanup=("echo", "{}")), items=items)
    await manager.ask(USER, requests.SubmitJob(spec=spec))
    await settled()
    assert client.heard("task") == []
    assert states(manager, 1) == ["failed"]


# -- signs of life ---------------------------------------------------------------------------------


async def test_who_is_silent_is_asked_and_any_answer_counts(
    manager: PlayedManager, client: Client
) -> None:
    assert silent(manager.service) == []
    manager.now += 2.0
    assert silent(manager.service) == [WORKER]
    asked: list[str] = []

    async def refuses(_payload: str, to: str, _sender: str, **_how: object) -> None:
        asked.append(to)
        raise IqRefused("service-unavailable")

    await ping(manager.service, refuses, WORKER)
    assert asked == [WORKER]
    assert silent(manager.service) == []


async def test_no_answer_is_no_sign_of_life(manager: PlayedManager, client: Client) -> None:
    manager.now += 2.0

    async def is_silent(*_what: object, **_how: object) -> None:
        raise TimedOut("no answer")

    await ping(manager.service, is_silent, WORKER)
    assert silent(manager.service) == [WORKER]


async def test_a_refusal_may_be_the_servers_if_the_worker_did_not_show_itself(
    manager: PlayedManager,
) -> None:
    client = Client(manager)
    await client.say(type="profile")
    manager.now += 2.0

    async def refuses(*_what: object, **_how: object) -> None:
        raise IqRefused("service-unavailable")

    await ping(manager.service, refuses, WORKER)
    assert silent(manager.service) == [WORKER]


async def test_a_session_that_bounces_was_not_shown_to_the_next(
    manager: PlayedManager, client: Client
) -> None:
    manager.listener.on_bounce(WORKER, "service-unavailable")
    await client.say(type="profile")
    assert WORKER in manager.service.profiles
    assert not manager.service.profiles.is_shown(WORKER)


async def test_the_end_of_one_session_is_not_that_of_the_next(
    manager: PlayedManager, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    line: list[Callable[[], None]] = []

    class Busy:
        """As if more of the account waited."""

        def take(self, _jid: str, _account: str, _size: int, work: Callable[[], None]) -> bool:
            line.append(work)
            return True

    monkeypatch.setattr(manager.listener, "_turns", Busy())
    await client.show("unavailable")
    await client.show("available")
    for work in line:
        work()
    assert manager.service.profiles.is_shown(WORKER)


async def until_lost(manager: PlayedManager) -> None:
    for _ in range(60):
        manager.now += 1.0
        manager.service.handle(ev.Tick(at=manager.now, cause="tick"))
    await settled()
    assert lost(manager.service) == [WORKER]


async def test_one_that_was_lost_and_is_there_again_is_asked_what_it_runs(
    manager: PlayedManager, client: Client
) -> None:
    await until_lost(manager)
    assert silent(manager.service) == []
    assert not client.heard("who")

    async def answers(*_what: object, **_how: object) -> None:
        """As every library does."""

    await ping(manager.service, answers, WORKER)
    assert client.heard("who")
    await client.say(type="profile", cores=2, running=[])
    assert lost(manager.service) == []


async def test_a_lost_session_of_which_no_end_is_announced_is_forgotten(
    manager: PlayedManager,
) -> None:
    client = Client(manager)
    await client.say(type="profile")

    async def refuses(*_what: object, **_how: object) -> None:
        raise IqRefused("service-unavailable")

    await ping(manager.service, refuses, WORKER)
    assert WORKER in manager.service.profiles, "it may have running tasks, and time to report them"
    await until_lost(manager)
    await ping(manager.service, refuses, WORKER)
    assert WORKER not in manager.service.profiles


async def test_the_lost_are_asked_now_and_then(
    manager: PlayedManager, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until_lost(manager)
    asked: list[str] = []

    async def is_silent(_payload: str, to: str, _sender: str, **_how: object) -> None:
        asked.append(to)
        raise TimedOut("no answer")

    looks = 0

    async def look(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 25:
            raise asyncio.CancelledError

    monkeypatch.setattr("kestrelctl.manager.chat.profile_pings.asyncio.sleep", look)
    with pytest.raises(asyncio.CancelledError):
        await keep_pinging(manager.service, is_silent)
    assert asked == [WORKER, WORKER]


async def test_its_presence_is_a_sign_of_life(manager: PlayedManager, client: Client) -> None:
    manager.now += 2.0
    await client.show()
    assert silent(manager.service) == []
