"""`kestrelctl worker …`: lists, changes and runs workers of a pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.manager.metrics_options import metrics_address, metrics_allow
from kestrelctl.cli.redial import Redial
from kestrelctl.cli.show.changed import Changes
from kestrelctl.cli.show.command_output import CommandOutput, Listing, Record, Table
from kestrelctl.cli.show.grid import Column
from kestrelctl.cli.worker.aggregate import aggregate_options
from kestrelctl.cli.worker.enroll import enroll, join, revoke, service
from kestrelctl.cli.worker.environment_run import environment
from kestrelctl.cli.worker.groups import worker_group
from kestrelctl.cli.worker.properties import properties, property_lines
from kestrelctl.cli.worker.run_command import commands, run_command
from kestrelctl.core.environments.environment_class import KINDS
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker import isolation
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.grammar.asset_words import offered_assets
from kestrelctl.grammar.attributes import plain_value
from kestrelctl.grammar.click_types import FilePath, WholeNumber
from kestrelctl.grammar.quantities import (
    ago,
    duration,
    parse_duration,
    parse_size,
    short_address,
    size,
)
from kestrelctl.protocol.answers import UnitView, Workers, WorkerView
from kestrelctl.protocol.requests import DrainWorkers, ListWorkers, ResizeWorker, ResumeWorkers


class DescribedWorker(WorkerView, frozen=True, kw_only=True):
    """A worker, with what its tags say of isolation.

    Attributes:
        isolation: its rung; empty if its tags name none.
        not_enforced: what it does not keep from its tasks, or not exactly.
    """

    isolation: str = ""
    not_enforced: tuple[str, ...] = ()


def described(view: WorkerView) -> DescribedWorker:
    """Adds what the tags of a worker say of isolation."""
    rung = isolation.rung_of(view.tags)
    return DescribedWorker(
        **msgspec.structs.asdict(view),
        isolation=rung,
        not_enforced=isolation.NOT_ENFORCED.get(rung, ()),
    )


@click.group(
    "worker",
    cls=Noun,
    examples=(
        "kestrelctl worker list",
        "kestrelctl worker info w1",
        "kestrelctl worker drain w1",
        "kestrelctl worker resume w1",
    ),
    command_sections={
        "Workers of the pool": "list info drain resume resize revoke group",
        "Machines that become workers": "enroll join run service environment",
        "Properties of machines, and commands that run there": "properties commands run-command",
    },
)
def worker() -> None:
    """List and drain workers; run one, or let a machine join as one.

    NAMES are addresses of workers, or parts of them.
    """


@worker.command("list")
@click.argument("names", nargs=-1, metavar="[NAMES]...")
@click.option(
    "--where",
    default="",
    metavar="EXPR",
    help="Show only those for which this expression is true; docs/matching.md has the attributes.",
)
@pass_invocation
def list_(invocation: Invocation, names: tuple[str, ...], where: str) -> None:
    """List workers."""

    async def work(connection: Connection) -> CommandOutput:
        return Listing(
            _counted(invocation, _described(worker_pages(connection, names, where))),
            worker_columns(invocation.now()),
            lambda w: w.worker,
            nothing="no workers",
        )

    invocation.talk(work)


@worker.command("info")
@click.argument("name")
@pass_invocation
def info(invocation: Invocation, name: str) -> None:
    """Show all about one worker."""

    async def work(connection: Connection) -> CommandOutput:
        return worker_record(described(await one_worker(connection, name)), invocation.now())

    invocation.talk(work)


@worker.command("drain")
@click.argument("names", nargs=-1, required=True, metavar="NAMES...")
@pass_invocation
def drain(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Send workers no new tasks; what they run goes on. For admins."""

    async def work(redial: Redial) -> CommandOutput:
        request = DrainWorkers(names=list(names))
        return Changes(await redial.change(request, twice=True), "draining", "worker")

    invocation.talk_again(work, as_admin=True)


@worker.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="NAMES...")
@pass_invocation
def resume(invocation: Invocation, names: tuple[str, ...]) -> None:
    """End a drain or a quarantine. For admins."""

    async def work(redial: Redial) -> CommandOutput:
        request = ResumeWorkers(names=list(names))
        return Changes(await redial.change(request, twice=True), "resumed", "worker")

    invocation.talk_again(work, as_admin=True)


@worker.command("resize")
@click.argument("name")
@click.argument("assets", nargs=-1, required=True, metavar="ASSET=…...")
@pass_invocation
def resize(invocation: Invocation, name: str, assets: tuple[str, ...]) -> None:
    """Change what a worker offers while its tasks run. For admins.

    cpus=4, memory=8G, fpga=2; of units their number or their ids: gpus=1, gpus=0,1; seats=shared:4;
    db=? is of unknown capacity.
    What runs goes on. It lasts until the worker's process ends.
    """
    change = offered_assets(assets)

    async def work(connection: Connection) -> CommandOutput:
        answer = await ask(connection, ResizeWorker(name=name, change=change), Workers)
        if not answer.workers:
            raise NotFound(f"worker {name} has gone", hint="kestrelctl worker list")
        return worker_record(described(answer.workers[0]), invocation.now())

    invocation.talk(work, as_admin=True)


@worker.command(
    "run",
    cls=CliCommand,
    talks=False,
    option_sections={
        "The pool": "pool credentials host port tls ca-file",
        "What it offers": "cpus memory asset tags attribute sessions start lifetime environments",
        "Tasks and their files": "isolation share data-dir cache-size shared-files shared-outputs "
        "outputs-limit",
        "How it works": "pull properties commands metrics metrics-allow log-format executor",
    },
)
@click.option(
    "--pool",
    metavar="DOMAIN",
    help="XMPP domain of the pool.  [default: the one that was joined with a token]",
)
@click.option(
    "--credentials",
    type=FilePath(),
    metavar="FILE",
    help="File of accounts, a `JID PASSWORD` on each line; - is standard input.  [default: the "
    "account of `worker join`]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Host name or address of the XMPP server.",
)
@click.option(
    "--port",
    type=WholeNumber(1, 65535),
    default=5222,
    show_default=True,
    help="Port of the XMPP server for clients.",
)
@click.option(
    "--tls/--no-tls",
    default=True,
    show_default=True,
    help="Encrypt the connection; --no-tls is only for a server on this machine.",
)
@click.option(
    "--ca-file",
    type=FilePath(),
    metavar="FILE",
    help="Certificate of the pool's authority.  [default: the system's authorities]",
)
@click.option(
    "--data-dir",
    type=FilePath(),
    metavar="DIR",
    help="Directory for scratch directories and results.  [default: "
    "$XDG_STATE_HOME/kestrel/worker]",
)
@click.option(
    "--cache-size",
    "cache_bytes",
    type=parse_size,
    metavar="SIZE",
    help="Disk space for inputs of tasks, below --data-dir; 0 is none.  [default: a fifth of "
    "what is free]",
)
@click.option(
    "--shared-files",
    multiple=True,
    type=FilePath(),
    metavar="DIR",
    help="Directory from which tasks may have inputs by file: address; repeatable.  [default: "
    "none]",
)
@click.option(
    "--shared-outputs",
    multiple=True,
    type=FilePath(),
    metavar="DIR",
    help="Directory below which, in DIR/OWNER, tasks may leave files by file: address; "
    "repeatable.  [default: none]",
)
@aggregate_options
@click.option(
    "--lifetime",
    "lifetime_seconds",
    type=parse_duration,
    metavar="TIME",
    help="Leave after this time and give back what runs: 2h.  [default: stay]",
)
@click.option(
    "--environments",
    type=click.Choice(KINDS),
    multiple=True,
    help="Kind of environment that the pool may make on this machine; repeatable.  [default: none]",
)
@click.option(
    "--properties",
    multiple=True,
    type=FilePath(),
    metavar="FILE",
    help="File of properties to read of this machine, and how often; repeatable.  [default: none]",
)
@click.option(
    "--commands",
    multiple=True,
    type=FilePath(),
    metavar="FILE",
    help="File of commands that admins may run on this machine; repeatable.  [default: none]",
)
@click.option(
    "--outputs-limit",
    "outputs_limit_bytes",
    type=parse_size,
    metavar="SIZE",
    default="4G",
    show_default=True,
    help="Size of the files that a task may leave for its job.",
)
@click.option(
    "--any-workdir",
    is_flag=True,
    hidden=True,
    help="Jobs may choose a directory of this machine; for `up`, where all tasks are its user's.",
)
@click.option(
    "--executor",
    type=click.Choice(["process", "inline"]),
    default="process",
    show_default=True,
    help="Run tasks as processes, or (inline, to measure a pool) only wait as long as they "
    "would take.",
)
@click.option(
    "--poll-bytes",
    type=WholeNumber(0),
    default=0,
    hidden=True,
    help="Answer polls of properties with so many bytes, to measure them.",
)
@metrics_address
@metrics_allow
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log on standard error.",
)
@pass_invocation
@click.pass_context
def run(ctx: click.Context, invocation: Invocation, /, **options: Any) -> int:
    """Run a worker in the foreground, until SIGTERM.

    Without --credentials it is the worker that `worker join` made, with the options of then;
    options that are given here override those.
    """
    from kestrelctl.local.pool_state import pools_directory, workers_directory
    from kestrelctl.worker import entry
    from kestrelctl.worker.joined_pools import joined
    from kestrelctl.worker.options import WorkerOptions

    options["data_dir"] = options["data_dir"] or pools_directory().parent / "worker"
    if options["credentials"] is None:
        given = {
            name: value
            for name, value in options.items()
            if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
        }
        options |= joined(workers_directory(), options["pool"]).options() | given
    elif options["pool"] is None:
        raise UsageError("which pool?", hint="--pool DOMAIN, that of the account")
    return entry.run(WorkerOptions(verbose=invocation.screen.verbose, **options))


worker.add_command(worker_group)
worker.add_command(properties)
worker.add_command(commands)
worker.add_command(run_command)
worker.add_command(enroll)
worker.add_command(join)
worker.add_command(service)
worker.add_command(environment)
worker.add_command(revoke)


async def worker_pages(
    connection: Connection, names: Sequence[str], where: str = ""
) -> AsyncIterator[Sequence[WorkerView]]:
    """Yields pages of workers, asked for as they are read."""
    after: str | None = ""
    while after is not None:
        request = ListWorkers(names=list(names), after=after, where=where)
        page = await ask(connection, request, Workers)
        yield page.workers
        after = page.after


async def one_worker(connection: Connection, name: str) -> WorkerView:
    """Finds the worker of that address, or the only one whose address contains that part.

    Raises:
        NotFound: there is none.
        UsageError: there are several.
    """
    found = [w async for page in worker_pages(connection, [name]) for w in page]
    exact = [w for w in found if name in (w.worker, short_address(w.worker))]
    found = exact if len(exact) == 1 else found
    if not found:
        raise NotFound(f"there is no worker {name}", hint="kestrelctl worker list")
    if len(found) > 1:
        raise UsageError(
            f"{len(found):,} workers are called so", hint=f"kestrelctl worker list {name}"
        )
    return found[0]


def worker_columns(now: float) -> list[Column[WorkerView]]:
    """The columns of a list of workers.

    Args:
        now: seconds since the epoch.
    """
    return [
        Column("WORKER", lambda w: short_address(w.worker)),
        Column("STATE", lambda w: w.state),
        Column("CPUS", lambda w: f"{w.assets.get('cpus', 0):g}", right=True),
        Column("FREE", lambda w: f"{w.free.get('cpus', 0):g}", right=True),
        Column("MEMORY", lambda w: _memory(w.assets), right=True),
        Column("FREE", _free_memory, right=True),
        Column("ASSETS", lambda w: " ".join(used_of_others(w))),
        Column("RUNNING", lambda w: f"{w.running:,}", right=True),
        Column("QUEUED", lambda w: f"{w.queued:,}", right=True, wide=True),
        Column("DONE", lambda w: f"{w.done:,}", right=True),
        Column("FAILED", lambda w: f"{w.failed:,}", right=True),
        Column("SINCE", lambda w: ago(w.joined_at, now), right=True, wide=True),
        Column("ADDRESS", lambda w: w.worker, wide=True),
        Column("HOST", lambda w: w.host, wide=True),
        Column("SYSTEM", lambda w: f"{w.os} {w.arch}".strip(), wide=True),
        Column("VERSION", lambda w: w.version, wide=True),
        Column("ISOLATION", lambda w: isolation.rung_of(w.tags), wide=True),
        Column("TAGS", lambda w: " ".join(isolation.without_isolation(w.tags))),
        Column("REMARK", _remark),
    ]


def _remark(view: WorkerView) -> str:
    """Says in a few words what an operator should know of a worker."""
    if view.quarantined_for:
        return view.quarantined_for
    return f"offers {view.offered_cpus:,.10g} cpus" if view.offered_cpus is not None else ""


def worker_record(view: DescribedWorker, now: float) -> Record:
    """Shows everything about a worker.

    Args:
        now: seconds since the epoch.
    """
    left = (view.quarantined_until or now) - now
    blocks: list[tuple[str, str] | Table] = [
        ("worker", view.worker),
        ("state", view.state + (f" for {duration(left)} more" if left > 0 else "")),
        ("because", view.quarantined_for),
        ("leaves in", duration(max(view.ends_at - now, 0.0)) if view.ends_at else ""),
        ("host", view.host),
        ("system", f"{view.os} {view.arch}".strip()),
        ("version", view.version),
        ("joined", ago(view.joined_at, now)),
        (
            "cpus",
            f"{view.free.get('cpus', 0):g} of {view.assets.get('cpus', 0):g} free{_cut(view)}",
        ),
        ("memory", f"{_memory(view.free) or 0} of {_memory(view.assets) or 0} free"),
        *((name, _asset(view, name)) for name in sorted(view.assets) if name not in _OWN_LINE),
        ("tags", " ".join(isolation.without_isolation(view.tags))),
        ("groups", " ".join(view.groups)),
        ("attributes", "  ".join(f"{k}={plain_value(v)}" for k, v in view.attributes.items())),
        ("start", view.start),
        *property_lines(view.properties, now),
        ("isolation", view.isolation),
        ("not enforced", ", ".join(view.not_enforced)),
        ("tasks", f"{view.running:,} running, {view.queued:,} queued"),
        ("so far", f"{view.done:,} done, {view.failed:,} failed"),
        *_running(view, now),
    ]
    return Record(view.worker, view, blocks)


#: Assets with a line of their own in `worker info`.
_OWN_LINE = ("cpus", "memory")


def used_of_others(view: WorkerView) -> list[str]:
    """Says how much of each asset but processors, memory and disk is taken: `gpus 1/2`."""
    return [
        f"{name} {whole - view.free.get(name, 0):.10g}/{_whole(view, name)}"
        for name, whole in sorted(view.assets.items())
        if name not in (*_OWN_LINE, "disk")
    ]


def _whole(view: WorkerView, name: str) -> str:
    """The whole amount of an asset; `~3` if that is an estimate."""
    return f"{'~' if name in view.unknown else ''}{view.assets[name]:.10g}"


def _asset(view: WorkerView, name: str) -> str:
    """Says how much of an asset is free, its kind, and its units."""
    whole, free = view.assets[name], view.free.get(name, 0.0)
    if name == "disk":
        return f"{size(int(free)) or 0} of {size(int(whole)) or 0} free"
    words = f"{free:.10g} of {_whole(view, name)} free"
    if name in view.unknown:
        words += f", no more at exit status {view.unknown[name]}"
    if name in view.shared:
        words += ", shared"
    return "; ".join([words, *(_unit(unit) for unit in view.units.get(name, ()))])


def _unit(unit: UnitView) -> str:
    facts = " ".join(filter(None, (unit.model, size(unit.memory_bytes))))
    state = {0.0: "taken", 1.0: "free"}.get(unit.free, f"{unit.free:.10g} free")
    return f"{unit.id}{f' ({facts})' if facts else ''}: {state}"


def _running(view: WorkerView, now: float) -> list[Table]:
    """Lists the tasks that run there, and what they use as far as that is known."""
    if not view.runs:
        return []
    titles = ("JOB", "TASK", "SENT", "TIME", "CPU", "MEMORY", "AS OF")
    rows = [
        [
            str(task.job_id),
            str(task.task_id),
            ago(task.sent_at, now),
            duration(task.wall_seconds),
            duration(task.cpu_seconds),
            size(task.memory_bytes or 0),
            ago(task.said_at, now),
        ]
        for task in view.runs
    ]
    return [Table([(title, True) for title in titles], rows)]


def _cut(view: WorkerView) -> str:
    if view.offered_cpus is None:
        return ""
    return f"; of the {view.offered_cpus:,.10g} that it offers, more than an account may"


def _memory(assets: dict[str, float]) -> str:
    return size(int(assets.get("memory", 0)))


def _free_memory(view: WorkerView) -> str:
    """The free memory; empty for a worker that offers none."""
    return (_memory(view.free) or "0 B") if view.assets.get("memory") else ""


async def _described(
    pages: AsyncIterator[Sequence[WorkerView]],
) -> AsyncIterator[Sequence[DescribedWorker]]:
    async for page in pages:
        yield [described(view) for view in page]


async def _counted(
    invocation: Invocation, pages: AsyncIterator[Sequence[WorkerView]]
) -> AsyncIterator[Sequence[WorkerView]]:
    """Yields the pages, and makes a remark about all of them at the end."""
    states: Counter[str] = Counter()
    async for page in pages:
        states.update(w.state for w in page)
        yield page
    if states:
        counts = ", ".join(f"{n:,} {state}" for state, n in states.most_common())
        invocation.screen.say(f"{plural(states.total(), 'worker')}: {counts}")
