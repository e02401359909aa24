"""The states by which `job list` chooses jobs: those that it shows."""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.protocol.job_requests import ENDED_STATES, JOB_STATES

#: States of active jobs -> the expression that is true of the jobs that are shown so.
_OF_ACTIVE = {
    "waiting": 'State == "active" && Running == 0 && Waiting > 0 && !Held',
    "running": "Running > 0",
    "held": "Held",
    "service": 'State == "active" && Service',
    "cancelling": 'State == "cancelling"',
}
LISTED_STATES = (*JOB_STATES, *_OF_ACTIVE)


def chosen_states(states: Iterable[str], where: str) -> tuple[list[str], str]:
    """The states and the expression with which the pool is asked for jobs.

    Args:
        states: some of `LISTED_STATES`; none for all.
        where: an expression that must be true as well; empty for none.
    """
    asked = list(dict.fromkeys(states))
    finer = [_OF_ACTIVE[state] for state in asked if state in _OF_ACTIVE]
    if not finer or "active" in asked:  # each of the finer states is one of an active job
        return [state for state in asked if state not in _OF_ACTIVE], where
    ended = [state for state in asked if state in ENDED_STATES]
    either = " || ".join(f"({each})" for each in (*finer, *map('State == "{}"'.format, ended)))
    return ["active", *ended], f"({where}) && ({either})" if where else either
