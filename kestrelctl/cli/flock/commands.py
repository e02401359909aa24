"""`kestrelctl flock …`: the pools that lend each other their idle machines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import click
from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.flock.policy import policy
from kestrelctl.cli.redial import Redial
from kestrelctl.cli.show.command_output import CommandOutput, Listing, Record, Table, plain
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.wording import plural
from kestrelctl.grammar.flock_words import free_words, round_trip
from kestrelctl.grammar.quantities import ago, duration
from kestrelctl.local.other_servers import parse_domain
from kestrelctl.protocol.answers import FlockPong, FlockStatus, Neighbours
from kestrelctl.protocol.requests import (
    AskFlock,
    ForgetPool,
    JoinFlock,
    LeaveFlock,
    ListNeighbours,
    PingPool,
)
from kestrelctl.protocol.views import FlockView, LoanView, NeighbourView

PING_SECONDS = 15.0


@click.group("flock", cls=Noun)
def flock() -> None:
    """Share idle machines with other pools, by rules that you set."""


flock.add_command(policy)


@flock.command("status", cls=CliCommand)
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show what the pool lends to its flock, and what others lend it."""

    async def work(connection: Connection) -> CommandOutput:
        answer = await ask(connection, AskFlock(), FlockStatus)
        return report(answer.flock, invocation.now())

    invocation.talk(work)


def report(found: FlockView, now: float) -> Record:
    """Reports the state of a pool in its flock."""
    member = "in no flock: it knows no other pool"
    if found.member:
        # It joins through these at each start; some of them may never have answered.
        through = ", ".join(found.joined_through)
        member = f"a member, joins through {through}" if through else "a member"
    lends = free_words(found.free) if found.free else "nothing free now"
    blocks: list[str | tuple[str, str] | Table] = [
        ("pool", found.pool),
        ("flock", member),
        (
            "knows",
            f"{plural(found.known, 'pool')}: {found.routing_table:,} in its routing table, "
            f"{found.leaf_set:,} in its leaf set",
        ),
        ("lends", lends if found.willing else f"nothing: {found.why_unwilling}"),
        (
            "guests",
            f"{plural(found.guests_today, 'task')} of other pools run today, "
            f"{found.guests_total:,} since the manager started",
        ),
        ("announcements", f"{found.sent:,} sent, {found.received:,} received{_dropped(found)}"),
    ]
    for title, loans in (("LENT TO", found.given), ("LENT BY", found.taken)):
        if loans:
            blocks += ["", _loans(title, loans, now)]
    return Record(found.pool, plain(found), blocks)


def _dropped(found: FlockView) -> str:
    if not found.dropped:
        return ""
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(found.dropped.items()))
    return f", {sum(found.dropped.values()):,} dropped ({reasons})"


def _loans(title: str, loans: list[LoanView], now: float) -> Table:
    headings = [
        (title, False),
        ("CLASS", False),
        ("CPUS", True),
        ("RUNNING", True),
        ("SINCE", True),
        ("ENDS IN", True),
    ]
    return Table(
        headings,
        [
            [
                loan.pool,
                loan.loan,
                f"{loan.amounts.get('cpus', 0.0):g}",
                f"{loan.running:,}",
                ago(loan.since, now),
                duration(max(0.0, loan.until - now)),
            ]
            for loan in loans
        ],
    )


@flock.command("pools", cls=CliCommand)
@pass_invocation
def pools(invocation: Invocation) -> None:
    """List the other pools that this one knows, the nearest first."""

    async def work(connection: Connection) -> CommandOutput:
        found = [view async for page in _pages(connection) for view in page]
        found.sort(key=lambda view: (view.round_trip_seconds is None, view.round_trip_seconds or 0))
        columns: list[Column[NeighbourView]] = [
            Column("POOL", lambda view: view.pool),
            Column("STATE", lambda view: view.state),
            Column("ROUND TRIP", lambda view: round_trip(view.round_trip_seconds), right=True),
            Column("HEARD AGO", lambda view: duration(view.heard_ago_seconds), right=True),
            Column("FREE", lambda view: free_words(view.classes) or "-"),
            Column("LENDS TO US", lambda view: _verdict(view.may_borrow, view.why_not_borrow)),
            Column("BORROWS", lambda view: _verdict(view.may_lend, view.why_not_lend)),
        ]
        return Listing(found, columns, lambda view: view.pool, nothing="no other pool is known")

    invocation.talk(work)


async def _pages(connection: Connection) -> AsyncIterator[list[NeighbourView]]:
    request = ListNeighbours()
    page = await ask(connection, request, Neighbours)
    yield page.pools
    while page.after is not None:
        page = await ask(connection, replace(request, after=page.after), Neighbours)
        yield page.pools


def _verdict(allowed: bool, why_not: str) -> str:
    return "yes" if allowed else f"no: {why_not}"


@flock.command("join", cls=CliCommand)
@click.argument("domain")
@pass_invocation
def join(invocation: Invocation, domain: str) -> None:
    """Join the flock that the pool DOMAIN is in, now and after each restart. For admins."""
    wanted = parse_domain(domain)

    async def work(redial: Redial) -> CommandOutput:
        done = await redial.change(JoinFlock(domain=wanted), twice=True)
        [through] = done.what
        line = f"joining through {through}; `kestrelctl flock status` tells how far that is"
        return Record(through, {"changed": done.what}, [line])

    invocation.talk_again(work, as_admin=True)


@flock.command("forget", cls=CliCommand)
@click.argument("domain")
@pass_invocation
def forget(invocation: Invocation, domain: str) -> None:
    """Forget the pool DOMAIN, say after a mistyped join. For admins.

    The pool stays in the flock if it knows another pool of it.
    """
    wanted = parse_domain(domain)

    async def work(redial: Redial) -> CommandOutput:
        done = await redial.change(ForgetPool(domain=wanted), twice=False)
        [through] = done.what
        line = f"no longer joining through {through}"
        return Record(through, {"changed": done.what}, [line])

    invocation.talk_again(work, as_admin=True)


@flock.command("leave", cls=CliCommand)
@pass_invocation
def leave(invocation: Invocation) -> None:
    """Leave the flock. What runs for others here, and for this pool elsewhere, may end. For admins.

    Tasks that do not end run again at home.
    """

    async def work(redial: Redial) -> CommandOutput:
        done = await redial.change(LeaveFlock(), twice=True)
        return Record("left", {"changed": done.what}, ["the pool has left its flock"])

    invocation.talk_again(work, as_admin=True)


@flock.command("ping", cls=CliCommand)
@click.argument("domain")
@pass_invocation
def ping(invocation: Invocation, domain: str) -> None:
    """Ask the manager of the pool DOMAIN for an answer, and tell how long it took. For admins."""
    wanted = parse_domain(domain)

    async def work(connection: Connection) -> CommandOutput:
        pong = await ask(connection, PingPool(domain=wanted), FlockPong, PING_SECONDS)
        data = {"pool": pong.pool, "seconds": pong.seconds}
        return Record(pong.pool, data, [f"{pong.pool} answers in {round_trip(pong.seconds)}"])

    invocation.talk(work, as_admin=True)
