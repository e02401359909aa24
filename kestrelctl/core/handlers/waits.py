"""Jobs begin to wait for others, and what they wait for is kept true."""

from __future__ import annotations

from collections.abc import Callable, Collection

from kestrelctl.core.jobs.dependencies import MOST_NAMED
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.jobs.parents import first_in_vain
from kestrelctl.core.model.job.after import After, IfParentFails, count_parents, ids_of
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.state import State

#: What `refuse` is told: a code of `kestrelctl.errors`, a message and a hint.
Refused = tuple[str, str, str]


def wait_for_parents(state: State, job: Job, ended: dict[int, str]) -> None:
    """Has a job wait for what its spec names, unless all that has ended as it wants.

    Args:
        ended: the final states of parents that are not active.
    """
    if not job.spec.after or job.freed or job.cancelling:
        return
    found = state.dependencies.bind(job, _outcome_of(state, ended, job.settled))
    if found.let_go(job.spec.if_parent_fails):
        state.dependencies.release(job)
        job.freed = True


def revive(state: State, job_id: int) -> None:
    """Has all that wait for a job wait on: it was brought back."""
    for parents in state.dependencies.of(job_id):
        parents.revive(job_id)


def keep_outcome(state: State, job_id: int) -> None:
    """Has those that wait for a job remember how it has ended: it is forgotten."""
    for parents in state.dependencies.of(job_id):
        for child in state.dependencies.children(parents):
            child.settled = {**child.settled, job_id: parents.outcome(job_id)}
            state.record(child.record())


def why_not(
    state: State,
    owner: str,
    known: Collection[tuple[After, ...]],
    afters: Collection[tuple[After, ...]],
    ended: dict[int, str],
) -> Refused | None:
    """Why jobs may not wait for these; None if they may.

    Args:
        known: what they name of jobs that must be there.
        afters: all that they name, jobs that come at the same time among it.
        ended: as of `wait_for_parents`, of the owner's.
    """
    before = state.dependencies.named[owner]
    if not (before or any(known) or any(afters)):
        return None
    for parent in {parent for after in set(known) for parent in ids_of(after)}:
        job = state.job(parent)
        has_ended = parent in ended and parent not in state.forgetting
        if not has_ended and (job is None or job.owner != owner):
            return "not-found", f"there is no job {parent}", "`kestrelctl job list` shows yours"
    named = before + sum(map(count_parents, set(afters)))
    if named > MOST_NAMED:
        text = f"your waiting jobs would wait for {named:,} others, and {MOST_NAMED:,} is the most"
        return "usage", text, "put a job between that waits for many, and let many wait for that"
    return None


def retried_in_vain(state: State, record: JobRecord, ended: dict[int, str]) -> Refused | None:
    """Why a job that has ended cannot be brought back: a parent would end it at once.

    Args:
        ended: as of `wait_for_parents`.
    """
    if record.freed or record.spec.if_parent_fails is not IfParentFails.CANCEL:
        return None
    failed = first_in_vain(record.spec.after, _outcome_of(state, ended, record.settled))
    if failed is None:
        return None
    text = f"job {record.job_id} waits for job {failed}, which did not end as it wants"
    return "usage", text, f"`kestrelctl job retry {failed}` brings both back"


def _outcome_of(
    state: State, ended: dict[int, str], settled: dict[int, str]
) -> Callable[[int], str | None]:
    def find(parent: int) -> str | None:
        if state.job(parent) is not None:
            return None
        return settled.get(parent) or ended.get(parent)

    return find
