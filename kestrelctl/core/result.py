"""What a worker reports of one attempt."""

from __future__ import annotations

import msgspec


class Outcome:
    """How an attempt ended (`Result.outcome`). Numbers, because fifty thousand of them travel."""

    DONE = 0  #: exit status 0
    FAILED = 1  #: any other end: exit status, signal, limit, could not start
    KILLED = 2  #: the manager asked for it


class Result(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One attempt's end, as it travels: an array, because JSON keys would triple its size in XML.

    Trailing fields that have their default value are left out on the wire, so that a task which
    succeeded in silence costs about fifty bytes.
    """

    number: int
    job_id: int
    index: int
    outcome: int
    started_at: float  #: seconds since the epoch, the worker's clock
    wall_seconds: float
    waited_seconds: float = 0.0  #: between its arrival at the worker and its start
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    stdout: str = ""  #: the tail
    stderr: str = ""  #: the tail
    stdout_bytes: int = 0  #: the whole size; the rest is kept by the worker
    stderr_bytes: int = 0
