"""`kestrelctl job logs`: what tasks wrote, byte by byte."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple

import click
from msgspec.structs import replace

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.command_output import CommandOutput
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.follow import MOST_FOLLOWED, follow
from kestrelctl.cli.jobview import one_job
from kestrelctl.cli.screen import Screen
from kestrelctl.cli.terminal_text import TerminalText
from kestrelctl.core.model.plural import plural
from kestrelctl.errors import Incomplete, NotFound, UsageError
from kestrelctl.grammar.id_ranges import parse_job, parse_tasks
from kestrelctl.grammar.task_ranges import parse_array
from kestrelctl.protocol.answers import JobView, Log, LogPage
from kestrelctl.protocol.output_views import TaskOutput
from kestrelctl.protocol.requests import AllLogs, Logs

_ASK_SECONDS = 60.0
#: How many tasks an error names.
_MOST_NAMED = 10
#: Of so many long outputs the beginnings are fetched from their workers at a time.
_MOST_AHEAD = 8
#: So many outputs are held meanwhile: one that is slow to come does not gather all that follow it.
_MOST_HELD = 1_000


@click.command("logs", cls=CliCommand)
@click.argument("job", type=parse_job, metavar="JOB")
@click.argument("task_ids", type=parse_tasks, required=False, metavar="[TASKS]")
@click.option("--stdout", "stream", flag_value="stdout", default="stdout", help="The default.")
@click.option("--stderr", "stream", flag_value="stderr", help="The other stream.")
@click.option("--all", "every", is_flag=True, help="Of every task that has started.")
@click.option(
    "-f", "--follow", "follows", is_flag=True, help="Go on until the tasks have ended; of up to 16."
)
@pass_invocation
def logs(
    invocation: Invocation,
    job: str,
    task_ids: list[int] | None,
    stream: str,
    every: bool,
    follows: bool,
) -> None:
    """What a task wrote, unchanged; on a terminal, control characters but those for colours are
    shown as escapes. TASKS may be left out if the job has only one."""
    if every and (task_ids or follows):
        raise UsageError("--all stands alone, without tasks and without -f")
    if follows and invocation.screen.mode.is_json:
        raise UsageError("-f shows output as it comes, and JSON is made of whole ones")
    if task_ids and len(task_ids) > 1 and not follows:
        raise UsageError("the output of one task at a time", hint="-f for several, or --all")

    async def work(connection: Connection) -> None:
        view = await one_job(connection, job)
        if follows:
            chosen = list(dict.fromkeys(task_ids or _ids(view)))
            if len(chosen) > MOST_FOLLOWED:
                raise UsageError(
                    f"-f is for at most {MOST_FOLLOWED} tasks at once",
                    hint=f"kestrelctl job logs -f {view.job_id} {chosen[0]}",
                )
            await follow(connection, invocation.screen, view.job_id, chosen, stream)
            return
        if every:
            found = TaskLogs(connection, view.job_id, stream)
            await invocation.show(found)
            found.missing.check()
            return
        if not task_ids and view.tasks > 1:
            raise UsageError(
                f"job {view.job_id} has {plural(view.tasks, 'task')}; whose output?",
                hint=f"kestrelctl job logs {view.job_id} {view.first}, or --all",
            )
        task_id = task_ids[0] if task_ids else view.first
        missing = Missing()
        request = Logs(job=str(view.job_id), task_id=task_id, stream=stream)
        found_pieces = pieces(connection, request, missing)
        await invocation.show(TaskLog(view.job_id, task_id, stream, found_pieces))
        missing.check()

    invocation.talk(work)


def _ids(view: JobView) -> list[int]:
    """The ids of the first tasks of a job: enough to see that there are too many."""
    array = parse_array(view.ids)
    return [array.task_id(index) for index in range(min(view.tasks, MOST_FOLLOWED + 1))]


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
            self.add_all_of(task_id, log.why_missing)

    def add_all_of(self, task_id: int, why: str) -> None:
        """Notes a task of whose output nobody knows how much is missing."""
        self._tasks.setdefault(task_id, why)

    def check(self) -> None:
        """Incomplete if anything is missing."""
        if not self._tasks:
            return
        ids = ", ".join(map(str, list(self._tasks)[:_MOST_NAMED]))
        more = ", …" if len(self._tasks) > _MOST_NAMED else ""
        whose = f"task {ids}"
        if len(self._tasks) > 1:
            whose = f"{plural(len(self._tasks), 'task')} ({ids}{more})"
        missing = plural(self._bytes, "byte") if self._bytes else "some"
        raise Incomplete(
            f"{missing} of the output of {whose} cannot be had",
            cause=next(filter(None, self._tasks.values()), None),
            hint="let tasks write what must last into a file of their own",
        )


class LogPiece(NamedTuple):
    """A piece of output, and what is said of it."""

    data: bytes
    log: Log


class TaskLog(CommandOutput):
    """A stream of one task.

    Args:
        alone: whether it is the only one: then people are told where something is missing.
    """

    def __init__(
        self,
        job_id: int,
        task_id: int,
        stream: str,
        pieces: AsyncIterator[LogPiece],
        *,
        alone: bool = True,
    ) -> None:
        self._job_id = job_id
        self._task_id = task_id
        self._stream = stream
        self._pieces = pieces
        self._alone = alone

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        data, skipped, cut, why, size = b"", 0, 0, "", 0
        async for piece, log in self._pieces:
            data += piece
            skipped += log.skipped_bytes
            cut += log.cut_bytes
            why = why or log.why_missing
            size = log.size_bytes + log.cut_bytes
        fields = {"job_id": self._job_id, "task_id": self._task_id, "stream": self._stream}
        text = data.decode(errors="replace")
        exact = text.encode() == data
        yield (
            str(self._task_id),
            {
                **fields,
                "size_bytes": size,
                "skipped_bytes": skipped,
                "cut_bytes": cut,
                "why_missing": why,
                "text": text,
                "base64": None if exact else base64.b64encode(data).decode(),
            },
        )

    async def tabulate(self, screen: Screen) -> None:
        size = 0
        text = TerminalText() if screen.is_terminal else None
        async for data, log in self._pieces:
            size = log.size_bytes
            if log.skipped_bytes and self._alone:
                screen.warn(
                    f"{plural(log.skipped_bytes, 'byte')} of task {self._task_id} are missing here"
                )
            if text is None:
                screen.write_bytes(data)
            else:
                screen.write(text.add(data))
        if text is not None:
            screen.write(text.end())
        if not size and self._alone:
            other = "stdout" if self._stream == "stderr" else "stderr"
            screen.say(f"task {self._task_id} wrote nothing to {self._stream}; try --{other}")

    async def name(self, screen: Screen) -> None:
        await self.tabulate(screen)


class TaskLogs(CommandOutput):
    """A stream of many tasks, one after another."""

    many = True

    def __init__(self, connection: Connection, job_id: int, stream: str) -> None:
        self._connection = connection
        self._job_id = job_id
        self._stream = stream
        self.missing = Missing()

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        async for _, log in self._logs():
            async for entry in log.entries():
                yield entry

    async def tabulate(self, screen: Screen) -> None:
        async for task_id, log in self._logs():
            screen.write(f"==> task {task_id} <==\n")
            await log.tabulate(screen)

    async def name(self, screen: Screen) -> None:
        await self.tabulate(screen)

    async def _logs(self) -> AsyncIterator[tuple[int, TaskLog]]:
        """The tasks that wrote something; of the next long outputs, the beginnings are fetched."""
        ahead: deque[tuple[TaskOutput, asyncio.Task[Log] | None]] = deque()
        fetching = 0
        try:
            async for output in self._outputs():
                first = None
                if output.more:
                    fetching += 1
                    first = asyncio.create_task(
                        ask(
                            self._connection,
                            self._request(output.task_id, 0),
                            Log,
                            _ASK_SECONDS,
                        )
                    )
                ahead.append((output, first))
                while ahead and (
                    ahead[0][1] is None or fetching >= _MOST_AHEAD or len(ahead) > _MOST_HELD
                ):
                    output, first = ahead.popleft()
                    fetching -= first is not None
                    yield self._log(output, first)
            while ahead:
                yield self._log(*ahead.popleft())
        finally:
            for _, first in ahead:
                if first is not None:
                    first.cancel()

    def _log(self, output: TaskOutput, first: asyncio.Task[Log] | None) -> tuple[int, TaskLog]:
        task_id = output.task_id
        pieces = self._whole(output) if first is None else self._rest(task_id, first)
        return task_id, TaskLog(self._job_id, task_id, self._stream, pieces, alone=False)

    async def _outputs(self) -> AsyncIterator[TaskOutput]:
        """What the manager has of each task; the next page is on its way while one is read."""

        def next_page(after: int) -> asyncio.Task[LogPage]:
            request = AllLogs(job=str(self._job_id), stream=self._stream, after=after)
            return asyncio.create_task(ask(self._connection, request, LogPage, _ASK_SECONDS))

        coming: asyncio.Task[LogPage] | None = next_page(-1)
        try:
            while coming is not None:
                page = await coming
                coming = next_page(page.after) if page.after is not None else None
                for output in page.outputs:
                    yield output
        finally:
            if coming is not None:
                coming.cancel()

    async def _whole(self, output: TaskOutput) -> AsyncIterator[LogPiece]:
        if output.why_missing:
            self.missing.add_all_of(output.task_id, output.why_missing)
        log = Log(id="", data=b"", size_bytes=output.size_bytes, why_missing=output.why_missing)
        yield LogPiece(output.data, log)

    async def _rest(self, task_id: int, first: asyncio.Task[Log]) -> AsyncIterator[LogPiece]:
        try:
            log = await first
            async for piece in pieces(
                self._connection, self._request(task_id, 0), self.missing, log
            ):
                yield piece
        except NotFound as error:  # of one that has just begun, or whose worker went away
            why = error.cause or error.message
            self.missing.add_all_of(task_id, why)
            yield LogPiece(b"", Log(id="", data=b"", size_bytes=0, why_missing=why))

    def _request(self, task_id: int, offset: int) -> Logs:
        return Logs(job=str(self._job_id), task_id=task_id, stream=self._stream, offset=offset)


async def pieces(
    connection: Connection, request: Logs, missing: Missing, first: Log | None = None
) -> AsyncIterator[LogPiece]:
    """A task's output, from the offset of the request to its end.

    Args:
        missing: is told what is missing of it.
        first: the answer to the request, if it has come.
    """
    if first is None:
        first = await ask(connection, request, Log, _ASK_SECONDS)
    log: Log = first
    while True:
        missing.add(request.task_id, log)
        yield LogPiece(log.data, log)
        if log.next_offset is None:
            return
        log = await ask(connection, replace(request, offset=log.next_offset), Log, _ASK_SECONDS)
