"""Files that travel with a job: what the job says of them.

A task finds each in its scratch directory, under its name, as a link to what its worker has fetched
and keeps. That is only for workers that fetch files: they advertise a tag, and a job with inputs
asks for it like for any other. So a worker that knows nothing of inputs gets none.

They come from the pool's file share, or from an address that the worker itself reads.
"""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.files.addresses import problem_with_address, shown
from kestrelctl.core.model.files.stored_file import StoredFile, is_sha256, problem_with_stored_file

#: The tag of workers that fetch inputs. Nobody else can give it.
TAG = "inputs"
#: The most inputs of one job.
MOST_INPUTS = 100
#: The most pieces of all of them together: some 30 GB.
MOST_PIECES = 1000
#: The longest name that Linux takes (NAME_MAX).
MOST_NAME_BYTES = 255
#: Names that Kestrel itself puts into a scratch directory.
TAKEN_NAMES = ("kestrel-hosts",)


class Input(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file, or one directory, that each task of a job finds in its scratch directory.

    Attributes:
        name: there; no path.
        stored: where workers get it from, in the share; None if they read it at an address.
        address: where they read it; the address of a directory ends with a slash.
        sha256: of what is at the address, in hexadecimal; empty if the job does not say.
        executable: whether it is a program; nobody knows that of what is at an address.
        directory: what is stored is the archive of a directory, which is unpacked.
    """

    name: str
    stored: StoredFile | None = None
    address: str = ""
    sha256: str = ""
    executable: bool = False
    directory: bool = False

    @property
    def pieces(self) -> int:
        """The number of its pieces in the share."""
        return len(self.stored.pieces) if self.stored else 0


def shown_input(given: Input) -> str:
    """An input in a word for people: its name, and the address if it has one."""
    return f"{shown(given.address)}={given.name}" if given.address else given.name


def problem_with_source(given: Input) -> str | None:
    """Says what is wrong with where an input comes from; None if all is well."""
    if given.stored is not None:
        if given.address or given.sha256:
            return "it comes from the share or from an address"
        return problem_with_stored_file(given.stored)
    if given.sha256 and not is_sha256(given.sha256):
        return "a hash is 64 hexadecimal digits"
    if given.executable or given.directory != given.address.endswith("/"):
        return "the address of a directory ends with a slash, and no other"
    if given.directory and given.sha256:
        return "a directory has no hash"
    return problem_with_address(given.address, known=bool(given.sha256))


def problem_with_input_name(name: str) -> str | None:
    """Says what is wrong with the name of an input, in words for its user; None if all is well."""
    shown = f"{name[:80]!r}"
    if not name:
        return "the name of an input is empty"
    if name in (".", "..") or "/" in name:
        return f"{shown} cannot be the name of an input: it is one of the scratch directory's own"
    if any(character < " " or character == "\x7f" for character in name):
        return f"{shown} cannot be the name of an input: it holds a control character"
    if any("\ud800" <= character <= "\udfff" for character in name):
        return f"{shown} cannot be the name of an input: it is not UTF-8"
    if len(name.encode()) > MOST_NAME_BYTES:
        return f"the name of an input has up to {MOST_NAME_BYTES} bytes: {shown}"
    if name in TAKEN_NAMES:
        return f"{shown} cannot be the name of an input: the pool puts a file of its own there"
    return None


def problem_with_stdin(stdin: Input | None) -> str | None:
    """Says what is wrong with the standard input of a job's tasks; None if all is well."""
    if stdin is None:
        return None
    if problem := problem_with_input_name(stdin.name):
        return problem
    if stdin.directory:
        return "a directory cannot be the standard input"
    if stdin.pieces > MOST_PIECES:
        return f"the standard input has up to {MOST_PIECES} pieces"
    problem = problem_with_source(stdin)
    return f"the standard input: {problem}" if problem else None


def problem_with_inputs(inputs: tuple[Input, ...], workdir: str) -> str | None:
    """The first thing wrong with the inputs of a job; None if all is well.

    Args:
        workdir: where its tasks start; empty for scratch directories.
    """
    if not inputs:
        return None
    if workdir:
        return "inputs are put into scratch directories, and the tasks of this job start elsewhere"
    if len(inputs) > MOST_INPUTS:
        return f"a job has up to {MOST_INPUTS} inputs, not {len(inputs)}"
    names: set[str] = set()
    for each in inputs:
        problem = problem_with_input_name(each.name)
        if problem:
            return problem
        if each.name in names:
            return f"two inputs are called {each.name!r}"
        names.add(each.name)
        problem = problem_with_source(each)
        if problem:
            return f"input {each.name!r}: {problem}"
    pieces = sum(each.pieces for each in inputs)
    if pieces > MOST_PIECES:
        size_bytes = sum(each.stored.size_bytes for each in inputs if each.stored)
        return (
            f"the inputs of a job have up to {MOST_PIECES} pieces together, not {pieces:,}"
            f" ({size_bytes:,} bytes)"
        )
    return None
