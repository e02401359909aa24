"""`kestrelctl doctor`: looks at all that lies between a command and its pool."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import stat
import time
from collections.abc import AsyncIterator

import click
import msgspec

from kestrelctl.access.connection import Connection, ask
from kestrelctl.access.context import Account, Context, read_password
from kestrelctl.checkout import own_version
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError, Unreachable
from kestrelctl.grammar.quantities import size
from kestrelctl.local.pool_state import pools_directory
from kestrelctl.protocol.answers import PoolSummary, Traffic
from kestrelctl.protocol.requests import PoolStatus, PoolTraffic

GOOD, DOUBTFUL, BAD = "ok", "look", "bad"
#: Checks without which the pool is not reached.
ON_THE_WAY = ("configuration", "password", "server", "login")
#: The longest time to wait for a server's port.
CONNECT_SECONDS = 5.0
#: Clocks of manager and this machine may differ by so much.
CLOCK_SECONDS = 5.0
#: A disk with less free space is doubtful, and one with less than the second is bad.
LITTLE_BYTES, TOO_LITTLE_BYTES = 1 << 30, 100 << 20


class Check(msgspec.Struct, frozen=True):
    """Something that was looked at.

    Attributes:
        state: `ok`, `look` (works, and may not for long) or `bad`.
        found: what there is.
        hint: what to do about it; empty if nothing.
    """

    what: str
    state: str
    found: str
    hint: str = ""


@click.command("doctor", cls=CliCommand, examples=("kestrelctl doctor",))
@pass_invocation
def doctor(invocation: Invocation) -> None:
    """Check the way to the pool, and the pool.

    Each check has a line, with a hint where something is to be done: the configuration, the
    server's name and port, encryption and account, versions, clocks, the manager's store, workers,
    and the disk of this machine. The exit status is 5 if the pool cannot be reached, and 1 if
    something else is bad.
    """
    columns: list[Column[Check]] = [
        Column("CHECK", lambda each: each.what),
        Column("STATE", lambda each: each.state),
        Column("FOUND", lambda each: each.found),
        Column("HINT", lambda each: each.hint, sparse=True),
    ]

    async def work() -> list[Check]:
        found = [check async for check in checks(invocation)]
        listing = Listing(found, columns, lambda each: each.what, nothing="nothing to check")
        await invocation.show(listing)
        return found

    bad = [check for check in asyncio.run(work()) if check.state == BAD]
    if bad:
        kind = Unreachable if bad[0].what in ON_THE_WAY else KestrelError
        raise kind(
            f"{plural(len(bad), 'check')} failed: {', '.join(check.what for check in bad)}",
            hint=bad[0].hint or None,
        )


async def checks(invocation: Invocation) -> AsyncIterator[Check]:
    """Yields the checks in order; after one without which the rest means nothing, only the disk."""
    try:
        context = invocation.find_context(invocation.pool)
    except KestrelError as error:
        yield _failed("configuration", error)
        yield disk()
        return
    where = f"{context.pool} at {context.host}:{context.port}, as {context.user.jid}"
    yield Check("configuration", GOOD, f"{context.name}: {where}")
    yield password(context.user)
    reached = await port(context)
    yield reached
    if reached.state != BAD:
        async for check in _inside(invocation, context):
            yield check
    yield disk()


def password(account: Account) -> Check:
    """Checks that the password is there, and is nobody else's."""
    file = account.password_file
    if file is None:
        try:
            read_password(account)
        except KestrelError as error:
            return Check("password", BAD, error.message, error.hint or "")
        return Check("password", GOOD, "in the system's keyring")
    try:
        state = file.stat()
        readable = bool(file.read_text().partition("\n")[0].strip())
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        return Check("password", BAD, f"{file}: {why}", "its first line is the password")
    if not readable:
        return Check("password", BAD, f"{file} is empty", "its first line is the password")
    if state.st_mode & (stat.S_IRGRP | stat.S_IROTH) and not file.is_relative_to("/etc/kestrel"):
        return Check(
            "password", DOUBTFUL, f"others can read {file}", f"chmod 600 {shlex.quote(str(file))}"
        )
    return Check("password", GOOD, str(file))


async def port(context: Context) -> Check:
    """Checks that the server's name has an address, and that its port is open."""
    from kestrelctl.xmpp.stream import NEXT_ADDRESS_SECONDS

    place = f"{context.host}:{context.port}"
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(context.host, context.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Check("server", BAD, f"{context.host} has no address: {why}", context.hint)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(
                context.host, context.port, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
            )
        writer.close()
    except TimeoutError:
        hint = "a firewall, perhaps; see `host` and `port` of the context"
        return Check("server", BAD, f"{place} does not answer", hint)
    except OSError as error:
        # of several addresses, each with a reason of its own, the error has no number
        why = os.strerror(error.errno) if error.errno else str(error)
        return Check("server", BAD, f"{place}: {why}", context.hint)
    return Check("server", GOOD, f"{place} ({addresses[0][4][0]}) answers")


async def _inside(invocation: Invocation, context: Context) -> AsyncIterator[Check]:
    """Yields what a session with the pool shows."""
    try:
        async with invocation.open_pool(invocation.pool) as connection:
            how = "over TLS" if context.tls else "in the clear, on this machine"
            yield Check("login", GOOD, f"{context.user.jid}, {how}")
            async for check in _of_pool(connection):
                yield check
    except KestrelError as error:
        yield _failed("login", error)


async def _of_pool(connection: Connection) -> AsyncIterator[Check]:
    try:
        asked_at = time.time()
        traffic = await ask(connection, PoolTraffic(), Traffic)
        answered_at = time.time()
        status = await ask(connection, PoolStatus(), PoolSummary)
    except KestrelError as error:
        yield _failed("manager", error)
        return
    yield manager(status, own_version())
    yield clock(traffic.at, asked_at, answered_at)
    yield store(status)
    yield workers(status)


def manager(status: PoolSummary, own: str) -> Check:
    """Compares the manager's version with that of this program."""
    if status.version.partition("+")[0] == own.partition("+")[0]:
        return Check("manager", GOOD, f"version {status.version}")
    found = f"version {status.version}, and this program is {own}"
    return Check("manager", DOUBTFUL, found, "install the version that the manager has")


def clock(at: float, asked_at: float, answered_at: float) -> Check:
    """Compares the manager's clock with that of this machine.

    Args:
        at: what the manager said, seconds since the epoch.
        asked_at, answered_at: when it was asked and had answered, by this machine.
    """
    off = max(asked_at - at, at - answered_at, 0.0)
    if off <= CLOCK_SECONDS:
        return Check("clock", GOOD, "the manager's and this machine's agree")
    found = f"the manager's and this machine's differ by {off:,.0f} s"
    return Check("clock", DOUBTFUL, found, "set the wrong one: timedatectl status")


def store(status: PoolSummary) -> Check:
    """Checks that the manager can write, and has lost nothing."""
    if status.store_error:
        hint = "nothing is accepted until it can be written: free space there"
        return Check("store", BAD, status.store_error, hint)
    if status.store_notes:
        hint = "kestrelctl pool status shows all notes"
        return Check("store", DOUBTFUL, status.store_notes[0], hint)
    return Check("store", GOOD, "the manager can write it")


def workers(status: PoolSummary) -> Check:
    """Checks that there is somebody to work, and that nobody is in quarantine."""
    online = sum(n for state, n in status.workers.items() if state not in ("offline", "unheard"))
    if not online:
        return Check("workers", BAD, "none is online", "kestrelctl worker list")
    if status.quarantined:
        names = ", ".join(each.worker.partition("@")[0] for each in status.quarantined[:3])
        found = f"{plural(online, 'worker')} online; in quarantine: {names}"
        return Check("workers", DOUBTFUL, found, "kestrelctl worker list says why")
    return Check("workers", GOOD, f"{plural(online, 'worker')} online")


def disk() -> Check:
    """Checks the space where this machine keeps pools, and what is fetched."""
    place = pools_directory()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    state = GOOD if free >= LITTLE_BYTES else DOUBTFUL if free >= TOO_LITTLE_BYTES else BAD
    hint = "" if state == GOOD else "free some: the store of a pool of this machine is there, too"
    return Check("disk", state, f"{size(free) or '0 B'} free at {place}", hint)


def _failed(what: str, error: KestrelError) -> Check:
    found = f"{error.message}: {error.cause}" if error.cause else error.message
    return Check(what, BAD, found, error.hint or "")
