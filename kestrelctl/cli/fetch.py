"""`kestrelctl job fetch`: the files that tasks left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tarfile
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.command_output import Record, one_or_several
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.fetch_directory import FetchDirectory
from kestrelctl.cli.job_arguments import ids_of, jobs_argument
from kestrelctl.cli.jobview import one_job
from kestrelctl.core.model.plural import plural
from kestrelctl.errors import (
    FileDamaged,
    FileExpired,
    Incomplete,
    KestrelError,
    NoSpace,
    UsageError,
)
from kestrelctl.files.archive import add_file, add_link, members
from kestrelctl.grammar.id_ranges import LAST, parse_tasks
from kestrelctl.grammar.quantities import size
from kestrelctl.protocol.answers import JobView
from kestrelctl.protocol.requests import ListOutputs
from kestrelctl.protocol.task_file_views import OutputPage, TaskFiles

#: So many archives come at a time.
_AT_ONCE = 4
#: The most tasks that one request names.
_PAGE = 1000
#: How many tasks an error names.
_MOST_NAMED = 10
_COPY_BYTES = 1 << 20


class Fetched(msgspec.Struct, kw_only=True):
    """What came of a job.

    Attributes:
        tasks: whose files came now.
        were_there: tasks whose files were there, and right.
        missing: by task, why its files did not come.
        without: tasks that were asked for and have left no files, or not yet.
    """

    job_id: int
    directory: str
    tasks: int = 0
    were_there: int = 0
    files: int = 0
    size_bytes: int = 0
    missing: dict[int, str] = {}
    without: int = 0

    def sentence(self) -> str:
        """What people are told."""
        there = f"those of {plural(self.were_there, 'task')} were there" if self.were_there else ""
        if there and not self.tasks:
            return f"job {self.job_id}: {there}, in {self.directory}"
        return (
            f"job {self.job_id}: {plural(self.files, 'file')} of {plural(self.tasks, 'task')},"
            f" {size(self.size_bytes) or '0 B'}, to {self.directory}{there and '; ' + there}"
        )

    def check(self) -> None:
        """Incomplete if files of a task that was asked for are not there now."""
        if self.missing:
            ids = ", ".join(map(str, list(self.missing)[:_MOST_NAMED]))
            more = ", …" if len(self.missing) > _MOST_NAMED else ""
            raise Incomplete(
                f"files of {plural(len(self.missing), 'task')} ({ids}{more}) did not come",
                cause=next(iter(self.missing.values())),
                hint="the same command again fetches only what is missing",
            )
        if self.without:
            raise Incomplete(
                f"{plural(self.without, 'task')} of job {self.job_id} left no files, or not yet",
                cause="only what ended well leaves files",
                hint=f"kestrelctl job tasks {self.job_id}",
            )


@click.command("fetch", cls=CliCommand)
@jobs_argument(unnamed=LAST)
@click.option(
    "--tasks",
    "task_ids",
    type=parse_tasks,
    metavar="TASKS",
    help="Fetch only the files of these tasks: 3,5-9.",
)
@click.option(
    "--to",
    type=Path,
    metavar="DIR",
    help="Directory for the files, as DIR/TASK/.  [default: job-JOB]",
)
@click.option(
    "--tar",
    type=Path,
    metavar="FILE",
    help="Write one tar archive instead, with names TASK/…; - is standard output.",
)
@pass_invocation
def fetch(
    invocation: Invocation, jobs: str, task_ids: list[int] | None, to: Path | None, tar: Path | None
) -> None:
    """Copy the files here that tasks left, as `submit --output` asked.

    A second call fetches only what is not there, or not as it came.
    """
    if to is not None and tar is not None:
        raise UsageError("--to and --tar exclude each other", hint="a directory, or an archive")
    if tar is not None and str(tar) == "-" and sys.stdout.isatty():
        raise UsageError("an archive is nothing for a terminal", hint="--tar FILE, or | tar -x")

    async def work(connection: Connection) -> None:
        ids = await ids_of(connection, jobs)
        if len(ids) > 1 and (to is not None or tar is not None):
            raise UsageError(
                "--to and --tar are for the files of one job",
                hint="without them each job has a directory of its own, job-JOB",
            )
        fetched = []
        records = []
        for job_id in ids:
            view = await one_job(connection, job_id)
            if tar is not None:
                found = await fetch_tar(invocation, connection, view, task_ids or [], tar)
                invocation.screen.say(found.sentence())
            else:
                place = to or Path(f"job-{view.job_id}")
                found = await fetch_files(invocation, connection, view, place, task_ids or [])
                records.append(Record(str(place), found, [found.sentence()]))
            fetched.append(found)
        if records:
            await invocation.show(one_or_several(records))
        for found in fetched:
            found.check()

    invocation.talk(work)


async def fetch_files(
    invocation: Invocation,
    connection: Connection,
    view: JobView,
    place: Path,
    task_ids: Sequence[int] = (),
) -> Fetched:
    """Fetches files into a directory, a few tasks at a time.

    Args:
        task_ids: only of these; none named: of all.

    Raises:
        KestrelError: the share or the pool cannot be reached, or the disk is full: a further call
            goes on.
    """
    share = invocation.downloads()
    found = Fetched(job_id=view.job_id, directory=str(place))
    pages = _pages(connection, view.job_id, task_ids)
    first = await anext(pages)  # before the directory is made: there may be nothing to fetch
    directory = FetchDirectory(place, view.job_id, view.submitted_at)
    heard = 0

    async def bring(each: TaskFiles) -> None:
        if await asyncio.to_thread(directory.has, each.task_id, each.stored):
            found.were_there += 1
            return
        archive = directory.archive(each.task_id)
        try:
            await share.get(each.stored, archive)
        except (FileExpired, FileDamaged) as error:
            found.missing[each.task_id] = _why(error)
            return
        try:
            await asyncio.to_thread(directory.take, each.task_id, each.stored)
        except (FileDamaged, NoSpace, UsageError) as error:
            archive.unlink(missing_ok=True)  # of the others some may have room
            found.missing[each.task_id] = _why(error)
            return
        found.tasks += 1
        found.files += each.files
        found.size_bytes += each.stored.size_bytes

    under_way: set[asyncio.Task[None]] = set()
    try:
        async for page in _after(first, pages):
            heard += len(page)
            for each in page:
                if len(under_way) == _AT_ONCE:
                    ended, under_way = await asyncio.wait(
                        under_way, return_when=asyncio.FIRST_COMPLETED
                    )
                    _raise_from(ended)
                under_way.add(asyncio.create_task(bring(each)))
        if under_way:
            ended, under_way = await asyncio.wait(under_way)
            _raise_from(ended)
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    found.missing = dict(sorted(found.missing.items()))
    found.without = (len(set(task_ids)) or view.tasks) - heard
    return found


async def fetch_tar(
    invocation: Invocation,
    connection: Connection,
    view: JobView,
    task_ids: Sequence[int],
    target: Path,
) -> Fetched:
    """Fetches files as one archive, in the order of the tasks; the next ones come meanwhile.

    Args:
        target: `-` is stdout; a file is there whole, or not.
    """
    share = invocation.downloads()
    found = Fetched(job_id=view.job_id, directory=str(target))
    heard = 0
    beside = None if str(target) == "-" else target.absolute().parent
    with (
        tempfile.TemporaryDirectory(prefix=".kestrel-fetch-", dir=beside) as made,
        _opened(target) as out,
    ):
        archives: deque[tuple[TaskFiles, Path, asyncio.Task[None]]] = deque()

        async def write_first() -> None:
            each, archive, coming = archives.popleft()
            try:
                await coming
                await asyncio.to_thread(_copy, archive, each.task_id, out)
            except (FileExpired, FileDamaged) as error:
                found.missing[each.task_id] = _why(error)
                return
            archive.unlink()
            found.tasks += 1
            found.files += each.files
            found.size_bytes += each.stored.size_bytes

        try:
            async for page in _pages(connection, view.job_id, task_ids):
                heard += len(page)
                for each in page:
                    if len(archives) == _AT_ONCE:
                        await write_first()
                    archive = Path(made, f"{each.task_id}.tar")
                    coming = asyncio.create_task(share.get(each.stored, archive))
                    archives.append((each, archive, coming))
            while archives:
                await write_first()
        finally:
            for _, _, coming in archives:
                coming.cancel()
            await asyncio.gather(*(task for _, _, task in archives), return_exceptions=True)
    found.without = (len(set(task_ids)) or view.tasks) - heard
    return found


def _copy(archive: Path, task_id: int, out: tarfile.TarFile) -> None:
    """Writes the files of a task's archive into the common one, with their holes.

    Raises:
        FileDamaged: something else is in it, or leads elsewhere; what was before it is written.
    """
    with archive.open("rb") as source:
        for member in members(source):
            name = f"{task_id}/{member.name}"
            if member.is_link:
                add_link(out, name, member.link)
                continue
            entry = tarfile.TarInfo(name)
            entry.mode = member.mode
            if member.is_file:
                entry.size = member.size_bytes
                extents = list(member.extents(source))
                source.seek(member.data_at)
                add_file(out, entry, source, extents)
            else:
                entry.type = member.kind
                out.addfile(entry)


@contextlib.contextmanager
def _opened(target: Path) -> Iterator[tarfile.TarFile]:
    """The archive to be written, which takes the place of the target when it is whole."""
    if str(target) == "-":
        with _archive(sys.stdout.buffer) as out:
            yield out
        return
    new = target.with_name(f"{target.name}.part")
    try:
        with new.open("wb") as file, _archive(file) as out:
            yield out
        os.replace(new, target)
    except OSError as error:
        raise KestrelError(f"{target} cannot be written", cause=error.strerror) from error
    finally:
        new.unlink(missing_ok=True)


def _archive(file: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(
        fileobj=file,
        mode="w|",
        format=tarfile.GNU_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
        bufsize=_COPY_BYTES,
    )


async def _pages(
    connection: Connection, job_id: int, task_ids: Sequence[int]
) -> AsyncIterator[Sequence[TaskFiles]]:
    """Where files are, asked for as they are fetched; at least one page."""
    if not task_ids:
        after: int | None = -1
        while after is not None:
            page = await ask(connection, ListOutputs(job=str(job_id), after=after), OutputPage)
            yield page.tasks
            after = page.after
    ids = sorted(set(task_ids))
    for start in range(0, len(ids), _PAGE):
        part, after = ids[start : start + _PAGE], -1
        while after is not None:
            request = ListOutputs(job=str(job_id), ids=part, after=after)
            page = await ask(connection, request, OutputPage)
            yield page.tasks
            after = page.after


async def _after(
    first: Sequence[TaskFiles], rest: AsyncIterator[Sequence[TaskFiles]]
) -> AsyncIterator[Sequence[TaskFiles]]:
    yield first
    async for page in rest:
        yield page


def _raise_from(ended: set[asyncio.Task[None]]) -> None:
    for task in ended:
        task.result()


def _why(error: KestrelError) -> str:
    return f"{error.message}: {error.cause}" if error.cause else error.message
