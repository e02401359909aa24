"""What a worker reports of one attempt."""

from __future__ import annotations

from typing import Annotated

import msgspec

#: A count that every store can hold; more is refused when it is decoded.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

#: A time or a duration in seconds; wide enough for any clock, and many of them have a finite sum.
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]


#: How much of the end of an output travels with the report, in bytes.
TAIL_BYTES = 4096
#: More of why an attempt ended is not kept.
MOST_REASON_CHARACTERS = 1000


class Outcome:
    """How an attempt ended (`Result.outcome`). Numbers, because fifty thousand of them travel."""

    DONE = 0  #: exit status 0
    FAILED = 1  #: any other end: exit status, signal, limit, could not start
    KILLED = 2  #: the manager asked for it
    UNABLE = 3  #: the machine could not run it: no space, no processes; not the task's fault


class Result(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One attempt's end, as it travels: an array, because JSON keys would triple its size in XML.

    Trailing fields that have their default value are left out on the wire, so that a task which
    succeeded in silence costs about fifty bytes.
    """

    number: Count
    job_id: Count
    index: Count
    outcome: Whole
    started_at: Seconds  #: seconds since the epoch, the worker's clock
    wall_seconds: Seconds
    waited_seconds: Seconds = 0.0  #: between its arrival at the worker and its start
    cpu_seconds: Seconds = 0.0
    peak_bytes: Count = 0
    exit_code: Whole = 0
    signal: Whole = 0
    reason: str = ""
    stdout: str = ""  #: the tail
    stderr: str = ""  #: the tail
    stdout_bytes: Count = 0  #: the whole size; the rest is kept by the worker
    stderr_bytes: Count = 0


def bounded(result: Result) -> Result:
    """A result with no longer texts than a worker sends that keeps to its part.

    What another one sends would fill the store, and the answers to users.
    """
    if (
        len(result.reason) <= MOST_REASON_CHARACTERS
        and len(result.stdout) <= TAIL_BYTES
        and len(result.stderr) <= TAIL_BYTES
    ):
        return result
    return msgspec.structs.replace(
        result,
        reason=result.reason[:MOST_REASON_CHARACTERS],
        stdout=result.stdout[-TAIL_BYTES:],
        stderr=result.stderr[-TAIL_BYTES:],
    )


def how_it_ended(reason: str, signal: int, exit_code: int) -> str:
    """The end of an attempt in a few words: its reason, or else its signal, or else its status."""
    return reason or (f"signal {signal}" if signal else f"exit code {exit_code}")
