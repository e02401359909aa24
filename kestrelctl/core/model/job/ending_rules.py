"""The rules of a job for how its tasks end, and what makes these rules unacceptable.

HTCondor has the same in `success_exit_code`, `max_retries`, `retry_until` (condor_submit).
"""

from __future__ import annotations

import math
import signal
from itertools import pairwise
from typing import TYPE_CHECKING

from kestrelctl.core.model.end_reason import EndKind, EndReason, ended_by_itself
from kestrelctl.core.model.job.exits import Exits, holds, one_exit, overlap
from kestrelctl.core.model.job.exits import problem_with_exits as problem_with
from kestrelctl.core.model.job.hold import MOST_FAILURES_IN_ROW
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec

if TYPE_CHECKING:
    from kestrelctl.core.model.result import Result

#: The time between the stop signal and SIGKILL.
DEFAULT_GRACE_SECONDS = 2.0
MOST_GRACE_SECONDS = 3_600.0
MOST_BACKOFF_SECONDS = 7 * 86_400.0
MOST_DEADLINE_SECONDS = 10 * 366 * 86_400.0
MOST_COPIES = 100_000
#: As many as a job may have tasks (`core.model.validate`).
MOST_FAILED_TASKS = 1_000_000_000
MOST_MEMORY_STEPS = 16
MOST_MEMORY_BYTES = 1 << 60
#: Signals that a program may take as a request to end.
STOP_SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL")
_SUCCESS: Exits = ((0, 0),)


def is_success(exits: Exits, exit_code: int) -> bool:
    """Whether a program that exited by itself has done what it should.

    Args:
        exits: `Program.success_exits`; none are named if only 0 is a success.
    """
    return holds(exits or _SUCCESS, exit_code, 0)


def may_be_retried(spec: JobSpec, result: Result) -> bool:
    """Whether the rules of a job leave a failed attempt another try.

    An attempt that a limit ended, or that could not start, has no exit of its own: no list holds
    it. The lists are about the command of the job: what fails before that may be tried again, and
    what failed after it is not, because the command would run again.
    """
    why = EndReason.of(result.reason)
    if spec.program.stages and why.stage:
        return not why.has_computed
    by_itself = ended_by_itself(result.reason)
    if spec.retry_on:
        return by_itself and holds(spec.retry_on, result.exit_code, result.signal)
    if spec.no_retry_on:
        return not by_itself or not holds(spec.no_retry_on, result.exit_code, result.signal)
    return True


def asks_for_more_memory(spec: JobSpec, step: int, result: Result) -> bool:
    """Whether a task asks for more memory, now that an attempt ended so.

    HTCondor calls that `retry_request_memory` (condor_submit).

    Args:
        step: how often it has asked for more before.
    """
    if step >= len(spec.retry_memory_bytes):
        return False
    return EndReason.of(result.reason).kind is EndKind.MEMORY_LIMIT


def stop_signal_number(name: str) -> int:
    """The signal that asks a task to end; SIGTERM for the empty name."""
    return signal.Signals[f"SIG{name or 'TERM'}"].value


def problem_with_program_ends(program: Program) -> str | None:
    """The first thing wrong with what a program says of ends; None if all is well."""
    problem = problem_with(program.success_exits, signals=False)
    if problem:
        return f"success: {problem}"
    signal_name = program.stop_signal
    if signal_name not in ("", *STOP_SIGNALS):
        return f"a stop signal is one of {', '.join(STOP_SIGNALS)}, not {signal_name[:20]!r}"
    if not _in_range(program.stop_grace_seconds, MOST_GRACE_SECONDS):
        return "between the stop signal and the kill are more than 0 seconds and at most 1 hour"
    return None


def problem_with_endings(spec: JobSpec) -> str | None:
    """The first thing wrong with a job's rules, in words for its user; None if all is well.

    `problem_with_program_ends` checks what its program says of ends.
    """
    retries = bool(spec.retry_on or spec.no_retry_on)
    paces = spec.backoff_seconds is not None or spec.max_backoff_seconds is not None
    successes = spec.program.success_exits
    both = overlap(successes, spec.retry_on)
    for word, exits in (
        ("retry", spec.retry_on),
        ("no retry", spec.no_retry_on),
    ):
        problem = problem_with(exits, signals=True)
        if problem:
            return f"{word}: {problem}"
    amounts = (spec.request.get("memory", 0), *spec.retry_memory_bytes)
    rises = all(more > less for less, more in pairwise(amounts))
    checks = (
        (
            not spec.service or not (retries or successes or spec.max_failures > 1),
            "a copy of a service is started again however it ends: rules for that contradict it",
        ),
        (
            not spec.service or (spec.count <= MOST_COPIES and not spec.further),
            f"a service has 1 to {MOST_COPIES:,} copies, in one range",
        ),
        (
            not (spec.service and spec.hold_after),
            "a copy of a service never fails, so there are no failures in a row to hold it after",
        ),
        (
            spec.hold_after is None or 1 <= spec.hold_after <= MOST_FAILURES_IN_ROW,
            f"a job is put on hold after 1 to {MOST_FAILURES_IN_ROW:,} failures in a row, not "
            f"{spec.hold_after}",
        ),
        (
            not (spec.service and spec.stop_after),
            "a copy of a service never fails, so there are no failed tasks to stop it after",
        ),
        (
            spec.span == 1 or spec.stop_after is None,
            "a job that spans workers stops when a member has failed, so there is nothing to count",
        ),
        (
            spec.stop_after is None or 1 <= spec.stop_after <= MOST_FAILED_TASKS,
            f"a job is stopped after 1 to {MOST_FAILED_TASKS:,} failed tasks, not "
            f"{spec.stop_after}",
        ),
        (
            len(spec.retry_memory_bytes) <= MOST_MEMORY_STEPS,
            f"a task asks for more memory at most {MOST_MEMORY_STEPS} times, not "
            f"{len(spec.retry_memory_bytes)}",
        ),
        (
            not spec.retry_memory_bytes or bool(amounts[0]),
            "without a request of memory there is no larger one: say memory",
        ),
        (rises, "each amount of memory for a retry is larger than the one before"),
        (
            amounts[-1] < MOST_MEMORY_BYTES,
            "a task asks for less than 2^60 bytes of memory",
        ),
        (
            not (spec.retry_on and spec.no_retry_on),
            "say which exits are retried or which are not; both at once contradict each other",
        ),
        (
            both is None,
            f"exit code {one_exit(both or 0)} is a success and cannot be retried, too",
        ),
        (
            not (retries or paces)
            or spec.max_failures > 1
            or spec.service
            or (not retries and spec.program.checkpoint_exit is not None),
            "a task is given up at its first failure, so there is nothing to retry: raise "
            "max_failures, as --max-failures 3",
        ),
        (
            _in_range(spec.backoff_seconds, MOST_BACKOFF_SECONDS)
            and _in_range(spec.max_backoff_seconds, MOST_BACKOFF_SECONDS),
            "a back-off is more than 0 seconds and at most 7 days",
        ),
        (
            (spec.backoff_seconds or 0.0) <= (spec.max_backoff_seconds or math.inf),
            "the first back-off is longer than the longest",
        ),
        (
            _in_range(spec.time_request_seconds, MOST_DEADLINE_SECONDS),
            "a time request is more than 0 seconds and at most 10 years",
        ),
        (
            (spec.time_request_seconds or 0.0) <= (spec.program.time_limit_seconds or math.inf),
            "a task that asks for more time than its time limit never gets that",
        ),
        (
            spec.deadline_at is None or spec.deadline_seconds is None,
            "a job has one deadline, not two",
        ),
        (
            _in_range(spec.deadline_seconds, MOST_DEADLINE_SECONDS)
            and (spec.deadline_at is None or math.isfinite(spec.deadline_at)),
            "a deadline is more than 0 seconds and at most 10 years after the submission",
        ),
    )
    return next((text for fine, text in checks if not fine), None)


def _in_range(seconds: float | None, most: float) -> bool:
    return seconds is None or (math.isfinite(seconds) and 0 < seconds <= most)


def backoff_bounds(
    spec: JobSpec, first_seconds: float, longest_seconds: float
) -> tuple[float, float]:
    """The first and the longest pause before a failed task is tried again.

    Args:
        first_seconds, longest_seconds: those of the pool, for jobs that say nothing.
    """
    longest = spec.max_backoff_seconds or max(longest_seconds, spec.backoff_seconds or 0.0)
    return min(spec.backoff_seconds or first_seconds, longest), longest
