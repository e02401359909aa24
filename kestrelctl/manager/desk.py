"""Serves users: every request is answered, with what was asked or with why not."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil

from kestrelctl import __version__
from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.job import Phase
from kestrelctl.core.model import TaskState
from kestrelctl.core.records import JobForgotten, JobRecord
from kestrelctl.core.validate import problem_with_job
from kestrelctl.errors import BY_CODE, KestrelError, NotAllowed, NotFound, StoreFull, UsageError
from kestrelctl.manager import views
from kestrelctl.manager.access import Access, bare
from kestrelctl.clock import now
from kestrelctl.manager.outputs import FETCH_SECONDS, Outputs, tail_log, whole_in_tail
from kestrelctl.manager.selection import select_jobs
from kestrelctl.manager.service import Service
from kestrelctl.manager.uploads import Uploads
from kestrelctl.manager.watchers import Watchers
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

log = logging.getLogger(__name__)

MAX_PAGE = 2000
MAX_PAGE_BYTES = 200_000


@dataclass(frozen=True)
class Caller:
    """Who asks, and how to answer: `reply` sends one message to exactly that session."""

    jid: str
    admin: bool
    reply: Callable[[an.Reply], None]

    @property
    def user(self) -> str:
        return bare(self.jid)


class Desk:
    """The user side of a manager."""

    def __init__(self, service: Service, access: Access) -> None:
        self._service = service
        self._access = access
        self._requests = itertools.count(1)
        self._waiting: dict[str, Callable[[fx.Answer], None]] = {}
        self._uploads = Uploads()
        self._watchers: Watchers[Caller] = Watchers()
        self.outputs = Outputs()
        self._tasks: set[asyncio.Task[None]] = set()
        service.on_answer = self._on_answer
        service.on_job_ended = self._on_job_ended
        self._serve: dict[type, Callable[[Caller, Any], Awaitable[None]]] = {
            rq.Submit: self._submit,
            rq.UploadItems: self._upload_items,
            rq.CancelJobs: self._cancel,
            rq.ListJobs: self._list_jobs,
            rq.ListTasks: self._list_tasks,
            rq.Watch: self._watch,
            rq.Logs: self._logs,
            rq.RetryJobs: self._retry,
            rq.ExplainJob: self._explain,
            rq.ForgetJobs: self._forget,
            rq.ListWorkers: self._list_workers,
            rq.DrainWorkers: self._drain,
            rq.ResumeWorkers: self._resume,
            rq.PoolStatus: self._pool_status,
        }

    def serve(self, caller: Caller, request: rq.AnyRequest) -> None:
        """Answers a request, now or when what it asks for is done."""
        task = asyncio.get_running_loop().create_task(self._guarded(caller, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, caller: Caller, request: rq.AnyRequest) -> None:
        try:
            await self._serve[type(request)](caller, request)
        except KestrelError as error:
            caller.reply(failed(request.id, error))
        except Exception:
            log.exception("a request of %s failed: %s", caller.jid, type(request).__name__)
            caller.reply(failed(request.id, KestrelError("the manager failed at this request")))

    # -- what the core answers ---------------------------------------------------------------------

    async def _decided(self, make: Callable[[str], ev.Event]) -> fx.Answer:
        """Hands the core a user's wish and returns its answer, once that is durable."""
        token = str(next(self._requests))
        future: asyncio.Future[fx.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future.set_result
        self._service.handle(make(token))
        answer = await future
        if answer.error is not None:
            raise BY_CODE.get(answer.error, KestrelError)(answer.message, hint=answer.hint or None)
        return answer

    def _on_answer(self, answer: fx.Answer) -> None:
        waiting = self._waiting.pop(answer.request, None)
        if waiting is not None:
            waiting(answer)

    def _on_job_ended(self, ended: fx.JobEnded) -> None:
        watchers = self._watchers.pop(ended.job_id, now())
        if not watchers:
            return
        for record in self._service.store.jobs(ids=[ended.job_id], limit=1):
            for caller in watchers:
                caller.reply(an.Ended(id="", job=views.job_view(record, None)))

    # -- jobs --------------------------------------------------------------------------------------

    async def _submit(self, caller: Caller, request: rq.Submit) -> None:
        spec = request.spec
        if request.upload:
            lines = self._uploads.take(caller.jid, request.upload)
            spec = msgspec.structs.replace(spec, items=tuple(lines), count=len(lines))
        problem = problem_with_job(spec)
        if problem:
            raise UsageError("the job cannot be accepted", cause=problem)
        if self._service.store_error:
            raise StoreFull("the manager cannot store the job", cause=self._service.store_error)
        answer = await self._decided(
            lambda token: ev.Submit(
                at=now(), id=caller.jid, request=token, owner=caller.user, spec=spec
            )
        )
        if request.watch:
            self._watchers.add(answer.job_id, caller, now())
        caller.reply(an.Submitted(id=request.id, job_id=answer.job_id, tasks=answer.tasks))

    async def _upload_items(self, caller: Caller, request: rq.UploadItems) -> None:
        held = self._uploads.add(caller.jid, request.upload, request.lines, now())
        caller.reply(an.Changed(id=request.id, what=[request.upload], tasks=held))

    async def _cancel(self, caller: Caller, request: rq.CancelJobs) -> None:
        done: list[str] = []
        tasks = 0
        for job_id in self._selected(caller, request.jobs):
            answer = await self._decided(
                lambda token, job_id=job_id: ev.Cancel(  # type: ignore[misc]
                    at=now(),
                    id=caller.jid,
                    request=token,
                    by=caller.user,
                    admin=caller.admin,
                    job_id=job_id,
                )
            )
            done.append(str(job_id))
            tasks += answer.tasks
        caller.reply(an.Changed(id=request.id, what=done, tasks=tasks))

    async def _retry(self, caller: Caller, request: rq.RetryJobs) -> None:
        store = self._service.store
        done: list[str] = []
        tasks = 0
        for job_id in self._selected(caller, request.jobs):
            record = self._record(job_id)
            indexes = self._indexes(record, request.task_ids)
            bad = store.ended_badly(job_id, indexes)
            active = job_id in self._service.pool.state.jobs
            rest = not request.task_ids
            if not bad and not (rest and record.cancelling):
                raise UsageError(f"job {job_id} has no such task that failed, was lost or cancelled")
            answer = await self._decided(
                lambda token, job_id=job_id, record=record, bad=bad, active=active: ev.Retry(  # type: ignore[misc]
                    at=now(),
                    id=caller.jid,
                    request=token,
                    by=caller.user,
                    admin=caller.admin,
                    job_id=job_id,
                    record=None if active else record,
                    indexes=bad,
                    rest=rest,
                )
            )
            done.append(str(job_id))
            tasks += answer.tasks
        caller.reply(an.Changed(id=request.id, what=done, tasks=tasks))

    async def _forget(self, caller: Caller, request: rq.ForgetJobs) -> None:
        ids = self._selected(caller, request.jobs)
        for job_id in ids:
            record = self._record(job_id)
            if job_id in self._service.pool.state.jobs:
                raise UsageError(
                    f"job {job_id} is active", hint=f"`kestrelctl job cancel {job_id}` first"
                )
            if record.owner != caller.user and not caller.admin:
                raise NotAllowed(f"job {job_id} belongs to {record.owner}")
        reply = an.Changed(id=request.id, what=[str(job_id) for job_id in ids])
        self._service.persist(
            [JobForgotten(job_id) for job_id in ids], lambda: caller.reply(reply)
        )

    async def _list_jobs(self, caller: Caller, request: rq.ListJobs) -> None:
        store, active = self._service.store, self._service.pool.state.jobs
        limit = min(request.limit, MAX_PAGE)
        if request.jobs:
            ids = self._selected(caller, request.jobs)
            records = store.jobs(ids=ids, limit=len(ids)) if ids else []
        else:
            records = store.jobs(owner=request.owner or None, states=request.states, limit=limit)
        found = [views.job_view(record, active.get(record.job_id)) for record in records]
        caller.reply(an.Jobs(id=request.id, jobs=found))

    async def _list_tasks(self, caller: Caller, request: rq.ListTasks) -> None:
        job_id = self._one(caller, request.job)
        record = self._record(job_id)
        page, after = self._page(record, request)
        caller.reply(an.Tasks(id=request.id, tasks=page, after=after))

    def _page(
        self, record: JobRecord, request: rq.ListTasks
    ) -> tuple[list[an.TaskView], int | None]:
        """A page of tasks: rows of the store, and what is under way or waits, in array order."""
        limit = max(1, min(request.limit, MAX_PAGE))
        job = self._service.pool.state.jobs.get(record.job_id)
        indexes = self._indexes(record, request.ids)
        states = set(request.states)
        rows = {
            row.index: row
            for row in self._service.store.tasks(
                record.job_id, after=request.after, limit=limit, indexes=indexes
            )
        } if not states or job is not None else {
            row.index: row
            for row in self._service.store.tasks(
                record.job_id,
                states=request.states,
                after=request.after,
                limit=limit,
                indexes=indexes,
            )
        }
        last = record.spec.count - 1
        wanted: Any = indexes or range(request.after + 1, record.spec.count)
        if states and job is None and TaskState.CANCELLED not in states:
            wanted = sorted(rows)
            full = len(rows) >= limit
        else:
            full = True
        page: list[an.TaskView] = []
        size = 0
        for index in wanted:
            view = self._task(record, job, rows, index, request.after, limit)
            if view is None:
                return page, index - 1
            if not states or view.state in states:
                page.append(view)
                size += 60 + len(view.worker) + len(view.reason)
            if len(page) >= limit or size > MAX_PAGE_BYTES:
                return page, index if index < last else None
        if not indexes and full and wanted and wanted[-1] < last:
            return page, wanted[-1]
        return page, None

    def _task(
        self,
        record: JobRecord,
        job: Any,
        rows: dict[int, Any],
        index: int,
        after: int,
        limit: int,
    ) -> an.TaskView | None:
        """One task's view; None if its row may lie beyond the rows at hand."""
        live = job.live.get(index) if job is not None else None
        if live is not None:
            running = live.phase is Phase.RUNNING
            return an.TaskView(
                index=index,
                task_id=record.spec.task_id(index),
                state=TaskState.RUNNING if running else TaskState.WAITING,
                worker=live.worker.jid if live.worker is not None else "",
                failures=live.failures,
                losses=live.losses,
            )
        row = rows.get(index)
        if row is not None:
            return views.task_view(row, record)
        if rows and len(rows) >= limit and index > max(rows):
            return None
        cancelled = record.cancelling or (job is not None and job.cancelling)
        return an.TaskView(
            index=index,
            task_id=record.spec.task_id(index),
            state=TaskState.CANCELLED if cancelled else TaskState.WAITING,
        )

    async def _watch(self, caller: Caller, request: rq.Watch) -> None:
        store, active = self._service.store, self._service.pool.state.jobs
        ids = self._selected(caller, request.jobs)
        for job_id in ids:
            if job_id in active:
                self._watchers.add(job_id, caller, now())
        records = store.jobs(ids=ids, limit=len(ids)) if ids else []
        found = [views.job_view(record, active.get(record.job_id)) for record in records]
        caller.reply(an.Jobs(id=request.id, jobs=found))

    async def _explain(self, caller: Caller, request: rq.ExplainJob) -> None:
        job_id = self._one(caller, request.job)
        state = self._service.pool.state
        job = state.jobs.get(job_id)
        if job is None:
            record = self._record(job_id)
            raise UsageError(
                f"no task of job {job_id} waits: it ended as {record.state}",
                hint=f"`kestrelctl job tasks {job_id}` shows how each task went",
            )
        caller.reply(views.explanation(state, job, request.id, now()))

    async def _logs(self, caller: Caller, request: rq.Logs) -> None:
        if request.stream not in ("stdout", "stderr"):
            raise UsageError(f"a task has stdout and stderr, no {request.stream!r}")
        record = self._record(self._one(caller, request.job))
        if record.owner != caller.user and not caller.admin:
            raise NotAllowed(f"job {record.job_id} belongs to {record.owner}")
        (index,) = self._indexes(record, [request.task_id])
        job = self._service.pool.state.jobs.get(record.job_id)
        live = job.live.get(index) if job is not None else None
        rows = self._service.store.tasks(record.job_id, indexes=[index], limit=1)
        if live is not None and live.phase is Phase.RUNNING and live.worker is not None:
            worker, number = live.worker.jid, live.number
        elif not rows or rows[0].result is None:
            raise NotFound(
                f"task {request.task_id} of job {record.job_id} has not run",
                hint=f"`kestrelctl job explain {record.job_id}` says why",
            )
        elif whole_in_tail(rows[0], request.stream):
            caller.reply(tail_log(request.id, rows[0], request.stream, request.offset))
            return
        else:
            worker, number = rows[0].worker, rows[0].result.number
        found = self._service.pool.state.workers.get(worker)
        if found is not None and found.online:
            message, future = self.outputs.fetch(worker, number, request.stream, request.offset)
            self._service.send_to_worker(worker, message)
            try:
                output = await asyncio.wait_for(future, FETCH_SECONDS)
            except TimeoutError:
                log.info("worker %s did not send the output of attempt %d", worker, number)
            else:
                if output.size_bytes is not None:
                    got = len(output.data) * 3 // 4 - output.data[-2:].count("=")
                    end = output.offset + got
                    more = end if got and end < output.size_bytes else None
                    caller.reply(
                        an.Log(
                            id=request.id,
                            data=output.data,
                            size_bytes=output.size_bytes,
                            next_offset=more,
                        )
                    )
                    return
        if not rows:
            raise NotFound(f"the output of task {request.task_id} cannot be had from {worker} now")
        caller.reply(tail_log(request.id, rows[0], request.stream, request.offset))

    # -- workers and pool --------------------------------------------------------------------------

    async def _list_workers(self, caller: Caller, request: rq.ListWorkers) -> None:
        moment = now()
        limit = max(1, min(request.limit, MAX_PAGE))
        found = sorted(
            (
                worker
                for worker in self._service.pool.state.workers.values()
                if worker.jid > request.after
                and (not request.names or any(name in worker.jid for name in request.names))
            ),
            key=lambda worker: worker.jid,
        )
        page: list[an.WorkerView] = []
        size = 0
        for worker in found[:limit]:
            page.append(views.worker_view(worker, moment))
            size += 300 + len(worker.jid)
            if size > MAX_PAGE_BYTES:
                break
        after = page[-1].worker if page and len(page) < len(found) else None
        caller.reply(an.Workers(id=request.id, workers=page, after=after))

    async def _drain(self, caller: Caller, request: rq.DrainWorkers) -> None:
        jids = self._workers(caller, request.names)
        for jid in jids:
            self._service.handle(ev.Drain(at=now(), id=caller.jid, worker=jid, by=caller.user))
        caller.reply(an.Changed(id=request.id, what=jids))

    async def _resume(self, caller: Caller, request: rq.ResumeWorkers) -> None:
        jids = self._workers(caller, request.names)
        for jid in jids:
            self._service.handle(ev.Resume(at=now(), id=caller.jid, worker=jid))
        caller.reply(an.Changed(id=request.id, what=jids))

    async def _pool_status(self, caller: Caller, request: rq.PoolStatus) -> None:
        service, state = self._service, self._service.pool.state
        moment = now()
        workers: dict[str, int] = {}
        for worker in state.workers.values():
            word = views.worker_state(worker, moment)
            workers[word] = workers.get(word, 0) + 1
        process = psutil.Process(os.getpid())
        cpu = process.cpu_times()
        statistics = service.store.statistics()
        totals = state.totals
        caller.reply(
            an.Pool(
                id=request.id,
                version=__version__,
                epoch=state.epoch,
                up_seconds=moment - service.started_at,
                workers=workers,
                jobs_active=len(state.jobs),
                tasks_waiting=sum(job.remaining - job.running for job in state.jobs.values()),
                tasks_running=sum(job.running for job in state.jobs.values()),
                totals={name: getattr(totals, name) for name in totals.__slots__},
                manager_cpu_seconds=cpu.user + cpu.system,
                manager_rss_bytes=process.memory_info().rss,
                commits=statistics.commits,
                commit_seconds_mean=statistics.commit_seconds / max(1, statistics.commits),
                store_error=service.store_error,
            )
        )

    # -- what requests name ------------------------------------------------------------------------

    def _selected(self, caller: Caller, selector: str) -> list[int]:
        return select_jobs(
            selector, caller.user, self._service.pool.state, self._service.store
        )

    def _one(self, caller: Caller, selector: str) -> int:
        ids = self._selected(caller, selector)
        if len(ids) != 1:
            raise UsageError(f"{selector!r} selects {len(ids)} jobs; this needs exactly one")
        return ids[0]

    def _record(self, job_id: int) -> JobRecord:
        for record in self._service.store.jobs(ids=[job_id], limit=1):
            return record
        raise NotFound(f"there is no job {job_id}", hint="`kestrelctl job list` shows all jobs")

    def _indexes(self, record: JobRecord, task_ids: list[int]) -> list[int]:
        found = []
        for task_id in task_ids:
            index = record.spec.index_of(task_id)
            if index is None:
                raise NotFound(f"job {record.job_id} has no task {task_id}")
            found.append(index)
        return found

    def _workers(self, caller: Caller, names: list[str]) -> list[str]:
        if not caller.admin:
            raise NotAllowed("only an admin of the pool may drain and resume workers")
        found: list[str] = []
        for name in names:
            matches = [jid for jid in self._service.pool.state.workers if name in jid]
            if not matches:
                raise NotFound(
                    f"there is no worker {name}", hint="`kestrelctl worker list` shows all workers"
                )
            found.extend(matches)
        return sorted(set(found))


def failed(request_id: str, error: KestrelError) -> an.Failed:
    """An error as an answer."""
    return an.Failed(
        id=request_id,
        code=error.code,
        message=error.message,
        cause=error.cause or "",
        hint=error.hint or "",
    )
