"""`kestrelctl worker enroll`, `join` and `revoke`: machines that become workers by a token."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import MAY_BE_EMPTY, CliCommand, Invocation, pass_invocation
from kestrelctl.cli.manager.metrics_options import metrics_allow
from kestrelctl.cli.redial import Redial
from kestrelctl.cli.show.changed import Changes
from kestrelctl.cli.show.command_output import CommandOutput, Record
from kestrelctl.cli.worker.aggregate import aggregate_options
from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import parse_digits, parse_duration
from kestrelctl.protocol.answers import Enrolled
from kestrelctl.protocol.requests import EnrollWorker, RevokeWorkers
from kestrelctl.protocol.workers import Token, decode_token

if TYPE_CHECKING:
    from kestrelctl.worker.joined_pools import Membership


@click.command("enroll", cls=CliCommand)
@click.option("--name", default="", help="Name of the worker.  [default: the machine chooses]")
@click.option(
    "--expires",
    "valid_seconds",
    type=parse_duration,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Time for which the token is valid, from 1m to 30d.",
)
@click.option(
    "--server",
    default="",
    metavar="HOST[:PORT]",
    help="Address of the server, as the other machine finds it.  [default: as this one does]",
)
@pass_invocation
def enroll(invocation: Invocation, name: str, valid_seconds: float, server: str) -> None:
    """Let a machine join as a worker: print the command to run there. For admins.

    The command holds a token, which is valid for one machine until it expires. Keep it secret:
    anybody who has it can join.
    """
    from kestrelctl.core.model.names import is_loopback

    context = invocation.find_context(invocation.pool)
    host, port = _address(server, context.host, context.port)

    async def work(connection: Connection) -> CommandOutput:
        request = EnrollWorker(name=name, valid_seconds=valid_seconds)
        enrolled = await ask(connection, request, Enrolled)
        token = Token(
            host=host,
            port=port,
            tls=context.tls or not is_loopback(host),
            pool=context.pool,
            jid=enrolled.jid,
            password=enrolled.password,
            ca=_read(context.ca_file),
        ).encode()
        until = datetime.fromtimestamp(enrolled.expires_at, UTC)
        data = {"token": token, "jid": enrolled.jid, "expires_at": enrolled.expires_at}
        invocation.screen.say(f"run this on the other machine, once, until {until:%F %T} UTC:")
        if is_loopback(host):
            invocation.screen.say(f"(only on this one: the server is at {host}; see --server)")
        return Record(token, data, [f"kestrelctl worker join {token}"])

    invocation.talk(work, as_admin=True)


@click.command("revoke", cls=CliCommand)
@click.argument("names", nargs=-1, required=True, metavar="NAMES...")
@pass_invocation
def revoke(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Delete workers' accounts: they are ended and cannot come back. For admins.

    NAMES are whole names or addresses, not parts of them. A token that was not used yet is
    withdrawn by the name of its account. What the workers ran is run again elsewhere.
    """

    async def work(redial: Redial) -> CommandOutput:
        request = RevokeWorkers(names=list(names))
        return Changes(await redial.change(request, twice=False), "revoked", "worker")

    invocation.talk_again(work, as_admin=True)


@click.command(
    "join",
    cls=CliCommand,
    talks=False,
    option_sections={
        "What it offers": "name service cpus memory asset tags attribute sessions start",
        "Tasks and their files": "isolation share",
        "How it works": "pull metrics metrics-allow log-format",
    },
)
@click.argument("token")
@click.option(
    "--name", default="", help="Name of the worker.  [default: the token's, or the host name]"
)
@aggregate_options
@click.option(
    "--any-workdir",
    is_flag=True,
    hidden=True,
    help="As of `worker run`: for an environment of a worker that has it.",
)
@click.option(
    "--service",
    is_flag=True,
    help="Run the worker as a service of systemd, now and after each boot.",
)
@click.option(
    "--metrics",
    type=MAY_BE_EMPTY,
    default=None,
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus at this address; '' for none.  [default: 127.0.0.1:9438 "
    "with --service, else off]",
)
@metrics_allow
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log on standard error.",
)
@pass_invocation
def join(
    invocation: Invocation,
    /,
    token: str,
    name: str,
    service: bool,
    metrics: str | None,
    metrics_allow: tuple[str, ...],
    log_format: str,
    tags: tuple[str, ...],
    isolation: str,
    shares: tuple[Path, ...],
    **offered: Any,
) -> int:
    """Make this machine a worker, by a TOKEN of the pool, and run it.

    A command line can be seen by others on the machine, and stays in the shell's history. `-` for
    TOKEN reads it from standard input. The account is kept, so `kestrelctl worker run` is enough
    from then on.
    """
    from kestrelctl.core.members.enrollment import as_name, parse_invitation
    from kestrelctl.local.pool_state import workers_directory
    from kestrelctl.metrics.endpoint import check_free
    from kestrelctl.worker import entry, joined_pools, systemd_unit
    from kestrelctl.worker.options import WorkerOptions
    from kestrelctl.xmpp import joiner

    found = decode_token(sys.stdin.read() if token == "-" else token)
    invitation = parse_invitation(found.jid.partition("@")[0])
    if not name and (invitation is None or not invitation.name):
        name = as_name(socket.gethostname())
    here = joined_pools.Membership(workers_directory(), found.pool)
    settings = joined_pools.Settings(
        pool=found.pool,
        host=found.host,
        port=found.port,
        tls=found.tls,
        tags=tags,
        isolation=isolation,
        shares=tuple(str(share.absolute()) for share in shares),
        metrics=metrics,
        metrics_allow=metrics_allow,
        **offered,
    )
    system = os.geteuid() == 0
    if service:
        systemd_unit.check_possible(system=system)
    served = systemd_unit.METRICS if service and metrics is None else metrics
    if served:
        check_free(served)
    here.prepare(found.ca)
    joined = asyncio.run(joiner.join(found, name, ca_file=here.ca_file))
    here.store(settings, joined.jid, joined.password)
    invocation.screen.say(f"joined {found.pool} as {joined.jid}; kept in {here.directory}")
    if not service:
        if system:
            invocation.screen.warn(
                "this worker runs as root, and so do the tasks that it gets",
                hint="--service gives it a user of its own",
            )
        return entry.run(
            WorkerOptions(
                **here.options(),
                log_format=log_format,
                verbose=invocation.screen.verbose,
            )
        )
    _leave_to_systemd(invocation, here, system=system)
    return 0


@click.command("service", cls=CliCommand, talks=False)
@click.option(
    "--pool",
    metavar="DOMAIN",
    help="Pool whose worker is meant, if this machine has joined several.",
)
@pass_invocation
def service(invocation: Invocation, /, pool: str | None) -> None:
    """Run a worker that has joined as a service of systemd, now and after each boot.

    If it has a service already, the unit is written anew, as of this version, and restarted, which
    lets running tasks end before.
    """
    from kestrelctl.local.pool_state import workers_directory
    from kestrelctl.worker import joined_pools, systemd_unit

    system = os.geteuid() == 0
    systemd_unit.check_possible(system=system)
    here = joined_pools.joined(workers_directory(), pool)
    _leave_to_systemd(invocation, here, system=system)


def _leave_to_systemd(invocation: Invocation, here: Membership, *, system: bool) -> None:
    from kestrelctl.worker import systemd_unit

    status = systemd_unit.install(here, here.settings(), system=system)
    data = {"jid": here.account(), "status": status}
    asyncio.run(invocation.show(Record(data["jid"], data, [status])))
    for_root = None if system else systemd_unit.linger()
    if for_root:
        invocation.screen.warn("the worker stops when you log out", hint=f"sudo {for_root}")


def _address(server: str, host: str, port: int) -> tuple[str, int]:
    """Reads the server's address for the other machine: `HOST`, `HOST:PORT` or `[IPv6]:PORT`."""
    if not server:
        return host, port
    bracketed, _, after = server.removeprefix("[").partition("]")
    if server.startswith("["):
        found, given = bracketed, after.removeprefix(":")
    elif server.count(":") > 1:
        found, given = server, ""
    else:
        found, _, given = server.partition(":")
    wanted = parse_digits(given, 65535) if given else port
    if not found or not wanted:
        raise UsageError(
            f"{server[:80]!r} is no address", hint="write HOST, HOST:PORT or [IPv6]:PORT"
        )
    return found, wanted


def _read(ca_file: Path | None) -> str:
    if ca_file is None:
        return ""
    try:
        return ca_file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"the CA file {ca_file} cannot be read", cause=why) from None
