"""`kestrelctl pool …`."""

from __future__ import annotations

import asyncio

import click

from kestrelctl.cli.command import Invocation, Noun, pass_invocation
from kestrelctl.cli.command_output import CommandOutput, Record, plain
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.quantities import duration, size, store_trouble
from kestrelctl.cli.traffic import traffic
from kestrelctl.errors import NotFound, Unreachable
from kestrelctl.protocol.answers import PoolSummary
from kestrelctl.protocol.requests import PoolStatus

FETCH_SECONDS = 10.0


@click.group("pool", cls=Noun)
def pool() -> None:
    """See how the pool is."""


pool.add_command(traffic)


@pool.command("status")
@pass_invocation
def status(invocation: Invocation) -> None:
    """The pool in numbers."""

    async def work(connection: Connection) -> CommandOutput:
        return report(await ask(connection, PoolStatus(), PoolSummary))

    invocation.talk(work)


@pool.command("metrics")
@click.option("--text", is_flag=True, help="The manager's page itself.")
@pass_invocation
def metrics(invocation: Invocation, text: bool) -> None:
    """Where a pool on this machine serves Prometheus: manager, XMPP server, worker processes."""
    from kestrelctl.cli.context import find_context

    context = find_context(invocation.pool)
    if not context.metrics:
        raise NotFound(
            f"it is not known where {context.name} serves its metrics",
            hint="see `--metrics` of `kestrelctl manager run` and `kestrelctl worker run`",
        )
    manager, *workers = context.metrics
    if text:
        invocation.screen.write(_page(manager))
        return
    found = Record(
        manager,
        {"manager": manager, "server": context.server_metrics, "workers": workers},
        [
            ("manager", manager),
            ("server", context.server_metrics),
            *(("worker", url) for url in workers),
        ],
    )
    asyncio.run(invocation.show(found))


def _page(url: str) -> str:
    """A page of this machine, whatever proxies the environment names."""
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=FETCH_SECONDS) as answer:
            text: str = answer.read().decode()
    except OSError as error:
        raise Unreachable(f"{url} does not answer", cause=str(error)) from error
    return text


def report(found: PoolSummary) -> Record:
    """A pool, for people and for programs."""
    blocks = [
        ("store", store_trouble(found.store_error, found.store_error_since)),
        *(("store", f"NOTE: {note}") for note in found.store_notes),
        ("workers", _counts(found.workers)),
        ("jobs", f"{found.jobs_active:,} active"),
        ("tasks", f"{found.tasks_waiting:,} waiting, {found.tasks_running:,} running"),
        ("so far", _counts(found.totals)),
        ("manager", f"{found.version}, up {duration(found.up_seconds)}, epoch {found.epoch}"),
        ("manager uses", f"{duration(found.manager_cpu_seconds)} of CPU, {_size(found)}"),
        ("commits", f"{found.commits:,}, {duration(found.commit_seconds_mean)} each"),
    ]
    data = {
        name: plain(getattr(found, name)) for name in PoolSummary.__struct_fields__ if name != "id"
    }
    return Record("ok" if not found.store_error else "store-error", data, blocks)


def _counts(numbers: dict[str, int]) -> str:
    words = (f"{n:,} {name.replace('_', ' ')}" for name, n in numbers.items() if n)
    return ", ".join(words) or "none"


def _size(found: PoolSummary) -> str:
    return size(found.manager_rss_bytes) or "0 B"
