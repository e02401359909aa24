"""`kestrelctl job history`: the jobs that have ended, and what they took."""

from __future__ import annotations

import click

from kestrelctl.access.connection import Connection
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.job.arguments import jobs_argument
from kestrelctl.cli.job.view import all_pages, job_name, memory, memory_time
from kestrelctl.cli.show.command_output import Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.wording import plural
from kestrelctl.grammar.click_types import WholeNumber
from kestrelctl.grammar.deadline_words import Since, parse_since
from kestrelctl.grammar.quantities import ago, duration
from kestrelctl.protocol.job_answers import JobView
from kestrelctl.protocol.job_requests import ENDED_STATES, ListJobs


@click.command("history", cls=CliCommand)
@jobs_argument()
@click.option(
    "--owner",
    default="",
    metavar="NAME",
    help="Show only jobs of this user: an account, or what is before its `@`.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(ENDED_STATES, case_sensitive=False),
    help="Show only these; repeatable.",
)
@click.option("--name", default="", metavar="GLOB", help="Show only jobs of this name: 'nightly*'.")
@click.option(
    "--since",
    type=parse_since,
    metavar="TIME|DATE",
    help="Show only jobs that ended within this time, or since this date: 7d, 2026-11-01.  "
    "[default: all]",
)
@click.option(
    "--limit",
    type=WholeNumber(0),
    default=100,
    show_default=True,
    help="Number of jobs to show, the newest; 0 is all.",
)
@pass_invocation
def history(
    invocation: Invocation,
    jobs: str | None,
    owner: str,
    states: tuple[str, ...],
    name: str,
    since: Since | None,
    limit: int,
) -> None:
    """List jobs that have ended, the newest last, with what they took of the pool."""

    async def work(connection: Connection) -> None:
        ended_since = None if since is None else since.moment(invocation.now())
        request = ListJobs(
            jobs=jobs or "",
            owner=owner,
            states=list(states or ENDED_STATES),
            name=name,
            ended_since=ended_since,
            used=True,
        )
        views, total = await all_pages(connection, request, limit)
        await invocation.show(_listing(views, invocation.now()))
        if total > len(views):
            cut = f"only the newest {len(views):,} of {plural(total, 'job')}"
            invocation.screen.warn(cut, hint="--limit 0 shows all")

    invocation.talk(work)


def _listing(views: list[JobView], now: float) -> Listing[JobView]:
    columns: list[Column[JobView]] = [
        Column("JOB", lambda v: str(v.job_id), right=True),
        Column("NAME", job_name),
        Column("OWNER", lambda v: v.owner, wide=True),
        Column("STATE", lambda v: v.state),
        Column("TASKS", lambda v: f"{v.tasks:,}", right=True),
        Column("DONE", lambda v: f"{v.done:,}", right=True),
        Column("ENDED", lambda v: ago(v.ended_at, now), right=True),
        Column("TOOK", lambda v: duration((v.ended_at or now) - v.submitted_at), right=True),
        Column("RUN TIME", lambda v: duration(v.wall_seconds), right=True),
        Column("CPU", lambda v: duration(v.cpu_seconds), right=True),
        Column("MEMORY", lambda v: memory(v.peak_bytes) if v.attempts else "", right=True),
        Column(
            "MEMORY TIME",
            lambda v: memory_time(v.memory_byte_seconds, v.attempts),
            right=True,
            wide=True,
        ),
        Column("ATTEMPTS", lambda v: f"{v.attempts or 0:,}", right=True, wide=True),
    ]
    return Listing(views, columns, lambda v: str(v.job_id), nothing="no ended jobs")
