"""The pool among the contacts of a chat client: presence, discovery, commands, at a real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest
from people import Person, condition, fields
from slixmpp.exceptions import IqError

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.pool_state import PoolState, read_state
from kestrelctl.protocol import answers, requests
from kestrelctl.xmpp.user import UserConnection


def is_gone(kind: str, show: str, status: str) -> bool:
    return kind == "unavailable"


def is_there(kind: str, show: str, status: str) -> bool:
    return kind == "available"


async def submit(user: UserConnection, *argv: str, count: int = 1) -> int:
    answer = await user.ask(
        requests.SubmitJob(spec=JobSpec(program=Program(argv=argv), count=count))
    )
    assert isinstance(answer, answers.Submitted)
    return answer.job_id


@pytest.mark.parametrize("who", ["pool", "jobs", ""])
async def test_the_pool_is_a_contact(local_pool: PoolState, who: str) -> None:
    async with Person(local_pool, "ann") as ann:
        ann.subscribe(who)
        _, show, status = await ann.sees(who, is_there)
        assert (show, status) == ("", "0 of 2 workers busy; 0 tasks waiting")
        assert ann.errors == 0


async def test_a_job_shows_how_far_it_is(local_pool: PoolState, tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with Person(local_pool, "ann") as ann, Person(local_pool, "bob") as bob:
        command = f"sh -c 'until [ -e {go} ]; do sleep 0.1; done; exit $(({{}} == 3))'"
        done = await ann.run("jobs", "submit", command=command, array="1-4")
        name = f"job-{fields(done)['job_id']}"
        ann.subscribe(name)
        assert await ann.sees(
            name, lambda kind, show, status: show == "chat" and "running" in status
        )
        bob.subscribe(name)
        await bob.sees(name, lambda kind, *_: kind == "unsubscribed")
        ann.client.send_message(f"{name}@{ann.pool}", "status", mtype="chat")
        sender, words = await asyncio.wait_for(ann.chat.get(), 10)
        assert sender == f"{name}@{ann.pool}"
        assert "0 of 4 done" in words
        bob.client.send_message(f"{name}@{ann.pool}", "status", mtype="chat")
        assert "no job" in (await asyncio.wait_for(bob.chat.get(), 10))[1]
        go.touch()
        _, _, status = await ann.sees(name, lambda kind, show, status: show == "xa")
        assert status == "3 of 4 done, 1 failed"


async def test_what_is_to_be_found_there(local_pool: PoolState, user: UserConnection) -> None:
    async with Person(local_pool, "ann") as ann:
        disco = ann.client.plugin["xep_0030"]
        info = await disco.get_info(ann.pool)
        assert {"http://jabber.org/protocol/commands", "urn:xmpp:ping"} <= set(
            info["disco_info"]["features"]
        )
        found = {jid for jid, _, _ in (await disco.get_items(ann.pool))["disco_items"]["items"]}
        assert found == {f"pool@{ann.pool}", f"jobs@{ann.pool}"}
        pool = await disco.get_items(f"pool@{ann.pool}")
        nodes = {node for _, node, _ in pool["disco_items"]["items"]}
        assert nodes == {"online", "available", "busy"}
        online = await disco.get_items(f"pool@{ann.pool}", node="online")
        workers = sorted(str(jid).partition("/")[0] for jid, _, _ in online["disco_items"]["items"])
        assert workers == [f"w{n}@workers.{ann.pool}" for n in (1, 2)]
        await ann.client.plugin["xep_0199"].ping(f"jobs@{ann.pool}")
        card = await ann.client.plugin["xep_0054"].get_vcard(f"jobs@{ann.pool}")
        assert card["vcard_temp"]["FN"] == "Kestrel jobs"
        job_id = await submit(user, "sleep", "60")
        mine = await disco.get_items(f"jobs@{ann.pool}")
        assert mine["disco_items"]["items"] == set()
        with pytest.raises(IqError) as refusal:
            await disco.get_info(f"job-{job_id}@{ann.pool}")
        assert condition(refusal.value) == "item-not-found"
        await user.ask(requests.CancelJobs(jobs=str(job_id)))


async def test_commands(local_pool: PoolState, user: UserConnection) -> None:
    others = await submit(user, "sleep", "60")
    async with Person(local_pool, "ann") as ann:
        status = fields(await ann.run("pool", "pool_status"))
        assert status["online_workers"] == "2"
        done = await ann.run(
            "jobs", "submit", command="sleep 60", queue="3", cpus="0.1", name="naps"
        )
        mine = fields(done)["job_id"]
        table = (await ann.run("jobs", "job_status"))["form"]
        rows = {row["job_id"]: row for row in table.get_items()}
        assert {row["owner"] for row in rows.values()} == {ann.client.boundjid.bare}
        assert (rows[mine]["requested"], rows[mine]["pending"]) == ("3", "0")
        menu = (await ann.run("jobs", "cancel"))["form"].get_fields()["job_ids"]
        assert [option["value"] for option in menu["options"]] == [mine]
        with pytest.raises(IqError) as refusal:
            await ann.run("jobs", "cancel", job_ids=[str(others)])
        assert condition(refusal.value) == "forbidden"
        cancelled = fields(await ann.run("jobs", "cancel", job_ids=[mine]))
        assert cancelled["job_ids"] == [mine]
        with pytest.raises(IqError) as refusal:
            await ann.run("jobs", "submit", command="true", memory="much")
        assert condition(refusal.value) == "bad-request"
        assert "not a size" in refusal.value.iq["error"]["text"]
        with pytest.raises(IqError) as refusal:
            await ann.run("jobs", "reboot")
        assert condition(refusal.value) == "item-not-found"
    await user.ask(requests.CancelJobs(jobs=str(others)))


async def test_a_form_that_is_sent_twice_makes_one_job(local_pool: PoolState) -> None:
    async with Person(local_pool, "ann") as ann:
        adhoc = ann.client.plugin["xep_0050"]
        address = f"jobs@{ann.pool}"
        first = await adhoc.send_command(address, "submit")
        form = ann.client.plugin["xep_0004"].make_form(ftype="submit")
        form.add_field(var="command", value="true")
        made = set()
        for _ in range(2):
            answer = await adhoc.send_command(
                address, "submit", payload=form.xml, sessionid=first["command"]["sessionid"]
            )
            made.add(fields(answer["command"])["job_id"])
        assert len(made) == 1


async def test_many_jobs_that_end_are_few_presences(
    local_pool: PoolState, user: UserConnection
) -> None:
    async with Person(local_pool, "ann") as ann:
        ann.subscribe("jobs")
        ann.subscribe("pool")
        await ann.sees("jobs", is_there)
        await ann.sees("pool", is_there)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(submit(user, "true") for _ in range(500)))
        await user.ask(requests.CancelJobs(jobs="all"))
        passed = loop.time() - began
        told = 0
        for contact in (f"jobs@{ann.pool}", f"pool@{ann.pool}"):
            # Who subscribes is told the same twice, and who asks once more, once more.
            words = [words for name, words in ann.came if name == contact and is_there(*words)]
            told += sum(one != other for one, other in pairwise(words))
        assert told <= 2 * (passed / 3 + 2), "each of two contacts is told once in three seconds"


async def test_a_roster_is_bounded(local_pool: PoolState) -> None:
    async with Person(local_pool, "max") as max_:

        async def add(address: str, name: str) -> str:
            iq = max_.client.Iq(stype="set")
            iq["roster"]["items"] = {address: {"name": name, "subscription": ""}}
            try:
                await iq.send(timeout=20)
            except IqError as error:
                return condition(error)
            return "added"

        added = await asyncio.gather(*(add(f"m{n}@elsewhere", "x") for n in range(105)))
        assert added == ["added"] * 100 + ["resource-constraint"] * 5
        assert await add("m1@elsewhere", "x" * 1000) == "not-acceptable"
        max_.subscribe("pool")
        await max_.sees("pool", lambda kind, *_: kind == "error")


def manager_pid(pool: PoolState) -> int:
    state = read_state(Path(pool.password_file).parent)
    assert state is not None
    return state.manager_pid


async def test_what_is_said_to_who_is_away_waits_for_him(local_pool: PoolState) -> None:
    async with Person(local_pool, "ida") as ida:
        password = ida.client.password
        # One that waits: it neither ends between two answers nor sends a message when it does.
        job = await ida.run("jobs", "submit", command="true", requirements=["NOWHERE"])
        name = f"job-{fields(job)['job_id']}"
        ida.client.send_message(f"{name}@{ida.pool}", "status", mtype="chat")
        await asyncio.wait_for(ida.chat.get(), 10)
        # An answer that comes while she leaves would reach a session that nobody reads any more.
        os.kill(manager_pid(local_pool), signal.SIGSTOP)
        ida.client.send_message(f"{name}@{ida.pool}", "status", mtype="chat")
    os.kill(manager_pid(local_pool), signal.SIGCONT)
    async with Person(local_pool, "ida", password) as ida:
        said = (await asyncio.wait_for(ida.chat.get(), 10))[1]
        assert said.startswith(f"Job {name[4:]}: 0 of 1 done")
        await ida.run("jobs", "cancel", job_ids=[name[4:]])


async def test_who_is_there_sees_the_manager_go_and_come_back(local_pool: PoolState) -> None:
    async with Person(local_pool, "ann") as ann:
        ann.subscribe("jobs")
        await ann.sees("jobs", is_there)
        before = len(ann.came)
        os.kill(manager_pid(local_pool), signal.SIGKILL)
        await ann.saw("jobs", is_gone, before)
        await ann.sees("jobs", is_there)
        # And it goes on hearing of changes.
        await ann.run("jobs", "submit", command="sleep 60")
        await ann.sees("jobs", lambda kind, show, status: status.startswith("1 of 2"))


async def test_so_many_sessions_of_an_account_have_presence(local_pool: PoolState) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(Person(local_pool, "joe"))
        password = first.client.password
        for _ in range(19):
            await stack.enter_async_context(Person(local_pool, "joe", password))
        extra = await stack.enter_async_context(Person(local_pool, "joe", password))
        async with asyncio.timeout(20):
            while ("error", "", "") not in extra.seen.values():
                await asyncio.sleep(0.05)
