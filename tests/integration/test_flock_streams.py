"""Servers of pools of a flock: whom they believe, and what reaches a pool over a stream."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from flock_servers import Servers, pin_of, until_said
from servers import Authority

from kestrelctl.local.flock_addresses import write_address
from kestrelctl.xmpp.prosody import free_ports

ASPEN, BIRCH, CEDAR = "aspen.internal", "birch.internal", "cedar.internal"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def servers(tmp_path: Path) -> Servers:
    return Servers(tmp_path)


async def test_pools_of_a_flock_reach_each_other_at_two_addresses(servers: Servers) -> None:
    async with (
        servers.pool(ASPEN, servers.federation(ASPEN)) as (_, aspen),
        servers.pool(BIRCH, servers.federation(BIRCH)) as (_, birch),
    ):
        aspen.message(f"flock@{BIRCH}", "hello")
        heard = await birch.hear()
        assert heard.get("from") == f"flock@{ASPEN}"
        birch.message(f"flock@{ASPEN}", "hello yourself")
        assert (await aspen.hear()).get("from") == f"flock@{BIRCH}"

        loan = f"flock@{BIRCH}/0123456789ab"
        birch.say(f"<presence from='{loan}' to='pool@{ASPEN}'/>")
        assert (await aspen.hear()).get("from") == loan
        aspen.message(loan, "run this", sender=f"pool@{ASPEN}")
        assert (await birch.hear()).get("to") == loan
        birch.say(f"<presence from='{loan}' to='pool@{ASPEN}' type='unavailable'/>")
        assert (await aspen.hear()).get("type") == "unavailable"


async def test_three_pools_of_a_flock_know_each_other_apart(servers: Servers) -> None:
    async with (
        servers.pool(ASPEN, servers.federation(ASPEN)) as (_, aspen),
        servers.pool(BIRCH, servers.federation(BIRCH)) as (_, birch),
        servers.pool(CEDAR, servers.federation(CEDAR)) as (_, cedar),
    ):
        for sender in (aspen, cedar):
            sender.message(f"flock@{BIRCH}", "hello")
        heard = {(await birch.hear()).get("from") for _ in range(2)}
        assert heard == {f"flock@{ASPEN}", f"flock@{CEDAR}"}
        birch.message(f"flock@{CEDAR}", "to you alone")
        await cedar.hear_nothing_but("to you alone")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("authority", "it is not signed by an authority of the flock"),
        ("expired", "it has expired"),
        ("name", "it is for another name"),
    ],
)
async def test_a_pool_without_a_certificate_of_the_flock_is_refused(
    servers: Servers, fault: str, reason: str
) -> None:
    if fault == "authority":
        birch_side = servers.federation(BIRCH, authority=Authority(servers.directory / "other"))
    elif fault == "expired":
        birch_side = servers.federation(BIRCH, expired=True)
    else:
        birch_side = servers.federation(BIRCH, names=(CEDAR,))
    async with (
        servers.pool(ASPEN, servers.federation(ASPEN)) as (server, aspen),
        servers.pool(BIRCH, birch_side) as (_, birch),
    ):
        birch.message(f"flock@{ASPEN}", "let me in")
        assert (await birch.hear()).get("type") == "error"
        await until_said(server, f"refused the certificate of {BIRCH}: {reason}")
        aspen.message(f"flock@{BIRCH}", "are you there?")
        assert (await aspen.hear()).get("type") == "error"


async def test_a_pinned_certificate_needs_no_authority_and_bars_any_other(
    servers: Servers,
) -> None:
    stranger = Authority(servers.directory / "stranger")
    birch_side = servers.federation(BIRCH, authority=stranger)
    pins = {BIRCH: pin_of(servers.directory, BIRCH), CEDAR: "00" * 32}
    aspen_side = servers.federation(ASPEN, pins=pins)
    async with (
        servers.pool(ASPEN, aspen_side) as (server, aspen),
        servers.pool(BIRCH, birch_side) as (_, birch),
        servers.pool(CEDAR, servers.federation(CEDAR)) as (_, cedar),
    ):
        birch.message(f"flock@{ASPEN}", "hello")
        assert (await aspen.hear()).get("from") == f"flock@{BIRCH}"
        cedar.message(f"flock@{ASPEN}", "hello")
        assert (await cedar.hear()).get("type") == "error"
        await until_said(
            server, f"refused the certificate of {CEDAR}: it is not the one that is pinned"
        )


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (f"from='flock@{CEDAR}'", "its sender is at another domain"),
        (f"from='ann@{BIRCH}'", "pools of the flock reach flock@ and pool@ from theirs"),
        (f"from='flock@users.{BIRCH}'", "its sender is at another domain"),
        (f"to='jobs@{ASPEN}'", "pools of the flock reach flock@ and pool@ from theirs"),
        (f"to='pool@{ASPEN}/elsewhere'", "pools of the flock reach flock@ and pool@ from theirs"),
        (f"to='{ASPEN}'", "pools of the flock reach flock@ and pool@ from theirs"),
        (f"to='ann@users.{ASPEN}'", "other servers reach the pool alone"),
        (f"to='w1@workers.{ASPEN}'", "other servers reach the pool alone"),
    ],
)
async def test_a_hostile_server_speaks_for_itself_and_to_the_pool_alone(
    servers: Servers, forged: str, words: str
) -> None:
    async with (
        servers.pool(ASPEN, servers.federation(ASPEN)) as (server, aspen),
        servers.pool(BIRCH, servers.federation(BIRCH), forges=True) as (_, birch),
    ):
        birch.message(f"flock@{ASPEN}", "there is a stream now")
        await aspen.hear()
        birch.message(f"flock@{ASPEN}", "a lie", more=f"<forged {forged}/>")
        await until_said(server, words)
        # The stream is closed now; what is said before the other server knows that is lost.
        said = asyncio.create_task(birch.repeat(f"flock@{ASPEN}", "the truth"))
        await aspen.hear_nothing_but("the truth")
        said.cancel()


async def test_a_pool_says_nothing_to_others_but_as_one_of_the_flock(servers: Servers) -> None:
    async with (
        servers.pool(ASPEN, servers.federation(ASPEN)) as (_, aspen),
        servers.pool(BIRCH, servers.federation(BIRCH)) as (_, birch),
    ):
        for sender, to in (
            (f"jobs@{ASPEN}", f"flock@{BIRCH}"),
            (f"flock@{ASPEN}", f"ann@{BIRCH}"),
            (f"pool@{ASPEN}", BIRCH),
        ):
            aspen.message(to, "nothing", sender=sender)
            assert (await aspen.hear()).get("type") == "error"
        aspen.message(f"flock@{BIRCH}", "hello")
        await birch.hear_nothing_but("hello")


async def test_users_elsewhere_do_not_join_the_flock_nor_the_reverse(
    servers: Servers,
) -> None:
    system = Authority(servers.directory / "system")
    options = f'ssl = {{ cafile = "{system.file}" }}\n'
    aspen_side = servers.federation(ASPEN, users=(BIRCH,))
    birch_side = servers.federation(BIRCH, authority=system, users=(ASPEN,))
    async with (
        servers.pool(ASPEN, aspen_side, options=options) as (server, aspen),
        servers.pool(BIRCH, birch_side, forges=True) as (_, birch),
        servers.pool(CEDAR, servers.federation(CEDAR), forges=True) as (_, cedar),
    ):
        birch.message(f"pool@{ASPEN}", "from a user", sender=f"ann@{BIRCH}")
        assert (await aspen.hear()).get("from") == f"ann@{BIRCH}"
        birch.message(f"flock@{ASPEN}", "from no pool", sender=f"flock@{BIRCH}")
        await until_said(server, "that domain is not of the flock")
        aspen.message(f"flock@{BIRCH}", "we are no flock")
        assert (await aspen.hear()).get("type") == "error"
        aspen.message(f"ann@{BIRCH}", "an answer", sender=f"jobs@{ASPEN}")
        await birch.hear_nothing_but("an answer")

        cedar.message(f"flock@{ASPEN}", "from a pool")
        await aspen.hear_nothing_but("from a pool")
        forged = f"<forged from='ann@{CEDAR}'/>"
        cedar.message(f"pool@{ASPEN}", "from a user", more=forged)
        await until_said(server, f"refused a stanza of {CEDAR} for pool@{ASPEN}")


async def test_a_neighbour_that_says_too_much_is_read_late_and_holds_nobody_else_up(
    servers: Servers,
) -> None:
    options = "kestrel_streams_stanzas_per_second = 100\n"
    async with (
        servers.pool(ASPEN, servers.federation(ASPEN), options=options) as (_, aspen),
        servers.pool(BIRCH, servers.federation(BIRCH)) as (_, birch),
        servers.pool(CEDAR, servers.federation(CEDAR)) as (_, cedar),
    ):
        cedar.message(f"flock@{ASPEN}", "before")
        await aspen.hear_nothing_but("before")
        for number in range(2000):
            birch.message(f"flock@{ASPEN}", f"noise {number}")
        await birch.drain()
        await aspen.hear()
        cedar.message(f"flock@{ASPEN}", "amid the noise")
        heard = 0
        while (await aspen.hear()).findtext("{*}body") != "amid the noise":
            heard += 1
        assert heard < 1000


async def test_the_oldest_of_too_many_streams_of_a_domain_gives_way(servers: Servers) -> None:
    """As when a server comes back, and its former streams are not known to be dead yet."""
    options = "kestrel_streams_of_one_domain = 1\n"
    birch_side = servers.federation(BIRCH)
    async with (
        servers.pool(ASPEN, servers.federation(ASPEN), options=options) as (server, aspen),
        servers.pool(BIRCH, birch_side, name="birch once") as (_, birch),
    ):
        birch.message(f"flock@{ASPEN}", "once")
        await aspen.hear_nothing_but("once")
        again = msgspec.structs.replace(birch_side, port=free_ports(1)[0])
        async with servers.pool(BIRCH, again, name="birch twice") as (_, twin):
            twin.message(f"flock@{ASPEN}", "twice")
            await aspen.hear_nothing_but("twice")
            await until_said(server, f"closed the oldest stream from {BIRCH}")


async def test_no_more_domains_are_new_in_a_minute_than_are_allowed(servers: Servers) -> None:
    options = "kestrel_streams_new_domains_per_minute = 1\n"
    async with (
        servers.pool(ASPEN, servers.federation(ASPEN), options=options) as (server, aspen),
        servers.pool(BIRCH, servers.federation(BIRCH)) as (_, birch),
        servers.pool(CEDAR, servers.federation(CEDAR)) as (_, cedar),
    ):
        birch.message(f"flock@{ASPEN}", "first")
        await aspen.hear_nothing_but("first")
        cedar.message(f"flock@{ASPEN}", "one too many")
        await until_said(server, f"refused a stream from {CEDAR}: too many domains are new")
        birch.message(f"flock@{ASPEN}", "again")
        await aspen.hear_nothing_but("again")


async def test_servers_listen_and_look_only_where_they_are_told(servers: Servers) -> None:
    """One pool finds another by way of somebody in between."""
    passed = bytearray()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near, far = await asyncio.open_connection("127.0.0.1", birch_side.port)

        async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                passed.extend(data)
                to.write(data)
            to.close()

        await asyncio.gather(copy(reader, far), copy(near, writer))

    birch_side = servers.federation(BIRCH)
    async with (  # since Python 3.12 a server waits for its connections, which end with the pools
        await asyncio.start_server(pass_on, "127.0.0.1", 0) as between,
        servers.pool(ASPEN, servers.federation(ASPEN)) as (_, aspen),
        servers.pool(BIRCH, birch_side) as (_, birch),
    ):
        port = between.sockets[0].getsockname()[1]
        write_address(servers.addresses, BIRCH, f"127.0.0.1:{port}")
        aspen.message(f"flock@{BIRCH}", "hello")
        await birch.hear_nothing_but("hello")
        assert passed


async def test_nobody_gets_in_without_a_certificate(servers: Servers) -> None:
    """But whoever asks is shown that of the pool, for a pin."""
    federation = servers.federation(ASPEN)
    greeting = (
        f"<stream:stream xmlns='jabber:server' from='{BIRCH}' to='{ASPEN}' version='1.0' "
        "xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    async with servers.pool(ASPEN, federation) as (server, _):
        asks = await asyncio.create_subprocess_exec(
            "openssl", "s_client", "-quiet", "-starttls", "xmpp-server", "-xmpphost", ASPEN,
            "-connect", f"127.0.0.1:{federation.port}",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await asyncio.wait_for(asks.communicate(greeting.encode()), 20)
        assert f"CN={ASPEN}".encode() in said.replace(b" = ", b"=")  # as OpenSSL 3.0 prints it
        assert b"not-authorized" in said
        await until_said(server, f"refused the certificate of {BIRCH}: it is missing")
