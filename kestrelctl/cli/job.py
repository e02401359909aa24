"""`kestrelctl job …`: what users do with jobs once they are submitted."""

from __future__ import annotations

import asyncio

import click

from kestrelctl.cli import wait as waiting
from kestrelctl.cli.changed import Changes
from kestrelctl.cli.command import Invocation, Noun, pass_invocation
from kestrelctl.cli.command_output import CommandOutput
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.explain import explain
from kestrelctl.cli.id_ranges import parse_job, parse_jobs, parse_tasks
from kestrelctl.cli.jobview import job_list, job_record, one_job, totals, why_waiting
from kestrelctl.cli.logs import logs
from kestrelctl.cli.outputview import output_of
from kestrelctl.cli.progress import Look
from kestrelctl.cli.quantities import parse_duration
from kestrelctl.cli.redial import Redial
from kestrelctl.cli.story import story
from kestrelctl.cli.tasks import tasks
from kestrelctl.errors import TimedOut
from kestrelctl.protocol.answers import Jobs, JobView
from kestrelctl.protocol.requests import JOB_STATES, CancelJobs, ForgetJobs, ListJobs, RetryJobs

#: Selections that may mean other jobs when they are sent again.
_MOVING = ("last", "all")


@click.group("job", cls=Noun)
def job() -> None:
    """See, wait for, cancel and repeat jobs.

    JOBS are ids and ranges like 3,5-9, `last`, or `all` (your active ones); JOB is one id, or
    `last`.
    """


@job.command("list")
@click.argument("jobs", type=parse_jobs, default=None, required=False, metavar="[JOBS]")
@click.option("--state", "states", multiple=True, type=click.Choice(JOB_STATES), help="Only these.")
@click.option("--owner", default="", metavar="JID", help="Only this user's.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="At most so many, the newest.",
)
@pass_invocation
def list_(
    invocation: Invocation, jobs: str | None, states: tuple[str, ...], owner: str, limit: int
) -> None:
    """List jobs, the newest last, with a reason for those that wait."""

    async def work(connection: Connection) -> None:
        request = ListJobs(jobs=jobs or "", owner=owner, states=list(states), limit=limit)
        views = (await ask(connection, request, Jobs)).jobs
        views = [v for v in views if _is_wanted(v, states, owner)][-limit:]
        reasons = await why_waiting(connection, views) if invocation.screen.is_table else {}
        await invocation.show(job_list(views, invocation.now(), reasons))
        if views:
            invocation.screen.say(totals(views))

    invocation.talk(work)


@job.command("info")
@click.argument("job_id", type=parse_job, metavar="JOB")
@pass_invocation
def info(invocation: Invocation, job_id: str) -> None:
    """Everything about one job."""

    async def work(connection: Connection) -> CommandOutput:
        view = await one_job(connection, job_id)
        reasons = await why_waiting(connection, [view])
        output = await output_of(connection, view) if invocation.screen.is_table else ""
        return job_record(view, invocation.now(), reasons.get(view.job_id, ""), output)

    invocation.talk(work)


@job.command("wait")
@click.argument("jobs", type=parse_jobs, metavar="JOBS")
@click.option("--timeout", type=parse_duration, metavar="TIME", help="Give up after so long.")
@click.option(
    "--progress", is_flag=True, help="Show how far they are: a bar, or a line every 10 s."
)
@pass_invocation
def wait(invocation: Invocation, jobs: str, timeout: float | None, progress: bool) -> None:
    """Return when jobs have ended; the status tells whether every task was done."""

    async def work(connection: Connection) -> None:
        try:
            async with asyncio.timeout(timeout):
                look = Look.ANYWHERE if progress else Look.NONE
                views = await waiting.until_ended(connection, jobs, invocation.screen, look=look)
        except TimeoutError:
            raise TimedOut("the jobs have not ended in the given time") from None
        await invocation.show(job_list(views, invocation.now(), {}))
        await waiting.check(connection, views)

    invocation.talk(work)


@job.command("cancel")
@click.argument("jobs", type=parse_jobs, metavar="JOBS")
@pass_invocation
def cancel(invocation: Invocation, jobs: str) -> None:
    """Stop jobs: nothing more of them starts, what runs is killed."""

    async def work(redial: Redial) -> CommandOutput:
        changed = await redial.change(CancelJobs(jobs=jobs), twice=jobs not in _MOVING)
        return Changes(changed, "cancelled", "job")

    invocation.talk_again(work)


@job.command("retry")
@click.argument("jobs", type=parse_jobs, metavar="JOBS")
@click.argument("task_ids", type=parse_tasks, required=False, metavar="[TASKS]")
@pass_invocation
def retry(invocation: Invocation, jobs: str, task_ids: list[int] | None) -> None:
    """Run tasks again that failed, were lost or cancelled."""

    async def work(redial: Redial) -> CommandOutput:
        request = RetryJobs(jobs=jobs, task_ids=task_ids or [])
        return Changes(await redial.change(request, twice=False), "retried", "job")

    invocation.talk_again(work)


@job.command("forget")
@click.argument("jobs", type=parse_jobs, metavar="JOBS")
@pass_invocation
def forget(invocation: Invocation, jobs: str) -> None:
    """Delete jobs that have ended, and their results."""

    async def work(redial: Redial) -> CommandOutput:
        changed = await redial.change(ForgetJobs(jobs=jobs), twice=jobs not in _MOVING)
        return Changes(changed, "forgot", "job")

    invocation.talk_again(work)


for command in (tasks, logs, explain, story):
    job.add_command(command)


def _is_wanted(view: JobView, states: tuple[str, ...], owner: str) -> bool:
    """Whether a job that was selected by its id passes the other filters, too."""
    state = "active" if view.state == "cancelling" else view.state
    return (not states or state in states) and (not owner or view.owner == owner)
