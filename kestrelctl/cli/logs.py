"""`kestrelctl job logs`: what tasks wrote, byte by byte."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.command_output import CommandOutput
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.id_ranges import parse_job
from kestrelctl.cli.jobview import one_job
from kestrelctl.cli.screen import Screen
from kestrelctl.cli.tasks import task_pages
from kestrelctl.cli.terminal_text import TerminalText
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.task_state import TaskState
from kestrelctl.errors import Incomplete, UsageError
from kestrelctl.protocol.answers import JobView, Log
from kestrelctl.protocol.requests import ListTasks, Logs

_ASK_SECONDS = 60.0
#: How many tasks an error names.
_MOST_NAMED = 10


@click.command("logs", cls=CliCommand)
@click.argument("job", type=parse_job, metavar="JOB")
@click.argument("task", type=click.IntRange(0), required=False, metavar="[TASK]")
@click.option("--stdout", "stream", flag_value="stdout", default="stdout", help="The default.")
@click.option("--stderr", "stream", flag_value="stderr", help="The other stream.")
@click.option("--all", "every", is_flag=True, help="Of every task that has started.")
@pass_invocation
def logs(invocation: Invocation, job: str, task: int | None, stream: str, every: bool) -> None:
    """What a task wrote, unchanged; on a terminal, control characters but those for colours are
    shown as escapes. TASK may be left out if the job has only one."""
    if every and task is not None:
        raise UsageError("one task or --all, not both")

    async def work(connection: Connection) -> None:
        view = await one_job(connection, job)
        if every:
            found = TaskLogs(connection, view.job_id, started_tasks(connection, view), stream)
            await invocation.show(found)
            found.missing.check()
            return
        if task is None and view.tasks > 1:
            raise UsageError(
                f"job {view.job_id} has {plural(view.tasks, 'task')}; whose output?",
                hint=f"kestrelctl job logs {view.job_id} {view.first}, or --all",
            )
        task_id = view.first if task is None else task
        missing = Missing()
        await invocation.show(TaskLog(connection, view.job_id, task_id, stream, missing))
        missing.check()

    invocation.talk(work)


class Missing:
    """What could not be shown."""

    def __init__(self) -> None:
        self._bytes = 0
        self._tasks: dict[int, str] = {}

    def add(self, task_id: int, log: Log) -> None:
        """Notes what is missing before and after a piece of output."""
        missing_bytes = log.skipped_bytes + log.cut_bytes
        if missing_bytes:
            self._bytes += missing_bytes
            self._tasks[task_id] = log.why_missing

    def check(self) -> None:
        """Incomplete if anything is missing."""
        if self._tasks:
            ids = ", ".join(map(str, list(self._tasks)[:_MOST_NAMED]))
            more = ", …" if len(self._tasks) > _MOST_NAMED else ""
            raise Incomplete(
                f"{plural(self._bytes, 'byte')} of the output of task {ids}{more} cannot be had",
                cause=next(filter(None, self._tasks.values()), None),
                hint="let tasks write what must last into a file of their own",
            )


class TaskLog(CommandOutput):
    """A stream of one task."""

    def __init__(
        self, connection: Connection, job_id: int, task_id: int, stream: str, missing: Missing
    ) -> None:
        self._missing = missing
        self._connection = connection
        self._job_id = job_id
        self._task_id = task_id
        self._stream = stream

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        data, skipped, cut, why, size = b"", 0, 0, "", 0
        async for log in self._pieces():
            data += base64.b64decode(log.data)
            skipped += log.skipped_bytes
            cut += log.cut_bytes
            why = why or log.why_missing
            size = log.size_bytes + log.cut_bytes
        fields = {"job_id": self._job_id, "task_id": self._task_id, "stream": self._stream}
        text = data.decode(errors="replace")
        yield (
            str(self._task_id),
            {
                **fields,
                "size_bytes": size,
                "skipped_bytes": skipped,
                "cut_bytes": cut,
                "why_missing": why,
                "text": text,
            },
        )

    async def tabulate(self, screen: Screen) -> None:
        size = 0
        text = TerminalText() if screen.is_terminal else None
        async for log in self._pieces():
            size = log.size_bytes
            if log.skipped_bytes:
                screen.warn(
                    f"{plural(log.skipped_bytes, 'byte')} of task {self._task_id} are missing here"
                )
            data = base64.b64decode(log.data)
            if text is None:
                screen.write_bytes(data)
            else:
                screen.write(text.add(data))
        if text is not None:
            screen.write(text.end())
        if not size:
            other = "stdout" if self._stream == "stderr" else "stderr"
            screen.say(f"task {self._task_id} wrote nothing to {self._stream}; try --{other}")

    async def name(self, screen: Screen) -> None:
        await self.tabulate(screen)

    async def _pieces(self) -> AsyncIterator[Log]:
        offset: int | None = 0
        while offset is not None:
            request = Logs(
                job=str(self._job_id),
                task_id=self._task_id,
                stream=self._stream,
                offset=offset,
            )
            log = await ask(self._connection, request, Log, _ASK_SECONDS)
            self._missing.add(self._task_id, log)
            yield log
            offset = log.next_offset


class TaskLogs(CommandOutput):
    """A stream of many tasks, one after another."""

    many = True

    def __init__(
        self, connection: Connection, job_id: int, task_ids: AsyncIterator[int], stream: str
    ) -> None:
        self._connection = connection
        self._job_id = job_id
        self._task_ids = task_ids
        self._stream = stream
        self.missing = Missing()

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        async for task_id in self._task_ids:
            log = self._log(task_id)
            async for entry in log.entries():
                yield entry

    async def tabulate(self, screen: Screen) -> None:
        async for task_id in self._task_ids:
            screen.write(f"==> task {task_id} <==\n")
            await self._log(task_id).tabulate(screen)

    def _log(self, task_id: int) -> TaskLog:
        return TaskLog(self._connection, self._job_id, task_id, self._stream, self.missing)

    async def name(self, screen: Screen) -> None:
        await self.tabulate(screen)


async def started_tasks(connection: Connection, view: JobView) -> AsyncIterator[int]:
    """Ids of the tasks of a job that have, or may have, written something."""
    states: list[TaskState] = [each for each in TaskState if each is not TaskState.WAITING]
    request = ListTasks(job=str(view.job_id), states=states)
    async for page in task_pages(connection, request):
        for task in page:
            yield task.task_id
