"""Fetches the output of a job's tasks from the manager and from workers, in pieces."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.job.view import why_ended
from kestrelctl.cli.show.command_output import CommandOutput
from kestrelctl.cli.show.screen import Screen
from kestrelctl.cli.show.terminal_text import TerminalText
from kestrelctl.client.logs import LogReader
from kestrelctl.core.model.job.task_state import FINAL_STATES, TaskState
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import Incomplete, NotFound
from kestrelctl.protocol.job_answers import Log, LogPage, TaskOutput, Tasks
from kestrelctl.protocol.job_requests import AllLogs, ListTasks, Logs

if TYPE_CHECKING:
    import asyncio

#: The time to wait for a piece of output: a worker may have to be asked for it.
ASK_SECONDS = 60.0
#: The most tasks that an error names.
_MOST_NAMED = 10
#: The most long outputs whose beginnings are fetched from their workers at a time.
_MOST_AHEAD = 8
#: The most outputs held meanwhile, so that a slow one does not gather all that follow it.
_MOST_HELD = 1_000


_ENDED = {
    TaskState.DONE: "is done",
    TaskState.FAILED: "failed",
    TaskState.LOST: "was lost",
    TaskState.CANCELLED: "was cancelled",
}


class Missing:
    """The output that could not be shown."""

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
        """Notes a task whose output is missing, nobody knows how much of it."""
        self._tasks.setdefault(task_id, why)

    def check(self) -> None:
        """Raises Incomplete if anything is missing."""
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


class TaskLog(CommandOutput):
    """A stream of one task.

    Args:
        alone: whether it is the only one; then people are told where something is missing.

    Attributes:
        is_empty: whether it was printed and had nothing in it.
    """

    def __init__(
        self,
        job_id: int,
        task_id: int,
        stream: str,
        pieces: AsyncIterator[Log],
        *,
        alone: bool = True,
    ) -> None:
        self._job_id = job_id
        self._task_id = task_id
        self._stream = stream
        self._pieces = pieces
        self._alone = alone
        self.is_empty = False

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        data, skipped, cut, why, size = b"", 0, 0, "", 0
        async for log in self._pieces:
            data += log.data
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

    async def data(self) -> AsyncIterator[bytes]:
        """Yields the output of the task, as far as it can be had, in pieces."""
        async for log in self._pieces:
            yield log.data

    async def tabulate(self, screen: Screen) -> None:
        size = 0
        text = TerminalText() if screen.is_terminal else None
        async for log in self._pieces:
            size = log.size_bytes
            if log.skipped_bytes and self._alone:
                screen.warn(
                    f"{plural(log.skipped_bytes, 'byte')} of task {self._task_id} are missing here"
                )
            if text is None:
                screen.write_bytes(log.data)
            else:
                screen.write(text.add(log.data))
        if text is not None:
            screen.write(text.end())
        self.is_empty = not size

    async def name(self, screen: Screen) -> None:
        await self.tabulate(screen)


class TaskLogs(CommandOutput):
    """A stream of many tasks, one after another.

    Attributes:
        shown: the number of tasks whose output was printed.
    """

    many = True

    def __init__(self, connection: Connection, reader: LogReader, job_id: int, stream: str) -> None:
        self._connection = connection
        self._reader = reader
        self._job_id = job_id
        self._stream = stream
        self.missing = Missing()
        self.shown = 0

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        async for _, log in self.each():
            async for entry in log.entries():
                yield entry

    async def tabulate(self, screen: Screen) -> None:
        async for task_id, log in self.each():
            self.shown += 1
            screen.begin_line()
            screen.write(f"==> task {task_id} <==\n")
            await log.tabulate(screen)

    async def name(self, screen: Screen) -> None:
        await self.tabulate(screen)

    async def each(self) -> AsyncIterator[tuple[int, TaskLog]]:
        """Yields the tasks that wrote something; fetches the starts of the next long outputs."""
        import asyncio

        ahead: deque[tuple[TaskOutput, asyncio.Task[Log] | None]] = deque()
        fetching = 0
        try:
            async for output in self._outputs():
                first = None
                if output.more:
                    fetching += 1
                    request = Logs(
                        job=str(self._job_id),
                        task_id=output.task_id,
                        stream=self._stream,
                        stored=True,
                    )
                    first = asyncio.create_task(ask(self._connection, request, Log, ASK_SECONDS))
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
        """Yields what the manager has of each task; asks for a page while the last one is read."""
        import asyncio

        def next_page(after: int) -> asyncio.Task[LogPage]:
            request = AllLogs(job=str(self._job_id), stream=self._stream, after=after)
            return asyncio.create_task(ask(self._connection, request, LogPage, ASK_SECONDS))

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

    async def _whole(self, output: TaskOutput) -> AsyncIterator[Log]:
        if output.why_missing:
            self.missing.add_all_of(output.task_id, output.why_missing)
        yield Log(
            id="",
            data=output.data,
            size_bytes=output.size_bytes,
            why_missing=output.why_missing,
        )

    async def _rest(self, task_id: int, first: asyncio.Task[Log]) -> AsyncIterator[Log]:
        try:
            found = pieces(self._connection, self._reader, await first, self._stream, self.missing)
            async for log in found:
                yield log
        except NotFound as error:  # the task has just begun, or its worker went away
            why = error.cause or error.message
            self.missing.add_all_of(task_id, why)
            yield Log(id="", data=b"", size_bytes=0, why_missing=why)


async def why_empty(connection: Connection, job_id: int, task_id: int, stream: str) -> str:
    """Says that a task wrote nothing to a stream, and where else to look if anything is there."""
    request = ListTasks(job=str(job_id), ids=[task_id])
    [task] = (await ask(connection, request, Tasks)).tasks
    if task.state not in FINAL_STATES:
        return f"task {task_id} is {task.state.value}, and wrote nothing to {stream} yet"
    other, size_bytes = ("stdout", task.stdout_bytes)
    if stream == "stdout":
        other, size_bytes = ("stderr", task.stderr_bytes)
    if size_bytes:
        return f"task {task_id} wrote nothing to {stream}; try --{other}"
    why = why_ended(task.reason, task.exit_code, task.signal)
    how = f"; it {_ENDED[task.state]}: {why}" if why else ""
    return f"task {task_id} wrote nothing, to stdout nor to stderr{how}"


async def pieces(
    connection: Connection, reader: LogReader, first: Log, stream: str, missing: Missing
) -> AsyncIterator[Log]:
    """Yields a task's output, from its start to its end.

    Args:
        first: the answer to a request for its start.
        missing: is told which parts of it are missing.
    """

    def further(request: Logs) -> Awaitable[Log]:
        return ask(connection, request, Log, ASK_SECONDS)

    async for log in reader.whole(first, stream, further):
        missing.add(first.task_id, log)
        yield log
