"""The port between what decides which attempt runs and what runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import (
    CANCELLED,
    NO_REASON,
    EndKind,
    ReasonText,
    ended_by_itself,
)
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.ending_rules import is_success
from kestrelctl.core.model.job.exits import Exits
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.stage import StageRun
from kestrelctl.errors import KestrelError
from kestrelctl.worker.files.checkpoint_order import CheckpointOrder

#: Seconds to start a command.
START_BOUNDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5)


class AttemptRefused(KestrelError):
    """Something that an attempt needs cannot be done; the reason of its end says why.

    Args:
        kind: of that reason.
        detail: more about it.
    """

    def __init__(self, kind: EndKind, detail: str) -> None:
        self.reason = kind.text(detail)
        super().__init__(self.reason)


class CommandSpec(msgspec.Struct, frozen=True):
    """The command to execute for an attempt.

    Args:
        number: of the attempt, unique.
        program: what is run, with the task's values in its placeholders, and the task's own place
            in `output_to`. What was fetched or prepared for it is not in it any more.
        env: the whole environment, the program's variables among it.
        memory_bytes, disk_bytes: the most that it may use; 0 for what any task may use.
        host_lines: what its host file has; empty for none.
        stdin_path: absolute path of its standard input when it was fetched; empty before, and for
            none.
        owner: whose attempt it is, where it has inputs or writes to an address, and wherever it is
            another pool's.
        group: of the owner, if it is another pool's.
        links: (name, path) of what it finds in its scratch directory as links to what was fetched.
        inputs_dir: absolute path of the directory in which that is; empty if there is nothing.
        held: lets a later process of the worker hold the attempt again, of which only what comes
            after the command is left to do; None for one that ends with this process.
        checkpoints: what is stored of it while it runs, and what it goes on from; None for nothing.
        refusal: why it is not to be executed; empty if it is.
        resume_dir: absolute path of the directory whose entries are moved into its scratch
            directory; empty for none.
        lane: shared by commands that take the same of the machine, and for which nothing has to be
            done before and after; 0 for none.
        waits: whether it waits until `begin`, or until another of its lane that had started has
            ended.
    """

    number: int
    program: Program
    env: dict[str, str]
    memory_bytes: int = 0
    disk_bytes: int = 0
    host_lines: tuple[str, ...] = ()
    stdin_path: str = ""
    owner: str = ""
    links: tuple[tuple[str, str], ...] = ()
    inputs_dir: str = ""
    held: HeldAttempt | None = None
    checkpoints: CheckpointOrder | None = None
    resume_dir: str = ""
    group: str = ""
    refusal: str = ""
    lane: int = 0
    waits: bool = False


class Completion(msgspec.Struct, frozen=True, gc=False):
    """The end of an attempt.

    Args:
        number: of the attempt.
        exit_code: None if a signal ended it or it never ran.
        signal: the signal that ended it.
        reason: what ended it if not its exit, or a remark (`EndKind` has them all); empty for none.
        started_at: seconds since the epoch.
        wall_seconds: from start to end, without the cleanup.
        cpu_seconds: user and system time, with that of the children it waited for; no less than
            was told of it while it ran.
        peak_bytes: largest resident memory; 0 if it is not known.
        stdout, stderr: the last TAIL_BYTES of each.
        stdout_bytes, stderr_bytes: whole sizes.
        output_files: how many files were stored, or written to an address.
        outputs: where those are that were stored, as one archive.
        stored_seconds: how long storing took, from its end and that of its cleanup.
        stdout_stored, stderr_stored: where the whole of each is.
        stages: each that was begun, `run` included; empty for a command without stages.
        left: the archive of the files from which it goes on, if it does.
        checkpoint: the same with its count.
    """

    number: int
    exit_code: int | None = None
    signal: int | None = None
    reason: ReasonText = NO_REASON
    started_at: float = 0.0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    output_files: int = 0
    outputs: StoredFile | None = None
    stored_seconds: float = 0.0
    stdout_stored: StoredFile | None = None
    stderr_stored: StoredFile | None = None
    stages: tuple[StageRun, ...] = ()
    left: StoredFile | None = None
    checkpoint: MadeCheckpoint | None = None

    def is_success(self, success_exits: Exits) -> bool:
        """Whether the command did what it was to do.

        Args:
            success_exits: as of a `Program`.
        """
        # A command that is asked to end may do so with status 0, which says nothing then.
        return (
            self.exit_code is not None
            and ended_by_itself(self.reason)
            and is_success(success_exits, self.exit_code)
        )


class Executor(Protocol):
    """Runs commands. Whoever calls `start` has decided that there is room.

    Each start is followed by one `Completion`, never from inside `start` or `kill`. Commands that
    wait are the exception: they may be withdrawn, and it is told when they start.
    """

    start_seconds: Histogram  #: how long starts took
    most_ahead: int  #: how many commands may wait here; 0 for none

    def start(self, command: CommandSpec) -> None:
        """Starts a command. If that cannot be done, its completion says why.

        One that was left goes on where its process ended.

        Raises:
            ValueError: the number is in use. After an exception no completion follows.
        """

    def begin(self, number: int) -> None:
        """Starts a command that waits. Nothing happens if it has started."""

    def withdraw(self, number: int) -> None:
        """Forgets a command that waits; that is told, and no completion follows.

        Nothing happens if it has started, which is told, too.
        """

    def kill(self, number: int, reason: ReasonText = CANCELLED) -> bool:
        """Ends a command; its completion follows. False if there is no such command (any more).

        One that was left and not started is dropped, and none follows.
        """

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        """Stores the checkpoint of a command now; or has it stop, and stores it then."""

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        """Returns what running commands use: processor time so far in seconds, with that of the
        children they waited for, and memory now in bytes, without the page cache; by number.

        Commands of which that cannot be told are left out.
        """

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """Reads up to `limit` bytes of an attempt's stdout or stderr. NotFound if not here."""

    def left(self) -> list[CommandSpec]:
        """Commands that an earlier process has run, and of which the rest is still to be done."""

    async def close(self) -> None:
        """Kills every command, reports none of them, and gives everything back."""
