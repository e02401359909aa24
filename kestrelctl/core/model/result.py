"""The report of a worker on one attempt."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.end_reason import NO_REASON, ReasonText
from kestrelctl.core.model.files.stored_file import StoredFile, problem_with_stored_file
from kestrelctl.core.model.job.checkpoint import MOST_URL_CHARACTERS, MadeCheckpoint, can_be_given
from kestrelctl.core.model.job.stage import StageRun, possible_runs
from kestrelctl.core.model.numbers import Count, Seconds, Whole

#: How much of the end of an output travels with the report, in bytes.
TAIL_BYTES = 4096
#: The most that is kept of why an attempt ended.
MOST_REASON_CHARACTERS = 1000


class Outcome:
    """An attempt's outcome (`Result.outcome`). Numbers, because fifty thousand of them travel."""

    DONE = 0  #: exit status 0
    FAILED = 1  #: any other end: exit status, signal, limit, could not start
    KILLED = 2  #: the manager asked for it
    UNABLE = 3  #: the machine could not run it: no space, no processes; not the task's fault
    GOES_ON = 4  #: it goes on in another attempt, from the checkpoint that it has left


class Result(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One attempt's end, as it travels: an array, because JSON keys would triple its size in XML.

    Trailing fields that have their default value may be left out. The result of a task which
    succeeded and printed nothing ends with `peak_bytes`, and costs about sixty bytes.
    """

    number: Count
    job_id: Count
    index: Count
    outcome: Whole
    started_at: Seconds  #: seconds since the epoch, the worker's clock
    wall_seconds: Seconds
    waited_seconds: Seconds = 0.0  #: between its arrival at the worker and its start
    cpu_seconds: Seconds = 0.0
    peak_bytes: Count = 0  #: 0 if it is not known: it ended before it was looked at
    exit_code: Whole = 0
    signal: Whole = 0
    reason: ReasonText = NO_REASON  #: what ended it but its exit; `end_reason` reads it
    stdout: bytes = b""  #: the tail
    stderr: bytes = b""  #: the tail
    stdout_bytes: Count = 0  #: the whole size; the rest is kept by the worker
    stderr_bytes: Count = 0
    output_files: Count = 0  #: how many files it left that were asked for
    outputs: StoredFile | None = None  #: where they are, as one archive
    stored_seconds: Seconds = 0.0  #: from its end until that, and what it printed, was stored
    stdout_stored: StoredFile | None = None  #: where the whole is, if that is longer than the tail
    stderr_stored: StoredFile | None = None
    #: Each stage that was begun, if the job has stages; its command included.
    stages: tuple[StageRun, ...] = ()
    checkpoint: MadeCheckpoint | None = None  #: the one from which it goes on

    def held_seconds(self) -> float:
        """The time that it had its place: for its command, other stages, and storing its files."""
        if self.stages:
            return sum([run.wall_seconds for run in self.stages]) + self.stored_seconds
        return self.wall_seconds + self.stored_seconds

    def stored_files(self) -> list[StoredFile]:
        """All that it says is stored: what it left and printed, and the checkpoint."""
        made = self.checkpoint.stored if self.checkpoint is not None else None
        parts = (self.outputs, self.stdout_stored, self.stderr_stored, made)
        return [stored for stored in parts if stored is not None]


#: No attempt has more processors, or more memory, than any machine.
MOST_CPUS = 4096.0
MOST_BYTES = 1 << 48
#: How far a clock may be off: a worker's, or the manager's if it was set back since the submission.
CLOCK_SLACK_SECONDS = 3600.0
#: The kernel counts processor time in ticks, and rounds up.
CPU_SLACK_SECONDS = 1.0
#: A stored file of more pieces, or longer addresses, would fill the store and pages of files.
MOST_PIECES = 1024


def bounded(result: Result, submitted_at: float, now: float) -> Result:
    """Limits a result's texts to what a correct worker sends, and its figures to what can be.

    Otherwise a faulty worker would fill the store and the answers to users, and spoil every sum.

    Args:
        submitted_at: when the job was submitted: no attempt began before, or has run for longer.
        now: seconds since the epoch.
    """
    if not Outcome.DONE <= result.outcome <= Outcome.GOES_ON:  # not every store has room for it
        result = msgspec.structs.replace(result, outcome=Outcome.FAILED)
    latest_start = now + CLOCK_SLACK_SECONDS
    earliest_start = min(submitted_at, now) - CLOCK_SLACK_SECONDS
    longest_seconds = latest_start - min(submitted_at, now)
    wall_seconds = result.wall_seconds
    if (
        len(result.reason) <= MOST_REASON_CHARACTERS
        and len(result.stdout) <= TAIL_BYTES
        and len(result.stderr) <= TAIL_BYTES
        and earliest_start <= result.started_at <= latest_start
        and 0.0 <= wall_seconds <= longest_seconds
        and 0.0 <= result.cpu_seconds <= MOST_CPUS * wall_seconds + CPU_SLACK_SECONDS
        and result.waited_seconds >= 0.0
        and 0.0 <= result.stored_seconds <= longest_seconds
        and result.peak_bytes <= MOST_BYTES
        and _can_be_had(result.outputs)
        and _can_be_had(result.stdout_stored)
        and _can_be_had(result.stderr_stored)
        and not result.stages
        and (result.checkpoint is None or can_be_given(result.checkpoint.stored))
    ):
        return result
    wall_seconds = possible_seconds(wall_seconds, longest_seconds)
    return msgspec.structs.replace(
        result,
        started_at=max(earliest_start, min(result.started_at, latest_start)),
        wall_seconds=wall_seconds,
        cpu_seconds=possible_cpu_seconds(result.cpu_seconds, wall_seconds),
        waited_seconds=possible_seconds(result.waited_seconds, longest_seconds),
        peak_bytes=min(result.peak_bytes, MOST_BYTES),
        reason=ReasonText(result.reason[:MOST_REASON_CHARACTERS]),
        stdout=result.stdout[-TAIL_BYTES:],
        stderr=result.stderr[-TAIL_BYTES:],
        stored_seconds=possible_seconds(result.stored_seconds, longest_seconds),
        outputs=result.outputs if _can_be_had(result.outputs) else None,
        stdout_stored=result.stdout_stored if _can_be_had(result.stdout_stored) else None,
        stderr_stored=result.stderr_stored if _can_be_had(result.stderr_stored) else None,
        stages=possible_runs(result.stages, longest_seconds),
        checkpoint=result.checkpoint
        if result.checkpoint is not None and can_be_given(result.checkpoint.stored)
        else None,
    )


def _can_be_had(stored: StoredFile | None) -> bool:
    if stored is None:
        return True
    return (
        len(stored.pieces) <= MOST_PIECES
        and stored.size_bytes <= MOST_BYTES
        and all(len(piece.url) <= MOST_URL_CHARACTERS for piece in stored.pieces)
        and problem_with_stored_file(stored) is None
    )


def possible_seconds(seconds: float, longest_seconds: float) -> float:
    """Limits a reported duration to what is possible."""
    return max(0.0, min(seconds, longest_seconds))


def possible_cpu_seconds(seconds: float, wall_seconds: float) -> float:
    """Limits processor time to what can be spent in a wall time."""
    return possible_seconds(seconds, MOST_CPUS * wall_seconds + CPU_SLACK_SECONDS)


def logs_are_stored(result: Result) -> bool:
    """Whether all that an attempt printed beyond its tails is stored; False if that is nothing."""
    streams = (
        (result.stdout_bytes, result.stdout_stored),
        (result.stderr_bytes, result.stderr_stored),
    )
    long = [stored for size_bytes, stored in streams if size_bytes > TAIL_BYTES]
    return bool(long) and None not in long


def how_it_ended(reason: str, signal: int, exit_code: int) -> str:
    """The end of an attempt in a few words: its reason, or else its signal, or else its status."""
    return reason or (f"signal {signal}" if signal else f"exit code {exit_code}")
