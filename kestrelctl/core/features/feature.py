"""The interface of a job's feature: the moments at which the pool calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from kestrelctl.core.jobs.job import Gate, Job
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.state import Refused, State


class Must(Protocol):
    """Notes what does not hold. The text is made only then, because this runs after every event."""

    def __call__(self, condition: bool, text: str, *details: object) -> None: ...


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a job may ask for and that concerns the job as a whole.

    Each moment comes once for each job and event, never for each task or attempt. What a feature
    remembers is typed, in `State` and `Job`. Plugins of flux-core's job manager are the model.

    Attributes:
        applies: whether jobs with such a spec have it; all have it if it is None. `gate` and
            `changed` are never asked for other jobs.
        gate: what holds waiting tasks of the job back.
        moment: when something of a job becomes due by itself, given its spec and submission, in
            seconds since the epoch; None for never.
        is_named: whether its user has named that moment, so that it is by the machine's clock.
        comes: the moment has come.
        refuses: why a job with such a spec may not come in, submitted at that moment; None if it
            may.
        enters: a job is there: submitted, brought back, or read from the store at a start. It gets
            the final states of jobs that the job names and that are not active.
        submitted: a job was submitted, and has entered.
        stored: a job is durable now.
        changed: an event has changed the job.
        ended: the end of a job is durable now.
        reconnected: the manager is connected, and may do what an earlier start left undone.
        due: time has passed, in seconds since the epoch.
        next_due: when something that is of no job becomes due; None for never.
        violations: checks what must be true of it in the state.
    """

    applies: Callable[[JobSpec], bool] | None = None
    gate: Gate | None = None
    moment: Callable[[JobSpec, float], float | None] | None = None
    is_named: Callable[[JobSpec], bool] = lambda _spec: False
    comes: Callable[[State, Job], None] | None = None
    refuses: Callable[[State, JobSpec, float], Refused | None] | None = None
    enters: Callable[[State, Job, Mapping[int, str]], None] | None = None
    submitted: Callable[[State, Job], None] | None = None
    stored: Callable[[State, Job], None] | None = None
    changed: Callable[[State, Job], None] | None = None
    ended: Callable[[State, Job], None] | None = None
    reconnected: Callable[[State], None] | None = None
    due: Callable[[State, float], None] | None = None
    next_due: Callable[[State], float | None] | None = None
    violations: Callable[[State, Must], None] | None = None

    def by_machine_clock(self, state: State, spec: JobSpec, submitted_at: float) -> bool:
        """Whether its moment is by the machine's clock: its user has named it, or it is so long
        after a submission that an earlier start has dated.
        """
        return self.is_named(spec) or submitted_at < state.began_at

    def left_seconds(self, state: State, spec: JobSpec, submitted_at: float) -> float | None:
        """The time until its moment comes; 0 or less if it has come, None if there is none."""
        moment = self.moment(spec, submitted_at) if self.moment is not None else None
        if moment is None:
            return None
        named = self.by_machine_clock(state, spec, submitted_at)
        return moment - state.at - (state.alarms.wall_ahead_seconds if named else 0.0)
