"""`--where`: which workers or jobs of a list an expression is true of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Ad, Expression, Failure, Unknown
from kestrelctl.core.classad.rules import checked, shown
from kestrelctl.core.classad.syntax import references
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.worker.matching_ads import (
    JOB_ATTRIBUTES,
    WORKER_ATTRIBUTES,
    Attributes,
    amounts_ad,
    least_seconds,
    properties_ad,
    worker_ad,
)
from kestrelctl.errors import UsageError
from kestrelctl.protocol.answers import WorkerView
from kestrelctl.protocol.job_answers import JobView

#: The most workers looked at for one answer: some tens of milliseconds of the manager's time.
MOST_LOOKED_AT = 1_000

#: The attributes of a worker in a list, beside those of its ad and `Free<Asset>`.
LISTED_WORKER = {
    "State": "as `worker list` shows it",
    "Running": "tasks that run there",
    "Queued": "tasks that wait there",
    "Done": "tasks that ended well there",
    "Failed": "tasks that failed there",
}
#: The attributes of a job in a list, beside those of its ad.
LISTED_JOB = {
    "JobId": "its id",
    "State": "as `job list` shows it",
    "Held": "whether it is on hold",
    "Service": "whether it is a service",
    "Tasks": "how many it has",
    "Waiting": "how many of them wait",
    "Running": "how many run",
    "Done": "how many ended well",
    "Failed": "how many failed",
    "Lost": "how many were given up as lost",
    "Cancelled": "how many were cancelled",
}

V = TypeVar("V", WorkerView, JobView)


class Where:
    """An expression for a list.

    Args:
        known: names of attributes that one of those in the list may have.

    Raises:
        UsageError: the expression cannot be read, or asks for an attribute that none has.
    """

    def __init__(self, text: str, known: Iterable[str], what: str) -> None:
        self._text = text
        names = {name.lower() for name in known}
        try:
            for node in references(checked(text)):
                if node.scope not in ("", "my"):
                    raise BadExpression("in a list there is no other side", node.start)
                if node.name not in names:
                    there = ", ".join(sorted(known, key=str.lower))
                    why = f"no {what} has the attribute {text[node.start : node.end]}"
                    raise BadExpression(f"{why}; there are {there}", node.start)
            self._expression = Expression(text)
        except BadExpression as mistake:
            raise UsageError("--where cannot be used", cause=shown(text, mistake)) from None

    def those_that_fit(
        self, views: Sequence[V], ad_of: Callable[[V], tuple[str, Attributes]], *, is_first: bool
    ) -> list[V]:
        """Returns those of a page of which the expression is true.

        One for which it comes to an error is left out, like one that lacks an attribute: what a
        single worker says of itself must keep nobody from a list of the others.

        Args:
            ad_of: tells the name and the attributes of one.
            is_first: whether this is the first page: what is an error for each of that is a mistake
                of who asks.

        Raises:
            UsageError: the expression comes to an error, or to a text, for all of the first page.
        """
        found: list[V] = []
        mistakes: list[UsageError] = []
        for view in views:
            name, attributes = ad_of(view)
            try:
                if self._is_true_of(attributes, name):
                    found.append(view)
            except UsageError as mistake:
                mistakes.append(mistake)
        if is_first and mistakes and len(mistakes) == len(views):
            raise mistakes[0]
        return found

    def _is_true_of(self, attributes: Attributes, name: str) -> bool:
        """Whether the expression is true of one in the list; not of one that lacks an attribute.

        Raises:
            UsageError: it comes to an error, or to a text.
        """
        found = self._expression.evaluate(Ad(attributes))
        if found is Unknown.UNDEFINED:
            return False
        if isinstance(found, Failure):
            raise UsageError("--where cannot be used", cause=f"for {name}: {found.words}")
        if isinstance(found, Unknown | str):
            cause = "an error" if isinstance(found, Unknown) else f"the text {found[:40]!r}"
            raise UsageError("--where cannot be used", cause=f"for {name} it comes to {cause}")
        return bool(found)


def where_workers(text: str, workers: Mapping[str, Worker]) -> Where:
    """An expression for lists of workers."""
    known: dict[str, None] = dict.fromkeys((*WORKER_ATTRIBUTES, *LISTED_WORKER))
    assets: set[str] = set()
    for worker in workers.values():
        known.update(dict.fromkeys((*worker.ad.attributes, *properties_ad(worker.ad.properties))))
        assets.update(worker.cls.capacity)
    every = dict.fromkeys(assets, 1.0)
    return Where(text, (*amounts_ad(every), *amounts_ad(every, "Free"), *known), "worker")


def listed_worker(worker: Worker, view: WorkerView) -> Attributes:
    """The attributes of a worker in a list."""
    said = {name: getattr(view, name.lower()) for name in LISTED_WORKER}
    ad = worker_ad(worker.ad, worker.jid) | amounts_ad(view.assets)
    return ad | amounts_ad(view.free, "Free") | said


def where_jobs(text: str, views: Iterable[JobView]) -> Where:
    """An expression for lists of jobs."""
    known = dict.fromkeys((*JOB_ATTRIBUTES, *LISTED_JOB))
    assets = {name: 1.0 for view in views for name in view.spec.request}
    return Where(text, (*known, *amounts_ad(assets, "Request")), "job")


def listed_job(view: JobView) -> Attributes:
    """The attributes of a job in a list, as far as it is shown to whoever asks."""
    plain = [name for name in LISTED_JOB if name not in ("JobId", "Held", "Service")]
    said: Attributes = {name: getattr(view, name.lower()) for name in plain}
    facts: Attributes = {
        "JobId": view.job_id,
        "Held": view.hold is not None,
        "Service": view.spec.service,
        "JobName": view.name,
        "Owner": view.owner,
        "JobPrio": view.spec.priority,
    }
    seconds = least_seconds(view.spec.program.time_limit_seconds, view.spec.time_request_seconds)
    if seconds is not None:
        facts["JobSeconds"] = seconds
    return amounts_ad(view.spec.request, "Request") | facts | said
