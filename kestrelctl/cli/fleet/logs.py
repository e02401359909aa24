"""`kestrelctl fleet logs`: the journals of many hosts as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.fleet.hosts import Fleet, choose, host_options, reason
from kestrelctl.cli.show.command_output import CommandOutput
from kestrelctl.cli.show.grid import aligned, text_width
from kestrelctl.cli.show.screen import BOLD, CYAN, RED, Screen
from kestrelctl.core.model.wording import one_line
from kestrelctl.errors import KestrelError
from kestrelctl.grammar.click_types import WholeNumber

if TYPE_CHECKING:
    from kestrelctl.fleet.journal import Entry
    from kestrelctl.fleet.shell import Shell

_ERROR = 3  # LOG_ERR of syslog(3)
_NEWEST = 100
_TIMEOUT_SECONDS = 120


@click.command("logs", cls=CliCommand, talks=False)
@host_options
@click.option("-f", "--follow", is_flag=True, help="Go on as they write more, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=WholeNumber(0),
    metavar="N",
    help="Number of lines of each host, the newest.  [default: 100; with --since, all]",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Time of the first line, as for journalctl: 09:30, yesterday, '-1h'.",
)
@click.option(
    "--unit",
    "units",
    multiple=True,
    metavar="UNIT",
    help="Service of systemd; repeatable.  [default: kestrel-manager, kestrel-worker]",
)
@pass_invocation
def logs(
    invocation: Invocation,
    /,
    follow: bool,
    lines: int | None,
    since: str | None,
    units: tuple[str, ...],
    **chosen: Any,
) -> None:
    """Print the journals of the services of all hosts, by time."""
    from kestrelctl.fleet.journal import journal_command
    from kestrelctl.fleet.units import KESTREL_UNITS

    newest = lines if lines is not None or since else _NEWEST
    command = journal_command(units or KESTREL_UNITS, lines=newest, since=since, follow=follow)

    fleet = choose(invocation, **chosen)
    if follow:
        invocation.screen.write_lines_at_once()
        entries = _following(fleet, command, invocation.screen)
    else:
        entries = _merged(fleet, command)
    asyncio.run(
        invocation.show(Journal(entries, max(text_width(host.name) for host in fleet.hosts)))
    )
    fleet.judge()


class Journal(CommandOutput):
    """Journal entries of several hosts."""

    many = True

    def __init__(self, found: AsyncIterator[Entry], width: int) -> None:
        """Args:
        width: the width of the longest name of a host.
        """
        self._entries = found
        self._width = width

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        async for entry in self._entries:
            yield entry.message, entry

    async def tabulate(self, screen: Screen) -> None:
        async for entry in self._entries:
            for line in entry_lines(entry, self._width, screen):
                screen.write(line + "\n")


def entry_lines(entry: Entry, width: int, screen: Screen) -> list[str]:
    """Shows an entry: each line of its message after the host, the time and the service."""
    host = screen.paint(CYAN, aligned(entry.host, width))
    at = datetime.fromtimestamp(entry.at).isoformat(" ", "milliseconds")
    service = entry.unit + (f"[{entry.pid}]" if entry.pid is not None else "")
    color = RED + BOLD if entry.priority <= _ERROR else None
    lines = [one_line(line) for line in entry.message.splitlines() or [""]]
    shown = [screen.paint(color, line) if color else line for line in lines]
    return [f"{host}  {at}  {service}: {line}".rstrip() for line in shown]


async def _merged(fleet: Fleet, command: str) -> AsyncIterator[Entry]:
    """Yields the entries of all hosts by time."""

    def work(shell: Shell) -> list[Entry]:
        found: list[Entry] = []
        _read(shell, command, found.append, _TIMEOUT_SECONDS)
        return found

    everything: list[Entry] = []
    async for outcome in fleet.each(work):
        everything += outcome.value or []
    for entry in sorted(everything, key=lambda entry: entry.at):
        yield entry


async def _following(fleet: Fleet, command: str, screen: Screen) -> AsyncIterator[Entry]:
    """Yields the entries of all hosts as they are written."""
    from kestrelctl.fleet.fan_out import HostOutcome, stream

    def work(shell: Shell, say: Callable[[Entry], None]) -> None:
        _read(shell, command, say, None)

    events = stream(fleet.hosts, fleet.connect, work, at_once=len(fleet.hosts))
    async with contextlib.aclosing(events):
        async for event in events:
            if not isinstance(event, HostOutcome):
                yield event.what
            elif event.error is not None:
                fleet.note(event.host, event.error)
                screen.warn(f"nothing more from {event.host}", cause=reason(event.error))


def _read(
    shell: Shell, command: str, say: Callable[[Entry], None], timeout_seconds: float | None
) -> None:
    from kestrelctl.fleet.journal import read_entry

    def on_line(line: str) -> None:
        entry = read_entry(shell.host.name, line)
        if entry is not None:
            say(entry)

    ran = shell.run(command, on_line=on_line, timeout_seconds=timeout_seconds)
    if ran.status:
        raise KestrelError("journalctl failed", cause=_last_line(ran.stderr))


def _last_line(text: str) -> str | None:
    lines: Sequence[str] = text.strip().splitlines()
    return lines[-1] if lines else None
