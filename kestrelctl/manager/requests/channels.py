"""Carries frames between owners of jobs and their running tasks. It keeps none of them."""

from __future__ import annotations

from kestrelctl.core.effects import JobEnded
from kestrelctl.core.jobs.attempt import Attempt
from kestrelctl.core.model.records import JobRecord
from kestrelctl.errors import UsageError
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.selection import Selection
from kestrelctl.manager.service import Service
from kestrelctl.protocol.channels import (
    Channels,
    FromTask,
    OpenChannels,
    TaskWrote,
    ToTask,
    WriteToTask,
    Written,
)


class ChannelRequests:
    """Serves owners who write to tasks, and takes what tasks write to the session that asked."""

    def __init__(self, service: Service, selection: Selection) -> None:
        self._service = service
        self._selection = selection
        #: job -> the session that opened its channels last
        self._openers: dict[int, Caller] = {}
        service.listen(JobEnded, self._on_job_ended)

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            OpenChannels: self.open,
            WriteToTask: self.write,
        }

    async def open(self, caller: Caller, request: OpenChannels, record: JobRecord) -> None:
        """Serves an owner who wants to hear the tasks of a job."""
        job = self._service.pool.job(record.job_id)
        if job is not None and not job.spec.program.channel:
            raise UsageError(f"tasks of job {record.job_id} have no channel")
        tasks: list[tuple[int, int]] = []
        if job is not None:
            self._openers[record.job_id] = caller
            tasks = [
                (record.spec.task_id(index), task.attempt.number)
                for index, task in sorted(job.live.items())
                if task.attempt is not None
            ]
        caller.reply(Channels(id=request.id, tasks=tasks))

    async def write(self, caller: Caller, request: WriteToTask, record: JobRecord) -> None:
        """Serves an owner who writes to a task."""
        (index,) = self._selection.indexes(record, [request.task_id])
        attempt = self._attempt(record.job_id, index)
        goes_on = attempt is not None and attempt.number == request.attempt
        if attempt is not None and goes_on:
            message = ToTask(number=attempt.number, data=request.data)
            self._service.tell(attempt.worker, message)
        caller.reply(Written(id=request.id, went_on=goes_on))

    def on_from_task(self, worker: str, message: FromTask) -> None:
        """Takes a frame on to the session that opened the channels of its job; others are dropped.

        A worker speaks for attempts that it has, and for no others.
        """
        opener = self._openers.get(message.job)
        attempt = self._attempt(message.job, message.index)
        job = self._service.pool.job(message.job)
        if opener is None or attempt is None or job is None:
            return
        if (attempt.worker, attempt.number) == (worker, message.number):
            task_id = job.spec.task_id(message.index)
            opener.reply(
                TaskWrote(
                    id="",
                    job=message.job,
                    task_id=task_id,
                    attempt=message.number,
                    data=message.data,
                )
            )

    def _on_job_ended(self, ended: JobEnded) -> None:
        self._openers.pop(ended.record.job_id, None)

    def _attempt(self, job_id: int, index: int) -> Attempt | None:
        """The attempt of a task that is at a worker; None if there is none."""
        job = self._service.pool.job(job_id)
        task = None if job is None else job.live.get(index)
        return None if task is None else task.attempt
