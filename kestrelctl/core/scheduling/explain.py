"""Explains to people why a job's tasks wait, and how many workers each clause leaves to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import add, and_

import msgspec

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Attribute, Unknown, is_true
from kestrelctl.core.jobs.gates import passing, takeable
from kestrelctl.core.jobs.job import Gate, Job, Standing
from kestrelctl.core.jobs.quota import counted
from kestrelctl.core.jobs.tokens import KeptTokens, Tokens
from kestrelctl.core.members.availability import closed
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.refusal import (
    BUT_FOR_OWN_TAGS,
    NEVER_FITS,
    ClauseCount,
    Reason,
    Refusal,
    refuse,
)
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.assets import MILLI, describe
from kestrelctl.core.model.worker.matching_ads import in_lower_case, job_ad, worker_ad
from kestrelctl.core.model.worker.own_tags import first_own
from kestrelctl.core.scheduling.demand import Demand
from kestrelctl.core.scheduling.expression_answers import Side, comes_to, names_asked
from kestrelctl.core.scheduling.judgement import clause_texts, side, values_in
from kestrelctl.core.scheduling.ladder import refusal
from kestrelctl.core.scheduling.match import Terms, match
from kestrelctl.core.scheduling.reservation import room_kept
from kestrelctl.core.scheduling.supply import Supply

#: The most `start` expressions whose clauses are shown: those that most workers have.
MOST_STARTS = 5
#: The most clauses that are shown of an expression.
MOST_CLAUSES = 50


class Crowd:
    """The workers of a class: how many, and one of them."""

    __slots__ = ("example", "workers")

    def __init__(self, example: Worker) -> None:
        self.example = example
        self.workers = 0


def clause_counts(job: Job, crowds: Mapping[WorkerClass, Crowd]) -> list[ClauseCount]:
    """The clauses of the job's requirements, then of the workers' starts, in their order.

    Each clause is evaluated once for each class, however many workers it has.
    """
    known = {cls: crowd for cls, crowd in crowds.items() if cls.ad_known}
    found: list[ClauseCount] = []
    if job.spec.requirements and known:
        found += _counts(Reason.REQUIREMENTS, job.spec.requirements, job, known)
    starts: dict[str, dict[WorkerClass, Crowd]] = {}
    for cls, crowd in known.items():
        if cls.start:
            starts.setdefault(cls.start, {})[cls] = crowd
    sizes = {text: sum(crowd.workers for crowd in some.values()) for text, some in starts.items()}
    for text in sorted(starts, key=lambda text: -sizes[text])[:MOST_STARTS]:
        found += _counts(Reason.START, text, job, starts[text])
    return found


def _counts(
    by: Reason, text: str, job: Job, crowds: Mapping[WorkerClass, Crowd]
) -> list[ClauseCount]:
    """The clauses of one expression, evaluated with these classes."""
    try:
        clauses = clause_texts(text)[:MOST_CLAUSES]
    except BadExpression:
        return []
    members = list(crowds.values())
    workers = [crowd.workers for crowd in members]
    asked = _Asked(by, side(job.shape), [side(cls) for cls in crowds])
    still = [True] * len(members)
    score = [0] * len(members)
    truths: list[list[bool]] = []
    counts: list[list[int]] = []
    for clause in clauses:
        truth, undefined = asked.answers(clause)
        still = list(map(and_, still, truth))
        score = list(map(add, score, truth))
        truths.append(truth)
        counts.append([sum(compress(workers, some)) for some in (truth, still, undefined)])
    score = [-1 if all_true else n for all_true, n in zip(still, score, strict=True)]
    place = max(range(len(members)), key=score.__getitem__)  # whoever refuses is of more interest
    first_false = next((n for n, truth in enumerate(truths) if not truth[place]), -1)
    nearest = members[place].example
    mine = Side(in_lower_case(job_ad(job.spec, job.owner)))
    target = Side(in_lower_case(worker_ad(nearest.ad, nearest.jid)))
    if by is Reason.START:
        mine, target = target, mine
    return [
        ClauseCount(
            by=by.value,
            clause=clause,
            of=sum(workers),
            alone=alone,
            so_far=so_far,
            undefined=undefined,
            closest=nearest.jid,
            fails=n == first_false,
            values=values_in(clause, mine, target),
        )
        for n, (clause, (alone, so_far, undefined)) in enumerate(zip(clauses, counts, strict=True))
    ]


class _Asked:
    """The answers to clauses of one side, for a job and many kinds of workers.

    A clause is evaluated once for all kinds that agree in what it refers to.

    Args:
        by: REQUIREMENTS or START: whose clauses they are.
    """

    def __init__(self, by: Reason, job: Side, kinds: list[Side]) -> None:
        self._by = by
        self._job = job
        self._kinds = kinds
        self._columns: dict[str, Sequence[object]] = {}

    def answers(self, clause: str) -> tuple[list[bool], list[bool]]:
        """Tells with which kinds a clause is true, and with which it is undefined."""
        start = self._by is Reason.START
        keys = self._values(names_asked(clause, own=start))
        true: dict[object, bool] = {}
        undefined: dict[object, bool] = {}
        for key, kind in dict(zip(keys, self._kinds, strict=True)).items():
            mine, target = (kind, self._job) if start else (self._job, kind)
            answer = comes_to(clause, mine, target)
            true[key] = is_true(answer)
            undefined[key] = answer is Unknown.UNDEFINED
        some_undefined = [undefined[key] for key in keys] if any(undefined.values()) else []
        return [true[key] for key in keys], some_undefined

    def _values(self, names: list[str]) -> Sequence[object]:
        """Returns the values of these attributes, for each kind."""
        for name in names:
            if name not in self._columns:
                self._columns[name] = _told_apart([k.attributes.get(name) for k in self._kinds])
        if len(names) == 1:
            return self._columns[names[0]]
        columns = [self._columns[name] for name in names]
        return list(zip(*columns, strict=True)) if columns else [None] * len(self._kinds)


def _told_apart(values: list[Attribute | None]) -> Sequence[object]:
    """The values, with their types where numbers of several types are among them: 1 is not true."""
    types = set(map(type, values))
    if len(types & {bool, int, float}) < 2:
        return values
    return list(zip(map(type, values), values, strict=True))


#: The tasks of a job are walked through only if fewer than this are under way.
MOST_LOOKED_AT = 100_000


class Group(msgspec.Struct, frozen=True):
    """Workers that refuse for the same reason."""

    workers: int
    example: str
    refusal: Refusal


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons why a job's tasks wait.

    Attributes:
        job_reasons: what holds the job back whatever workers there are.
        groups: workers that refuse for the same reason, the closest fit first.
        could: how many workers could take a task at once.
        ever: whether any known worker could ever run one, with the tokens that the pool has; of a
            job that spans workers, as many as it needs at once.
        tasks_ahead: waiting tasks of jobs that are at work and get what becomes free before it.
        clauses: how many workers each clause of the expressions of both sides leaves.
    """

    job_reasons: list[Refusal]
    groups: list[Group]
    could: int
    ever: bool
    tasks_ahead: int
    clauses: list[ClauseCount]


def explain(
    job: Job,
    jobs: Iterable[Job],
    workers: Iterable[Worker],
    demand: Demand,
    supply: Supply,
    backoff_until: float | None,
    store_error: str,
    now: float,
) -> Explanation:
    """Explains why a job's tasks wait, by the job itself, the other jobs and every worker.

    Workers are compared with what the first of its lines with waiting tasks asks for.

    Args:
        jobs, workers: all that the pool knows.
        backoff_until: when the next of its tasks in back-off may run again.
        store_error: why nothing is handed out to anybody; empty if it is.
    """
    lines = job.lines()
    shape = next((line for line in lines if line.waiting), job).shape
    refusals: dict[Refusal, list[str]] = {}
    crowds: dict[WorkerClass, Crowd] = {}
    closer: dict[WorkerClass, Refusal] = {}
    mine: list[Refusal] = []
    could = online = 0
    for worker in workers:
        online += worker.online
        crowd = crowds.get(worker.cls)
        if crowd is None:
            crowd = crowds[worker.cls] = Crowd(worker)
        crowd.workers += 1
        cls = supply.of(worker)
        why = refusal(worker, cls, shape, now)
        if why is not None and why.reason is Reason.MISSING_TAGS and not closed(worker, now):
            if worker.cls not in closer:
                closer[worker.cls] = _as_close_as_it_is(why, shape, worker.cls)
            why = closer[worker.cls]
        kept = worker.kept_for
        if kept is not None:
            if kept.shape is not shape:
                if why is None or why.reason is Reason.BUSY:
                    why = refuse(Reason.RESERVED, found=f"for job {kept.id}")
            elif kept in lines and isinstance(terms := cls.terms(shape), Terms):
                mine.append(Refusal(Reason.RESERVED, found=room_kept(worker, terms.claim)))
        if why is None:
            could += 1
        else:
            refusals.setdefault(why, []).append(worker.jid)
    groups = [Group(len(jids), jids[0], why) for why, jids in refusals.items()]
    groups.sort(key=lambda group: -group.refusal.closeness)
    lacking = _lacking_tokens(shape, demand.tokens) if job.remaining > job.running else []
    reasons = _job_reasons(job, backoff_until, now) + lacking + mine
    fitting = could + sum(
        group.workers
        for group in groups
        if group.refusal.reason not in NEVER_FITS or group.refusal.may_pass
    )
    if job.remaining > job.running and could < shape.span != 1:
        found = f"{could} {'has' if could == 1 else 'have'} room"
        if fitting < shape.span:
            found += f", {fitting} could ever run one"
        reasons.append(Refusal(Reason.TOGETHER, f"{shape.span} workers at once", found))
    if store_error:
        reasons.insert(0, Refusal(Reason.STORE_FAILING, found=store_error))
    if not online:
        reasons.append(Refusal(Reason.NO_WORKERS))
    return Explanation(
        job_reasons=reasons,
        groups=groups,
        could=could,
        ever=all(demand.tokens.total(name) >= n * shape.span for name, n in shape.tokens.items())
        and fitting >= shape.span,
        tasks_ahead=_tasks_ahead(job, jobs, demand),
        clauses=clause_counts(job, crowds),
    )


def _as_close_as_it_is(why: Refusal, shape: Shape, cls: WorkerClass) -> Refusal:
    """Rates missing tags as closer to a match if the job could do without all of them there.

    Tags come first on the ladder. Without this, a worker that is wrong in other ways would be
    called closer than one that lacks only what a way of submitting the job asks for.
    """
    missing = why.wanted.split()
    if any(first_own([tag]) is None for tag in missing):
        return why
    if isinstance(match(shape.without(missing), cls), Refusal):
        return why
    return msgspec.structs.replace(why, closeness=BUT_FOR_OWN_TAGS)


def _job_reasons(job: Job, backoff_until: float | None, now: float) -> list[Refusal]:
    found: list[Refusal] = []
    may_go, gate = passing(next((line for line in job.lines() if line.waiting), job))
    closed = next((each for each in job.gates if _is_told(each, job, gate)), None)
    if job.cancelling:
        found.append(Refusal(Reason.CANCELLING))
    elif closed is not None and (closed.always_told or not may_go):
        found.append(closed.tells(job, now))
    elif gate is Reason.QUOTA and not may_go:
        asked = counted(job.shape.request, job.shape.tokens)
        refusals = [quota.refusal(asked) for quota in job.sharer.quotas]
        found.extend(refusal for refusal in refusals if refusal is not None)
    elif gate is Reason.TOGETHER and job.running:
        stopped = plural(job.running, "member is", "members are")
        found.append(Refusal(gate, found=f"{stopped} still being stopped"))
    elif gate is not None and gate is not Reason.TOGETHER and not may_go:
        found.append(Refusal(gate))
    behind = job.waiting_behind
    if job.pairing is not None and behind:
        found.append(Refusal(Reason.PARENTS, found=job.pairing.told(behind)))
    tasks = job.live.values() if len(job.live) < MOST_LOOKED_AT else ()
    standings = [task.standing for task in tasks]
    delayed = standings.count(Standing.BACKOFF)
    if delayed:
        pause = max(0.0, (backoff_until or now) - now)
        found.append(
            Refusal(Reason.BACKOFF, found=f"{plural(delayed, 'task')}, the next in {pause:.1f} s")
        )
    unheard = standings.count(Standing.UNHEARD)
    if unheard:
        found.append(Refusal(Reason.RECOVERING, found=plural(unheard, "task")))
    for (memory_step, _), line in job.larger.items():
        if memory_step and line.waiting:
            wanted = describe("memory", line.shape.request["memory"])
            found.append(
                Refusal(Reason.MORE_MEMORY, wanted=wanted, found=plural(line.waiting, "task"))
            )
    waiting = behind or any(line.waiting for line in job.lines())
    if not waiting and not delayed and not unheard:
        found.append(Refusal(Reason.ALL_STARTED, found=f"{job.running} run"))
    return found


def _is_told(gate: Gate, job: Job, first: str | None) -> bool:
    """Whether a gate holds the tasks of a job back and, if several do, is the one to tell.

    Args:
        first: the reason of the first gate that lets the fewest pass.
    """
    return gate.limit(job) == 0 if gate.always_told else gate.reason == first


def _lacking_tokens(shape: Shape, tokens: Tokens) -> list[Refusal]:
    """Finds the pool's tokens that are too few for a task, or for all that start together."""
    found: list[Refusal] = []
    for name, of_one in shape.tokens.items():
        wanted = of_one * shape.span
        total, free = tokens.total(name), tokens.free(name, shape.tokens)
        if free >= wanted:
            continue
        reason, there = Reason.TOKENS, f"{free // MILLI:,} of {total // MILLI:,} free"
        kept = tokens.kept.get(name)
        if kept is not None:
            there += ", kept for it" if kept.wanted is shape.tokens else _kept(kept, name)
        if total < wanted:
            there = f"{total // MILLI:,} in all"
        elif not tokens.settled:
            reason, there = Reason.RECOVERING, ""
        found.append(Refusal(reason, wanted=describe(name, wanted), found=there))
    return found


def _kept(kept: KeptTokens, name: str) -> str:
    return f", {kept.amounts[name] // MILLI:,} kept for job {kept.job.id}"


def _tasks_ahead(job: Job, jobs: Iterable[Job], demand: Demand) -> int:
    order = demand.order(job)
    return sum(
        takeable(other)
        for other in jobs
        if other.running and not other.cancelling and demand.order(other) < order
    )
