"""A worker's cache of what it fetches for tasks: each file once, for all of its owner's tasks.

Tasks reach the files by links, and may only read them. A task that runs as the worker's own user
may still write to one, so what was right when it came is compared before each use: whoever changes
a file cannot set back the time of that change (st_ctime; inode(7)).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from secrets import token_hex

import msgspec

from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.errors import NO_SPACE, FileChanged, KestrelError, NoSpace
from kestrelctl.files.archive import unpack, unpacked_bytes
from kestrelctl.files.whole_work import to_its_end
from kestrelctl.worker.addresses.address_state import AddressState, Reader
from kestrelctl.worker.discovery import disk_for_inputs_bytes
from kestrelctl.worker.files.gathered import AT_ONCE, Gathered
from kestrelctl.worker.own_files import OwnDirectory
from kestrelctl.worker.run.executor import AttemptRefused
from kestrelctl.worker.trash import Trash

log = logging.getLogger(__name__)

#: The most entries that are kept, however small.
MOST_ENTRIES = 10_000
#: What changes at its address this often while it is fetched is not fetched once more.
MOST_CHANGES = 3

_INDEX = "index.json"
_FETCHING = "fetching"
_OWNERS = "owners"

Wanted = Input | Gathered | AddressState


class InputRefused(AttemptRefused):
    """A task cannot have a file that travels with its job."""


class _InputChanged(InputRefused):
    """An input was changed at its address between two looks."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """An entry as the index has it, the least recently used first.

    Attributes:
        key: whose it is, and what.
        place: where it is, below the owners' directory.
        size_bytes: what it takes.
        marks: text that differs if it is changed later.
    """

    key: str
    place: str
    size_bytes: int
    marks: str


class CacheEntry:
    """One file or directory of one owner.

    It is never written to again; what is fetched anew is another one, in another place.

    Attributes:
        key: whose it is, and what.
        place: of it, below the owners' directory.
        path: the same for tasks, which find it there once `InputCache.take` has returned it.
        marks: text that differs if it is changed later.
        size_bytes: the space it takes, or the space set aside for it while it comes.
        users: tasks that use it, or wait for it. While there are any, it stays.
    """

    __slots__ = ("fetching", "key", "marks", "path", "place", "size_bytes", "users")

    def __init__(
        self, key: str, owners: Path, place: str, size_bytes: int = 0, marks: str = ""
    ) -> None:
        self.key = key
        self.place = place
        self.path = f"{owners}/{place}"
        self.size_bytes = size_bytes
        self.marks = marks
        self.users = 0
        self.fetching: asyncio.Task[None] | None = None


class InputCache:
    """The inputs of tasks on this machine. It survives a restart; one process at a time uses it.

    Args:
        directory: created if missing; for nothing else.
        limit_bytes: the most that it takes; None for a part of the disk. What was used least
            recently goes first; what tasks use never does.
        fetch: writes a file of the share to a place, checked, as `FileShare.get` does. It goes on
            by itself after a connection was lost, within bounds.
        reader: reads what is at addresses.
        pool: domain of the pool that says whose the tasks are: they are not given what another
            pool had sent here for an owner of the same address.

    Attributes:
        limit_bytes: the most that it takes.
        hits, misses: inputs that were there, or under way, when a task asked; and all others.
        fetched_bytes: of files that came.
    """

    def __init__(
        self,
        directory: Path,
        limit_bytes: int | None,
        fetch: Callable[[StoredFile, Path], Awaitable[None]],
        reader: Reader,
        pool: str,
    ) -> None:
        self._pool = pool
        self.hits = self.misses = self.fetched_bytes = 0
        self._fetch = fetch
        self._reader = reader
        self._numbers = map(str, itertools.count())
        self._directory = OwnDirectory(directory.absolute())
        self._trash = Trash(self._directory.path / "trash")
        self._discard(_FETCHING, self._directory.fd)
        self._fetching = OwnDirectory(self._directory.path / _FETCHING)
        self._owners = OwnDirectory(self._directory.path / _OWNERS)
        self._entries: OrderedDict[str, CacheEntry] = OrderedDict()
        self._leaving: set[CacheEntry] = set()
        self._under_way: set[asyncio.Task[None]] = set()
        self._load()
        free_bytes = disk_for_inputs_bytes(self._directory.path)
        self.limit_bytes = self.used_bytes + free_bytes if limit_bytes is None else limit_bytes
        self._make_room(0)

    @property
    def used_bytes(self) -> int:
        """The size of what is in it, with the space set aside for what is under way."""
        return sum(entry.size_bytes for entry in (*self._entries.values(), *self._leaving))

    async def take(
        self, owner: str, wanted: Input | Gathered, variables: Mapping[str, str] | None = None
    ) -> CacheEntry:
        """Returns a verified input for a task that is about to start; it stays until released.

        Args:
            owner: whose task it is: nothing that another's tasks have is used.
            variables: the environment of the task.

        Raises:
            InputRefused: it cannot be had.
        """
        if isinstance(wanted, Gathered) or wanted.stored is not None:
            return await self._take(owner, wanted)
        changes = 0
        while True:
            with _explained(wanted.name):
                state = await AddressState.now(self._reader, wanted, variables or {})
            try:
                return await self._take(owner, state)
            except _InputChanged:
                changes += 1
                if changes == MOST_CHANGES:
                    raise

    async def _take(self, owner: str, wanted: Wanted) -> CacheEntry:
        key = f"{self._folder(owner)}/{_content(wanted)}"
        while True:
            entry = self._entries.get(key)
            if entry is None:
                self.misses += 1
                entry = self._begin(key, wanted)
            elif entry.fetching is not None:
                self.hits += 1
            entry.users += 1
            try:
                if entry.fetching is not None:
                    await asyncio.shield(entry.fetching)
                    if isinstance(wanted, AddressState) and wanted.is_for_once:
                        self._forget(entry)
                    return entry
                marks = await _marks_now(entry.path, directory=_is_directory(wanted))
                if marks and marks == entry.marks:
                    self.hits += 1
                    return entry
            except BaseException:
                self.release(entry)
                raise
            log.warning("an input was changed here, and is fetched again: %s", entry.path)
            self._forget(entry)  # what uses it already goes on with it
            self.release(entry)

    def directory_of(self, owner: str) -> str:
        """The path of the directory with all that is kept of an owner."""
        return f"{self._owners.path}/{self._folder(owner)}"

    def _folder(self, owner: str) -> str:
        return hashlib.sha256(f"{self._pool}\0{owner}".encode()).hexdigest()[:32]

    def release(self, entry: CacheEntry) -> None:
        """Releases an entry that a task uses no more; stops fetching it if nobody waits for it."""
        entry.users -= 1
        if entry.users:
            return
        if entry.fetching is not None:
            entry.fetching.cancel()
            self._forget(entry)
        if self._entries.get(entry.key) is entry:
            self._entries.move_to_end(entry.key)
        else:
            self._remove(entry)

    async def close(self) -> None:
        """Ends what is under way, and remembers the rest for the next process."""
        for task in self._under_way:
            if not task.cancelling():
                task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        with contextlib.suppress(OSError):
            self._save()
        await self._trash.close()
        for directory in (self._fetching, self._owners, self._directory):
            directory.close()

    # -- one entry ---------------------------------------------------------------------------------

    def _begin(self, key: str, wanted: Wanted) -> CacheEntry:
        """Begins to fetch an input; returns its entry."""
        entry = self._entries[key] = CacheEntry(key, self._owners.path, f"{key}-{token_hex(4)}")
        entry.fetching = asyncio.create_task(self._bring(entry, wanted))
        entry.fetching.add_done_callback(_look_at)
        self._under_way.add(entry.fetching)
        entry.fetching.add_done_callback(self._under_way.discard)
        return entry

    async def _bring(self, entry: CacheEntry, wanted: Wanted) -> None:
        """Fetches an input and puts it where it is used from."""
        place = self._fetching.path / next(self._numbers)
        try:
            for directory in (self._directory, self._fetching, self._owners):
                directory.renew()  # somebody may have removed all of it to make room
            place.mkdir(mode=0o700)
            await self._bring_by_way_of(place, entry, wanted)
        except InputRefused:
            self._forget(entry)
            raise
        except OSError as error:
            self._forget(entry)
            kind = EndKind.NO_SPACE if error.errno in NO_SPACE else EndKind.NO_RESOURCES
            if error.errno == errno.ENAMETOOLONG:  # too long for any worker, or nearly
                kind = EndKind.NO_INPUT
            raise InputRefused(kind, f"{wanted.name!r}: {error.strerror}") from error
        finally:
            entry.fetching = None
            self._discard(place.name, self._fetching.fd)

    async def _bring_by_way_of(self, place: Path, entry: CacheEntry, wanted: Wanted) -> None:
        needed_bytes = _needed_bytes(wanted)
        self._make_room(needed_bytes, wanted.name)
        entry.size_bytes = needed_bytes
        brought, below = place / "directory", ""
        if isinstance(wanted, Gathered):
            brought.mkdir()
            await self._gather(wanted, entry, brought)
        elif isinstance(wanted, AddressState):
            await self._read_at_address(wanted, entry, brought)
        elif wanted.directory:
            await self._read_archive(wanted.name, _stored(wanted), entry, brought)
        else:
            brought = place / "file"
            await self._read(wanted.name, _stored(wanted), brought)
        if _is_directory(wanted):
            entry.size_bytes = await to_its_end(_make_read_only, brought)
            below = await to_its_end(_marks_below, str(brought))
        # From here on nothing is waited for: what is in its place is what the index says.
        Path(entry.path).parent.mkdir(mode=0o700, exist_ok=True)
        brought.rename(entry.path)
        os.chmod(entry.path, 0o444 if _content(wanted).endswith(".file") else 0o555)
        entry.marks = _marks(entry.path) + below
        self._save()

    async def _gather(self, wanted: Gathered, entry: CacheEntry, directory: Path) -> None:
        """Fetches what several tasks left, a few at a time. InputRefused if one cannot be had."""
        parts = iter(wanted.parts)

        async def bring() -> None:
            for task_id, stored in parts:
                await self._read_archive(wanted.name, stored, entry, directory / str(task_id))

        try:
            async with asyncio.TaskGroup() as bringing:
                for _ in range(AT_ONCE):
                    bringing.create_task(bring())
        except ExceptionGroup as several:  # an unpacking that was given up may fail as well
            refused, _ = several.split(InputRefused)
            raise (refused or several).exceptions[0] from None

    async def _read_archive(
        self, name: str, stored: StoredFile, entry: CacheEntry, directory: Path
    ) -> None:
        """Fetches an archive and unpacks it. InputRefused if it cannot be had.

        The content that it announces may be far larger than the archive.
        """
        archive = directory.with_name(f"{directory.name}.tar")
        await self._read(name, stored, archive)
        with _explained(name):
            needed_bytes = await to_its_end(unpacked_bytes, archive)
            more_bytes = max(0, needed_bytes - stored.size_bytes)
            self._set_aside(entry, entry.size_bytes + more_bytes, name)
            await to_its_end(unpack, archive, directory, needed_bytes)
        archive.unlink()

    async def _read(self, name: str, stored: StoredFile, place: Path) -> None:
        """Fetches a file. InputRefused if it cannot be had."""
        with _explained(name):
            await self._fetch(stored, place)
        self.fetched_bytes += stored.size_bytes

    async def _read_at_address(self, state: AddressState, entry: CacheEntry, target: Path) -> None:
        """Fetches what is at an address; how much that is, is known when it has come."""

        def set_aside(size_bytes: int) -> None:
            self._set_aside(entry, size_bytes, state.name)

        with _explained(state.name):
            await self._reader.get(state, target, set_aside)
        self.fetched_bytes += entry.size_bytes

    def _set_aside(self, entry: CacheEntry, size_bytes: int, name: str) -> None:
        """Makes room for this much of an input in all. InputRefused if it does not fit."""
        if size_bytes > self.limit_bytes:
            raise InputRefused(
                EndKind.NO_INPUT,
                f"{name!r} does not fit into the worker's cache: it has more"
                f" than {self.limit_bytes:,} bytes",
            )
        if size_bytes > entry.size_bytes:
            self._make_room(size_bytes - entry.size_bytes, name)
            entry.size_bytes = size_bytes

    # -- all of them -------------------------------------------------------------------------------

    def _make_room(self, needed_bytes: int, name: str = "") -> None:
        """Removes what was used least recently until this much more fits.

        Raises:
            InputRefused: it cannot fit, now or ever.
        """
        limit = self.limit_bytes
        if needed_bytes > limit:
            raise InputRefused(
                EndKind.NO_INPUT,
                f"{name!r} does not fit into the worker's cache: it needs"
                f" {needed_bytes:,} bytes of {limit:,}",
            )
        used_bytes = self.used_bytes
        unused = iter([e for e in self._entries.values() if not e.users])
        while used_bytes + needed_bytes > limit or len(self._entries) > MOST_ENTRIES:
            oldest = next(unused, None)
            if oldest is None:
                break
            self._forget(oldest)
            self._remove(oldest)
            used_bytes -= oldest.size_bytes
        if needed_bytes and used_bytes + needed_bytes > limit:
            raise InputRefused(
                EndKind.NO_INPUT,
                f"{name!r} does not fit into the worker's cache now: tasks use"
                f" {used_bytes:,} of {limit:,} bytes",
            )

    def _forget(self, entry: CacheEntry) -> None:
        """Gives an entry to no other task; it is removed when nobody uses it any more."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            self._leaving.add(entry)

    def _remove(self, entry: CacheEntry) -> None:
        self._leaving.discard(entry)
        self._discard(entry.place, self._owners.fd)

    def _discard(self, name: str, parent: int) -> None:
        try:
            self._trash.discard(name, parent)
        except OSError as error:
            log.warning("%s of the inputs is not removed: %s", name, error)

    def _save(self) -> None:
        """Writes the index. OSError if it cannot be written."""
        entries = self._entries.values()
        kept = [Kept(e.key, e.place, e.size_bytes, e.marks) for e in entries if e.marks]
        draft = self._directory.path / f"{_INDEX}.new"
        draft.write_bytes(msgspec.json.encode(kept))
        draft.rename(self._directory.path / _INDEX)

    def _load(self) -> None:
        """Reads the index; what it does not name is removed."""
        kept: list[Kept] = []
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeError):
            text = (self._directory.path / _INDEX).read_bytes()
            kept = msgspec.json.decode(text, type=list[Kept])
        there = {f"{owner}/{name}" for owner in self._folders() for name in self._names(owner)}
        for each in kept:
            if each.place in there:
                there.remove(each.place)
                self._entries[each.key] = CacheEntry(
                    each.key, self._owners.path, each.place, each.size_bytes, each.marks
                )
        for place in there:
            self._discard(place, self._owners.fd)

    def _folders(self) -> list[str]:
        return [
            each.name for each in os.scandir(self._owners.fd) if each.is_dir(follow_symlinks=False)
        ]

    def _names(self, folder: str) -> list[str]:
        return os.listdir(self._owners.path / folder)


def _content(wanted: Wanted) -> str:
    """A name for the content of an input, and for its kind."""
    if isinstance(wanted, Gathered):
        return f"{wanted.digest}.gathered"
    if isinstance(wanted, AddressState):
        return f"{wanted.content}.{'tree' if wanted.wanted.directory else 'file'}"
    kind = "tree" if wanted.directory else "program" if wanted.executable else "file"
    return f"{_stored(wanted).sha256}.{kind}"


def _is_directory(wanted: Wanted) -> bool:
    if isinstance(wanted, AddressState):
        return wanted.wanted.directory
    return isinstance(wanted, Gathered) or wanted.directory


def _needed_bytes(wanted: Wanted) -> int:
    """The space for it while it comes, with an archive beside what is in it, as far as is known."""
    if isinstance(wanted, AddressState):
        return 0
    if isinstance(wanted, Gathered):
        return wanted.needed_bytes
    return _stored(wanted).size_bytes * (2 if wanted.directory else 1)


def _stored(wanted: Input) -> StoredFile:
    assert wanted.stored is not None, "it is at an address"
    return wanted.stored


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turns errors into an InputRefused that says of which input something could not be done."""
    try:
        yield
    except InputRefused:
        raise
    except NoSpace as error:
        raise InputRefused(EndKind.NO_SPACE, f"{name!r}: {error.message}") from error
    except KestrelError as error:
        why = f"{error.message}: {error.cause}" if error.cause else error.message
        refused = _InputChanged if isinstance(error, FileChanged) else InputRefused
        raise refused(EndKind.NO_INPUT, f"{name!r}: {why}") from error


def _look_at(task: asyncio.Task[None]) -> None:
    """Keeps asyncio from complaining of an error that nobody waited for."""
    if not task.cancelled():
        task.exception()


async def _marks_now(path: str, *, directory: bool) -> str:
    """Returns marks that differ if an entry is changed later; empty if it is not there."""
    below = await asyncio.to_thread(_marks_below, path) if directory else ""
    return _marks(path) + below


def _marks(path: str) -> str:
    try:
        state = os.lstat(path)
    except OSError:
        return ""
    return f"{state.st_mode} {state.st_ino} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}"


def _marks_below(root: str) -> str:
    found = hashlib.sha256()
    for path in _below(root):
        found.update(os.fsencode(path[len(root) :]) + b"\0" + _marks(path).encode() + b"\0")
    return f" {found.hexdigest()}"


def _below(root: str) -> Iterator[str]:
    """Yields all that is below a directory, in one order."""
    for directory, folders, files in os.walk(root):
        folders.sort()
        for name in sorted((*folders, *files)):
            yield f"{directory}/{name}"


def _make_read_only(root: Path) -> int:
    """Lets nobody write to what is below a directory; returns how many bytes it takes."""
    size_bytes = os.lstat(root).st_blocks * 512
    for path in _below(str(root)):
        state = os.lstat(path)
        size_bytes += state.st_blocks * 512
        if not os.path.islink(path):
            os.chmod(path, state.st_mode & 0o555)
    return size_bytes
