"""Packs what a task left and its job asks for into one archive.

Links are packed as links if they lead to what is packed, too. Other links are named instead, and so
is all else that is no file.

Something of the task may still run and swap one thing for another. So names are looked up in open
directories, no link is followed, nothing is opened that could wait for somebody, and only what was
found out about a file once it was open counts (open(2), O_NOFOLLOW; fifo(7)).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

from kestrelctl.core.model.end_reason import NO_REASON, EndKind, ReasonText
from kestrelctl.core.model.files.outputs import OutputGlobs, Places
from kestrelctl.files.archive import END_BYTES, add_file, add_link, too_many
from kestrelctl.files.tree_links import problem_with_link, with_directories
from kestrelctl.worker.own_files import NO_LINKS
from kestrelctl.worker.run.executor import AttemptRefused

#: Limits of one task. Deeper directories, and more names, are refused, not left out in silence.
MOST_DEPTH = 64
MOST_FILES = 100_000
MOST_NAMES = 1_000_000
_READ = os.O_RDONLY | os.O_NONBLOCK | NO_LINKS
#: The most globs, or names, that are told of an attempt.
_MOST_NAMED = 3


class OutputsRefused(AttemptRefused):
    """The outputs of a task are not stored."""


class Stopped(Exception):
    """Nobody wants the archive any more."""


class _Found(NamedTuple):
    """A file, or a link, that globs name: where it is below the scratch directory, and how it was.

    Attributes:
        globs: those that name it.
        link: where a link points; empty for a file.
    """

    names: tuple[str, ...]
    size_bytes: int
    inode: int
    changed_ns: int
    globs: frozenset[str]
    link: str = ""

    @property
    def name(self) -> str:
        """Its name in the archive."""
        return "/".join(self.names)


#: Names, sizes, inodes and times of files and links.
Marks = tuple[_Found, ...]


class OutputArchive:
    """One archive, of the outputs of one task.

    Args:
        scratch: the open directory in which they are.
        globs: which outputs.
        limit_bytes: the most that they may have together.
        stopped: asked now and then whether to give up.
        inputs: the links that the task has found there, and where these point: not its own.
    """

    def __init__(
        self,
        scratch: int,
        globs: OutputGlobs,
        limit_bytes: int,
        stopped: Callable[[], bool],
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        self._scratch = scratch
        self._globs = globs
        self._limit_bytes = limit_bytes
        self._stopped = stopped
        self._inputs = inputs or {}
        self._device = os.fstat(scratch).st_dev
        self._names = 0
        self._matched: set[str] = set()
        self._passed_over: list[str] = []
        self._left_out: list[str] = []
        self._left_out_count = 0

    @property
    def left_out(self) -> ReasonText:
        """A remark on the attempt: what globs name and is not in it; empty if there is nothing.

        It is known when the archive is written.
        """
        if not self._left_out:
            return NO_REASON
        more = self._left_out_count - len(self._left_out)
        others = f"; and {more:,} more" if more else ""
        return EndKind.OUTPUTS_INCOMPLETE.text(f"{'; '.join(self._left_out)}{others}")

    def marks(self) -> Marks:
        """Returns marks that tell the files that would be in it from those of another moment.

        Raises:
            OutputsRefused: there are too many.
            OSError: a directory cannot be read.
        """
        return tuple(self._look())

    def write(self, target: BinaryIO, *, every_glob: bool = True) -> int:
        """Writes it; the same files give the same bytes. Returns how many files, links included.

        Args:
            every_glob: whether each glob must name a file, and not only one of them.

        Raises:
            OutputsRefused: a glob names nothing, or it is too much.
            Stopped: it was given up.
            OSError: it cannot be written, or a file not be read.
        """
        found = self._look()
        missing = [glob for glob in self._globs.all if glob not in self._matched]
        if missing and (every_glob or not found):
            raise OutputsRefused(EndKind.OUTPUTS_MISSING, self._nothing_is(missing))
        if problem := too_many(each.name for each in found):
            raise OutputsRefused(EndKind.OUTPUTS_TOO_LARGE, problem)
        self._must_be_few(sum(each.size_bytes for each in found))
        with tarfile.TarFile(
            fileobj=target,
            mode="w",
            format=tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            packed_bytes = 0
            for each in found:
                packed_bytes = self._add(archive, each, packed_bytes)
            end = archive.offset + END_BYTES
        target.truncate(end)
        return len(found)

    # ---- what there is

    def _look(self) -> list[_Found]:
        """The files that globs name, and the links that lead to what they name, in order."""
        found = sorted(self._walk((), self._scratch, self._globs.start))
        if len(found) > MOST_FILES:
            raise OutputsRefused(EndKind.OUTPUTS_TOO_LARGE, f"more than {MOST_FILES:,} files")
        links = {each.name: each.link for each in found if each.link}
        there = with_directories(each.name for each in found) if links else frozenset[str]()
        kept = []
        for each in found:
            why = problem_with_link(each.name, links, there) if each.link else ""
            if why:
                self._leave_out(each.names, why)
            else:
                self._matched |= each.globs
                kept.append(each)
        return kept

    def _walk(self, above: tuple[str, ...], directory: int, places: Places) -> Iterator[_Found]:
        self._check()
        names = sorted(os.listdir(directory))
        self._names += len(names)
        if self._names > MOST_NAMES:
            raise OutputsRefused(
                EndKind.OUTPUTS_TOO_LARGE, f"more than {MOST_NAMES:,} names to look at"
            )
        for name in names:
            there = self._globs.below(places, name)
            if not there:
                continue
            try:
                state = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                continue
            fits = frozenset(self._globs.matched(there))
            if stat.S_ISDIR(state.st_mode):
                if self._globs.go_on(there):
                    yield from self._below((*above, name), directory, there)
                elif fits:
                    self._pass_over((*above, name), "is a directory; with / at its end all of it")
            elif fits and (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
                link, size_bytes = "", state.st_size
                if stat.S_ISLNK(state.st_mode):
                    link, size_bytes = os.readlink(name, dir_fd=directory), 0
                    if not above and self._inputs.get(name) == link:
                        self._pass_over((name,), "is an input")
                        continue
                yield _Found(
                    (*above, name), size_bytes, state.st_ino, state.st_mtime_ns, fits, link
                )
            elif fits:
                self._leave_out((*above, name), "is no file")

    def _below(self, names: tuple[str, ...], parent: int, places: Places) -> Iterator[_Found]:
        if len(names) > MOST_DEPTH:
            raise OutputsRefused(
                EndKind.OUTPUTS_TOO_LARGE, f"more than {MOST_DEPTH} directories deep"
            )
        try:
            directory = os.open(names[-1], _READ | os.O_DIRECTORY, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if error.errno == errno.ELOOP:  # it was swapped for a link
                return
            raise
        try:
            if os.fstat(directory).st_dev == self._device:
                yield from self._walk(names, directory, places)
            else:
                self._leave_out(names, "is mounted there")
        finally:
            os.close(directory)

    def _leave_out(self, names: tuple[str, ...], why: str) -> None:
        """Notes what a glob names and cannot be stored."""
        self._left_out_count += 1
        if len(self._left_out) < _MOST_NAMED:
            self._left_out.append(f"{_shown('/'.join(names))} {why}")
        self._pass_over(names, why)

    def _pass_over(self, names: tuple[str, ...], why: str) -> None:
        """Notes what a glob names and does not mean."""
        if len(self._passed_over) < _MOST_NAMED:
            self._passed_over.append(f"{_shown('/'.join(names))} {why}")

    def _nothing_is(self, missing: list[str]) -> str:
        globs = ", ".join(map(_shown, missing[:_MOST_NAMED]))
        more = ", …" if len(missing) > _MOST_NAMED else ""
        return "; ".join((f"no file is {globs}{more}", *self._passed_over))

    def _must_be_few(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise OutputsRefused(
                EndKind.OUTPUTS_TOO_LARGE,
                f"{size_bytes:,} bytes; this worker stores up to {self._limit_bytes:,} of a task",
            )

    # ---- what goes into it

    def _add(self, archive: tarfile.TarFile, found: _Found, packed_bytes: int) -> int:
        """Adds a file, as large as it is now, or a link. Returns how much is packed with it."""
        if found.link:
            add_link(archive, found.name, found.link)
            return packed_bytes
        file = self._open(found.names)
        try:
            state = os.fstat(file)
            if not stat.S_ISREG(state.st_mode) or state.st_dev != self._device:
                raise OSError(errno.EINVAL, "it was replaced meanwhile")
            packed_bytes += state.st_size
            self._must_be_few(packed_bytes)
            entry = tarfile.TarInfo(found.name)
            entry.size = state.st_size
            entry.mode = 0o755 if state.st_mode & stat.S_IXUSR else 0o644
            with open(file, "rb", closefd=False) as reader:
                add_file(archive, entry, reader, check=self._check)
            return packed_bytes
        finally:
            os.close(file)

    def _open(self, names: tuple[str, ...]) -> int:
        """Opens a file from the scratch directory down, through directories only."""
        with contextlib.ExitStack() as opened:
            parent = self._scratch
            for name in names[:-1]:
                parent = os.open(name, _READ | os.O_DIRECTORY, dir_fd=parent)
                opened.callback(os.close, parent)
            return os.open(names[-1], _READ, dir_fd=parent)

    def _check(self) -> None:
        if self._stopped():
            raise Stopped


def _shown(name: str) -> str:
    """A name in words for people: short, and without what is no text."""
    text = os.fsencode(name).decode(errors="backslashreplace")
    return repr(text[:80] + ("…" if len(text) > 80 else ""))
