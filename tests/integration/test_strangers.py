"""What an account may send to anybody but the pool, at a real server: nothing that arrives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from puppet import Puppet

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers, requests
from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.xmpp.user import UserConnection

MANY = 100


def write(session: Puppet, stanzas: str) -> None:
    """Sends what stands there."""
    stream = session.session._stream
    assert stream is not None
    stream.write(stanzas)


def address(session: Puppet) -> str:
    """Of the session, with its resource."""
    return session.session.address


@pytest.mark.parametrize("host", ["users", "workers"])
async def test_accounts_do_not_reach_each_other(local_pool: PoolState, host: str) -> None:
    async with Puppet(local_pool, "eve", "users") as eve, Puppet(local_pool, "vic", host) as vic:
        to = address(vic)
        container = f"<json xmlns='{JSON_NAMESPACE}'>{{}}</json>"
        write(eve, f"<message to='{to}'>{container}</message>")
        write(eve, f"<message to='{to}' type='error'>{container}</message>")
        write(eve, f"<message to='{vic.jid}'>{container}</message>")
        sender, first = await asyncio.wait_for(eve.received.get(), 10)
        assert (sender, first) == (to, {"bounced": "service-unavailable"})
        assert await asyncio.wait_for(eve.received.get(), 10) == (vic.jid, first)
        assert vic.received.empty()


async def test_nobody_s_presence_is_kept_or_handed_on(
    local_pool: PoolState, user: UserConnection
) -> None:
    async with Puppet(local_pool, "eve", "users") as eve, Puppet(local_pool, "vic", "users") as two:
        told: list[str] = []
        refused: asyncio.Queue[str] = asyncio.Queue()
        eve.on_presence = lambda sender, to, kind: refused.put_nowait(kind)  # type: ignore[method-assign]
        two.on_presence = lambda sender, to, kind: told.append(sender)  # type: ignore[method-assign]
        write(two, "<presence/>")  # it comes back to this session
        for number in range(MANY):
            for kind in ("subscribe", "subscribed"):
                write(eve, f"<presence type='{kind}' to='{number}@users.{local_pool.domain}'/>")
            write(eve, f"<presence type='probe' to='{number}@users.{local_pool.domain}'/>")
            write(eve, f"<presence to='pool@{local_pool.domain}/{number}'/>")
            write(eve, f"<presence to='job-{number}@{local_pool.domain}'/>")
        write(eve, f"<presence to='{address(two)}'/>")
        for _ in range(5 * MANY + 1):
            assert await asyncio.wait_for(refused.get(), 20) == "error"
        assert set(told) <= {address(two)}
    data = Path(local_pool.password_file).parent / "server" / "data"
    assert list(data.glob("*/roster/*")) == []
    await user.ask(requests.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))


@pytest.mark.parametrize("depth", [0, 2_000, 60_000])
async def test_an_iq_does_not_end_the_manager_s_connection(
    local_pool: PoolState, user: UserConnection, depth: int
) -> None:
    log = Path(local_pool.password_file).parent / "manager.log"
    before = log.read_text().count("connected to the server")
    async with Puppet(local_pool, "eve", "users") as eve:
        content = "<a>" * depth + "</a>" * depth
        for kind in ("get", "set", "result", "error"):
            for to in (f"jobs@{local_pool.domain}", local_pool.domain):
                write(eve, f"<iq type='{kind}' id='k1' to='{to}'>{content or '<a/>'}</iq>")
        request = '{"type": "pool_status", "id": "1"}'
        eve.session.send(request, f"jobs@{local_pool.domain}")
        assert (await eve.answer(20))["type"] == "pool"
    assert isinstance(await user.ask(requests.PoolStatus()), answers.PoolSummary)
    assert log.read_text().count("connected to the server") == before
