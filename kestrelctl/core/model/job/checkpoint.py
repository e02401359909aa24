"""A checkpoint to go on from: as the worker of a program stores it, and as the pool keeps it.

Tasks write their checkpoints themselves. HTCondor calls that self-checkpointing:
`checkpoint_exit_code` and `transfer_checkpoint_files` (condor_submit). Not every worker can store
files and give them back: a worker that can advertises a tag, and a job with checkpoints asks for it
like for any other.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kestrelctl.core.model.files.outputs import MOST_GLOBS, problem_with_glob
from kestrelctl.core.model.files.stored_file import StoredFile, problem_with_stored_file
from kestrelctl.core.model.job.exits import MAX_EXIT_CODE
from kestrelctl.core.model.job.program import Program

#: Checkpoints of a task are counted from 1, over all of its attempts.
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=(1 << 62) - 1)]

#: Between two checkpoints, unless a job says otherwise.
DEFAULT_SECONDS = 600.0

#: The longest address of a piece, and the most that a stored file takes in a message: it travels
#: with the attempt that goes on from it.
MOST_URL_CHARACTERS = 1024
MOST_STORED_BYTES = 150_000


class MadeCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint that an attempt has made.

    Attributes:
        n: which one of its task it is.
        stored: its files, as one archive.
    """

    n: Ordinal
    stored: StoredFile


class Checkpoint(msgspec.Struct, frozen=True):
    """The checkpoint from which the next attempt of a task goes on.

    Attributes:
        number: of the attempt that made it.
        n: which one of its task it is.
        stored: its files, as one archive.
        at: when the pool heard of it, in seconds since the epoch.
    """

    number: int
    n: int
    stored: StoredFile
    at: float

    def is_older_than(self, number: int, n: int) -> bool:
        """Whether this is of an earlier attempt, or an earlier checkpoint of the same attempt."""
        return (self.number, self.n) < (number, n)


def can_be_given(stored: StoredFile) -> bool:
    """Whether it can be fetched, and fits into a message beside what else an attempt takes."""
    text = msgspec.json.encode(stored)
    escapes = text.count(b"&") + text.count(b"<") + text.count(b">")
    return (
        all(len(piece.url) <= MOST_URL_CHARACTERS for piece in stored.pieces)
        and len(text) + 4 * escapes <= MOST_STORED_BYTES
        and problem_with_stored_file(stored) is None
    )


#: The tag of workers that store checkpoints and give them back. Nobody else can give it.
TAG = "checkpoints"

LEAST_SECONDS = 1.0
MOST_SECONDS = 7 * 86_400.0


def problem_with_checkpoints(program: Program) -> str | None:
    """Says what is wrong with a program's checkpoints, for its user; None if all is well."""
    if not program.checkpoints:
        if program.checkpoint_exit is None and program.checkpoint_seconds is None:
            return None
        return "say which files are a checkpoint: --checkpoint GLOB"
    seconds, code = program.checkpoint_seconds, program.checkpoint_exit
    checks = (
        (
            len(program.checkpoints) <= MOST_GLOBS,
            f"a job names at most {MOST_GLOBS} checkpoint files, not {len(program.checkpoints)}",
        ),
        (
            not program.workdir,
            "checkpoints are what tasks write into their scratch directories: these start in "
            f"{program.workdir[:80]!r}, and what they write there stays there",
        ),
        (
            seconds is None or LEAST_SECONDS <= seconds <= MOST_SECONDS,
            "between two checkpoints are 1 second to 7 days",
        ),
        (
            code is None or 1 <= code <= MAX_EXIT_CODE,
            f"an exit code that says that a program goes on is 1 to {MAX_EXIT_CODE}, not {code}",
        ),
        (
            code is None or not any(low <= code <= high for low, high in program.success_exits),
            f"exit code {code} cannot say both that a task is done and that it goes on",
        ),
    )
    problem = next((text for fine, text in checks if not fine), None)
    globs = map(problem_with_glob, program.checkpoints)
    return problem or next(filter(None, globs), None)
