"""Whether a rule of a flock fits a task, and whether the task keeps to its terms."""

from __future__ import annotations

from kestrelctl.core.classad.evaluation import Failure, is_true
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.worker.assets import four_digits
from kestrelctl.core.scheduling.expression_answers import Side, comes_to
from kestrelctl.flock.rules.flock_globs import fits_anybody, fits_name, fits_user

_NOTHING = Side({})


def rule_fits(
    rule: FlockRule, user: str | None, group: str | None, about: Side | None
) -> bool | None:
    """Whether a rule that is about a pool fits a task; None if it depends on what is not known.

    Args:
        user, group: whose task it is; None for not known.
        about: the ad that its `requirements` are about; None for not known.
    """
    found = (
        _known(rule.users, None if user is None else fits_user(rule.users, user)),
        _known(rule.groups, None if group is None else fits_name(rule.groups, group)),
        _meets(rule, about),
    )
    if False in found:
        return False
    return None if None in found else True


def _known(globs: tuple[str, ...], fits: bool | None) -> bool | None:
    return True if fits_anybody(globs) else fits


def _meets(rule: FlockRule, about: Side | None) -> bool | None:
    """Whether a rule's `requirements` are true of an ad; None if the ad is not known."""
    if not rule.requirements:
        return True
    if about is None:
        return None
    answer = comes_to(rule.requirements, _NOTHING, about)
    if isinstance(answer, Failure):  # it lets nothing pass
        return rule.action == "deny"
    return is_true(answer)


def beyond_terms(
    rule: FlockRule, seconds: float | None, cpus: float, running_cpus: float
) -> str | None:
    """Tells in words where a task goes beyond what the rule allows; None if it does not.

    Args:
        seconds: how long it says that it may run; None if it does not say.
        cpus: how many processors it takes.
        running_cpus: how many the tasks take that run under the rule.
    """
    if rule.max_seconds is not None:
        most = f"for up to {four_digits(rule.max_seconds)} s"
        if seconds is None and rule.direction == "borrow":
            return f"{most}, and the task says no time"
        if seconds is not None and seconds > rule.max_seconds:
            return f"{most}, not for {four_digits(seconds)} s"
    if rule.max_cpus is not None and running_cpus + cpus > rule.max_cpus:
        taken = f", and {four_digits(running_cpus)} are taken" if running_cpus else ""
        most = f"on up to {four_digits(rule.max_cpus)} processors"
        return f"{most}, not on {four_digits(cpus)}{taken}"
    return None
