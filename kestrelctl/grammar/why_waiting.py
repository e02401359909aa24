"""Explains in words why tasks of a job wait."""

from __future__ import annotations

from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.assets import MOST_TOKENS, is_of_workers
from kestrelctl.core.model.worker.isolation import TAG_PREFIX, is_reserved, without_isolation
from kestrelctl.core.model.worker.own_tags import OwnTag, first_own
from kestrelctl.grammar.job_options import OPTIONS
from kestrelctl.grammar.quantities import duration, short_address
from kestrelctl.protocol.job_answers import JobExplanation

_OF_OPTIONS = {option.name: option.holds_back for option in OPTIONS if option.holds_back}
#: The sentence for each reason; what is found stands where `{found}` is, or behind it.
_SENTENCES: dict[str, str] = _OF_OPTIONS | {
    Reason.HELD: "it is on hold {found}",
    Reason.PARENTS: "it waits {found}",
    Reason.MAX_STORED: "its user has as much in the file share as is set for him",
    Reason.TOGETHER: "its tasks start together or not at all",
    Reason.TOKENS: "too few of the pool's own are free",
    Reason.QUOTA: "its user, or his group, has as much at workers as is set for him",
    Reason.BACKOFF: "tasks that failed pause before they are tried again",
    Reason.MORE_MEMORY: "tasks that ran out of memory wait with a larger request",
    Reason.ALL_STARTED: "all of its tasks have started",
    Reason.CANCELLING: "it is being cancelled",
    Reason.RECOVERING: "the manager has just started, and its workers have not all spoken yet",
    Reason.NO_WORKERS: "there are no workers",
    Reason.RESERVED: "it has waited so long that a worker is kept for it until it fits",
    Reason.STORE_FAILING: "the manager cannot write its store, so nothing is handed out",
}
_STATES: dict[str, str] = {
    Reason.BUSY: "busy",
    Reason.RESERVED: "kept for a job that waited long",
    Reason.OFFLINE: "offline",
    Reason.DRAINING: "draining",
    Reason.QUARANTINED: "quarantined",
}
#: Every machine has some; only a simple worker may not say how much.
_OF_EVERY_MACHINE = ("memory", "disk")
_OUTCOMES: dict[str, str] = {Reason.UNDEFINED: "undefined", Reason.ERROR: "an error"}


def conclusion(explanation: JobExplanation) -> tuple[str, str | None]:
    """One clause that says why, and what to do about it if anything."""
    job_id = explanation.job.job_id
    pauses = any(reason.reason == Reason.BACKOFF for reason in explanation.job_reasons)
    if not explanation.waiting and not pauses:
        return "nothing waits", None
    for reason in explanation.job_reasons:
        if reason.reason not in (Reason.NO_WORKERS, Reason.MORE_MEMORY):
            hints: dict[str, str] = {
                Reason.BACKOFF: f"kestrelctl job tasks {job_id} --state failed",
                Reason.HELD: f"kestrelctl job release {job_id}",
                Reason.PARENTS: f"kestrelctl job graph {job_id}",
                Reason.QUOTA: f"kestrelctl user info {explanation.job.owner}",
                Reason.MAX_STORED: "it goes on when the share has deleted older files, or when an"
                f" admin says: kestrelctl user set {explanation.job.owner} --max-stored SIZE",
            }
            if reason.reason == Reason.TOKENS and not explanation.ever:
                number, _, name = reason.wanted.replace(",", "").rpartition(" ")
                cancel = f"kestrelctl job cancel {job_id}"
                if float(number) > MOST_TOKENS:
                    return reason_text(reason), cancel
                return reason_text(
                    reason
                ), f"kestrelctl pool asset set {name} {number}, or: {cancel}"
            return reason_text(reason), hints.get(reason.reason)
    if not explanation.obstacles and not explanation.could_run:
        return "there are no workers", "kestrelctl worker run --help"
    if explanation.could_run:
        return f"{plural(explanation.could_run, 'worker')} could take a task at once", None
    if not explanation.ever and explanation.environments:
        classes = " or ".join(explanation.environments)
        first = explanation.environments[0]
        hint = f"kestrelctl environment explain {first}"
        words = f"it waits for an environment of class {classes}"
        return words + _next_start(explanation.next_start_seconds), hint
    if not explanation.ever and explanation.gives_way:
        host = short_address(explanation.gives_way)
        return (
            f"it waits for {host}, which is large enough when the environments there have gone",
            "kestrelctl environment list",
        )
    if not explanation.ever:
        closest = explanation.obstacles[0]
        missing = {(each.refusal.reason, each.refusal.wanted) for each in explanation.obstacles}
        if missing == {(Reason.MISSING_ASSET, closest.refusal.wanted)}:
            asset = closest.refusal.wanted
            if asset in _OF_EVERY_MACHINE:
                cancel = f"kestrelctl job cancel {job_id}, and submit it without --{asset}"
                return f"no worker says how much {asset} it has", cancel
            of_pool = "" if is_of_workers(asset) else f"kestrelctl pool asset set {asset} …, or: "
            return (
                f"no worker has any {asset}",
                f"kestrelctl worker run --asset {asset}=…, or: {of_pool}"
                f"kestrelctl job cancel {job_id}",
            )
        own, others = _missing_tags(closest.refusal)
        hint = f"add such a worker, or: kestrelctl job cancel {job_id}"
        if own and not others:
            instead = " and ".join(tag.instead for tag in own)
            hint = f"kestrelctl job cancel {job_id}, and submit it {instead}"
        for tag in own:
            if all(tag in _missing_tags(each.refusal)[0] for each in explanation.obstacles):
                return f"this job is for workers that {tag.does}, and there is none", hint
        return (
            f"no worker could ever run it; the closest is {short_address(closest.example)}, "
            f"which {_lack(closest.refusal)}",
            hint,
        )
    if all(each.refusal.may_pass for each in explanation.obstacles):
        closest = explanation.obstacles[0]
        return (
            f"no worker is what it asks for now; the closest is {short_address(closest.example)}, "
            f"which {_lack(closest.refusal)}",
            "kestrelctl worker properties",
        )
    counts: dict[str, int] = {}
    for each in explanation.obstacles:
        word = _STATES.get(each.refusal.reason, "unfit")
        counts[word] = counts.get(word, 0) + each.workers
    able = ", ".join(f"{n:,} {word}" for word, n in counts.items() if word != "unfit")
    ahead = explanation.tasks_ahead if "busy" in counts else 0
    first = f"; {plural(ahead, 'task')} of other jobs {'comes' if ahead == 1 else 'come'} first"
    return (
        f"every worker that could run it is taken or away ({able})" + (first if ahead else ""),
        None if "busy" in counts else "kestrelctl worker list",
    )


def _missing_tags(refusal: Refusal) -> tuple[list[OwnTag], list[str]]:
    """The tags that a worker lacks: those that workers give themselves, and the others."""
    if refusal.reason != Reason.MISSING_TAGS:
        return [], []
    own: list[OwnTag] = []
    others: list[str] = []
    for tag in refusal.wanted.split():
        found = first_own([tag])
        if found is None:
            others.append(tag)
        else:
            own.append(found)
    return own, others


def _next_start(seconds: float | None) -> str:
    if seconds is None:
        return ""
    soon = f"the next try in {duration(seconds)}" if seconds > 0 else "it is tried again"
    return f": starts fail, {soon}"


def _lack(refusal: Refusal) -> str:
    if refusal.reason == Reason.STAYS_HOME:
        return "a neighbour lends: it stays on the pool's own"
    if refusal.reason == Reason.UNWILLING:
        return "a neighbour lends, and which has nothing for this pool now"
    if refusal.reason == Reason.MISSING_TAGS:
        own, others = _missing_tags(refusal)
        rungs = [tag.lower().removeprefix(TAG_PREFIX) for tag in others if is_reserved(tag)]
        tags = without_isolation(others)
        lacks = [f"lacks {' '.join(tags)}"] if tags or not (own or rungs) else []
        lacks += [f"isolates tasks less than {rung} does" for rung in rungs]
        return " and ".join(lacks + [f"does not {each.does}" for each in own])
    if refusal.reason == Reason.MISSING_ASSET:
        asset, _, by_policy = refusal.wanted.partition(" ")
        if asset in _OF_EVERY_MACHINE and not by_policy:
            return f"does not say how much {asset} it has"
        return f"has no {refusal.wanted}"
    if refusal.reason == Reason.TOO_SMALL:
        return f"has {refusal.found} where {refusal.wanted} are wanted"
    if refusal.reason == Reason.START:
        return f"takes only jobs with {refusal.wanted} (here {refusal.found})"
    if refusal.reason == Reason.REQUIREMENTS:
        return f"has {refusal.found} where {refusal.wanted} is wanted"
    if refusal.reason in (Reason.UNDEFINED, Reason.ERROR):
        return f"leaves {refusal.wanted} {_OUTCOMES[refusal.reason]} ({refusal.found})"
    if refusal.reason == Reason.POLICY:
        return f"has no price for it: {refusal.found}"
    if refusal.reason == Reason.LIFETIME:
        return f"leaves too early: {refusal.found}, where {refusal.wanted} are wanted"
    return f"is {_STATES.get(refusal.reason, refusal.reason)}"


def reason_text(refusal: Refusal) -> str:
    """Explains what holds a job back, or a worker from a task, and what was wanted and found."""
    sentence = _SENTENCES.get(refusal.reason, refusal.reason)
    if "{found}" in sentence:
        return sentence.replace("{found}", refusal.found)
    facts = [
        f"{label} {text}"
        for label, text in (("wanted", refusal.wanted), ("found", refusal.found))
        if text
    ]
    return f"{sentence} ({', '.join(facts)})" if facts else sentence
