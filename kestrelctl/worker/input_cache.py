"""What a worker has fetched for tasks: each file once, for all of its owner's tasks.

Tasks reach the files by links, and may only read them. A task that runs as the worker's own user
may still write to one, so what was right when it came is compared before each use: whoever changes
a file cannot set back the time of that change (st_ctime; inode(7)).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, Protocol

import msgspec

from kestrelctl.core.model.job_inputs import Input
from kestrelctl.core.model.stored_file import StoredFile
from kestrelctl.errors import FileChanged, KestrelError, NoSpace
from kestrelctl.files.archive import unpack
from kestrelctl.worker.discovery import disk_for_inputs_bytes
from kestrelctl.worker.own_files import OwnDirectory
from kestrelctl.worker.programs import NO_SPACE
from kestrelctl.worker.trash import Trash

log = logging.getLogger(__name__)

#: More entries are not kept, however small.
MOST_ENTRIES = 10_000
#: What changes at its address so often while it is fetched is not fetched once more.
MOST_CHANGES = 3

_INDEX = "index.json"
_FETCHING = "fetching"
_OWNERS = "owners"


class InputRefused(KestrelError):
    """A task cannot have a file that travels with its job; the message is for its result."""


class _InputChanged(InputRefused):
    """It was changed at its address between two looks."""


class Reader(Protocol):
    """What reads addresses: `addresses.address_reader.AddressReader`."""

    async def identity(self, wanted: Input, variables: Mapping[str, str]) -> str:
        """What becomes another when it is changed; empty if nothing tells. KestrelError."""
        ...

    async def get(
        self,
        wanted: Input,
        variables: Mapping[str, str],
        identity: str,
        target: Path,
        set_aside: Callable[[int], None],
    ) -> None:
        """Writes what is there to a file or a directory. FileChanged, KestrelError, OSError."""
        ...


class _Sought(NamedTuple):
    """What is looked for in the cache.

    Attributes:
        wanted: it.
        variables: the environment of the task that wants it.
        identity: what it is now at its address; empty if that is not asked, or not known.
        content: what tells it from others of its owner.
    """

    wanted: Input
    variables: Mapping[str, str]
    identity: str
    content: str

    @property
    def is_for_once(self) -> bool:
        """Whether nobody can tell later that it is still the same."""
        return not (self.identity or self.wanted.known_sha256)


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """An entry as the index has it, the least recently used first.

    Attributes:
        key: whose it is, and what.
        place: where it is, below the owners' directory.
        size_bytes: what it takes.
        marks: what tells it from anything that is changed later.
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
        marks: what tells it from anything that is changed later.
        size_bytes: what it takes, or what is set aside for it while it comes.
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
    ) -> None:
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
        self._load()
        free_bytes = disk_for_inputs_bytes(self._directory.path)
        self.limit_bytes = self.used_bytes + free_bytes if limit_bytes is None else limit_bytes
        self._make_room(0)

    @property
    def used_bytes(self) -> int:
        """What is in it, with what is set aside for what is under way."""
        return sum(entry.size_bytes for entry in (*self._entries.values(), *self._leaving))

    async def take(
        self, owner: str, wanted: Input, variables: Mapping[str, str] | None = None
    ) -> CacheEntry:
        """An input, verified, for a task that is about to start; it stays until it is released.

        Args:
            owner: whose task it is: nothing that another's tasks have is used.
            variables: the environment of the task.

        Raises:
            InputRefused: it cannot be had.
        """
        for _ in range(MOST_CHANGES):
            try:
                return await self._take(owner, await self._seek(wanted, variables or {}))
            except _InputChanged as error:
                last = error
        raise last

    async def _seek(self, wanted: Input, variables: Mapping[str, str]) -> _Sought:
        """What is looked for. InputRefused if it is not at its address."""
        if wanted.known_sha256:
            return _Sought(wanted, variables, "", wanted.known_sha256)
        try:
            identity = await self._reader.identity(wanted, variables)
        except KestrelError as error:
            raise InputRefused(_no_input(wanted, error)) from error
        text = f"{wanted.address} {identity}" if identity else token_hex(32)
        return _Sought(wanted, variables, identity, hashlib.sha256(text.encode()).hexdigest())

    async def _take(self, owner: str, sought: _Sought) -> CacheEntry:
        wanted = sought.wanted
        key = f"{_folder(owner)}/{sought.content}.{_kind(wanted)}"
        while True:
            entry = self._entries.get(key)
            if entry is None:
                self.misses += 1
                entry = self._begin(key, sought)
            elif entry.fetching is not None:
                self.hits += 1
            entry.users += 1
            try:
                if entry.fetching is not None:
                    await asyncio.shield(entry.fetching)
                    if sought.is_for_once:
                        self._forget(entry)
                    return entry
                marks = await _marks_now(entry.path, directory=wanted.directory)
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
        return f"{self._owners.path}/{_folder(owner)}"

    def release(self, entry: CacheEntry) -> None:
        """A task uses it no more. What nobody waits for any more is not fetched any further."""
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
        under_way = [e.fetching for e in self._entries.values() if e.fetching is not None]
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        with contextlib.suppress(OSError):
            self._save()
        await self._trash.close()
        for directory in (self._fetching, self._owners, self._directory):
            directory.close()

    # -- one entry ---------------------------------------------------------------------------------

    def _begin(self, key: str, sought: _Sought) -> CacheEntry:
        """An entry whose file is under way."""
        entry = self._entries[key] = CacheEntry(key, self._owners.path, f"{key}-{token_hex(4)}")
        entry.fetching = asyncio.create_task(self._bring(entry, sought))
        entry.fetching.add_done_callback(_look_at)
        return entry

    async def _bring(self, entry: CacheEntry, sought: _Sought) -> None:
        """Fetches an input and puts it where it is used from."""
        wanted = sought.wanted
        place = self._fetching.path / next(self._numbers)
        try:
            place.mkdir(mode=0o700)
            await self._bring_by_way_of(place, entry, sought)
        except InputRefused:
            self._forget(entry)
            raise
        except OSError as error:
            self._forget(entry)
            word = "no-space" if error.errno in NO_SPACE else "no-resources"
            raise InputRefused(f"{word}: {wanted.name!r}: {error.strerror}") from error
        finally:
            entry.fetching = None
            self._discard(place.name, self._fetching.fd)

    async def _bring_by_way_of(self, place: Path, entry: CacheEntry, sought: _Sought) -> None:
        wanted = sought.wanted
        if wanted.stored is None:
            brought = place / "brought"
            await self._read_at_address(sought, entry, brought)
        else:
            brought = await self._read_from_share(wanted, wanted.stored, entry, place)
        below = ""
        if wanted.directory:
            entry.size_bytes = await asyncio.to_thread(_make_read_only, brought)
            below = await asyncio.to_thread(_marks_below, str(brought))
        # From here on nothing is waited for: what is in its place is what the index says.
        Path(entry.path).parent.mkdir(mode=0o700, exist_ok=True)
        brought.rename(entry.path)
        os.chmod(entry.path, 0o555 if wanted.executable or wanted.directory else 0o444)
        entry.marks = _marks(entry.path) + below
        self._save()

    async def _read_from_share(
        self, wanted: Input, stored: StoredFile, entry: CacheEntry, place: Path
    ) -> Path:
        """Fetches a file from the share; where it, or the directory that was in it, is now."""
        needed_bytes = stored.size_bytes * (2 if wanted.directory else 1)  # and its archive
        self._make_room(needed_bytes, wanted.name)
        entry.size_bytes = needed_bytes
        brought, unpacked = place / "file", place / "directory"
        with _refusing(wanted):
            await self._fetch(stored, brought)
            self.fetched_bytes += stored.size_bytes
            if wanted.directory:
                await asyncio.to_thread(unpack, brought, unpacked)
        return unpacked if wanted.directory else brought

    async def _read_at_address(self, sought: _Sought, entry: CacheEntry, target: Path) -> None:
        """Fetches what is at an address, whose size is known when it has come."""
        wanted = sought.wanted

        def set_aside(size_bytes: int) -> None:
            if size_bytes > entry.size_bytes:
                if size_bytes > self.limit_bytes:
                    raise InputRefused(
                        f"no-input: {wanted.name!r} does not fit into the worker's cache: it has"
                        f" more than {self.limit_bytes:,} bytes"
                    )
                self._make_room(size_bytes - entry.size_bytes, wanted.name)
                entry.size_bytes = size_bytes

        with _refusing(wanted):
            await self._reader.get(wanted, sought.variables, sought.identity, target, set_aside)
        self.fetched_bytes += entry.size_bytes

    # -- all of them -------------------------------------------------------------------------------

    def _make_room(self, needed_bytes: int, name: str = "") -> None:
        """Removes what was used least recently until so much more fits.

        Raises:
            InputRefused: it cannot fit, now or ever.
        """
        limit = self.limit_bytes
        if needed_bytes > limit:
            raise InputRefused(
                f"no-input: {name!r} does not fit into the worker's cache: it needs"
                f" {needed_bytes:,} bytes of {limit:,}"
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
                f"no-input: {name!r} does not fit into the worker's cache now: tasks use"
                f" {used_bytes:,} of {limit:,} bytes"
            )

    def _forget(self, entry: CacheEntry) -> None:
        """Gives it to no other task; it goes when nobody uses it any more."""
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
        with contextlib.suppress(OSError, msgspec.DecodeError):
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


def _kind(wanted: Input) -> str:
    return "tree" if wanted.directory else "program" if wanted.executable else "file"


def _folder(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


@contextlib.contextmanager
def _refusing(wanted: Input) -> Iterator[None]:
    """Says of what goes wrong that the task has not its input."""
    try:
        yield
    except InputRefused:
        raise
    except NoSpace as error:
        raise InputRefused(f"no-space: {wanted.name!r}: {error.message}") from error
    except FileChanged as error:
        raise _InputChanged(_no_input(wanted, error)) from error
    except KestrelError as error:
        raise InputRefused(_no_input(wanted, error)) from error


def _no_input(wanted: Input, error: KestrelError) -> str:
    why = f"{error.message}: {error.cause}" if error.cause else error.message
    return f"no-input: {wanted.name!r}: {why}"


def _look_at(task: asyncio.Task[None]) -> None:
    """Keeps asyncio from complaining of an error that nobody waited for."""
    if not task.cancelled():
        task.exception()


async def _marks_now(path: str, *, directory: bool) -> str:
    """What tells an entry from anything that is changed later; empty if it is not there."""
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
    """All that is below a directory, in one order."""
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
