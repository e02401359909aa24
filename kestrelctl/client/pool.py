"""A pool for programs that use asyncio: submit, watch and change jobs over one session."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask, open_pool
from kestrelctl.access.context import Context, find_context
from kestrelctl.access.share import Share, open_share
from kestrelctl.client.directory import start_directory
from kestrelctl.client.given import line_of, plain, words_of
from kestrelctl.client.logs import LogReader
from kestrelctl.client.submissions import Submissions
from kestrelctl.client.upload import submission_of
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import (
    Busy,
    NotFound,
    TimedOut,
    Undelivered,
    Unreachable,
    UsageError,
)
from kestrelctl.grammar.described_job import checked_alone, checked_job, checked_key, job_of
from kestrelctl.grammar.id_ranges import LAST
from kestrelctl.grammar.option_values import option_values
from kestrelctl.grammar.parent_file_words import of_this_machine, parse_parent_files, waiting_for
from kestrelctl.protocol import job_answers as an
from kestrelctl.protocol import job_requests as rq
from kestrelctl.protocol.request import Changed

if TYPE_CHECKING:
    from kestrelctl.client.fetch import Fetched
    from kestrelctl.client.graph import Graph
    from kestrelctl.client.inputs import JobFiles, SentFiles
    from kestrelctl.client.notebook import JobTable
    from kestrelctl.protocol.answers import PoolSummary
    from kestrelctl.protocol.channels import TaskWrote
    from kestrelctl.protocol.requests import AnyRequest
    from kestrelctl.protocol.upload_slots import Slot

log = logging.getLogger(__name__)

A = TypeVar("A")

#: States in which a job has not ended.
ACTIVE = ("active", "cancelling")
ENDED = [TaskState.DONE, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED]
#: Between two looks at tasks: at first, while some end, and at most while none does.
FIRST_LOOK_SECONDS = 0.005
SHORTEST_LOOK_SECONDS = 0.02
LONGEST_LOOK_SECONDS = 1.0
#: The most tasks whose output is asked for at once, and the most long outputs that are fetched from
#: workers at a time.
MOST_IN_A_PAGE = 1000
MOST_LONG_OUTPUTS = 8
#: The end of a job is pushed; it is asked for as often as this besides.
WATCH_SECONDS = 20.0
#: The longest silence of a pool, while its manager restarts, say, that a program sits out which
#: follows a job.
PATIENCE_SECONDS = 120.0
#: Pauses before a submission whose answer was lost is sent again: a manager may be restarting.
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
#: Options that mean something to a command line alone, and what a program does instead.
_INSTEAD = {
    "each_line": "items=[...] has one task for each",
    "from_json": "items=[...] has one task for each",
    "export": "env={...} sets variables",
    "key": "submit(..., key=...), or submit_graph(graph, key=...) for all of its jobs",
    "fetch": "job.fetch(directory) brings files",
    "stdout": "job.logs() has what a task printed",
    "stderr": "job.logs(stream='stderr') has what a task printed",
    "wait": "job.wait() waits",
    "progress": "job.results() has each task as it ends",
    "on_end": "job.wait() returns when the job has ended",
}


class EndedTask(NamedTuple):
    """A task that has ended, and what it printed."""

    task: an.TaskView
    stdout: bytes
    stderr: bytes


class AsyncJob:
    """A job of a pool.

    Attributes:
        id: its number.
    """

    def __init__(self, client: AsyncClient, job_id: int) -> None:
        self.id = job_id
        self._client = client

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def info(self) -> an.JobView:
        """Returns the job as it is now.

        Raises:
            NotFound: there is none of that id any more.
        """
        return self._alone(await self._client.ask(rq.ListJobs(jobs=str(self.id)), an.Jobs))

    def _alone(self, found: an.Jobs) -> an.JobView:
        if not found.jobs:
            raise NotFound(f"there is no job {self.id}")
        return found.jobs[0]

    async def wait(self, timeout_seconds: float | None = None) -> an.JobView:
        """Returns the job when it has ended, however it did.

        Raises:
            TimeoutError: it has not ended in time.
        """
        ended = self._client.end_of(self.id)
        async with asyncio.timeout(timeout_seconds):
            while True:
                ended.clear()  # it may have been tried again since an end was told
                request = rq.Watch(jobs=str(self.id))
                view = (await self._client.ask_patiently(request, an.Jobs)).jobs[0]
                if view.state not in ACTIVE:
                    return view
                with suppress(TimeoutError):
                    async with asyncio.timeout(WATCH_SECONDS):
                        await ended.wait()

    async def results(self) -> AsyncIterator[an.TaskView]:
        """Yields each task once, when it has ended; the last of them when the job has."""
        async for tasks in self._ends():
            for task in tasks:
                yield task

    async def outputs(self) -> AsyncIterator[EndedTask]:
        """Yields each task once, when it has ended, with what it printed, as far as it is kept."""
        async for tasks in self._ends():
            stdout, stderr = await asyncio.gather(
                *(self._printed(tasks, stream) for stream in ("stdout", "stderr"))
            )
            for task in tasks:
                task_id = task.task_id
                yield EndedTask(task, stdout.get(task_id, b""), stderr.get(task_id, b""))

    async def _printed(self, tasks: list[an.TaskView], stream: str) -> dict[int, bytes]:
        """Returns what some tasks printed to a stream, by their ids."""
        wanted = {
            task.task_id: task.index for task in tasks if getattr(task, f"{stream}_bytes") > 0
        }
        found: dict[int, bytes] = {}
        long: list[int] = []
        while wanted:
            request = rq.AllLogs(
                job=str(self.id),
                stream=stream,
                after=min(wanted.values()) - 1,
                ids=list(wanted)[:MOST_IN_A_PAGE],
            )
            page = await self._client.ask_patiently(request, an.LogPage)
            have = [
                output for output in page.outputs if wanted.pop(output.task_id, None) is not None
            ]
            found |= {output.task_id: output.data for output in have if not output.more}
            long += [output.task_id for output in have if output.more]
            if not have:
                break  # the manager has none of it
        turns = asyncio.Semaphore(MOST_LONG_OUTPUTS)

        async def whole(task_id: int) -> bytes:
            async with turns:
                return await self.logs(task_id, stream=stream)

        found |= zip(long, await asyncio.gather(*map(whole, long)), strict=True)
        return found

    async def _ends(self) -> AsyncIterator[list[an.TaskView]]:
        """Yields tasks that have ended, each once; the last of them when the job has."""
        seen: set[int] = set()
        complete = -1  # up to this index all have been seen
        pause_seconds = FIRST_LOOK_SECONDS / 2
        ended = self._client.end_of(self.id)
        while True:
            was_told = ended.is_set()
            request = rq.ListJobs(jobs=str(self.id))
            view = self._alone(await self._client.ask_patiently(request, an.Jobs))
            is_over = view.state not in ACTIVE
            stalled = True
            async for page in self._pages(ENDED, complete):
                fresh = [task for task in page if task.index > complete and task.index not in seen]
                seen.update(task.index for task in fresh)
                if fresh:
                    stalled = False
                    yield fresh
            while complete + 1 in seen:
                complete += 1
                seen.discard(complete)
            if is_over:
                return
            if ended.is_set() and not was_told:
                continue  # the job may have ended since it was asked about
            pause_seconds = 2 * pause_seconds if stalled else SHORTEST_LOOK_SECONDS
            pause_seconds = min(pause_seconds, LONGEST_LOOK_SECONDS)
            if ended.is_set():
                await asyncio.sleep(pause_seconds)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_seconds):
                        await ended.wait()

    async def tasks(self, states: Iterable[str] = ()) -> list[an.TaskView]:
        """Returns its tasks, in the order of the array.

        Args:
            states: only tasks in these states, such as `failed`; empty for any.
        """
        wanted = [TaskState(each) for each in states]
        return [task async for page in self._pages(wanted, -1) for task in page]

    async def _pages(self, states: list[TaskState], after: int) -> AsyncIterator[list[an.TaskView]]:
        place: int | None = after
        while place is not None:
            request = rq.ListTasks(job=str(self.id), states=states, after=place)
            page = await self._client.ask_patiently(request, an.Tasks)
            yield page.tasks
            place = page.after

    async def logs(self, task_id: int | None = None, *, stream: str = "stdout") -> bytes:
        """Returns what a task printed, as far as it is kept.

        Args:
            task_id: may be left out if the job has one task.
            stream: `stdout` or `stderr`.
        """
        client = self._client

        def ask(request: rq.Logs) -> Awaitable[an.Log]:
            return client.ask_patiently(request, an.Log)

        request = rq.Logs(job=str(self.id), task_id=task_id, stream=stream, stored=True)
        pieces = client.log_reader.whole(await ask(request), stream, ask)
        return b"".join([each.data async for each in pieces])

    async def fetch(
        self, directory: str | os.PathLike[str] | None = None, task_ids: Iterable[int] = ()
    ) -> Fetched:
        """Copies the files here that tasks left, as `keep` of `submit` said; those of a task into a
        directory of its own, `directory/TASK`. What is there, and as it came, is not fetched again.

        Args:
            directory: None for `job-ID` in the current directory.
            task_ids: only files of these tasks; empty for all that have left some.

        Returns:
            What came, and what did not: its `missing` says why, by task.
        """
        from kestrelctl.client.fetch import fetch_files

        place = Path(directory if directory is not None else f"job-{self.id}")
        client, view = self._client, await self.info()
        return await fetch_files(client.share, client.connection, view, place, list(task_ids))

    async def cancel(self, task_ids: Iterable[int] = ()) -> None:
        """Stops the job, or only these tasks of it. A job that has ended stays as it is."""
        await self._change(rq.CancelJobs(jobs=str(self.id), task_ids=list(task_ids)))

    async def hold(self, reason: str = "") -> None:
        """Starts nothing more of the job until it is released."""
        await self._change(rq.HoldJobs(jobs=str(self.id), reason=reason))

    async def release(self) -> None:
        """Lets a job that is on hold go on."""
        await self._change(rq.ReleaseJobs(jobs=str(self.id)))

    async def retry(self, task_ids: Iterable[int] = ()) -> None:
        """Runs the tasks again that ended badly, or only these."""
        await self._change(rq.RetryJobs(jobs=str(self.id), task_ids=list(task_ids)))

    async def _change(self, request: AnyRequest) -> None:
        await self._client.ask(request, Changed)

    async def story(self, task_ids: Iterable[int] = ()) -> an.Story:
        """Tells what happened to the job, or to these tasks of it, in order of time."""
        request = rq.TellStory(job=str(self.id), task_ids=list(task_ids))
        return await self._client.ask(request, an.Story)

    async def explain(self) -> an.JobExplanation:
        """Explains why its tasks wait."""
        return await self._client.ask(rq.ExplainJob(job=str(self.id)), an.JobExplanation)


class AsyncClient:
    """A session with a pool, for the time of an `async with`.

    Its connection is made anew when it is lost, and what was acknowledged is not sent twice.

    Args:
        pool: the name of the pool; empty for the one that commands on this machine talk to.
        as_admin: whether the admin's account is used, if there is one besides the user's.
        opens, finds, opens_share: stand in for the ways to a pool in tests.

    Attributes:
        connection: the session itself, once it is open.
        hears: called with the frames of tasks, by the job whose channels were opened.
    """

    def __init__(
        self,
        pool: str = "",
        *,
        as_admin: bool = False,
        opens: Callable[..., AbstractAsyncContextManager[Connection]] = open_pool,
        finds: Callable[[str], Context] = find_context,
        opens_share: Callable[[Connection, Context], Share] = open_share,
    ) -> None:
        self._pool = pool
        self._as_admin = as_admin
        self._opens = opens
        self._finds = finds
        self._opens_share = opens_share
        self._share: Share | None = None
        self._stack = AsyncExitStack()
        #: By job, while somebody waits for it.
        self._ends: WeakValueDictionary[int, asyncio.Event] = WeakValueDictionary()
        self.hears: dict[int, Callable[[TaskWrote], None]] = {}

    async def __aenter__(self) -> AsyncClient:
        opened = self._opens(self._pool, as_admin=self._as_admin)
        self.connection = await self._stack.enter_async_context(opened)
        self._submissions = Submissions(self.connection)
        self._stack.callback(self._submissions.close)
        for listen in (self._hear_ends, self._hear_tasks):
            listening = asyncio.create_task(listen())
            self._stack.callback(listening.cancel)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def _hear_ends(self) -> None:
        async for ended in self.connection.pushed():
            self.end_of(ended.job.job_id).set()

    async def _hear_tasks(self) -> None:
        async for frame in self.connection.task_frames():
            if (hear := self.hears.get(frame.job)) is not None:
                try:
                    hear(frame)
                except Exception:  # those that follow are others
                    log.exception("a frame of job %d was not taken in", frame.job)

    def end_of(self, job_id: int) -> asyncio.Event:
        """Returns what is set when the end of a watched job is told, as long as somebody has it."""
        return self._ends.setdefault(job_id, asyncio.Event())

    async def ask(self, request: AnyRequest, kind: type[A]) -> A:
        """Returns the answer of the pool to a request of its protocol.

        Raises:
            KestrelError: the pool refused it, or cannot be reached; its class says which.
        """
        return await ask(self.connection, request, kind)

    async def ask_patiently(self, request: AnyRequest, kind: type[A]) -> A:
        """Returns the answer to a request that may be made twice, also if the pool is away for a
        while, or has too much under way for this account: it may only be restarting.

        Raises:
            Unreachable, Busy: that lasted.
            KestrelError: the pool refused it.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE_SECONDS
        while True:
            try:
                return await self.ask(request, kind)
            except (Busy, Unreachable, TimedOut):
                if clock() >= deadline:
                    raise
                await asyncio.sleep(LONGEST_LOOK_SECONDS)

    async def submit(
        self,
        command: str | Sequence[str],
        *,
        items: Iterable[object] | None = None,
        key: str | None = None,
        **options: Any,
    ) -> AsyncJob:
        """Submits a job, and returns it when it is durable.

        Args:
            command: its words, or one line for the shell.
            items: one for each task, a text or what JSON can say: `{}` in the command is the item,
                `{name}` a field of it.
            key: a second submission with the same key makes no second job; None for a fresh key.
            options: those of `kestrelctl submit` with `_` for `-`: `array="1-100"`, `cpus=2`,
                `memory="2G"`, `env={"MODE": "fast"}`, `input=["model.bin"]`, `keep=["*.csv"]`,
                `after=job`.

        Raises:
            UsageError: no job can be made of that, or there is no such file.
            KestrelError: the pool refused it, or cannot be reached.
        """
        spec = await self.described(command, items, options)
        return await self.submit_spec(spec, key)

    async def _send(self, files: JobFiles) -> SentFiles:
        """Sends files of this machine to the pool's file share; returns how tasks find them."""
        from kestrelctl.client.inputs import send_files
        from kestrelctl.client.upload_record import upload_record

        record = upload_record(self.context, time.time)
        return await send_files(files, self.share, record, log.info)

    async def submit_graph(self, graph: Graph, key: str | None = None) -> dict[str, AsyncJob]:
        """Submits the jobs of a graph as one, all of them or none; returns them by their names, in
        the order of their ids, when they are durable.

        Args:
            key: a second submission with the same key makes no second jobs; None for a fresh key.

        Raises:
            UsageError: they are too many, wait for each other, or a job cannot be made as it is
                described.
            KestrelError: the pool refused them, or cannot be reached.
        """
        from kestrelctl.client.graph import Draft
        from kestrelctl.client.graph_sending import (
            GraphFiles,
            Made,
            jobs_of,
            lines_of,
            send_graph,
        )

        files = GraphFiles()

        def make(job: Draft, options: dict[str, Any]) -> Made:
            spec, values = self._made(job.argv, job.items, options)
            return Made(checked_job(spec), files.find(values["input"], values["stdin"]))

        key = checked_key(key) or os.urandom(16).hex()
        described = jobs_of(graph, make, _no_last)
        lines = lines_of([each.job for each in described])  # too large: known before files go
        if files:
            lines = lines_of(await files.sent_with(described, self._send))
        answer = await self._until_answered(lambda: send_graph(self.connection, lines, key))
        return {
            each.job.spec.name: AsyncJob(self, job_id)
            for job_id, each in enumerate(described, answer.job_id)
        }

    async def submit_spec(self, spec: JobSpec, key: str | None = None) -> AsyncJob:
        """Submits a job that is described already, and returns it when it is durable.

        Raises:
            KestrelError: the pool refused it, or cannot be reached.
        """
        answer = await self._sent(spec, checked_key(key) or os.urandom(16).hex())
        return AsyncJob(self, answer.job_id)

    async def described(
        self, command: str | Sequence[str], items: Iterable[object] | None, options: dict[str, Any]
    ) -> JobSpec:
        """Returns the job that `submit` submits; its files of this machine are in the pool's file
        share then.

        Raises:
            UsageError: no job can be made of that, or there is no such file.
            KestrelError: the share does not take a file.
        """
        given = {name: plain(value) for name, value in options.items()}
        if LAST in (given.get("after"), given.get("after_each")):
            last = (await self.last_job()).id
            for name in ("after", "after_each"):
                given[name] = last if given.get(name) == LAST else given.get(name)
        lines = None if items is None else tuple(map(line_of, items))
        spec, values = self._made(words_of(command), lines, given)
        left = parse_parent_files(values["input"], spec.after_each, _no_last)
        program = replace(spec.program, parent_files=left)
        spec = checked_alone(replace(spec, program=program, after=waiting_for(spec.after, left)))
        sources = of_this_machine(values["input"])
        if not sources and values["stdin"] is None:
            return spec
        from kestrelctl.client.inputs import find_files

        sent = await self._send(find_files(sources, values["stdin"]))
        return checked_job(replace(spec, program=sent.of(spec.program)))

    def _made(
        self, argv: tuple[str, ...], items: tuple[str, ...] | None, given: dict[str, Any]
    ) -> tuple[JobSpec, dict[str, Any]]:
        """Makes a job, not checked yet and without files; returns it and the values of all options.

        Raises:
            UsageError: an option is for the command line, has a wrong value, or does not go with
                another.
        """
        for name in given.keys() & _INSTEAD.keys():
            raise UsageError(f"{name} is for the command line", hint=_INSTEAD[name])
        values = option_values(given, _no_last)
        if items is not None and values["array"] is not None:
            raise UsageError("items and array exclude each other", hint="one of them makes tasks")
        spec = job_of(argv, values, items=items, paste_items=values["paste_items"])
        leaves = bool(spec.program.outputs or spec.program.checkpoints)
        directory = start_directory(
            values["workdir"],
            has_inputs=bool(values["input"]),
            leaves_files=leaves,
            has_own=lambda: self.context.own_directories,
        )
        return replace(spec, program=replace(spec.program, workdir=directory)), values

    async def _sent(self, spec: JobSpec, key: str) -> an.Submitted:
        """Sends a job until there is an answer; under its key it is one job, however often."""

        async def send() -> an.Submitted:
            request = await submission_of(self.connection, spec, key, watch=True, explain=False)
            return await self._submissions.send(request)

        return await self._until_answered(send)

    async def _until_answered(self, send: Callable[[], Awaitable[A]]) -> A:
        """Sends what may be sent twice until there is an answer."""
        for pause_seconds in PAUSES_SECONDS:
            try:
                return await send()
            except Undelivered:
                raise
            except (Unreachable, TimedOut):
                await asyncio.sleep(pause_seconds)
        return await send()

    @cached_property
    def context(self) -> Context:
        """The address of the pool, and what was known of it here when it was first looked for."""
        return self._finds(self._pool)

    @property
    def share(self) -> Share:
        """The pool's file share."""
        if self._share is None:
            self._share = self._opens_share(self.connection, self.context)
            self._stack.callback(self._share.close)
        return self._share

    @property
    def log_reader(self) -> LogReader:
        """The reader of what tasks of the pool print."""
        return LogReader(lambda: self.share, lambda: self.context.directory)

    async def place_in_share(self, size_bytes: int) -> Slot:
        """Asks for a place for one upload to the pool's file share, by whoever is told of it.

        Raises:
            KestrelError: there is no file share, or this account gets no place.
        """
        return await self.connection.request_slot(size_bytes, "piece")

    def job(self, job_id: int) -> AsyncJob:
        """Returns the job of an id; nothing is asked until it is used."""
        return AsyncJob(self, job_id)

    async def last_job(self) -> AsyncJob:
        """Returns the latest job of this user.

        Raises:
            NotFound: there is none.
        """
        found = (await self.ask(rq.ListJobs(jobs=LAST), an.Jobs)).jobs
        return AsyncJob(self, found[-1].job_id)

    async def jobs(self, limit: int = 100) -> JobTable:
        """Returns the newest jobs, the oldest of them first."""
        from kestrelctl.client.notebook import JobTable

        return JobTable((await self.ask(rq.ListJobs(limit=limit), an.Jobs)).jobs)

    async def status(self) -> PoolSummary:
        """Returns how the pool is: its workers, its jobs, its manager."""
        from kestrelctl.protocol.answers import PoolSummary
        from kestrelctl.protocol.requests import PoolStatus

        return await self.ask(PoolStatus(), PoolSummary)


def _no_last() -> int:
    raise UsageError("`last` stands alone", hint="after=job, or after=7")
