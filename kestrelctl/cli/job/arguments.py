"""The arguments that say which jobs a command is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kestrelctl.access.connection import Connection
from kestrelctl.cli.command import Invocation
from kestrelctl.cli.job.view import all_pages, one_job
from kestrelctl.errors import NotFound
from kestrelctl.grammar.id_ranges import LAST, parse_job, parse_jobs
from kestrelctl.protocol.job_answers import JobView
from kestrelctl.protocol.job_requests import ListJobs

F = TypeVar("F", bound=Callable[..., Any])


def jobs_argument(*, unnamed: str | None = None) -> Callable[[F], F]:
    """Adds JOBS, in any number of words: `1 2 5-9 last`; they become one selection for the pool.

    Args:
        unnamed: the selection that is meant if no job is named; None for none.
    """

    def selection(_ctx: click.Context, _param: click.Parameter, words: Any) -> str | None:
        return parse_jobs(" ".join(words)) if words else unnamed

    return click.argument("jobs", nargs=-1, callback=selection, metavar="[JOBS]...")


def job_argument() -> Callable[[F], F]:
    """Adds JOB to a command that is about one job; the latest if none is named."""
    return click.argument("job", type=parse_job, default=LAST, required=False, metavar="[JOB]")


async def view_told(connection: Connection, invocation: Invocation, job: str) -> JobView:
    """Returns the one job that is meant, and tells which one it is if none was named."""
    view = await one_job(connection, job)
    tell_which(invocation, view.job_id, view.name)
    return view


def tell_which(invocation: Invocation, job_id: int, name: str) -> None:
    """Tells which job a command is about, if none was named on the command line."""
    source = click.get_current_context().get_parameter_source("job")
    if source is click.core.ParameterSource.DEFAULT:
        named = f" ({name})" if name else ""
        invocation.screen.say(f"job {job_id}{named}, your last one")


async def ids_of(connection: Connection, jobs: str) -> list[str]:
    """Returns the jobs that a selection means, each as a selection of its own.

    Raises:
        NotFound: there is none.
    """
    if jobs == LAST or jobs.isdecimal():
        return [jobs]
    views, _ = await all_pages(connection, ListJobs(jobs=jobs), 0)
    if not views:
        raise NotFound("none of your jobs is active", hint="kestrelctl job history")
    return [str(view.job_id) for view in views]
