"""The files that travel with a job: reads the words of `--input`, and sends the files."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from kestrelctl.client.upload_record import UploadRecord
from kestrelctl.core.model.files.addresses import is_address, name_at, shown
from kestrelctl.core.model.files.inputs import (
    MOST_INPUTS,
    MOST_PIECES,
    Input,
    problem_with_input_name,
    problem_with_source,
)
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.program import Program
from kestrelctl.errors import FileChanged, UsageError
from kestrelctl.grammar.quantities import size

if TYPE_CHECKING:
    from kestrelctl.access.share import Share

#: Is told which file is being sent.
Say: TypeAlias = Callable[[str], object]

_AFTER_ADDRESS = re.compile(r"(?:sha256=([0-9A-Fa-f]{64}))?(?:=(.*))?", re.DOTALL)


class InputFile(NamedTuple):
    """A file or a directory of this machine, and its name in the scratch directory of each task."""

    path: Path
    name: str

    @property
    def is_directory(self) -> bool:
        """Whether it is sent as an archive."""
        return self.path.is_dir()


class InputAddress(NamedTuple):
    """An address that workers read, and the name under which each task finds its file.

    Attributes:
        sha256: the hash of what is there, in hexadecimal; empty if the user gave none.
    """

    address: str
    sha256: str
    name: str

    @property
    def given(self) -> Input:
        """The input as the pool is told of it."""
        return Input(
            name=self.name,
            address=self.address,
            sha256=self.sha256,
            directory=self.address.endswith("/"),
        )


class JobFiles(NamedTuple):
    """The files that tasks of a job are to have: on this machine, or at addresses.

    Attributes:
        inputs: the files that each task finds in its scratch directory.
        stdin: the file that each task reads as standard input; None for none.
    """

    inputs: Sequence[InputFile | InputAddress]
    stdin: InputFile | InputAddress | None

    @property
    def all(self) -> list[InputFile | InputAddress]:
        """All of the files."""
        return [*self.inputs, *([self.stdin] if self.stdin else [])]


class SentFiles(NamedTuple):
    """The files of a job where its tasks find them."""

    inputs: tuple[Input, ...]
    stdin: Input | None

    def of(self, program: Program) -> Program:
        """Returns a program with these files."""
        return replace(program, inputs=self.inputs, stdin=self.stdin)


def find_files(inputs: Iterable[str], stdin: str | None) -> JobFiles:
    """Finds the files that the words of `--input` and `--stdin` name.

    Raises:
        UsageError: there is no such file, or it cannot be sent like this.
    """
    found = find_inputs(inputs)
    if stdin is None:
        return JobFiles(found, None)
    if is_address(stdin):
        return JobFiles(found, _find_address(stdin, default_name="stdin"))
    path = Path(stdin)
    if not path.is_file():
        why = "it is not there" if not os.path.lexists(path) else "it is no file"
        raise UsageError(f"{path} cannot be the standard input", cause=why)
    # The file is in no directory of a task: its name is only for people.
    read = InputFile(path, "stdin" if problem_with_input_name(path.name) else path.name)
    _check_size([read])
    return JobFiles(found, read)


def find_inputs(words: Iterable[str]) -> list[InputFile | InputAddress]:
    """Finds what the words of `--input` name: `FILE`, `FILE=NAME`, a pattern, or an address.

    Raises:
        UsageError: there is no such file, it has no name that a task could see, or two files share
            a name; or workers do not read the address.
    """
    found = [each for word in words for each in _find(word)]
    names: dict[str, str] = {}
    for each in found:
        given = shown(each.address) if isinstance(each, InputAddress) else str(each.path)
        if isinstance(each, InputFile) and not (each.is_directory or each.path.is_file()):
            raise UsageError(f"the input {given} is neither a file nor a directory")
        problem = problem_with_input_name(each.name)
        if problem is not None:
            raise UsageError(
                f"{given} cannot be an input so",
                cause=problem,
                hint="write --input FILE=NAME, with a NAME without a slash",
            )
        if each.name in names:
            raise UsageError(
                f"two inputs are called {each.name!r}",
                cause=f"{names[each.name]} and {given}",
                hint="write --input FILE=NAME for one of them",
            )
        names[each.name] = given
    if len(found) > MOST_INPUTS:
        raise UsageError(
            f"a job has up to {MOST_INPUTS} inputs, not {len(found):,}",
            hint="put them into a directory, and send that",
        )
    _check_size(found)
    return found


def _check_size(found: Sequence[InputFile | InputAddress]) -> None:
    """Refuses what the pool would refuse after it has been sent."""
    files = [each for each in found if isinstance(each, InputFile)]
    if not files:
        return
    from kestrelctl.files.share import PIECE_BYTES

    most_bytes = MOST_PIECES * PIECE_BYTES
    size_bytes = sum(mark[2] for each in files for mark in _marks(each.path))
    if size_bytes > most_bytes:
        raise UsageError(
            f"the inputs of a job have up to {size(most_bytes)} together, not {size(size_bytes)}",
            hint="put them on a file system that all workers have, or send what each task needs",
        )


def _find(word: str) -> list[InputFile] | list[InputAddress]:
    if is_address(word):
        return [_find_address(word)]
    if not word:  # a path would make the current directory of it
        raise UsageError("an input has an empty name", hint="`.` is the current directory")
    path = Path(word)
    if os.path.lexists(path):
        return [InputFile(path, path.name or path.resolve().name)]
    file, equals, name = word.rpartition("=")
    if equals and os.path.lexists(file):
        return [InputFile(Path(file), name)]
    matches = sorted(glob.glob(word, recursive=True))
    if not matches:
        hint = "it is looked for in the current directory; a pattern goes between quotes"
        raise UsageError(f"there is no file {file if equals else word}", hint=hint)
    return [InputFile(Path(match), Path(match).name) for match in matches]


def _find_address(word: str, default_name: str = "") -> InputAddress:
    """Reads `ADDRESS`, `ADDRESS#sha256=HEX` and each with `=NAME`.

    If an address has a question mark, an equals sign and what follows it belong to the address; a
    name comes after `#` then.

    Args:
        default_name: the name if the address has no good one.
    """
    address, mark, rest = word.partition("#")
    sha256 = name = ""
    if mark:
        said = _AFTER_ADDRESS.fullmatch(rest)
        if said is None:
            raise UsageError(
                f"after the # of {shown(address)} comes sha256= and 64 hexadecimal digits",
                hint="write %23 for a # that belongs to the address",
            )
        sha256, name = (said[1] or "").lower(), said[2] or ""
    elif "=" in word and "?" not in word:
        address, _, name = word.rpartition("=")
    problem = problem_with_source(InputAddress(address, sha256, name).given)
    if problem:
        raise UsageError(f"workers do not read {shown(address)}", cause=problem)
    if not name:
        name = name_at(address)
        if default_name and problem_with_input_name(name):
            name = default_name
    return InputAddress(address, sha256, name)


async def send_files(files: JobFiles, share: Share, record: UploadRecord, say: Say) -> SentFiles:
    """Sends the files of a job that are not there yet; see `send_inputs`."""
    sent = await send_inputs(files.all, share, record, say)
    count = len(files.inputs)
    return SentFiles(sent[:count], sent[count] if files.stdin else None)


async def send_inputs(
    files: Iterable[InputFile | InputAddress], share: Share, record: UploadRecord, say: Say
) -> tuple[Input, ...]:
    """Sends the files of this machine that are not there yet; returns what every task finds.

    Args:
        record: the files that were sent before.
        say: is told of each file that is sent, in a sentence.

    Raises:
        FileChanged: a file was changed meanwhile.
        UsageError: a file cannot be read, or is gone.
        KestrelError: the share does not take it.
    """
    return tuple(
        [
            each.given if isinstance(each, InputAddress) else await _send(each, share, record, say)
            for each in files
        ]
    )


async def _send(file: InputFile, share: Share, record: UploadRecord, say: Say) -> Input:
    before = await asyncio.to_thread(_marks, file.path)
    if not file.is_directory:
        stored = await _stored(file.path, file.path, share, record, say)
        with _reading(file.path):
            executable = bool(file.path.stat().st_mode & stat.S_IXUSR)
    else:
        from kestrelctl.files.archive import pack

        executable = False
        with tempfile.TemporaryDirectory(prefix="kestrel-input-") as place:
            archive = Path(place, "archive")
            with _reading(file.path):
                entries = {each.name: each for each in sorted(file.path.iterdir())}
            await asyncio.to_thread(pack, entries, archive)
            stored = await _stored(archive, file.path, share, record, say)
    if await asyncio.to_thread(_marks, file.path) != before:
        raise FileChanged(
            f"{file.path} changed while it was sent",
            cause="its size, its time or the file itself is another than before",
            hint="submit the job again once nothing writes to it",
        )
    return Input(name=file.name, stored=stored, executable=executable, directory=file.is_directory)


async def _stored(
    path: Path, shown: Path, share: Share, record: UploadRecord, say: Say
) -> StoredFile:
    """Returns a file as it is in the share; sends it if it is not there.

    Args:
        shown: the name that the user gave it.
    """
    sha256 = await asyncio.to_thread(_sha256, path)
    known = record.find(sha256)
    if known is not None and await share.has(known):
        return known
    say(f"sending {shown} ({size(path.stat().st_size)})")
    stored = await share.put(path)
    if stored.sha256 != sha256:
        raise FileChanged(
            f"{shown} changed while it was sent",
            hint="submit the job again once nothing writes to it",
        )
    record.add(stored)
    return stored


def _sha256(path: Path) -> str:
    with _reading(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _marks(path: Path) -> list[tuple[str, int, int, int, int]]:
    """Reads what would change if a file, or any file in a directory, were written to meanwhile."""
    found = []
    for each in (path, *_below(path)):
        with _reading(path):
            status = each.stat(follow_symlinks=each is path)
        marks = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)
        found.append((str(each), *marks))
    return found


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns an OSError in the `with` into a UsageError that says which input could not be read."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"the input {path} cannot be read", cause=error.strerror) from None


def _below(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for directory, folders, files in os.walk(path):
            folders.sort()
            yield from (Path(directory, name) for name in sorted((*folders, *files)))
