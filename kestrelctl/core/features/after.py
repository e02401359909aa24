"""`--after`: jobs wait for others, whose durable end lets them go on or cancels them.

An end does not count before it is durable: a manager that is killed would run the parent again, and
its children would have run already.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping

from kestrelctl.core.attempts.cancelling import cancel_all
from kestrelctl.core.features.feature import Feature, Must
from kestrelctl.core.jobs.dependencies import MOST_NAMED
from kestrelctl.core.jobs.job import PARENT, Gate, Job
from kestrelctl.core.jobs.parents import Parents, first_in_vain
from kestrelctl.core.model.job.after import After, IfParentFails, count_parents, ids_of
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.state import Refused, State


def _enters(state: State, job: Job, ended: Mapping[int, str]) -> None:
    """Makes a job wait for the parents that its spec names, unless all have ended as it wants.

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
    """Makes those that wait for a job wait on, because it was brought back."""
    for parents in state.dependencies.of(job_id):
        parents.revive(job_id)


def keep_outcome(state: State, job_id: int) -> None:
    """Records how a job has ended for those that wait for it, because it is forgotten."""
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
    """Tells why jobs may not wait for these; None if they may.

    Args:
        known: the jobs that they name and that must be there.
        afters: all jobs that they name, also those that come at the same time.
        ended: as for `Feature.enters`, of the owner's jobs.
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
    """Tells why an ended job cannot be brought back: a parent would end it at once; else None.

    Args:
        ended: as for `Feature.enters`.
    """
    if record.freed or record.spec.if_parent_fails is not IfParentFails.CANCEL:
        return None
    failed = first_in_vain(record.spec.after, _outcome_of(state, ended, record.settled))
    if failed is None:
        return None
    text = f"job {record.job_id} waits for job {failed}, which did not end as it wants"
    return "usage", text, f"`kestrelctl job retry {failed}` brings both back"


def _outcome_of(
    state: State, ended: Mapping[int, str], settled: dict[int, str]
) -> Callable[[int], str | None]:
    def find(parent: int) -> str | None:
        if state.job(parent) is not None:
            return None
        return settled.get(parent) or ended.get(parent)

    return find


def _reconnected(state: State) -> None:
    """Does what was left to do when the manager ended: parents had ended, nobody had been told."""
    _look_at(state, state.dependencies.all())


def _ended(state: State, job: Job) -> None:
    """Settles the waits for a job."""
    if job.id in state.dependencies:
        outcome = job.counts.outcome()
        waits = state.dependencies.of(job.id)
        _look_at(state, [each for each in waits if each.settle(job.id, outcome)])


def _stored(state: State, job: Job) -> None:
    """Cancels a job that waits in vain already."""
    if job.parents is not None and job.parents.failed:
        _look_at(state, [job.parents])


def _look_at(state: State, waits: list[Parents]) -> None:
    """Frees or cancels jobs whose wait is over, and those that wait for these in turn.

    A job that waits for the good end of a cancelled child is cancelled with it: it need not wait
    until each end before it is durable, because the end that cancelled the first one is.
    """
    to_do = deque(waits)
    while to_do:
        parents = to_do.popleft()
        for child in state.dependencies.children(parents):
            otherwise = child.spec.if_parent_fails
            if parents.let_go(otherwise):
                _free(state, child)
            elif parents.doom(otherwise) and child.stored:
                _cancel(state, child, parents)
                behind = state.dependencies.of(child.id)
                to_do.extend(each for each in behind if each.give_up(child.id))


def _free(state: State, child: Job) -> None:
    state.dependencies.release(child)
    child.freed = True
    for line in child.lines():
        line.waits_since = state.at  # nobody let it starve
    state.record(child.record())
    state.touch_job(child)


def _cancel(state: State, child: Job, parents: Parents) -> None:
    cause, state.cause = state.cause, f"job {next(iter(parents.failed))}"
    child.stopped_by = PARENT
    cancel_all(state, child)
    state.cause = cause


def _limit(job: Job) -> int | None:
    parents = job.parents
    return None if parents is None or parents.let_go(job.spec.if_parent_fails) else 0


def _tells(job: Job, _now: float) -> Refusal:
    return Refusal(Reason.PARENTS, found=job.parents.told() if job.parents else "")


def _violations(state: State, must: Must) -> None:
    """Checks that nothing runs of a job that waits for others, and that waits are counted right."""
    for job in state.jobs.values():
        parents = job.parents
        waits = bool(job.spec.after) and not job.freed and not job.cancelling
        must(waits == (parents is not None), "job %s: what it waits for is off", job.id)
        if parents is None:
            continue
        known = job in state.dependencies.children(parents)
        must(known, "job %s waits, and nobody knows", job.id)
        otherwise = job.spec.if_parent_fails
        if not parents.let_go(otherwise):
            queued = any(line.place is not None for line in job.lines())
            must(not queued and not job.running, "job %s runs before its parents end", job.id)
        in_vain = parents.doom(otherwise) and job.stored
        must(not (in_vain and state.connected), "job %s waits in vain", job.id)
    named: Counter[str] = Counter()
    for parents in state.dependencies.all():
        must(bool(state.dependencies.children(parents)), "nobody waits for %s", parents.after)
        there = {parent for parent in parents.left if state.job(parent) is not None}
        must(there == parents.left, "jobs %s are waited for in vain", parents.left - there)
        must(
            all(parents in state.dependencies.of(each) for each in ids_of(parents.after)),
            "not all of %s know that they are waited for",
            parents.after,
        )
        named[parents.owner] += count_parents(parents.after)
    must(state.dependencies.named == named, "the parents that users name are counted wrongly")


AFTER = Feature(
    applies=lambda spec: bool(spec.after),
    gate=Gate(Reason.PARENTS, _limit, _tells),
    enters=_enters,
    stored=_stored,
    ended=_ended,
    reconnected=_reconnected,
    violations=_violations,
)
