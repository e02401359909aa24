"""`kestrelctl fleet bundle`: an archive of what helps to find a fault, without any secret."""

from __future__ import annotations

import asyncio
import functools
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.fleet.hosts import choose, host_options
from kestrelctl.cli.show.command_output import Record
from kestrelctl.core.model.wording import plural
from kestrelctl.grammar.click_types import FilePath
from kestrelctl.grammar.deadline_words import Since, parse_since
from kestrelctl.grammar.quantities import parse_size, size


@click.command("bundle", cls=CliCommand, talks=False)
@host_options
@click.option(
    "-d",
    "--destination",
    type=FilePath(),
    metavar="FILE.tar.gz",
    help="Archive to write.  [default: kestrel-bundle-TIME.tar.gz here]",
)
@click.option(
    "--since",
    type=parse_since,
    default="24h",
    show_default=True,
    metavar="TIME|DATE",
    help="Time that the journals go back, or their first date: 6h, 2026-11-01.",
)
@click.option(
    "--journal-size",
    "journal_bytes",
    type=parse_size,
    default="1M",
    show_default=True,
    metavar="SIZE",
    help="Size of the journal of one service at most.",
)
@pass_invocation
def bundle(
    invocation: Invocation,
    /,
    destination: Path | None,
    since: Since,
    journal_bytes: int,
    **chosen: Any,
) -> None:
    """Collect what helps to find a fault.

    Versions, configuration, journals and states of all hosts; no secrets.
    """
    from kestrelctl.fleet.bundle import Archive, collect_from

    fleet = choose(invocation, **chosen)
    made_at = invocation.now()
    hours = (made_at - since.moment(made_at)) / 3600
    stamp = datetime.fromtimestamp(made_at).strftime("%Y%m%d-%H%M%S")
    path = destination or Path(f"kestrel-bundle-{stamp}.tar.gz")
    archive = Archive(path, made_at=made_at)
    collect = functools.partial(collect_from, hours=hours, journal_bytes=journal_bytes)

    async def work() -> None:
        async for outcome in fleet.each(collect):
            if outcome.value is not None:
                archive.add(outcome.host, outcome.value)
            elif outcome.error is not None:
                archive.add_failure(outcome.host, outcome.error)

    try:
        asyncio.run(work())
    finally:
        archive.close()
    hosts = [host.name for host in fleet.hosts if host.name not in fleet.failed]
    data = {"file": str(path), "bytes": path.stat().st_size, "hosts": hosts}
    summary = f"{path}: {plural(len(hosts), 'host')}, {size(path.stat().st_size)}"
    asyncio.run(invocation.show(Record(str(path), data, [summary])))
    fleet.judge()
