"""A pool for programs without asyncio: each call returns when it is done.

from kestrelctl.client.blocking import Client

with Client() as pool:
    job = pool.submit(["sh", "-c", "echo $(({n} * {n}))"], array="1-100")
    for task in job.results():
        print(task.task_id, job.logs(task.task_id).decode().strip())
"""

from __future__ import annotations

import asyncio
import html
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kestrelctl.access.context import Context
from kestrelctl.client.notebook import JobTable, job_html, pool_html
from kestrelctl.client.pool import AsyncClient, AsyncJob, EndedTask
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.protocol import answers as an

if TYPE_CHECKING:
    from kestrelctl.client.fetch import Fetched
    from kestrelctl.client.graph import Graph

A = TypeVar("A")


class PoolJob:
    """A job of a pool; see `AsyncJob` for what its methods do.

    Attributes:
        id: its number.
    """

    def __init__(self, client: Client, job: AsyncJob) -> None:
        self.id = job.id
        self._client = client
        self._job = job

    def __repr__(self) -> str:
        return repr(self._job)

    def _repr_html_(self) -> str:
        return self._client.shown(self, self._job.info, job_html)

    def info(self) -> an.JobView:
        """Returns the job as it is now."""
        return self._client.does(self._job.info())

    def wait(self, timeout_seconds: float | None = None) -> an.JobView:
        """Returns the job when it has ended; TimeoutError if it has not ended in time."""
        return self._client.does(self._job.wait(timeout_seconds))

    def results(self) -> Iterator[an.TaskView]:
        """Yields each task once, when it has ended."""
        return self._client.each(self._job.results())

    def outputs(self) -> Iterator[EndedTask]:
        """Yields each task once, when it has ended, with what it printed, as far as it is kept."""
        return self._client.each(self._job.outputs())

    def tasks(self, states: Iterable[str] = ()) -> list[an.TaskView]:
        """Returns its tasks, in the order of the array."""
        return self._client.does(self._job.tasks(states))

    def logs(self, task_id: int | None = None, *, stream: str = "stdout") -> bytes:
        """Returns what a task printed, as far as it is kept."""
        return self._client.does(self._job.logs(task_id, stream=stream))

    def fetch(
        self, directory: str | os.PathLike[str] | None = None, task_ids: Iterable[int] = ()
    ) -> Fetched:
        """Copies the files here that tasks left, to `directory/TASK`; None for `job-ID`."""
        return self._client.does(self._job.fetch(directory, task_ids))

    def cancel(self, task_ids: Iterable[int] = ()) -> None:
        """Stops the job, or only these tasks of it."""
        self._client.does(self._job.cancel(task_ids))

    def hold(self, reason: str = "") -> None:
        """Starts nothing more of the job until it is released."""
        self._client.does(self._job.hold(reason))

    def release(self) -> None:
        """Lets a job that is on hold go on."""
        self._client.does(self._job.release())

    def retry(self, task_ids: Iterable[int] = ()) -> None:
        """Runs the tasks again that ended badly, or only these."""
        self._client.does(self._job.retry(task_ids))

    def explain(self) -> an.JobExplanation:
        """Explains why its tasks wait."""
        return self._client.does(self._job.explain())


class Client:
    """A session with a pool, for the time of a `with`. It may be used from several threads.

    Args:
        pool, more: as those of `AsyncClient`.
    """

    def __init__(self, pool: str = "", **more: Any) -> None:
        self._client = AsyncClient(pool, **more)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kestrel client", daemon=True
        )
        self._turn = threading.Lock()
        self._takes_work = False

    def __enter__(self) -> Client:
        self._thread.start()
        self._takes_work = True
        try:
            self.does(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self.does(self._client.__aexit__())
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._turn:  # what comes later is refused, and what came before is cancelled
            self._takes_work = False
        try:
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _repr_html_(self) -> str:
        return self.shown(
            self, self._client.status, lambda status: pool_html(self.context.name, status)
        )

    def shown(
        self, what: object, ask: Callable[[], Coroutine[Any, Any, A]], show: Callable[[A], str]
    ) -> str:
        """Returns what a notebook shows of something: as it is now, or what it is, if the pool
        cannot be asked.
        """
        with suppress(KestrelError):  # also where it is closed
            return show(self.does(ask()))
        return html.escape(repr(what))

    @property
    def asynchronous(self) -> AsyncClient:
        """The same session, for code on its loop."""
        return self._client

    @property
    def context(self) -> Context:
        """The address of the pool, and what is known of it here."""
        return self._client.context

    def soon(self, call: Callable[[], object]) -> None:
        """Has something called on the loop of this client, in the order in which it was said."""
        self._loop.call_soon_threadsafe(call)

    def may_wait(self) -> None:
        """Passes if the thread that calls it may wait for this client.

        Raises:
            UsageError: it is the client's own, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise UsageError(
                "this would wait for itself",
                cause="what is done at the end of a call is done by the thread that all answers of "
                "the pool come to",
                hint="do it in another thread; an executor may be ended by shutdown(wait=False)",
            )

    def does(self, work: Coroutine[Any, Any, A]) -> A:
        """Returns what the work returns, on the loop of this client; Ctrl-C cancels the work.

        Raises:
            UsageError: the client is not open, or this is a copy of its process: nothing would do
                the work. Or the client's own thread would wait for itself.
        """
        try:
            self.may_wait()
        except UsageError:
            work.close()
            raise
        with self._turn:
            if not (self._takes_work and self._thread.is_alive()):
                work.close()
                raise UsageError(
                    "the client is not open",
                    cause="a session lasts for the time of a `with`, in the process that began it",
                    hint="with Client() as pool: ...",
                )
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def each(self, found: AsyncIterator[A]) -> Iterator[A]:
        """Yields what an iterator of this client's loop yields, as it comes."""

        async def following() -> tuple[A, ...]:
            async for value in found:
                return (value,)
            return ()

        while values := self.does(following()):
            yield from values

    def submit(
        self,
        command: str | Sequence[str],
        *,
        items: Iterable[object] | None = None,
        key: str | None = None,
        **options: Any,
    ) -> PoolJob:
        """Submits a job, and returns it when it is durable; see `AsyncClient.submit`."""
        return PoolJob(
            self, self.does(self._client.submit(command, items=items, key=key, **options))
        )

    def submit_graph(self, graph: Graph, key: str | None = None) -> dict[str, PoolJob]:
        """Submits the jobs of a graph as one; see `AsyncClient.submit_graph`."""
        jobs = self.does(self._client.submit_graph(graph, key))
        return {name: PoolJob(self, job) for name, job in jobs.items()}

    def job(self, job_id: int) -> PoolJob:
        """Returns the job of an id; nothing is asked until it is used."""
        return PoolJob(self, self._client.job(job_id))

    def last_job(self) -> PoolJob:
        """Returns the latest job of this user."""
        return PoolJob(self, self.does(self._client.last_job()))

    def jobs(self, limit: int = 100) -> JobTable:
        """Returns the newest jobs, the oldest of them first."""
        return self.does(self._client.jobs(limit))

    def status(self) -> an.PoolSummary:
        """Returns how the pool is: its workers, its jobs, its manager."""
        return self.does(self._client.status())


async def _cancel_all() -> None:
    """Ends all that is under way on this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
