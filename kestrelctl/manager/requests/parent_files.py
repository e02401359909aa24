"""Tells workers where the files are that a task is to find and that tasks of a parent left."""

from __future__ import annotations

import logging

import msgspec

from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.manager.service import Service
from kestrelctl.protocol import codec, workers
from kestrelctl.store.port import Reads

log = logging.getLogger(__name__)

#: The most tasks that are looked at for one page.
MOST_TASKS = 1000
#: The bytes of what else there is in a page.
_FRAME_BYTES = 1000


class ParentFileAnswers:
    """Tells workers where files of parents are.

    Who knows where a file is may read it: only a worker is told that has a task which may.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, worker: str, question: workers.FindFiles) -> None:
        """Answers a question, unless the worker has no such attempt, which it will hear anyway."""
        task = self._task(worker, question)
        wanted = _wanted(task.job, question.parent) if task is not None else None
        if task is None or wanted is None:
            return
        owner, only = task.job.owner, (task.index,) if wanted.each else ()
        try:
            page = await self._service.store.ask(lambda read: _page(read, owner, question, only))
        except KestrelError as error:  # the worker asks again
            log.warning("%s is not told where files of a parent are: %s", worker, error)
            return
        if self._task(worker, question) is task:
            self._service.send_to_worker(worker, page)

    def _task(self, worker: str, question: workers.FindFiles) -> Task | None:
        """The task in whose name a worker asks, if it has that."""
        known = self._service.pool.workers.get(worker)
        return known.held.get(question.number) if known is not None else None


async def check_parents(service: Service, spec: JobSpec) -> None:
    """Refuses a job that wants files of one which leaves none.

    Raises:
        UsageError: there is such a parent.
    """
    wanted = [each.job_id for each in spec.program.parent_files if not each.placed]
    if not wanted:
        return
    for record in await service.store.ask(lambda read: read.jobs(ids=wanted, limit=len(wanted))):
        check_parent(record.spec, f"job {record.job_id}")


def check_parent(parent: JobSpec, which: str) -> None:
    """Refuses a parent that leaves no files in the share, although another job wants them.

    Args:
        which: the parent, in words.

    Raises:
        UsageError: it leaves none there.
    """
    address = parent.program.output_to
    if parent.program.outputs and not address:
        return
    if address:
        raise UsageError(
            f"the files of {which} are not in the file share",
            cause=f"they go to {address}",
            hint=f"--after has a job wait, and --input {address.rstrip('/')}/ read them",
        )
    raise UsageError(
        f"{which} leaves no files that tasks could find",
        hint="its --keep GLOB says which files of its tasks are kept",
    )


def _page(
    read: Reads, owner: str, question: workers.FindFiles, only: tuple[int, ...]
) -> workers.FilesFound:
    """Makes a page of what tasks of a parent left.

    Args:
        only: the indexes of these tasks; none for all.
    """
    page = workers.FilesFound(number=question.number, parent=question.parent, after=question.after)
    records = read.jobs(ids=[question.parent], limit=1)
    if not records or records[0].owner != owner:
        gone = f"the pool has forgotten job {question.parent}"
        return msgspec.structs.replace(page, problem=gone)
    rows = read.tasks(
        question.parent,
        states=(TaskState.DONE,),
        after=question.after,
        limit=MOST_TASKS,
        indexes=only,
    )
    files: list[tuple[int, StoredFile]] = []
    last = None
    room = codec.MAX_PAYLOAD_BYTES - _FRAME_BYTES
    for row in rows:
        if row.result is not None and row.result.outputs is not None:
            one = (records[0].spec.task_id(row.index), row.result.outputs)
            room -= codec.text_bytes(msgspec.json.encode(one).decode()) + 1
            if room < 0 and files:
                return msgspec.structs.replace(page, files=files, next=last)
            files.append(one)
        last = row.index
    return msgspec.structs.replace(
        page, files=files, next=last if len(rows) == MOST_TASKS else None
    )


def _wanted(job: Job, parent: int) -> ParentFiles | None:
    return next((each for each in job.spec.program.parent_files if each.job_id == parent), None)
