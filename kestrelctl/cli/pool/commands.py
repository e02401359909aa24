"""`kestrelctl pool …`."""

from __future__ import annotations

import asyncio

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import Invocation, Noun, pass_invocation
from kestrelctl.cli.pool.asset import asset
from kestrelctl.cli.pool.events import events
from kestrelctl.cli.pool.policy import policy
from kestrelctl.cli.pool.store_trouble import store_trouble
from kestrelctl.cli.pool.traffic import traffic
from kestrelctl.cli.show.command_output import CommandOutput, Record, plain
from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import NotFound, Unreachable
from kestrelctl.grammar.quantities import duration, short_address, size
from kestrelctl.protocol.answers import PoolSummary
from kestrelctl.protocol.requests import PoolStatus
from kestrelctl.protocol.views import QuarantineView

FETCH_SECONDS = 10.0


@click.group(
    "pool",
    cls=Noun,
    examples=("kestrelctl pool status", "kestrelctl pool events --since 1d"),
    command_sections={
        "The pool as it is": "status events chat metrics traffic",
        "What tasks get": "asset policy",
    },
)
def pool() -> None:
    """Show the state of the pool; set licences and policies."""


pool.add_command(traffic)
pool.add_command(events)
pool.add_command(policy)
pool.add_command(asset)


@pool.command("status")
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show the pool in numbers: workers, tasks, assets, and what it lacks."""

    async def work(connection: Connection) -> CommandOutput:
        return report(await ask(connection, PoolStatus(), PoolSummary), invocation.now())

    invocation.talk(work)


@pool.command("chat")
@click.option("--show-password", is_flag=True, help="Print the password, too.")
@pass_invocation
def chat(invocation: Invocation, show_password: bool) -> None:
    """Show how to reach the pool with a chat client: address, server, account."""
    from kestrelctl.access.context import read_password

    context = invocation.find_context(invocation.pool)
    account = context.user
    password = read_password(account) if show_password else ""
    where = f"first line of {account.password_file}"
    if account.password_file is None:
        where = "in the system's keyring"
    encryption = "none: the server listens on this machine alone"
    if context.tls:
        trusted = f"; trust the authority in {context.ca_file}" if context.ca_file else ""
        encryption = f"STARTTLS{trusted}"
    domain = account.jid.partition("/")[0].rpartition("@")[2]
    elsewhere = f" (its host is not {domain}: set it by hand)" if context.host != domain else ""
    tls = "force" if context.tls else "disable"
    connect = f"/connect {account.jid} server {context.host} port {context.port} tls {tls}"
    data = {
        "jobs": f"jobs@{context.pool}",
        "pool": f"pool@{context.pool}",
        "account": account.jid,
        "password_file": str(account.password_file or ""),
        "host": context.host,
        "port": context.port,
        "tls": context.tls,
        "ca_file": str(context.ca_file or ""),
    }
    if show_password:
        data["password"] = password
    blocks: list[tuple[str, str]] = [
        ("write to", f"jobs@{context.pool}"),
        ("account", account.jid),
        ("password", password or where),
        ("server", f"{context.host} port {context.port}{elsewhere}"),
        ("encryption", encryption),
        ("in Profanity", connect),
    ]
    advice = (
        "In another chat client, such as Gajim or Dino, add this account with this server and port,"
        f" then add the contact jobs@{context.pool}."
    )
    asyncio.run(invocation.show(Record(f"jobs@{context.pool}", data, [*blocks, advice])))


@pool.command("metrics")
@click.option("--text", is_flag=True, help="Print the manager's metrics themselves.")
@pass_invocation
def metrics(invocation: Invocation, text: bool) -> None:
    """Show where a pool on this machine serves metrics for Prometheus."""
    context = invocation.find_context(invocation.pool)
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
    """Reads a page of this machine, whatever proxies the environment names."""
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=FETCH_SECONDS) as answer:
            text: str = answer.read().decode()
    except OSError as error:
        raise Unreachable(f"{url} does not answer", cause=str(error)) from error
    return text


def report(found: PoolSummary, now: float) -> Record:
    """Describes a pool, for people and for programs.

    Args:
        now: seconds since the epoch.
    """
    blocks = [
        ("store", store_trouble(found.store_error, found.store_error_since)),
        *(("store", f"NOTE: {note}") for note in found.store_notes),
        ("workers", _counts(found.workers)),
        ("assets", "; ".join(_used(found, name) for name in found.capacity)),
        *(
            ("pool's own", f"{each.name} {each.held:,} of {each.total:,} held")
            for each in found.assets
        ),
        *(("quarantined", _quarantine(each, now)) for each in found.quarantined),
        ("jobs", f"{found.jobs_active:,} active"),
        ("tasks", f"{found.tasks_waiting:,} waiting, {found.tasks_running:,} running"),
        *(
            ("unmet", f"{plural(each.tasks, 'task')} that {_ask(each.tasks)} for {each.shape}")
            for each in found.unmet
        ),
        *(
            (
                "saturated",
                f"{plural(each.workers, 'worker')} with {each.worker_class}: "
                f"no {', no '.join(each.assets)} left",
            )
            for each in found.saturated
        ),
        ("so far", _counts(found.totals)),
        ("manager", f"{found.version}, up {duration(found.up_seconds)}, epoch {found.epoch}"),
        *(("managers", _manager(each)) for each in found.managers),
        ("manager uses", f"{duration(found.manager_cpu_seconds)} of CPU, {_size(found)}"),
        ("commits", f"{found.commits:,}, {duration(found.commit_seconds_mean)} each"),
    ]
    data = {
        name: plain(getattr(found, name)) for name in PoolSummary.__struct_fields__ if name != "id"
    }
    return Record("ok" if not found.store_error else "store-error", data, blocks)


def _manager(seen: ManagerSeen) -> str:
    """Says what one of several managers does: `host-b stands by (0.2.0)`."""
    if seen.leads:
        return f"{seen.host} leads"
    if seen.problem:
        return f"{seen.host} cannot take over: {seen.problem}"
    return f"{seen.host} stands by ({seen.version})"


def _used(found: PoolSummary, name: str) -> str:
    """Says how much of an asset is taken: `cpus 3 of 8`."""
    whole = found.capacity[name]
    used = whole - found.free.get(name, 0.0)
    if name in ("memory", "disk"):
        return f"{name} {size(int(used)) or '0 B'} of {size(int(whole)) or '0 B'}"
    return f"{name} {used:,.10g} of {whole:,.10g}"


def _quarantine(view: QuarantineView, now: float) -> str:
    left = duration(max(view.until - now, 0.0))
    return f"{short_address(view.worker)} for {left} more: {view.why}"


def _ask(tasks: int) -> str:
    return "asks" if tasks == 1 else "ask"


def _counts(numbers: dict[str, int]) -> str:
    words = (f"{n:,} {name.replace('_', ' ')}" for name, n in numbers.items() if n)
    return ", ".join(words) or "none"


def _size(found: PoolSummary) -> str:
    return size(found.manager_rss_bytes) or "0 B"
