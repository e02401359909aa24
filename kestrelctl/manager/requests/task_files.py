"""Tells owners where the files are that their tasks left."""

from __future__ import annotations

from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobRecord
from kestrelctl.errors import UsageError
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.selection import Selection
from kestrelctl.manager.service import Service
from kestrelctl.protocol import job_requests as rq
from kestrelctl.protocol.job_answers import OutputPage, TaskFiles

#: The most tasks that are looked at for one page.
MOST_TASKS = 1000


class TaskFileRequests:
    """Pages of files. Who knows where a file is may read it, so they are for its owner alone."""

    def __init__(self, service: Service, selection: Selection) -> None:
        self._service = service
        self._selection = selection

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {rq.ListOutputs: self.list}

    async def list(self, caller: Caller, request: rq.ListOutputs, record: JobRecord) -> None:
        """Answers with the page that is asked for.

        Raises:
            UsageError: it leaves no files here, or too many tasks are named.
        """
        if not record.spec.program.outputs:
            raise UsageError(
                f"job {record.job_id} leaves no files",
                hint="`kestrelctl submit --keep GLOB` says which files of tasks are kept",
            )
        if record.spec.program.output_to:
            raise UsageError(
                f"the files of job {record.job_id} are at {record.spec.program.output_to}",
                cause="--output-to had them written there, and the pool has none of them",
                hint="read them there: those of task 7 are in its directory 7",
            )
        if len(request.ids) > MOST_TASKS:
            raise UsageError(f"at most {MOST_TASKS:,} tasks are told of at once")
        indexes = self._selection.indexes(record, request.ids)
        rows = await self._service.store.ask(
            lambda read: read.tasks(
                record.job_id,
                states=(TaskState.DONE,),
                after=request.after,
                limit=MOST_TASKS,
                indexes=tuple(indexes),
            )
        )
        told = [row for row in rows if row.result is not None and row.result.outputs is not None]
        page = views.first_that_fit(
            TaskFiles(
                task_id=record.spec.task_id(row.index),
                files=row.result.output_files,
                stored=row.result.outputs,
            )
            for row in told
            if row.result is not None and row.result.outputs is not None
        )
        after = None
        if len(page) < len(told):
            after = told[len(page) - 1].index
        elif len(rows) == MOST_TASKS and not request.ids:
            after = rows[-1].index
        caller.reply(OutputPage(id=request.id, tasks=page, after=after))
