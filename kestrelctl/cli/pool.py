"""`kestrelctl pool …`."""

from __future__ import annotations

import click

from kestrelctl.cli.command import Noun, Session, pass_session
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.output import Output, Record, plain
from kestrelctl.cli.quantities import duration, size
from kestrelctl.protocol.answers import Pool
from kestrelctl.protocol.requests import PoolStatus


@click.group("pool", cls=Noun)
def pool() -> None:
    """See how the pool is."""


@pool.command("status")
@pass_session
def status(session: Session) -> None:
    """The pool in numbers."""

    async def work(connection: Connection) -> Output:
        return report(await ask(connection, PoolStatus(), Pool))

    session.talk(work)


def report(found: Pool) -> Record:
    """A pool, for people and for programs."""
    blocks = [
        ("store", f"FAILING: {found.store_error}" if found.store_error else ""),
        ("workers", _counts(found.workers)),
        ("jobs", f"{found.jobs_active:,} active"),
        ("tasks", f"{found.tasks_waiting:,} waiting, {found.tasks_running:,} running"),
        ("so far", _counts(found.totals)),
        ("manager", f"{found.version}, up {duration(found.up_seconds)}, epoch {found.epoch}"),
        ("manager uses", f"{duration(found.manager_cpu_seconds)} of CPU, {_size(found)}"),
        ("commits", f"{found.commits:,}, {duration(found.commit_seconds_mean)} each"),
    ]
    data = {name: plain(getattr(found, name)) for name in Pool.__struct_fields__ if name != "id"}
    return Record("ok" if not found.store_error else "store-error", data, blocks)


def _counts(numbers: dict[str, int]) -> str:
    words = (f"{n:,} {name.replace('_', ' ')}" for name, n in numbers.items() if n)
    return ", ".join(words) or "none"


def _size(found: Pool) -> str:
    return size(found.manager_rss_bytes) or "0 B"
