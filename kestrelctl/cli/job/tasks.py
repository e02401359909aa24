"""`kestrelctl job tasks`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence

import click
import msgspec

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.job.arguments import job_argument, view_told
from kestrelctl.cli.job.view import memory, why_ended
from kestrelctl.cli.show.command_output import CommandOutput, Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.grammar.click_types import WholeNumber
from kestrelctl.grammar.id_ranges import LAST, parse_tasks
from kestrelctl.grammar.quantities import duration, short_address, size
from kestrelctl.protocol.job_answers import Tasks, TaskView
from kestrelctl.protocol.job_requests import ListTasks

#: The most named tasks that one answer can hold, with their items.
_IDS_AT_ONCE = 250
_ON_TERMINAL = 100
#: The states of the tasks that `job retry` runs again if none are named.
_BAD = [TaskState.FAILED, TaskState.LOST]


def _checkpoint(task: TaskView) -> str:
    """Shows the number of the latest checkpoint, and how old it is."""
    found = task.checkpoint
    return "" if found is None else f"{found.n} ({duration(found.age_seconds)} ago)"


def _memory(task: TaskView) -> str:
    """Shows the most memory it took, or has now; `-` if it has run and that is not known."""
    known = task.peak_bytes or task.memory_bytes
    return memory(known) if known or task.wall_seconds is not None else ""


_COLUMNS: list[Column[TaskView]] = [
    Column("TASK", lambda t: str(t.task_id), right=True),
    Column("STATE", lambda t: t.state.value),
    Column("WORKER", lambda t: short_address(t.worker)),
    Column("TIME", lambda t: duration(t.wall_seconds), right=True),
    Column("CPU", lambda t: duration(t.cpu_seconds), right=True),
    Column("MEMORY", _memory, right=True),
    Column("CHECKPOINT", _checkpoint, right=True, sparse=True),
    Column("WAIT", lambda t: duration(t.wait_seconds), right=True, wide=True),
    Column("OUTPUT", lambda t: size(t.stdout_bytes + t.stderr_bytes), right=True, wide=True),
    Column("FILES", lambda t: str(t.output_files or ""), right=True, wide=True),
    Column("LEFT", lambda t: size(t.outputs_bytes), right=True, wide=True),
    Column("FAILURES", lambda t: str(t.failures), right=True, wide=True),
    Column("LOSSES", lambda t: str(t.losses), right=True, wide=True),
    Column("ADDRESS", lambda t: t.worker, wide=True),
    Column("ITEM", lambda t: t.item or "", sparse=True),
    Column("REASON", lambda t: why_ended(t.reason, t.exit_code, t.signal)),
]
#: The column of jobs that have stages.
_STAGE: Column[TaskView] = Column("STAGE", lambda t: t.stage)


@click.command("tasks", cls=CliCommand)
@job_argument()
@click.argument("task_ids", type=parse_tasks, required=False, metavar="[TASKS]")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([each.value for each in TaskState], case_sensitive=False),
    help="Show only these; repeatable.",
)
@click.option("--failed", is_flag=True, help="Show only those that failed or were lost.")
@click.option(
    "--limit",
    type=WholeNumber(0),
    help=f"Number of tasks to show; 0 is all.  [default: {_ON_TERMINAL} on a terminal, else all]",
)
@pass_invocation
def tasks(
    invocation: Invocation,
    job: str,
    task_ids: list[int] | None,
    states: tuple[str, ...],
    limit: int | None,
    *,
    failed: bool,
) -> None:
    """List the tasks of a job, in the order of their ids."""
    if limit is None:
        limit = _ON_TERMINAL if invocation.screen.is_terminal and invocation.screen.is_table else 0

    def on_cut() -> None:
        invocation.screen.say(f"only the first {limit:,}; --limit 0 shows all")

    async def work(connection: Connection) -> CommandOutput:
        wanted = [TaskState(each) for each in states] + (_BAD if failed else [])
        which = str((await view_told(connection, invocation, job)).job_id) if job == LAST else job
        request = ListTasks(job=which, states=wanted, ids=task_ids or [], items=True)
        answers = _answers(connection, request)
        first = await anext(answers)
        columns = [*_COLUMNS[:2], _STAGE, *_COLUMNS[2:]] if first.stages else _COLUMNS
        pages = _pages(first, answers, limit, on_cut)
        return Listing(pages, columns, lambda t: str(t.task_id), nothing="no such tasks")

    invocation.talk(work)


async def _pages(
    first: Tasks, others: AsyncIterator[Tasks], limit: int, on_cut: Callable[[], None]
) -> AsyncIterator[Sequence[TaskView]]:
    """Yields pages of tasks, asked for as they are read.

    Args:
        limit: the most tasks in all; 0 for no limit.
        on_cut: called if the limit leaves some out.
    """
    left = limit or sys.maxsize
    page: Tasks | None = first
    while page is not None:
        yield page.tasks[:left]
        left -= len(page.tasks)
        if left < 0:
            on_cut()
            return
        page = await anext(others, None)


async def _answers(connection: Connection, request: ListTasks) -> AsyncIterator[Tasks]:
    """Yields all pages: of tasks with given ids, piece by piece, or from the first to the last."""
    replace = msgspec.structs.replace
    for start in range(0, len(request.ids), _IDS_AT_ONCE):
        part = replace(request, ids=request.ids[start : start + _IDS_AT_ONCE])
        yield await ask(connection, part, Tasks)
    after: int | None = -1 if not request.ids else None
    while after is not None:
        page = await ask(connection, replace(request, after=after), Tasks)
        yield page
        after = page.after
