"""The pool: one state machine behind the manager, the simulator and the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kestrelctl.core import membership, reporting, submission, takeback
from kestrelctl.core.config import Config
from kestrelctl.core.dispatch import schedule
from kestrelctl.core.effects import Effect
from kestrelctl.core.events import (
    Bounced,
    Cancel,
    Disconnected,
    Drain,
    Event,
    Heard,
    JobClosed,
    JobStored,
    Joined,
    Leaving,
    Lost,
    Reconnected,
    Reported,
    Resume,
    Retry,
    Returned,
    Revoked,
    Submit,
    Tick,
)
from kestrelctl.core.invariants import violations
from kestrelctl.core.records import Snapshot
from kestrelctl.core.recovery import restore
from kestrelctl.core.state import State

_HANDLERS: dict[type[Event], Callable[[State, Any], None]] = {
    Submit: submission.on_submit,
    JobStored: submission.on_job_stored,
    JobClosed: submission.on_job_closed,
    Cancel: submission.on_cancel,
    Retry: submission.on_retry,
    Joined: membership.on_joined,
    Heard: membership.on_heard,
    Lost: membership.on_lost,
    Bounced: membership.on_bounced,
    Drain: membership.on_drain,
    Leaving: membership.on_leaving,
    Resume: membership.on_resume,
    Revoked: membership.on_revoked,
    Disconnected: membership.on_disconnected,
    Reconnected: membership.on_reconnected,
    Reported: reporting.on_reported,
    Returned: takeback.on_returned,
    Tick: lambda state, event: membership.check_leases(state, event.at),
}


class Pool:
    """Decides everything about a pool; does nothing itself.

    Feed it events with `handle`, then call `schedule` once per burst, and carry out the effects of
    both in order. See `effects` for which of them wait for a commit.
    """

    def __init__(self, snapshot: Snapshot, config: Config | None = None) -> None:
        self.state = restore(config or Config(), snapshot)

    def handle(self, event: Event) -> list[Effect]:
        """Takes one event in and returns what is to be done about it."""
        state = self.state
        state.cause = event.id
        _HANDLERS[type(event)](state, event)
        state.flush_records()
        return self._drain()

    def schedule(self, now: float) -> list[Effect]:
        """Hands out waiting tasks; returns what is to be sent.

        Args:
            now: seconds since the epoch, the same clock as the events'.
        """
        state = self.state
        state.cause = "schedule"
        schedule(state, now)
        takeback.take_back(state, now)
        return self._drain()

    def wake_at(self, now: float) -> float | None:
        """When to send the next `Tick` if nothing else happens before."""
        state = self.state
        moments: list[float] = []
        if state.delayed:
            moments.append(state.delayed[0][0])
        if state.limbo_until is not None:
            round_over = state.leases_checked_at + membership.LEASE_ROUND_SECONDS
            moments.append(max(state.limbo_until, round_over))
        if state.workers:
            moments.append(now + membership.LEASE_ROUND_SECONDS)
        if any(job.running for job in state.jobs.values()):
            moments.append(now + takeback.ROUND_SECONDS)
        return min(moments, default=None)

    def check(self) -> None:
        """Verifies every invariant.

        Raises:
            AssertionError: naming those that are broken.
        """
        found = violations(self.state)
        assert not found, "\n".join(found)

    def _drain(self) -> list[Effect]:
        effects = self.state.effects
        self.state.effects = []
        return effects
