"""Serves what users ask about single tasks: how they went, and what they printed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kestrelctl.core.jobs.attempt import Attempt, Phase
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.model.job.task_state import FINAL_STATES, TaskState
from kestrelctl.core.model.records import MAX_HAPPENINGS, JobRecord, TaskRecord
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import Busy, NotFound, UsageError
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.outputs import (
    FETCH_SECONDS,
    Outputs,
    output_bytes,
    size_bytes,
    stored_log,
    tail_log,
    task_output,
    whole_in_tail,
    with_what_was_cut,
)
from kestrelctl.manager.requests import story as job_story
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.selection import Selection
from kestrelctl.manager.service import Service
from kestrelctl.manager.views import checkpoint_view
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec
from kestrelctl.protocol import job_requests as rq
from kestrelctl.protocol.job_answers import AttemptOutput, FollowedLog, TaskOutput
from kestrelctl.protocol.workers import Output
from kestrelctl.store.item_window import ItemWindow

log = logging.getLogger(__name__)

#: The end of an attempt of which no end was reported.
GIVEN_UP = "given up"
#: The most tasks in one answer; fewer if what is to be said of them takes much room.
MAX_TASKS = 1000
#: The most tasks of a story that are told with their items.
MAX_ITEMS = 20
#: Bytes of a page of outputs around them.
_FRAME_BYTES = 1000

#: The reasons why a task waits that was handed out before.
_WAITS = {
    Standing.READY: "",
    Standing.BACKOFF: "it failed, and pauses before it runs again",
    Standing.UNHEARD: "its worker has not spoken since the manager started",
    Standing.BEHIND: "it waits for the task of its index of the job that it is after",
}


class TaskRequests:
    """Serves requests for tasks, stories and logs."""

    def __init__(self, service: Service, selection: Selection, outputs: Outputs) -> None:
        self._service = service
        self._selection = selection
        self._outputs = outputs

    # -- tasks -------------------------------------------------------------------------------------

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            rq.ListTasks: self.list_tasks,
            rq.Logs: self.logs,
            rq.FollowLogs: self.follow_logs,
            rq.AllLogs: self.all_logs,
            rq.TellStory: self.story,
        }

    async def list_tasks(self, caller: Caller, request: rq.ListTasks, record: JobRecord) -> None:
        job = self._service.pool.job(record.job_id)
        limit = max(1, min(request.limit, MAX_TASKS))
        states = frozenset(request.states)
        after: int | None = None
        if request.ids:
            indexes: Iterable[int] = self._selection.indexes(record, request.ids[:limit])
            rows = await self._rows(record, indexes=indexes)
        elif (
            states
            and TaskState.WAITING not in states
            and not (
                TaskState.CANCELLED in states and (record.cancelling or record.spec.after_each)
            )
        ):
            # Only tasks with an object or a row can be in these states, so all others are skipped.
            rows = await self._rows(record, states=states, after=request.after, limit=limit)
            live = () if job is None else (i for i in job.live if i > request.after)
            indexes = sorted({*rows, *live})
            if len(indexes) > limit or len(rows) == limit:
                indexes = indexes[:limit]
                after = indexes[-1]
        else:
            end = min(request.after + 1 + limit, record.spec.count)
            indexes = range(request.after + 1, end)
            rows = await self._rows(record, after=request.after, limit=limit)
            after = end - 1 if end < record.spec.count else None
        # What ended while the store was asked is in neither of the two.
        missing = () if job is None else _between(job, rows, indexes)
        if missing:
            rows = rows | await self._rows(record, indexes=missing)
        found = [self._view(record, job, rows, index) for index in indexes]
        if request.items:
            longest = views.LONGEST_ITEM if len(request.ids) == 1 else views.LONGEST_COMMAND
            items = await self._items(record, [view.index for view in found])
            found = [views.with_item(view, items.get(view.index), longest) for view in found]
        tasks = [view for view in found if not states or view.state in states]
        page = tasks if request.ids else views.first_that_fit(tasks)
        if len(page) < len(tasks):
            after = page[-1].index
        stages = [stage.name for stage in record.spec.program.stages]
        caller.reply(an.Tasks(id=request.id, tasks=page, after=after, stages=stages))

    async def _items(self, record: JobRecord, indexes: Iterable[int]) -> dict[int, str]:
        """The items of tasks by their indexes; nothing if the job has none."""
        found: dict[int, str] = {}
        window: ItemWindow | None = None
        for index in indexes:
            if window is None or not window.covers(index):
                window = await self._service.store.items(record.job_id, index)
                if window is None:
                    break  # none of the others has one, either
            found[index] = window.items[index - window.first]
        return found

    async def _rows(
        self,
        record: JobRecord,
        *,
        states: Iterable[TaskState] = (),
        after: int = -1,
        limit: int = MAX_TASKS,
        indexes: Iterable[int] = (),
    ) -> dict[int, TaskRecord]:
        job_id, meant, only = record.job_id, tuple(states), tuple(indexes)
        found = await self._service.store.ask(
            lambda read: read.tasks(job_id, states=meant, after=after, limit=limit, indexes=only)
        )
        return {row.index: row for row in found}

    def _view(
        self, record: JobRecord, job: Job | None, rows: Mapping[int, TaskRecord], index: int
    ) -> an.TaskView:
        """A task from memory, from its row, or, if it never started, from the job alone."""
        task_id = record.spec.task_id(index)
        live = job.live.get(index) if job is not None else None
        if live is not None:
            attempt, now = live.attempt, self._service.now()
            said = views.last_use(self._service.pool, attempt)
            said_at, use = said or (None, None)
            ran_seconds = views.run_seconds(attempt, said, now)
            return an.TaskView(
                index=index,
                task_id=task_id,
                state=TaskState.WAITING if attempt is None else TaskState.RUNNING,
                worker="" if attempt is None else attempt.worker,
                stage="" if attempt is None else attempt.stage,
                failures=live.failures,
                losses=live.losses,
                started_at=None if ran_seconds is None else now - ran_seconds,
                wall_seconds=ran_seconds,
                cpu_seconds=use.cpu_seconds if use else None,
                wait_seconds=_wait_seconds(record, attempt, ran_seconds, now),
                memory_bytes=use.memory_bytes if use else None,
                said_at=said_at,
                checkpoint=checkpoint_view(live.checkpoint, now),
            )
        row = rows.get(index)
        if row is not None:
            return views.task_view(row, record, self._service.now())
        if record.cancelling or _never_starts(record, job, index):
            return an.TaskView(index=index, task_id=task_id, state=TaskState.CANCELLED)
        return an.TaskView(
            index=index,
            task_id=task_id,
            state=TaskState.WAITING,
            wait_seconds=views.waits_seconds(record, self._service.now()),
        )

    # -- stories -----------------------------------------------------------------------------------

    async def story(self, caller: Caller, request: rq.TellStory, record: JobRecord) -> None:
        if len(request.task_ids) > MAX_TASKS:
            raise UsageError(
                f"{len(request.task_ids):,} tasks are too many for one story",
                hint=f"name at most {MAX_TASKS:,}, or none for the latest of all",
            )
        alone = [record.spec.first] if record.spec.count == 1 else []
        indexes = self._selection.indexes(record, request.task_ids or alone)
        job = self._service.pool.job(record.job_id)
        rows = await self._rows(record, indexes=indexes) if indexes else {}
        asked = [
            job_story.Asked(
                index=index,
                row=rows.get(index),
                whereabouts=_whereabouts(job, index) if job is not None else None,
            )
            for index in dict.fromkeys(indexes)
        ]
        happenings = await self._service.store.ask(
            lambda read: read.happenings(record.job_id, indexes=indexes, limit=MAX_HAPPENINGS + 1)
        )
        view = views.abridged(
            views.job_view(record, job, self._service.unstored().get(record.job_id))
        )
        told = job_story.tell(record, happenings, asked, self._service.now())
        entries, more = job_story.cut(told, max(1, request.limit), view)
        items = await self._items_of(record, [each.index for each in asked[:MAX_ITEMS]])
        caller.reply(an.Story(id=request.id, job=view, entries=entries, more=more, items=items))

    async def _items_of(self, record: JobRecord, indexes: list[int]) -> dict[int, str]:
        """The items of some tasks by their ids, cut where they are long."""
        longest = views.LONGEST_ITEM if len(indexes) == 1 else views.LONGEST_COMMAND
        found = await self._items(record, indexes)
        return {
            record.spec.task_id(index): views.cut_item(item, longest)
            for index, item in found.items()
        }

    # -- output ------------------------------------------------------------------------------------

    async def all_logs(self, caller: Caller, request: rq.AllLogs, record: JobRecord) -> None:
        _must_be_a_stream(request.stream)
        job = self._service.pool.job(record.job_id)
        live = job.live if job is not None else {}
        if request.ids:
            asked = self._selection.indexes(record, request.ids[:MAX_TASKS])
            indexes = sorted({index for index in asked if index > request.after})
            rows = await self._rows(record, indexes=indexes) if indexes else {}
            whole = True
        else:
            rows = await self._rows(record, after=request.after, limit=MAX_TASKS)
            indexes = sorted({*rows, *(index for index in live if index > request.after)})
            whole = len(indexes) <= MAX_TASKS and len(rows) < MAX_TASKS
        page: list[TaskOutput] = []
        room = codec.MAX_PAYLOAD_BYTES - _FRAME_BYTES
        after = request.after
        for index in indexes[:MAX_TASKS]:
            task = live.get(index)
            found = _output(record, index, task, rows.get(index), request.stream)
            if found is not None:
                room -= output_bytes(found)
                if room < 0:
                    whole = False
                    break
                page.append(found)
            after = index
        caller.reply(an.LogPage(id=request.id, outputs=page, after=None if whole else after))

    def _index(self, record: JobRecord, request: rq.Logs | rq.FollowLogs) -> int:
        """The index of the task whose output is asked for.

        Raises:
            UsageError: no task is named, and the job has several.
        """
        _must_be_a_stream(request.stream)
        task_id = request.task_id
        if task_id is None:
            task_id = record.spec.first
            if record.spec.count > 1:
                raise UsageError(
                    f"job {record.job_id} has {plural(record.spec.count, 'task')}; whose output?",
                    hint=f"kestrelctl job logs {record.job_id} {task_id}, or --all",
                )
        (index,) = self._selection.indexes(record, [task_id])
        return index

    async def logs(self, caller: Caller, request: rq.Logs, record: JobRecord) -> None:
        index = self._index(record, request)
        task_id = record.spec.task_id(index)
        job = self._service.pool.job(record.job_id)
        live = job.live.get(index) if job is not None else None
        row = (await self._rows(record, indexes=[index])).get(index)
        attempt = live.attempt if live is not None else None
        ended = job is not None and live is None and index < job.cursor
        if ended and (row is None or row.state is TaskState.WAITING):
            raise Busy(f"the end of task {task_id} is being written", hint="try again")
        if attempt is None and (row is None or row.result is None):
            if job is None or (row is not None and row.state in FINAL_STATES):
                state = TaskState.CANCELLED if row is None else row.state
                raise NotFound(
                    f"task {task_id} of job {record.job_id} never ran: it is {state.value}",
                    hint=f"`kestrelctl job story {record.job_id} {task_id}` says why",
                )
            raise NotFound(
                f"task {task_id} of job {record.job_id} has not run",
                hint=f"`kestrelctl job explain {record.job_id}` says why",
            )
        fetched: an.Log | str = ""
        if attempt is not None:
            fetched = await self._fetch(attempt.worker, attempt.number, request)
        elif row is not None and row.result is not None:
            stored = stored_log(request.id, row, request.stream) if request.stored else None
            fetched = stored or await self._of_ended(row, row.result.number, request)
        if isinstance(fetched, str):
            if row is None:
                raise NotFound(
                    f"the output of task {task_id} cannot be had just now", cause=fetched
                )
            fetched = tail_log(request.id, row, request.stream, request.offset, fetched)
        name = record.spec.name
        caller.reply(replace(fetched, job_id=record.job_id, name=name, task_id=task_id))

    async def follow_logs(self, caller: Caller, request: rq.FollowLogs, record: JobRecord) -> None:
        index = self._index(record, request)
        job = self._service.pool.job(record.job_id)
        live = job.live.get(index) if job is not None else None
        row = (await self._rows(record, indexes=[index])).get(index)
        state = _state(record, job, index, row)
        if state is None:
            raise Busy(f"the end of task {request.task_id} is being written", hint="try again")
        attempt = live.attempt if live is not None else None
        result = row.result if row is not None else None
        if attempt is not None and attempt.phase is not Phase.RUNNING:
            attempt = None
        piece: AttemptOutput | None = None
        if live is not None and attempt is not None and request.attempt in (0, attempt.number):
            fetched = await self._fetch(attempt.worker, attempt.number, request)
            piece = AttemptOutput(
                attempt=attempt.number, worker=attempt.worker, count=live.next_count
            )
            piece = _filled(piece, fetched)
        elif request.attempt and (result is None or result.number != request.attempt):
            piece = AttemptOutput(attempt=request.attempt, over=GIVEN_UP)
        elif row is not None and result is not None and result.number != request.besides:
            found = await self._of_ended(row, result.number, request)
            if isinstance(found, str):
                found = tail_log(request.id, row, request.stream, request.offset, found)
            how = how_it_ended(result.reason, result.signal, result.exit_code)
            piece = AttemptOutput(attempt=result.number, worker=row.worker, over=how)
            piece = _filled(piece, found)
        caller.reply(FollowedLog(id=request.id, state=state, piece=piece))

    async def _of_ended(
        self, row: TaskRecord, number: int, request: rq.Logs | rq.FollowLogs
    ) -> an.Log | str:
        """Fetches a piece of output from the worker that ran an attempt to its end, or tells why it
        cannot be had: the reason is empty if what the manager has is all.
        """
        if whole_in_tail(row, request.stream):
            return ""
        fetched = await self._fetch(row.worker, number, request)
        if isinstance(fetched, an.Log) and fetched.next_offset is None:
            return with_what_was_cut(fetched, size_bytes(row, request.stream))
        return fetched

    async def _fetch(
        self, worker: str, number: int, request: rq.Logs | rq.FollowLogs
    ) -> an.Log | str:
        """Fetches a piece of output from the worker that has it, or tells why it cannot be had."""
        known = self._service.pool.workers.get(worker)
        if known is None or not known.online:
            return f"worker {worker}, which has it, is away"
        if worker in self._service.profiles:
            return f"worker {worker} keeps no outputs; it sends their ends with the result"
        message, future = self._outputs.fetch(worker, number, request.stream, request.offset)
        self._service.send_to_worker(worker, message)
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                output: Output = await future
        except TimeoutError:
            log.info("worker %s did not send the output of attempt %d", worker, number)
            return f"worker {worker}, which has it, does not answer"
        if output.size_bytes is None:
            return f"worker {worker} no longer has it; of long outputs the oldest go first"
        end = request.offset + len(output.data)
        return an.Log(
            id=request.id,
            data=output.data,
            size_bytes=output.size_bytes,
            next_offset=end if request.offset < end < output.size_bytes else None,
            attempt=number,
        )


def _between(job: Job, rows: Mapping[int, TaskRecord], indexes: Iterable[int]) -> list[int]:
    """Finds those of these tasks that have ended without a row that is known."""
    ended = (index for index in indexes if index < job.cursor and index not in job.live)
    return [index for index in ended if index not in rows]


def _state(
    record: JobRecord, job: Job | None, index: int, row: TaskRecord | None
) -> TaskState | None:
    """The state of a task; None while its end is being written."""
    if job is not None and (task := job.live.get(index)) is not None:
        runs = task.attempt is not None and task.attempt.phase is Phase.RUNNING
        return TaskState.RUNNING if runs else TaskState.WAITING
    if index >= (job.cursor if job is not None else record.cursor):
        over = _never_starts(record, job, index)
        return TaskState.CANCELLED if over else TaskState.WAITING
    if row is None or row.state is TaskState.WAITING:
        return None
    return row.state


def _wait_seconds(
    record: JobRecord, attempt: Attempt | None, ran_seconds: float | None, now: float
) -> float | None:
    """The time from the submission to the start of a task under way; until now if it waits; None if
    it runs and nobody knows since when.
    """
    if attempt is None or attempt.phase is not Phase.RUNNING:
        return views.waits_seconds(record, now)
    return None if ran_seconds is None else views.waits_seconds(record, now - ran_seconds)


def _never_starts(record: JobRecord, job: Job | None, index: int) -> bool:
    """Whether a task beyond the cursor is cancelled, without object or row."""
    if job is None:
        return record.state != "active"
    return job.cancelling or (index >= job.cursor and index in job.bad)


def _filled(piece: AttemptOutput, found: an.Log | str) -> AttemptOutput:
    """Adds to a piece what was found, or why that cannot be had just now."""
    if isinstance(found, str):
        return replace(piece, why_missing=found)
    return replace(
        piece,
        data=found.data,
        more=found.next_offset is not None,
        skipped_bytes=found.skipped_bytes,
        cut_bytes=found.cut_bytes,
        why_missing=found.why_missing,
    )


def _must_be_a_stream(stream: str) -> None:
    if stream not in ("stdout", "stderr"):
        raise UsageError(f"a task has stdout and stderr, no {stream!r}")


def _output(
    record: JobRecord, index: int, task: Task | None, row: TaskRecord | None, stream: str
) -> TaskOutput | None:
    """Tells of a task's output among those of others; None if it wrote nothing yet."""
    attempt = task.attempt if task is not None else None
    if attempt is not None:
        if attempt.phase is not Phase.RUNNING:
            return None
        return TaskOutput(task_id=record.spec.task_id(index), more=True)
    if row is None:
        return None
    task_id = record.spec.task_id(index)
    if row.result is not None:
        return task_output(task_id, row, stream)
    if row.state is TaskState.LOST:
        return TaskOutput(task_id=task_id, why_missing="it was lost with its worker")
    return None


def _whereabouts(job: Job, index: int) -> job_story.Whereabouts | None:
    """Tells how a task of an active job is; None if it has ended."""
    task = job.live.get(index)
    if task is None:
        waits = index >= job.cursor and not (job.cancelling or index in job.bad)
        return (
            job_story.Whereabouts(what="waiting", detail="it was never handed out")
            if waits
            else None
        )
    attempt = task.attempt
    if attempt is None:
        return job_story.Whereabouts(what="waiting", detail=_WAITS.get(task.standing, ""))
    return job_story.Whereabouts(
        what="running" if attempt.phase is Phase.RUNNING else "queued",
        number=attempt.number,
        worker=attempt.worker,
        sent_at=attempt.sent_at,
    )
