"""`kestrelctl job logs`: what tasks wrote, byte by byte."""

from __future__ import annotations

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.at_once import needs_loop
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.job.arguments import job_argument, tell_which, view_told
from kestrelctl.cli.job.output_files import OutputFiles, check_pattern
from kestrelctl.cli.job.task_logs import ASK_SECONDS, Missing, TaskLog, TaskLogs, pieces, why_empty
from kestrelctl.cli.show.command_output import Record
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_types import FileName
from kestrelctl.grammar.id_ranges import parse_array, parse_tasks
from kestrelctl.protocol.job_answers import JobView, Log
from kestrelctl.protocol.job_requests import Logs

#: The most tasks that are followed at once: each asks by itself.
_MOST_FOLLOWED = 16


@click.command("logs", cls=CliCommand)
@job_argument()
@click.argument("task_ids", type=parse_tasks, required=False, metavar="[TASKS]")
@click.option(
    "--stdout",
    "stream",
    flag_value="stdout",
    default="stdout",
    help="Print standard output.  [default]",
)
@click.option("--stderr", "stream", flag_value="stderr", help="Print standard error instead.")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Print the output of every task that has started, in the order of their ids.",
)
@click.option(
    "--to",
    "pattern",
    type=FileName(),
    metavar="PATTERN",
    help="Write the output of each task to a file here: 'out-{n}.txt'; {n} is the task's id.",
)
@click.option(
    "-f",
    "--follow",
    "follows",
    is_flag=True,
    help="Go on printing until the tasks have ended; at most 16 tasks.",
)
@pass_invocation
def logs(
    invocation: Invocation,
    job: str,
    task_ids: list[int] | None,
    stream: str,
    every: bool,
    pattern: str | None,
    follows: bool,
) -> None:
    """Print what tasks wrote, unchanged.

    TASKS may be left out if the job has only one. On a terminal, control characters but those for
    colours are shown as escapes.
    """
    if every and (task_ids or follows):
        raise UsageError("--all stands alone, without tasks and without -f")
    if pattern and (every or task_ids or follows):
        raise UsageError("--to is of every task, without tasks, --all and -f")
    if follows and invocation.screen.mode.is_json:
        raise UsageError("-f shows output as it comes, and JSON is made of whole ones")
    if task_ids and len(task_ids) > 1 and not follows:
        raise UsageError("the output of one task at a time", hint="-f for several, or --all")

    reader = invocation.log_reader()
    first: Log | None = None

    async def work(connection: Connection) -> None:
        if not (follows or pattern or every):
            await show_one(connection)
            return
        view = await view_told(connection, invocation, job)
        if follows:
            from kestrelctl.cli.show.follow import follow

            chosen = list(dict.fromkeys(task_ids or _ids(view)))
            if len(chosen) > _MOST_FOLLOWED:
                raise UsageError(
                    f"-f is for at most {_MOST_FOLLOWED} tasks at once",
                    hint=f"kestrelctl job logs -f {view.job_id} {chosen[0]}",
                )
            await follow(connection, reader, invocation.screen, view.job_id, chosen, stream)
            return
        if pattern:
            check_pattern(pattern, view.tasks)
            files = OutputFiles(reader, stream, pattern)
            await files.write(connection, view)
            data = {"job_id": view.job_id, "tasks": files.tasks, "to": pattern}
            await invocation.show(Record(pattern, data, [files.sentence(view.job_id)]))
            files.check()
            return
        found = TaskLogs(connection, reader, view.job_id, stream)
        await invocation.show(found)
        if not found.shown and invocation.screen.is_table:
            invocation.screen.say(f"no task of job {view.job_id} wrote anything to {stream}")
        found.missing.check()

    async def show_one(connection: Connection) -> None:
        nonlocal first
        task_id = task_ids[0] if task_ids else None
        request = Logs(job=job, task_id=task_id, stream=stream, stored=True)
        if first is None:
            first = await ask(connection, request, Log, ASK_SECONDS)
        if first.stored is not None or first.next_offset is not None:
            needs_loop()  # it begins anew, with this piece
        tell_which(invocation, first.job_id, first.name)
        missing = Missing()
        found = pieces(connection, reader, first, stream, missing)
        log = TaskLog(first.job_id, first.task_id, stream, found)
        await invocation.show(log)
        if log.is_empty:
            words = await why_empty(connection, first.job_id, first.task_id, stream)
            invocation.screen.say(words)
        missing.check()

    invocation.talk(work, briefly=not (follows or pattern or every))


def _ids(view: JobView) -> list[int]:
    """The ids of the first tasks of a job: enough to see that there are too many."""
    array = parse_array(view.ids)
    return [array.task_id(index) for index in range(min(view.tasks, _MOST_FOLLOWED + 1))]
