"""What a pool wants done. The shell does it, in order.

An effect whose class says `after_commit` waits until every `Persist` before it is durable: that is
how an acknowledgement comes to mean something.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kestrelctl.core.events import JobClosed, JobStored
from kestrelctl.core.records import Record


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Anything to be done; `cause` is the id of the event behind it."""

    after_commit: ClassVar[bool] = False
    cause: str = ""


class Persist(Effect, frozen=True, kw_only=True):
    """Write these records in the next commit."""

    records: list[Record]


class Run(Effect, frozen=True, kw_only=True):
    """Send attempts to a worker.

    Attributes:
        spans: (number, job id, index, n): n attempts with consecutive numbers and indexes.
        new_jobs: jobs whose template the worker does not have yet.
        ended_jobs: jobs whose template it may forget.
    """

    worker: str
    spans: list[tuple[int, int, int, int]]
    new_jobs: list[int]
    ended_jobs: list[int]


class Kill(Effect, frozen=True, kw_only=True):
    """Tell a worker to kill attempts and report them as killed."""

    worker: str
    numbers: list[int]


class TakeBack(Effect, frozen=True, kw_only=True):
    """Ask a worker to return those of these attempts that it has not started."""

    worker: str
    numbers: list[int]


class Welcome(Effect, frozen=True, kw_only=True):
    """Tell a worker that it is in, how often to give a sign of life, and what to kill."""

    worker: str
    incarnation: str
    greeting: int
    beat_seconds: float
    kill: list[int]


class SetBeat(Effect, frozen=True, kw_only=True):
    """Tell a worker how often to give a sign of life from now on."""

    worker: str
    beat_seconds: float


class AskWho(Effect, frozen=True, kw_only=True):
    """Ask a worker to say hello again, with all that it holds."""

    worker: str


class Acknowledge(Effect, frozen=True, kw_only=True):
    """Tell a worker that these results are safe here, so that it may forget them."""

    after_commit: ClassVar[bool] = True
    worker: str
    numbers: list[int]


class Answer(Effect, frozen=True, kw_only=True):
    """Answer a user's request. An `error` is one of the codes in `kestrelctl.errors`."""

    after_commit: ClassVar[bool] = True
    request: str
    job_id: int = 0
    tasks: int = 0
    error: str | None = None
    message: str = ""
    hint: str = ""


class Feed(Effect, frozen=True, kw_only=True):
    """Hand this event back to the pool, now that what came before it is durable."""

    after_commit: ClassVar[bool] = True
    event: JobStored | JobClosed


class JobEnded(Effect, frozen=True, kw_only=True):
    """A job's last task is in a final state, durably; tell whoever waits for it.

    Attributes:
        dispatch_seconds: what dispatch added to its latest tasks, ascending.
    """

    after_commit: ClassVar[bool] = True
    job_id: int
    owner: str
    dispatch_seconds: list[float]


class Note(Effect, frozen=True, kw_only=True):
    """Something an operator should read in the log."""

    level: str  #: info or warning
    text: str
