"""Reads inputs at their addresses, for the worker's cache."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from kestrelctl.core.model.files.addresses import FILE, HTTPS, S3, TAG_PREFIX
from kestrelctl.core.model.files.inputs import Input, problem_with_source
from kestrelctl.errors import FileChanged, FileDamaged, KestrelError, Unreachable
from kestrelctl.worker.addresses.address_state import AddressState
from kestrelctl.worker.addresses.addressed_files import AddressedFiles
from kestrelctl.worker.addresses.shared_files import SharedFiles

#: How often it is tried to read what cannot be reached, and the unit of the growing pauses between.
MOST_TRIES = 3
PAUSE_SECONDS = 2.0
#: The longest time in which nothing may come.
SILENCE_SECONDS = 60.0
#: By protocol, the packages that must be installed to read it.
_NEEDS = {HTTPS: ("fsspec", "aiohttp"), S3: ("fsspec", "s3fs")}

T = TypeVar("T")


def tags_of_protocols(*, reads_files: bool) -> tuple[str, ...]:
    """The tags of a worker for what it can read here.

    Args:
        reads_files: whether its operator lets it read `file:` addresses.
    """
    found = [FILE] if reads_files else []
    for protocol, needed in _NEEDS.items():
        if all(importlib.util.find_spec(each) is not None for each in needed):
            found.append(protocol)
    return tuple(TAG_PREFIX + each for each in found)


class AddressReader:
    """Opens addresses and writes what is there to the worker's disk.

    Args:
        directories: those below which `file:` addresses may lead.
        own_user: the pool is that of the worker's user alone, so all that he may read may be read.
        silence_seconds: the longest time in which nothing may come.
        sleep: pauses for so many seconds.
    """

    def __init__(
        self,
        directories: Sequence[Path] = (),
        *,
        own_user: bool = False,
        silence_seconds: float = SILENCE_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._directories = directories
        self._own_user = own_user
        self._silence_seconds = silence_seconds
        self._sleep = sleep

    async def identity(self, wanted: Input, variables: Mapping[str, str]) -> str:
        """Returns a text that changes when it is changed at its address; empty if nothing tells.

        Args:
            variables: the environment of the task that wants it.

        Raises:
            KestrelError: it cannot be had.
        """
        return await self._again(lambda: self._identity(wanted, variables))

    async def get(
        self, state: AddressState, target: Path, set_aside: Callable[[int], None]
    ) -> None:
        """Writes what is at an address to a file, or to a directory.

        Args:
            state: the state that is wanted; without an identity whatever is there.
            set_aside: called before anything is written, with how many bytes it comes to.

        Raises:
            FileChanged: it is another one now.
            FileDamaged: it does not have the hash that the job says.
            KestrelError: it cannot be had.
            OSError: it cannot be written.
        """
        await self._again(lambda: self._get(state, target, set_aside))

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(1, MOST_TRIES + 1):
            try:
                return await work()
            except Unreachable:
                if attempt == MOST_TRIES:
                    raise
            await self._sleep(PAUSE_SECONDS * attempt)
        raise AssertionError

    async def _identity(self, wanted: Input, variables: Mapping[str, str]) -> str:
        await asyncio.to_thread(_load, wanted.address)
        files = self._files(wanted, variables)
        try:
            return await files.identity()
        finally:
            await files.close()

    async def _get(
        self, state: AddressState, target: Path, set_aside: Callable[[int], None]
    ) -> None:
        wanted = state.wanted
        await asyncio.to_thread(_clear, target)
        await asyncio.to_thread(_load, wanted.address)
        files = self._files(wanted, state.variables)
        size_bytes, found = 0, hashlib.sha256()
        try:
            if wanted.directory:
                target.mkdir()
            async for file in files.each():
                if file.link:
                    _make_link(target, file.names, file.link)
                    continue
                with _made(target, file.names, program=file.executable) as draft:
                    async for piece in file.pieces:
                        size_bytes += len(piece)
                        set_aside(size_bytes)
                        await asyncio.to_thread(_write, draft, piece, found)
            if wanted.sha256 and found.hexdigest() != wanted.sha256:
                raise FileDamaged(
                    "what is there is not what the job says", cause=f"sha256={found.hexdigest()}"
                )
            if state.identity and await files.identity() != state.identity:
                raise FileChanged("it changed while it was fetched")
        finally:
            await files.close()

    def _files(self, wanted: Input, variables: Mapping[str, str]) -> AddressedFiles:
        problem = problem_with_source(wanted)
        if problem:  # the manager has looked; what it sends decides what this machine opens
            raise KestrelError(problem)
        address, known = wanted.address, bool(wanted.sha256)
        if address.startswith("file:"):
            return SharedFiles(address, self._directories, own_user=self._own_user)
        if address.startswith("s3:"):
            from kestrelctl.worker.addresses.bucket_files import BucketFiles

            return BucketFiles(
                address, variables, known=known, silence_seconds=self._silence_seconds
            )
        from kestrelctl.worker.addresses.web_files import WebFile

        return WebFile(address, known=known, silence_seconds=self._silence_seconds)


def _load(address: str) -> None:
    """Loads what reads an address: that takes longer than all else, and few workers need it."""
    if address.startswith("file:"):
        return
    from fsspec.config import conf

    name = "bucket_files" if address.startswith("s3:") else "web_files"
    importlib.import_module(f"kestrelctl.worker.addresses.{name}")
    conf.clear()  # what the worker's user has set there may be a secret


def _clear(target: Path) -> None:
    """Removes what an earlier try has left."""
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def _place(target: Path, names: Sequence[bytes]) -> bytes:
    """Makes the directories that a file is in; returns the path of the file."""
    path = os.path.join(os.fsencode(target), *names)
    if names:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _make_link(target: Path, names: Sequence[bytes], link: bytes) -> None:
    os.symlink(link, _place(target, names))


def _made(target: Path, names: Sequence[bytes], *, program: bool) -> BinaryIO:
    """Makes a new file, and the directories that it is in."""
    path = _place(target, names)
    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700 if program else 0o600)
    return os.fdopen(made, "wb")


def _write(draft: BinaryIO, piece: bytes, found: hashlib._Hash) -> None:
    found.update(piece)
    draft.write(piece)
