"""The tasks of an experiment, as read from the records of its pools."""

from __future__ import annotations

import msgspec


class TracedTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task, as told by the pool to which it was submitted.

    Times are seconds since the epoch.

    Attributes:
        key: key of its submission, which tells the task of the trace.
        accepted: number of its results that the pool counted; one, if all is well.
        attempts: number of its attempts that have a result.
        exit_code: None if it did not exit by itself.
        worker: address of the worker that ran it.
    """

    key: str
    job_id: int
    submitted_at: float
    state: str
    accepted: int = 1
    attempts: int = 1
    exit_code: int | None = None
    worker: str = ""
    started_at: float = 0.0
    wall_seconds: float = 0.0

    @property
    def ended_at(self) -> float:
        return self.started_at + self.wall_seconds

    @property
    def waited_seconds(self) -> float:
        """Its queue time: from the submission to the start of the attempt that counted.

        A task that ran elsewhere and was given back goes on waiting.
        """
        return max(0.0, self.started_at - self.submitted_at)


class RanHere(msgspec.Struct, frozen=True, kw_only=True):
    """A task on one machine, as told by the pool that owns the machine.

    Attributes:
        worker: the machine.
        started_at, ended_at: seconds since the epoch.
        key: key of its submission.
        home: domain of the pool whose user submitted it; empty for a user of this pool.
    """

    worker: str
    started_at: float
    ended_at: float
    key: str
    home: str = ""


class PoolRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one pool after a run.

    Attributes:
        pool: its letter.
        domain: its address.
        tasks: those submitted to it, in the order of their submission.
        accepted_results: how many results it has charged its user for as the end of a task.
        ran_here: what its machines ran, its own tasks and others.
    """

    pool: str
    domain: str
    tasks: list[TracedTask]
    accepted_results: int
    ran_here: list[RanHere] = []


def lender_of(worker: str) -> str | None:
    """The domain of the pool that lent the machine; None if it is one of the pool's own.

    A loan is a session `flock@LENDER/CLASS` (`kestrelctl.protocol`).
    """
    account, _, _ = worker.partition("/")
    node, at, domain = account.partition("@")
    return domain if at and node == "flock" else None
