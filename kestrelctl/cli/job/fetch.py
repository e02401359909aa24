"""`kestrelctl job fetch`: the files that tasks left."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kestrelctl.access.connection import Connection
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.job.arguments import ids_of, jobs_argument
from kestrelctl.cli.job.view import one_job
from kestrelctl.cli.show.command_output import Record, one_or_several
from kestrelctl.client.fetch import fetch_files, fetch_tar
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_types import FilePath
from kestrelctl.grammar.id_ranges import LAST, parse_tasks


@click.command("fetch", cls=CliCommand)
@jobs_argument(unnamed=LAST)
@click.option(
    "--tasks",
    "task_ids",
    type=parse_tasks,
    metavar="TASKS",
    help="Fetch only the files of these tasks: 3,5-9.",
)
@click.option(
    "--to",
    type=FilePath(),
    metavar="DIR",
    help="Directory for the files, as DIR/TASK/.  [default: job-JOB]",
)
@click.option(
    "--tar",
    type=FilePath(),
    metavar="FILE",
    help="Write one tar archive instead, with names TASK/…; - is standard output.",
)
@pass_invocation
def fetch(
    invocation: Invocation, jobs: str, task_ids: list[int] | None, to: Path | None, tar: Path | None
) -> None:
    """Copy the files here that tasks left, as `submit --keep` asked.

    A second call fetches only what is not there, or not as it came.
    """
    if to is not None and tar is not None:
        raise UsageError("--to and --tar exclude each other", hint="a directory, or an archive")
    if tar is not None and str(tar) == "-" and sys.stdout.isatty():
        raise UsageError("an archive is nothing for a terminal", hint="--tar FILE, or | tar -x")

    async def work(connection: Connection) -> None:
        ids = await ids_of(connection, jobs)
        if len(ids) > 1 and (to is not None or tar is not None):
            raise UsageError(
                "--to and --tar are for the files of one job",
                hint="without them each job has a directory of its own, job-JOB",
            )
        share = invocation.downloads()
        fetched = []
        records = []
        for job_id in ids:
            view = await one_job(connection, job_id)
            if tar is not None:
                found = await fetch_tar(share, connection, view, task_ids or [], tar)
                invocation.screen.say(found.sentence())
            else:
                place = to or Path(f"job-{view.job_id}")
                found = await fetch_files(share, connection, view, place, task_ids or [])
                records.append(Record(str(place), found, [found.sentence()]))
            fetched.append(found)
        if records:
            await invocation.show(one_or_several(records))
        for found in fetched:
            found.check()

    invocation.talk(work)
