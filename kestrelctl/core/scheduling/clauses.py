"""How many workers each clause of an expression leaves: for a job that waits."""

from __future__ import annotations

from collections.abc import Mapping

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Unknown
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.clause_count import ClauseCount
from kestrelctl.core.model.matching_ads import job_ad, worker_ad
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.scheduling.judgement import Side, clause_texts, is_true, side, values_in

#: Of so many different `start` expressions the clauses are shown: those of most workers.
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

    Evaluated once for each class, however many workers it has.
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
    """The clauses of one expression, held against these classes."""
    try:
        clauses = clause_texts(text)[:MOST_CLAUSES]
    except BadExpression:
        return []
    alone, so_far, undefined = ([0] * len(clauses) for _ in range(3))
    nearest: Worker | None = None
    most = first_false = -1
    for cls, crowd in crowds.items():
        mine, target = side(job.shape), side(cls)
        if by is Reason.START:
            mine, target = target, mine
        answers = [mine.evaluate(clause, target) for clause in clauses]
        held = [is_true(answer) for answer in answers]
        still = True
        for place, answer in enumerate(answers):
            still = still and held[place]
            alone[place] += held[place] * crowd.workers
            so_far[place] += still * crowd.workers
            undefined[place] += (answer is Unknown.UNDEFINED) * crowd.workers
        score = -1 if still else sum(held)  # whoever refuses is of more interest
        if nearest is None or score > most:
            most, nearest = score, crowd.example
            first_false = -1 if still else held.index(False)
    assert nearest is not None
    mine = Side(job_ad(job.spec, job.owner))
    target = Side(worker_ad(nearest.ad, nearest.jid))
    if by is Reason.START:
        mine, target = target, mine
    of = sum(crowd.workers for crowd in crowds.values())
    return [
        ClauseCount(
            by=by.value,
            clause=clause,
            of=of,
            alone=alone[place],
            so_far=so_far[place],
            undefined=undefined[place],
            closest=nearest.jid,
            fails=place == first_false,
            values=values_in(clause, mine, target),
        )
        for place, clause in enumerate(clauses)
    ]
