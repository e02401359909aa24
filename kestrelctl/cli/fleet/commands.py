"""`kestrelctl fleet …`: the hosts of a pool, over SSH."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.fleet.bundle import bundle
from kestrelctl.cli.fleet.hosts import choose, data_of, host_options, in_order, reason, state_of
from kestrelctl.cli.fleet.logs import logs
from kestrelctl.cli.fleet.restart import restart
from kestrelctl.cli.show.command_output import CommandOutput, Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.cli.show.screen import Screen
from kestrelctl.core.model.wording import one_line, plural
from kestrelctl.errors import KestrelError
from kestrelctl.grammar.quantities import duration, parse_duration, size

if TYPE_CHECKING:
    from kestrelctl.fleet.fan_out import HostOutcome
    from kestrelctl.fleet.shell import Ran, Shell
    from kestrelctl.fleet.status import HostStatus
    from kestrelctl.fleet.units import Unit


@click.group("fleet", cls=Noun)
def fleet() -> None:
    """Inspect and restart the hosts of an Ansible inventory.

    The hosts are reached over SSH.
    """


@fleet.command("status", cls=CliCommand, talks=False)
@host_options
@pass_invocation
def status(invocation: Invocation, /, **chosen: Any) -> None:
    """Show the state of each host.

    Its services, version, disk, load, clock and certificates.
    """
    from kestrelctl.fleet.status import HostStatus, status_of

    hosts = choose(invocation, **chosen)
    ask = partial(status_of, clock=invocation.now)
    pages = in_order(hosts.each(ask, trouble=_failed_unit), invocation.screen.mode)
    columns = status_columns(invocation.now())
    listing = Listing(pages, columns, lambda o: o.host, nothing="no hosts")
    asyncio.run(invocation.show(AsData(listing, HostStatus)))
    hosts.judge()


@fleet.command("run", cls=CliCommand, talks=False)
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@host_options
@click.option(
    "--timeout",
    "timeout_seconds",
    type=parse_duration,
    metavar="DURATION",
    help="End the command after this time: 90 (seconds), 15m, 1h.  [default: never]",
)
@click.option("--sudo", is_flag=True, help="Run as root, through sudo.")
@pass_invocation
def run(
    invocation: Invocation,
    /,
    command: tuple[str, ...],
    timeout_seconds: float | None,
    sudo: bool,
    **chosen: Any,
) -> None:
    """Run a command on every host.

    It has no shell, no terminal and no standard input.
    """

    def execute(shell: Shell) -> Ran:
        as_root = sudo or shell.host.become
        words = shlex.join(command)
        return shell.run(words, as_root=as_root, timeout_seconds=timeout_seconds)

    hosts = choose(invocation, **chosen)
    asyncio.run(invocation.show(Runs(hosts.each(execute, trouble=_exit_status))))
    hosts.judge()


for _command in (logs, restart, bundle):
    fleet.add_command(_command)


class AsData(CommandOutput):
    """A listing of outcomes whose data are flat objects."""

    many = True

    def __init__(self, listing: Listing[HostOutcome[Any]], kind: type[Any]) -> None:
        self._listing = listing
        self._kind = kind

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        from kestrelctl.fleet.fan_out import HostOutcome

        async for name, outcome in self._listing.entries():
            assert isinstance(outcome, HostOutcome)
            yield name, data_of(outcome, self._kind)

    async def tabulate(self, screen: Screen) -> None:
        await self._listing.tabulate(screen)


class Runs(CommandOutput):
    """The output of a command on each host, in the order in which the hosts finished it."""

    many = True

    def __init__(self, outcomes: AsyncIterator[HostOutcome[Ran]]) -> None:
        self._outcomes = outcomes

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        from kestrelctl.fleet.shell import Ran

        async for outcome in self._outcomes:
            yield outcome.host, data_of(outcome, Ran)

    async def tabulate(self, screen: Screen) -> None:
        async for outcome in self._outcomes:
            ran, error = outcome.value, outcome.error
            failed = state_of(error) if ran is None else f"status {ran.status}"
            header = f"==> {outcome.host}{'' if ran and not ran.status else f': {failed}'} <==\n"
            out = "" if ran is None else ran.stdout
            screen.write_bytes((header + out + _end_of_line(out)).encode(errors="replace"))
            err = reason(error) if error is not None else ran.stderr if ran is not None else ""
            lines = map(one_line, err.splitlines())
            errors = "".join(f"{outcome.host}: {line}\n" for line in lines)
            screen.write_error_bytes(errors.encode(errors="replace"))


def status_columns(now: float) -> list[Column[HostOutcome[HostStatus]]]:
    """The columns of a table of hosts."""
    return [
        Column("HOST", lambda o: o.host),
        Column("STATE", lambda o: state_of(_trouble(o))),
        Column("VERSION", lambda o: o.value.version if o.value else ""),
        Column("LOAD", lambda o: _load(o.value) if o.value else "", right=True),
        Column("DISK FREE", lambda o: _disk(o.value) if o.value else "", right=True),
        Column("CLOCK", lambda o: _clock(o.value) if o.value else "", right=True),
        Column("CERTIFICATE", lambda o: _certificate(o.value, now) if o.value else ""),
        Column("SERVICES", lambda o: _services(o, now)),
    ]  # fmt: skip


def _trouble(outcome: HostOutcome[HostStatus]) -> KestrelError | None:
    return _failed_unit(outcome.value) if outcome.value is not None else outcome.error


def _failed_unit(found: HostStatus) -> KestrelError | None:
    failed = [unit.name for unit in found.units if unit.state == "failed"]
    if not failed:
        return None
    hint = f"kestrelctl fleet logs --unit {failed[0]}"
    return KestrelError(f"{', '.join(failed)} has failed", hint=hint)


def _exit_status(ran: Ran) -> KestrelError | None:
    if not ran.status:
        return None
    lines = ran.stderr.strip().splitlines()
    return KestrelError(f"exit status {ran.status}", cause=lines[-1] if lines else None)


def _load(found: HostStatus) -> str:
    return "" if found.load is None else f"{found.load:.2f}/{found.cpus}"


def _disk(found: HostStatus) -> str:
    free = found.disk_free_bytes
    return "" if free is None else size(free) or "0 B"


def _clock(found: HostStatus) -> str:
    """Says how far the clock is ahead; only the error of the measurement, if that is not less."""
    offset = found.clock_offset_seconds
    if abs(offset) <= found.clock_error_seconds:
        return f"±{duration(found.clock_error_seconds)}"
    return f"{'+' if offset > 0 else '-'}{duration(abs(offset))}"


def _certificate(found: HostStatus, now: float) -> str:
    if not found.certificates:
        return ""
    left = min(certificate.expires_at for certificate in found.certificates) - now
    return f"{duration(left)} left" if left > 0 else f"expired {duration(-left)} ago"


def _services(outcome: HostOutcome[HostStatus], now: float) -> str:
    if outcome.error is not None:
        return reason(outcome.error)
    units = outcome.value.units if outcome.value is not None else []
    return ", ".join(_service(unit, now) for unit in units)


def _service(unit: Unit, now: float) -> str:
    since = f" {duration(max(0.0, now - unit.since))}" if unit.since is not None else ""
    restarts = f" ({plural(unit.restarts, 'restart')})" if unit.restarts else ""
    return f"{unit.name} {unit.state}{since}{restarts}"


def _end_of_line(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"
