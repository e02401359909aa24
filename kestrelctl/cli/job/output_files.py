"""Writes the output of tasks to files of the submitter: `submit --stdout`, `job logs --to`."""

from __future__ import annotations

from pathlib import Path

from kestrelctl.access.connection import Connection
from kestrelctl.cli.job.task_logs import Missing, TaskLogs
from kestrelctl.client.logs import LogReader
from kestrelctl.core.model.job.placeholders import IN_FILE_NAMES
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.protocol.job_answers import JobView

#: Stands for the number of a task in the name of its file.
NUMBER = "{n}"


def check_pattern(pattern: str, tasks: int) -> None:
    """Raises UsageError if several tasks would share a file, or have another one than was meant."""
    other = IN_FILE_NAMES.search(pattern)
    if other is not None:
        raise UsageError(
            f"{other[0]} in {pattern} stays as it is", hint=f"{NUMBER} is the number of a task"
        )
    if pattern == "none":
        raise UsageError(
            "the output would be written to a file with the name `none`",
            hint="without the option there is no file; ./none is a file of that name",
        )
    if tasks > 1 and NUMBER not in pattern:
        raise UsageError(
            f"{pattern} would be one file for {plural(tasks, 'task')}",
            hint=f"put {NUMBER} into the name, for the number of a task",
        )


class OutputFiles:
    """Writes the output of tasks to files.

    Args:
        reader: reads outputs.

    Attributes:
        stream: `stdout` or `stderr`.
        pattern: the name of a task's file, with `{n}` for its number.
        tasks: the number of files: one for each task that has started.
    """

    def __init__(self, reader: LogReader, stream: str, pattern: str) -> None:
        self._reader = reader
        self.stream = stream
        self.pattern = pattern
        self.tasks = 0
        self._missing = Missing()

    async def write(self, connection: Connection, view: JobView) -> None:
        """Writes the files of a job's tasks; files that had these names are replaced.

        Raises:
            KestrelError: a file cannot be written.
        """
        import asyncio

        logs = TaskLogs(connection, self._reader, view.job_id, self.stream)
        self._missing = logs.missing
        async for task_id, log in logs.each():
            path = Path(self.pattern.replace(NUMBER, str(task_id)))
            try:
                await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
                with await asyncio.to_thread(path.open, "wb") as file:
                    async for data in log.data():
                        file.write(data)
            except OSError as error:
                raise KestrelError(
                    f"{path} cannot be written",
                    cause=error.strerror,
                    hint=f"kestrelctl job logs {view.job_id} --{self.stream} --to PATTERN",
                ) from None
            self.tasks += 1

    def check(self) -> None:
        """Raises Incomplete if some of the output could not be had; the rest is written."""
        self._missing.check()

    def sentence(self, job_id: int) -> str:
        """Says what was written, for people."""
        return f"job {job_id}: {self.stream} of {plural(self.tasks, 'task')}, to {self.pattern}"
