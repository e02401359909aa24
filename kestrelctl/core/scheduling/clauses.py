"""Counts the workers that each clause of an expression leaves to a job that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import add, and_

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Attribute, Unknown, is_true
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.worker.clause_count import ClauseCount
from kestrelctl.core.model.worker.matching_ads import in_lower_case, job_ad, worker_ad
from kestrelctl.core.scheduling.expression_answers import Side, comes_to, names_asked
from kestrelctl.core.scheduling.judgement import clause_texts, side, values_in

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
