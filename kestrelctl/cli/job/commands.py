"""`kestrelctl job …`: what users do with jobs once they are submitted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from kestrelctl.access.connection import Connection
from kestrelctl.cli.command import Invocation, Noun, pass_invocation
from kestrelctl.cli.job.arguments import ids_of, jobs_argument
from kestrelctl.cli.job.view import all_pages, job_list, job_record, one_job, totals, why_waiting
from kestrelctl.cli.show.changed import Changes
from kestrelctl.cli.show.command_output import CommandOutput, Record, one_or_several
from kestrelctl.core.model.job.hold import MAX_HOLD_REASON_CHARACTERS
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import TimedOut, UsageError
from kestrelctl.grammar.click_options import click_option
from kestrelctl.grammar.click_types import WholeNumber
from kestrelctl.grammar.id_ranges import (
    LAST,
    is_moving,
    jobs_or_name,
    parse_job,
    parse_jobs,
    parse_tasks,
    ranges_of,
)
from kestrelctl.grammar.job_options import ON_END
from kestrelctl.grammar.quantities import parse_duration
from kestrelctl.protocol.job_requests import (
    ENDED_STATES,
    JOB_STATES,
    CancelJobs,
    ForgetJobs,
    HoldJobs,
    ListJobs,
    ReleaseJobs,
    RetryJobs,
    ScaleJob,
)
from kestrelctl.protocol.request import Changed

if TYPE_CHECKING:
    from kestrelctl.cli.redial import Redial

#: States of active jobs -> the expression that is true of the jobs that are shown so.
_OF_ACTIVE = {
    "waiting": 'State == "active" && Running == 0 && Waiting > 0 && !Held',
    "running": "Running > 0",
    "held": "Held",
    "service": 'State == "active" && Service',
    "cancelling": 'State == "cancelling"',
}
LISTED_STATES = (*JOB_STATES, *_OF_ACTIVE)


def chosen_states(states: Iterable[str], where: str) -> tuple[list[str], str]:
    """The states and the expression with which the pool is asked for jobs.

    Args:
        states: some of `LISTED_STATES`; none for all.
        where: an expression that must be true as well; empty for none.
    """
    asked = list(dict.fromkeys(states))
    finer = [_OF_ACTIVE[state] for state in asked if state in _OF_ACTIVE]
    if not finer or "active" in asked:  # each of the finer states is one of an active job
        return [state for state in asked if state not in _OF_ACTIVE], where
    ended = [state for state in asked if state in ENDED_STATES]
    either = " || ".join(f"({each})" for each in (*finer, *map('State == "{}"'.format, ended)))
    return ["active", *ended], f"({where}) && ({either})" if where else either


#: Command -> (its module and name, what it does).
MODULES = {
    "history": (
        "kestrelctl.cli.job.history:history",
        "List jobs that have ended, the newest last, with what they took of the pool.",
    ),
    "tasks": (
        "kestrelctl.cli.job.tasks:tasks",
        "List the tasks of a job, in the order of their ids.",
    ),
    "logs": (
        "kestrelctl.cli.job.logs:logs",
        "Print what tasks wrote, unchanged.",
    ),
    "fetch": (
        "kestrelctl.cli.job.fetch:fetch",
        "Copy the files here that tasks left, as `submit --keep` asked.",
    ),
    "explain": (
        "kestrelctl.cli.job.explain:explain",
        "Explain why tasks of jobs wait, worker by worker, the closest fit first.",
    ),
    "graph": (
        "kestrelctl.cli.job.graph:graph",
        "Show which jobs wait for which: all that JOBS wait for, and all that wait for them.",
    ),
    "story": (
        "kestrelctl.cli.job.story:story",
        "Tell what happened to a job: to TASKs from beginning to end, or the latest of all.",
    ),
}
_NAME = click.option(
    "--name",
    default="",
    metavar="GLOB",
    help="Choose your jobs of this name instead of JOBS: 'night*'.",
)
_NOT_THERE = "these tasks have ended"
#: The most jobs that one request retries.
_PIECE = 500


@click.group(
    "job",
    cls=Noun,
    examples=(
        "kestrelctl submit --array 1-3 -- echo hello from task {}",
        "kestrelctl job wait last",
        "kestrelctl job logs last --all",
        "kestrelctl job list",
    ),
    command_sections={
        "Follow jobs": "list wait logs info tasks fetch",
        "Change jobs": "cancel retry hold release scale forget",
        "Understand jobs": "explain story graph history",
    },
)
def job() -> None:
    """List jobs, wait for them, read their output, cancel them.

    JOBS are ids and ranges like 3 5-9, `last`, and `all` (your active ones; for `forget`, those
    that have ended); JOB is one id, or `last`. What only shows or waits is about the last job if
    none is named.
    """


@job.command("list")
@jobs_argument()
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(LISTED_STATES, case_sensitive=False),
    help="Show only these; repeatable.",
)
@click.option(
    "--owner",
    default="",
    metavar="NAME",
    help="Show only jobs of this user: an account, or what is before its `@`.",
)
@click.option("--name", default="", metavar="GLOB", help="Show only jobs of this name: 'nightly*'.")
@click.option(
    "--limit",
    type=WholeNumber(0),
    default=100,
    show_default=True,
    help="Number of jobs to show, the newest; 0 is all.",
)
@click.option(
    "--where",
    default="",
    metavar="EXPR",
    help="Show only those for which this expression is true; docs/matching.md has the attributes.",
)
@pass_invocation
def list_(
    invocation: Invocation,
    jobs: str | None,
    states: tuple[str, ...],
    owner: str,
    name: str,
    limit: int,
    where: str,
) -> None:
    """List jobs, the newest last, with a reason for those that wait."""

    async def work(connection: Connection) -> None:
        asked, expression = chosen_states(states, where)
        request = ListJobs(jobs=jobs or "", owner=owner, states=asked, name=name, where=expression)
        views, total = await all_pages(connection, request, limit)
        reasons = await why_waiting(connection, views) if invocation.screen.is_table else {}
        await invocation.show(job_list(views, invocation.now(), reasons))
        if views:
            invocation.screen.say(totals(views, total))
        if total > len(views) and invocation.screen.mode.is_json:
            cut = f"only the newest {len(views):,} of {plural(total, 'job')}"
            invocation.screen.warn(cut, hint="--limit 0 shows all")

    invocation.talk(work, briefly=True)


@job.command("info")
@jobs_argument(unnamed=LAST)
@pass_invocation
def info(invocation: Invocation, jobs: str) -> None:
    """Show all about jobs."""
    from kestrelctl.cli.job.outputs import output_of

    async def record(connection: Connection, job_id: str) -> Record:
        view = await one_job(connection, job_id, details=True)
        reasons = await why_waiting(connection, [view])
        told = await output_of(connection, view) if invocation.screen.is_table else ("", "")
        return job_record(view, invocation.now(), reasons.get(view.job_id, ""), *told)

    async def work(connection: Connection) -> CommandOutput:
        ids = await ids_of(connection, jobs)
        return one_or_several([await record(connection, job_id) for job_id in ids])

    invocation.talk(work)


@job.command("wait")
@jobs_argument(unnamed=LAST)
@click.option(
    "--timeout",
    type=parse_duration,
    metavar="TIME",
    help="Give up after this time, with status 6: 90 (seconds), 15m.  [default: never]",
)
@click.option(
    "--progress", is_flag=True, help="Show the progress: a bar, or a line every 10 seconds."
)
@click.option("--any", "any_one", is_flag=True, help="Return when the first of them has ended.")
@click_option(ON_END)
@pass_invocation
def wait(
    invocation: Invocation,
    jobs: str,
    timeout: float | None,
    progress: bool,
    any_one: bool,
    on_end: str | None,
) -> None:
    """Wait until jobs have ended; the status is 0 if every task was done, else 3."""
    import asyncio

    from kestrelctl.cli.job import wait as waiting
    from kestrelctl.cli.job.on_end import OnEnd
    from kestrelctl.cli.show.progress import Look

    async def work(connection: Connection) -> None:
        ends = OnEnd(on_end, invocation.screen, invocation.pool)
        try:
            async with asyncio.timeout(timeout):
                views = await waiting.until_ended(
                    connection,
                    jobs,
                    invocation.screen,
                    look=Look.ANYWHERE if progress else Look.NONE,
                    any_one=any_one,
                    on_ended=ends.begin,
                )
        except TimeoutError:
            raise TimedOut("the jobs have not ended in the given time") from None
        finally:
            await ends.finish()
        await invocation.show(job_list(views, invocation.now(), {}))
        await waiting.check(connection, views)

    invocation.talk(work)


@job.command("cancel")
@jobs_argument()
@_NAME
@click.option(
    "--task",
    "task_ids",
    type=parse_tasks,
    metavar="TASKS",
    help="Cancel only these tasks of one job: 3,7-9.",
)
@pass_invocation
def cancel(invocation: Invocation, jobs: str | None, name: str, task_ids: list[int] | None) -> None:
    """Stop jobs, or single tasks: nothing more starts, and what runs is killed."""
    selection = jobs_or_name(jobs, name)

    async def work(redial: Redial) -> CommandOutput:
        if task_ids:
            request = CancelJobs(jobs=selection, task_ids=task_ids)
            changed = await redial.change(request, twice=not is_moving(selection))
            _tell_left_alone(invocation, task_ids, changed.tasks, "had ended")
            return Changes(changed, "cancelled tasks of", "job", nothing=_NOT_THERE)
        changed = await _until_none_is_left(redial, CancelJobs(jobs=selection))
        nothing = "none of these jobs is active"
        return Changes(changed, "cancelled", "job", nothing=nothing, kept="not active any more")

    invocation.talk_again(work)


@job.command("hold")
@jobs_argument()
@_NAME
@click.option("--reason", default="", metavar="TEXT", help="Reason that `job info` shows.")
@pass_invocation
def hold(invocation: Invocation, jobs: str | None, name: str, reason: str) -> None:
    """Start nothing more of jobs until their release; what runs goes on."""
    if len(reason) > MAX_HOLD_REASON_CHARACTERS:
        most = f"{MAX_HOLD_REASON_CHARACTERS} characters"
        raise UsageError(f"the reason of a hold has at most {most}, not {len(reason):,}")
    request = HoldJobs(jobs=jobs_or_name(jobs, name), reason=reason)

    async def work(redial: Redial) -> CommandOutput:
        changed = await _until_none_is_left(redial, request)
        return Changes(changed, "held", "job", kept="on hold before, or not active any more")

    invocation.talk_again(work)


@job.command("release")
@jobs_argument()
@_NAME
@pass_invocation
def release(invocation: Invocation, jobs: str | None, name: str) -> None:
    """Let jobs on hold go on; `all` means all of yours that are on hold."""
    request = ReleaseJobs(jobs=jobs_or_name(jobs, name))

    async def work(redial: Redial) -> CommandOutput:
        changed = await _until_none_is_left(redial, request)
        return Changes(changed, "released", "job", kept="not on hold")

    invocation.talk_again(work)


@job.command("retry")
@click.argument("jobs", type=parse_jobs, metavar="JOBS")
@click.argument("task_ids", type=parse_tasks, required=False, metavar="[TASKS]")
@click.option(
    "--failed",
    is_flag=True,
    help="Retry only those of the JOBS that have failed or lost tasks.",
)
@pass_invocation
def retry(invocation: Invocation, jobs: str, task_ids: list[int] | None, *, failed: bool) -> None:
    """Run tasks again that failed, were lost or cancelled."""

    async def work(redial: Redial) -> CommandOutput:
        words = await _failed_among(redial.connection, jobs) if failed else [jobs]
        what: list[str] = []
        tasks = 0
        for each in words:
            request = RetryJobs(jobs=each, task_ids=task_ids or [])
            changed = await redial.change(request, twice=False)
            what += changed.what
            tasks += changed.tasks
        if task_ids and len(what) == 1:
            _tell_left_alone(invocation, task_ids, tasks, "did not end badly")
        changed = Changed(id="", what=what, tasks=tasks)
        return Changes(changed, "retried", "job", nothing="none of these jobs has failed tasks")

    invocation.talk_again(work)


def _tell_left_alone(invocation: Invocation, task_ids: list[int], changed: int, why: str) -> None:
    """Says how many of the named tasks were left as they are."""
    left = len(set(task_ids)) - changed
    if changed and left > 0:
        invocation.screen.say(f"{left:,} of these {len(set(task_ids)):,} tasks {why}")


async def _failed_among(connection: Connection, jobs: str) -> list[str]:
    """Selects the jobs that have failed or lost tasks; returns their ids in words for requests."""
    views, _ = await all_pages(connection, ListJobs(jobs=jobs), 0)
    ids = [str(view.job_id) for view in views if view.failed or view.lost]
    return [",".join(ids[start : start + _PIECE]) for start in range(0, len(ids), _PIECE)]


@job.command("scale")
@click.argument("job_id", type=parse_job, metavar="JOB")
@click.argument("copies", type=WholeNumber(1))
@pass_invocation
def scale(invocation: Invocation, job_id: str, copies: int) -> None:
    """Change the number of COPIES of a service; of too many, the last are stopped."""

    async def work(redial: Redial) -> CommandOutput:
        request = ScaleJob(job=job_id, copies=copies)
        changed = await redial.change(request, twice=not is_moving(job_id))
        return Changes(changed, "scaled", "job")

    invocation.talk_again(work)


@job.command("forget")
@jobs_argument()
@_NAME
@pass_invocation
def forget(invocation: Invocation, jobs: str | None, name: str) -> None:
    """Delete jobs that have ended, and their results; `all` means all of yours that have."""
    selection = jobs_or_name(jobs, name)

    async def work(redial: Redial) -> CommandOutput:
        changed = await _until_none_is_left(redial, ForgetJobs(jobs=selection))
        return Changes(changed, "forgot", "job", nothing="none of these jobs has ended")

    invocation.talk_again(work)


async def _until_none_is_left(
    redial: Redial, request: CancelJobs | HoldJobs | ReleaseJobs | ForgetJobs
) -> Changed:
    """Repeats a request as often as it takes to change all jobs that are meant."""
    what: list[str] = []
    tasks = 0
    while True:
        changed = await redial.change(request, twice=not is_moving(request.jobs))
        what += changed.what
        tasks += changed.tasks
        if not (changed.left and changed.what):
            return replace(changed, what=what, tasks=tasks)
        if not request.jobs.startswith("name:"):  # those that are named are changed already
            request = replace(request, jobs=ranges_of(request.jobs))


job.add_modules(MODULES)
