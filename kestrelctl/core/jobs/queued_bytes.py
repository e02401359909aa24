"""Counts the bytes of each account's jobs that have not ended.

A job counts the bytes of its specification as JSON, the form in which it is submitted and stored:
no more than the message and the items that brought it. The count changes when a job comes and when
it ends, never for a task.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.spec import JobSpec

_encoder = msgspec.json.Encoder()


def encoded_bytes(spec: JobSpec) -> int:
    """Returns the size of a specification as JSON, in bytes."""
    return len(_encoder.encode(spec))


def account_of(owner: str, guest: GuestOf | None) -> str:
    """The account that a job counts for: its owner, or the pool that it is a guest of.

    Only the other pool says who its users are: each of its guests could have a new one.
    """
    return owner if guest is None else guest.pool


class QueuedBytes:
    """Sums by account. Only the state that has the jobs writes them."""

    __slots__ = ("_by_account",)

    def __init__(self) -> None:
        self._by_account: dict[str, int] = {}

    @property
    def by_account(self) -> Mapping[str, int]:
        """Account -> bytes, for accounts that have a job."""
        return self._by_account

    def of(self, account: str) -> int:
        """The bytes of an account's jobs."""
        return self._by_account.get(account, 0)

    def add(self, job: Job) -> None:
        """Counts a job that came."""
        account = account_of(job.owner, job.spec.guest)
        self._by_account[account] = self.of(account) + job.encoded_bytes

    def drop(self, job: Job) -> None:
        """Stops counting a job."""
        account = account_of(job.owner, job.spec.guest)
        left = self.of(account) - job.encoded_bytes
        if left:
            self._by_account[account] = left
        else:
            del self._by_account[account]
