"""Limits what has not ended: tasks of a user and his group, bytes of an account's jobs."""

from __future__ import annotations

from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.model.wording import plural
from kestrelctl.core.state import State


def over_quota(state: State, sharer: Sharer, more: int) -> tuple[str, str] | None:
    """Tells why a user may not have so many more tasks, and what to do about it; None if he may.

    Args:
        more: how many tasks without a final state there would be beside those that there are.
    """
    if more <= 0:
        return None
    name, group = sharer.name, sharer.record.group
    bound = sharer.record.max_queued
    if bound is not None:
        have = _unfinished(state, {name})
        if have + more > bound:
            return _said(name, have, bound, more), _hint(f"user set {name}")
    bound = state.sharers.group(group).max_queued if group else None
    if bound is not None:
        have = _unfinished(state, {member.name for member in state.sharers.members(group)})
        if have + more > bound:
            return _said(f"group {group}", have, bound, more), _hint(f"group set {group}")
    return None


def too_large(state: State, account: str, more_bytes: int) -> tuple[str, str, str] | None:
    """Tells why an account's jobs may not grow so much, with cause and hint; None if they may.

    Args:
        account: as `queued_bytes.account_of` has it.
        more_bytes: the encoded size of what is to come.
    """
    bound = state.sharers.max_queued_bytes(account)
    have = state.queued_bytes.of(account)
    if bound is None or have + more_bytes <= bound:
        return None
    text = f"the jobs of {account} that have not ended would be too large together"
    cause = f"they have {have:,} bytes and may have {bound:,}; this would add {more_bytes:,}"
    ask = f"ask an admin for `kestrelctl user set {account} --max-queued-size SIZE`"
    first = "wait until some have ended" if more_bytes <= bound else "submit it as several jobs"
    return text, cause, f"{first}, put what is long into files (`submit --input`), or {ask}"


def _unfinished(state: State, owners: set[str]) -> int:
    """Counts the tasks of these users that have no final state."""
    return sum(job.remaining for job in state.jobs.values() if job.owner in owners)


def _said(who: str, have: int, bound: int, more: int) -> str:
    return (
        f"{who} has {plural(have, 'task')} that {'has' if have == 1 else 'have'} not ended, "
        f"and may have {bound:,};"
        f" {more:,} more would be too many"
    )


def _hint(command: str) -> str:
    return f"wait until some have ended, or ask an admin for `kestrelctl {command} --max-queued N`"
