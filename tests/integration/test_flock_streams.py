"""Servers of pools of a flock: whom they believe, and what reaches a pool over a stream."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from flock_servers import Servers, pin_of, until_said
from servers import Authority

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
        birch_side = servers.federation(BIRCH, days=-1)
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
