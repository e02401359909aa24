"""Files of a task that come home: globs, relative to its scratch directory, and where they go.

A glob is matched name by name on the way down, never as a whole path: so none can lead out of the
directory in which the walk begins, whatever it says.

Not every worker can store files: a worker that can advertises a tag, and a job with outputs asks
for it like for any other. One that may write to an address advertises another: this module decides
what an address may say; the worker checks where it may lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from kestrelctl.core.model.files.addresses import is_address, problem_with_address
from kestrelctl.core.model.job.program import Program

#: The tag of workers that store what tasks leave. Nobody else can give it.
TAG = "outputs"

MOST_GLOBS = 100
#: The longest path that Linux takes (PATH_MAX, with its end).
MOST_CHARACTERS = 4095
#: Any number of directories, also none.
_ANY_DEPTH = "**"

#: The places of the globs on the way down: (which glob, how many of its parts are done).
Places = frozenset[tuple[int, int]]
#: The tag of workers that write to `file:` addresses. Nobody else can give it.
FILE_TAG = "output-to-file"


def problem_with_outputs(program: Program) -> str | None:
    """Says what is wrong with the outputs of a program, for its user; None if all is well."""
    if not program.outputs:
        return None
    if len(program.outputs) > MOST_GLOBS:
        return f"a job names at most {MOST_GLOBS} outputs, not {len(program.outputs)}"
    if program.workdir:
        return (
            f"outputs are what tasks leave in their scratch directories: these start in "
            f"{program.workdir[:80]!r}, and what they leave there stays there"
        )
    return next(filter(None, map(problem_with_glob, program.outputs)), None)


def problem_with_glob(glob: str) -> str | None:
    """Says what is wrong with one glob, in words for its user; None if all is well."""
    shown = repr(glob[:80])
    if glob.startswith("/"):
        return f"a glob is relative to the scratch directory of a task, not {shown}"
    if ".." in glob.split("/"):
        return f"a glob stays below the scratch directory of a task, and {shown} may leave it"
    if "\0" in glob or len(glob) > MOST_CHARACTERS:
        return f"a glob has up to {MOST_CHARACTERS:,} characters, none of them NUL"
    if not _parts(glob):
        return f"{shown} names no file; all that a task leaves is '**'"
    return None


def _parts(glob: str) -> tuple[str, ...]:
    """The names of a glob. One that ends with a slash, or with `**`, is all that is below."""
    parts = [part for part in glob.split("/") if part not in ("", ".")]
    if parts and (glob.endswith("/") or parts[-1] == _ANY_DEPTH):
        parts += ["*"] if parts[-1] == _ANY_DEPTH else [_ANY_DEPTH, "*"]
    return tuple(parts)


class OutputGlobs:
    """The globs of a job, for a walk through a scratch directory.

    `*`, `?` and `[...]` are those of the shell, but `*` also matches names that begin with a dot.

    Args:
        globs: ones with which `problem_with_outputs` finds nothing wrong.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        self.all = tuple(globs)
        self._all_parts = tuple(map(_parts, globs))
        self.start = self._with_empty_depths((g, 0) for g in range(len(globs)))

    def below(self, places: Places, name: str) -> Places:
        """The places of the globs below a name in a directory in which they were at `places`."""
        found = set()
        for g, done in places:
            parts = self._all_parts[g]
            if done == len(parts):
                continue
            if parts[done] == _ANY_DEPTH:
                found.add((g, done))
            elif fnmatchcase(name, parts[done]):
                found.add((g, done + 1))
        return self._with_empty_depths(found)

    def matched(self, places: Places) -> set[str]:
        """The globs that match a file at `places`."""
        return {self.all[g] for g, done in places if done == len(self._all_parts[g])}

    def go_on(self, places: Places) -> bool:
        """Whether a glob can match anything in a directory at `places`."""
        return any(done < len(self._all_parts[g]) for g, done in places)

    def _with_empty_depths(self, places: Iterable[tuple[int, int]]) -> Places:
        found = set()
        for g, done in places:
            parts = self._all_parts[g]
            found.add((g, done))
            while done < len(parts) and parts[done] == _ANY_DEPTH:
                done += 1
                found.add((g, done))
        return frozenset(found)


def problem_with_output_address(program: Program) -> str | None:
    """Says what is wrong with a program's output address, for its user; None if all is well.

    Args:
        program: all is well if it has no such address.
    """
    address = program.output_to
    if not address:
        return None
    if not program.outputs:
        return "it says where files of tasks go, and not which: --keep GLOB does"
    if not is_address(address):
        return f"{address[:80]!r} is no address: files go to one, as in file:///shared/results"
    protocol = address.partition(":")[0].lower()
    if protocol in ("http", "https"):
        return "nothing says how files are written by https: they go to a file: address"
    if protocol != "file":
        return "files of tasks go to file: addresses only"
    return problem_with_address(address)


def place_of(address: str, task_id: int) -> str:
    """Returns the address to which the files of one task go."""
    return f"{address.rstrip('/')}/{task_id}"
