"""Other pools of the flock in words: what is free there, and why they do not run a task."""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.core.model.wording import plural
from kestrelctl.grammar.quantities import short_number
from kestrelctl.protocol.job_answers import NeighbourAnswer
from kestrelctl.protocol.views import LentClassView

#: Reasons as sentences about a neighbour; others are shown as they are.
_SENTENCES = {
    "asked": "was asked for machines, or is about to be",
    "denied": "has denied such tasks",
    "full": "has nothing free",
    "no-such-class": "has no such machines any more",
    "policy": "is ruled out by a policy",
    "silent": "has said nothing for a while",
    "too-often": "was asked too often",
    "unreachable": "cannot be reached",
    "unwilling": "lends nothing now",
}


def cpus(amount: float) -> str:
    """Writes an amount of processors: `1 CPU`, `3.5 CPUs`."""
    return f"{amount:g} {'CPU' if amount == 1 else 'CPUs'}"


def free_words(classes: Sequence[LentClassView]) -> str:
    """Tells what is free of each class: `3.5 CPUs on 2 machines`."""
    return "; ".join(
        f"{cpus(each.free.get('cpus', 0.0))} on {plural(each.machines, 'machine')}"
        for each in classes
    )


def round_trip(seconds: float | None) -> str:
    """The time that an answer takes, in milliseconds; `-` if it is not known."""
    return "-" if seconds is None else f"{short_number(seconds * 1000)} ms"


def neighbour_words(answer: NeighbourAnswer) -> str:
    """Explains why a neighbour does not run a task: a sentence without its end."""
    why = _SENTENCES.get(answer.reason, f"does not fit ({answer.reason})")
    return f"{why}: {answer.detail}" if answer.detail else why
