"""Fetches the files that tasks left, into a directory or an archive."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sys
import tarfile
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import msgspec

from kestrelctl.access.connection import Connection, ask
from kestrelctl.access.share import Share
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import (
    Incomplete,
    KestrelError,
    NoSpace,
    Unreachable,
    UsageError,
)
from kestrelctl.files.archive import add_file, add_link, members, unpack
from kestrelctl.files.whole_work import to_its_end
from kestrelctl.grammar.quantities import size
from kestrelctl.protocol.job_answers import JobView, OutputPage, TaskFiles
from kestrelctl.protocol.job_requests import ListOutputs

_NOTES = ".kestrel"


class _Whose(msgspec.Struct, frozen=True):
    """The job that a directory is for; `submitted_at` tells jobs of different pools apart."""

    job_id: int
    submitted_at: float


class _Note(msgspec.Struct, frozen=True):
    """A note of the files of a task that were fetched.

    Attributes:
        sha256: the hash of its archive.
        files: (name, size, time of the last change) of each; the bytes of a name as characters.
    """

    sha256: str
    files: list[tuple[str, int, int]]


class FetchDirectory:
    """Unpacks the archives of tasks, one after the other or several at a time.

    Args:
        path: made if it is missing.

    Raises:
        UsageError: the directory has files of another job, is being fetched into already, or cannot
            be used.
    """

    def __init__(self, path: Path, job_id: int, submitted_at: float) -> None:
        self.path = path
        self._notes = path / _NOTES
        whose = _Whose(job_id, submitted_at)
        try:
            self._notes.mkdir(parents=True, exist_ok=True)
            self._lock = (self._notes / "lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note = self._notes / "job.json"
            if not note.exists():
                _write(note, whose)
            if msgspec.json.decode(note.read_bytes(), type=_Whose) == whose:
                return
        except BlockingIOError:
            self.close()
            raise UsageError(
                f"{path} is being fetched into already", hint="wait for the other one"
            ) from None
        except OSError as error:
            raise UsageError(f"{path} cannot be used", cause=error.strerror) from None
        except (msgspec.MsgspecError, UnicodeError):
            pass
        self.close()
        raise UsageError(
            f"{path} has the files of another job", hint=f"--to DIR, with another one for {job_id}"
        )

    def close(self) -> None:
        """Lets others fetch into the directory."""
        self._lock.close()

    def archive(self, task_id: int) -> Path:
        """The path at which the archive of a task is to be put."""
        return self._notes / f"{task_id}.tar"

    def has(self, task_id: int, stored: StoredFile) -> bool:
        """Whether the files of a task are here, and unchanged since they came."""
        try:
            note = msgspec.json.decode((self._notes / f"{task_id}.json").read_bytes(), type=_Note)
            if note.sha256 != stored.sha256:
                return False
            place = self.path / str(task_id)
            return all(_marks(place / _name(name)) == (size, at) for name, size, at in note.files)
        except (OSError, msgspec.MsgspecError, UnicodeError):
            return False

    def take(self, task_id: int, stored: StoredFile) -> None:
        """Unpacks the archive that was put in its place. Files of the same names are replaced.

        Raises:
            UsageError: something that was not fetched is in the place of the task.
            FileDamaged: it is no archive of files.
            NoSpace: the disk has not so much free.
            KestrelError: the files cannot be written.
        """
        place, note = self.path / str(task_id), self._notes / f"{task_id}.json"
        if os.path.lexists(place) and not note.exists():
            raise UsageError(f"{place} is in the way", hint="move it, or choose another --to DIR")
        unpacked = self._notes / f"{task_id}.files"
        try:
            shutil.rmtree(unpacked, ignore_errors=True)
            # No other limit on their size is known: they may take no more than what is free.
            free_bytes = shutil.disk_usage(self._notes).free
            unpack(self.archive(task_id), unpacked, free_bytes)
            files = _files_below(unpacked)
            for file in files:
                _must_lead_through_directories(place, file)
            marks = [(_text(file), *_marks(unpacked / file)) for file in files]
            _write(
                note, _Note(stored.sha256, marks)
            )  # before the files: it says that they are ours
            if place.exists():
                for file in files:
                    (place / file).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(unpacked / file, place / file)
                shutil.rmtree(unpacked)
            else:
                os.rename(unpacked, place)
            self.archive(task_id).unlink()
        except OSError as error:
            raise KestrelError(
                f"the files of task {task_id} cannot be written", cause=error.strerror
            ) from error


def _files_below(directory: Path) -> list[Path]:
    """The names of all files and links below a directory."""
    found = []
    for above, directories, names in os.walk(directory):
        links = [name for name in directories if os.path.islink(f"{above}/{name}")]
        found += [Path(above, name).relative_to(directory) for name in (*names, *links)]
    return found


def _must_lead_through_directories(place: Path, file: Path) -> None:
    """Raises UsageError if a file would be written through a link, which may lead anywhere."""
    for above in file.parents:
        if (place / above).is_symlink() and above != Path():
            raise UsageError(
                f"{place / above} is in the way",
                cause="it is a link, and a directory comes",
                hint="remove it, or choose another --to DIR",
            )


def _marks(file: Path) -> tuple[int, int]:
    state = file.stat(follow_symlinks=False)
    return state.st_size, state.st_mtime_ns


def _text(file: Path) -> str:
    """Writes a name in a form that JSON can hold: each byte is a character."""
    return os.fsencode(file).decode("latin-1")


def _name(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


def _write(note: Path, value: _Note | _Whose) -> None:
    """Writes a note; it is there as a whole or not at all."""
    new = note.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(value))
    os.replace(new, note)


#: The most archives that are fetched at a time.
_AT_ONCE = 4
#: The most tasks that one request names.
_PAGE = 1000
#: The most tasks that an error names.
_MOST_NAMED = 10
_COPY_BYTES = 1 << 20


class Fetched(msgspec.Struct, kw_only=True):
    """The outcome of fetching the files of a job.

    Attributes:
        tasks: the number of tasks whose files came now.
        were_there: the number of tasks whose files were there already, and unchanged.
        missing: the reasons why files did not come, by task.
        without: the number of tasks that were asked for and have left no files, or not yet.
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
        """Sums it up for people."""
        there = f"those of {plural(self.were_there, 'task')} were there" if self.were_there else ""
        if there and not self.tasks:
            return f"job {self.job_id}: {there}, in {self.directory}"
        return (
            f"job {self.job_id}: {plural(self.files, 'file')} of {plural(self.tasks, 'task')},"
            f" {size(self.size_bytes) or '0 B'}, to {self.directory}{there and '; ' + there}"
        )

    def check(self) -> None:
        """Raises Incomplete if files of a task that was asked for are not there now."""
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


class _Places:
    """The addresses at which the files of a job lie: almost always one, that of the pool's share.

    Nobody waits a second time for one that does not answer, and files at others come all the same:
    a worker says itself where the files of its tasks lie.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self._seen: set[str] = set()
        self._away: dict[str, Unreachable] = {}

    async def get(self, stored: StoredFile, target: Path) -> None:
        """Writes a stored file, as `Share.get`."""
        places = {urlsplit(piece.url).netloc for piece in stored.pieces}
        self._seen |= places
        for place in places & self._away.keys():
            raise self._away[place]
        try:
            await self._share.get(stored, target)
        except Unreachable as error:
            if len(places) == 1:  # nobody knows which of several it was
                self._away.update(dict.fromkeys(places, error))
            raise

    def check(self) -> None:
        """Raises Unreachable if no place at all answers."""
        if self._away and self._seen <= self._away.keys():
            raise next(iter(self._away.values()))


async def fetch_files(
    share: Share,
    connection: Connection,
    view: JobView,
    place: Path,
    task_ids: Sequence[int] = (),
) -> Fetched:
    """Fetches files into a directory, a few tasks at a time.

    Args:
        task_ids: the tasks whose files are fetched; empty for all.

    Raises:
        KestrelError: the share or the pool cannot be reached, or the disk is full; another call
            goes on from there.
    """
    found = Fetched(job_id=view.job_id, directory=str(place))
    pages = _pages(connection, view.job_id, task_ids)
    first = await anext(pages)  # before the directory is made: there may be nothing to fetch
    directory = FetchDirectory(place, view.job_id, view.submitted_at)
    places = _Places(share)
    heard = 0

    async def bring(each: TaskFiles) -> None:
        if await asyncio.to_thread(directory.has, each.task_id, each.stored):
            found.were_there += 1
            return
        archive = directory.archive(each.task_id)
        try:
            await places.get(each.stored, archive)
        except NoSpace:
            raise
        except KestrelError as error:
            found.missing[each.task_id] = _why(error)
            return
        try:
            await to_its_end(directory.take, each.task_id, each.stored)
        except KestrelError as refused:
            archive.unlink(missing_ok=True)  # some of the others may still have room
            found.missing[each.task_id] = _why(refused)
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
        directory.close()
    places.check()
    found.missing = dict(sorted(found.missing.items()))
    found.without = (len(set(task_ids)) or view.tasks) - heard
    return found


async def fetch_tar(
    share: Share,
    connection: Connection,
    view: JobView,
    task_ids: Sequence[int],
    target: Path,
) -> Fetched:
    """Fetches files as one archive, in the order of the tasks, a few tasks ahead of writing.

    Args:
        target: `-` is stdout; a file is there as a whole or not at all.
    """
    found = Fetched(job_id=view.job_id, directory=str(target))
    places = _Places(share)
    heard = 0
    beside = None if str(target) == "-" else target.absolute().parent
    with (
        tempfile.TemporaryDirectory(prefix=".kestrel-fetch-", dir=beside) as made,
        _opened(target, Path(made, "archive")) as out,
    ):
        archives: deque[tuple[TaskFiles, Path, asyncio.Task[None]]] = deque()

        async def write_first() -> None:
            each, archive, coming = archives.popleft()
            try:
                await coming
                await to_its_end(_copy, archive, each.task_id, out)
            except NoSpace:
                raise
            except KestrelError as error:
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
                    coming = asyncio.create_task(places.get(each.stored, archive))
                    archives.append((each, archive, coming))
            while archives:
                await write_first()
            places.check()
        finally:
            for _, _, coming in archives:
                coming.cancel()
            await asyncio.gather(*(task for _, _, task in archives), return_exceptions=True)
    found.without = (len(set(task_ids)) or view.tasks) - heard
    return found


def _copy(archive: Path, task_id: int, out: tarfile.TarFile) -> None:
    """Writes the files of a task's archive into the common one, with their holes.

    Raises:
        FileDamaged: the archive holds something else, or something that leads elsewhere; nothing of
            it is written.
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
def _opened(target: Path, new: Path) -> Iterator[tarfile.TarFile]:
    """Opens the archive to be written, which replaces the target once it is whole.

    Args:
        new: where it is written, on the same disk.
    """
    if str(target) == "-":
        with _archive(sys.stdout.buffer) as out:
            yield out
        return
    try:
        if target.exists() and not target.is_file():  # root would replace a device
            raise KestrelError(f"{target} cannot be written", cause="it is no ordinary file")
        with new.open("wb") as file, _archive(file) as out:
            yield out
        os.replace(new, target)
    except OSError as error:
        raise KestrelError(f"{target} cannot be written", cause=error.strerror) from error


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
    """Asks where files are, page by page as they are fetched; yields at least one page."""
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
