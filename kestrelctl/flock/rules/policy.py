"""Decides what a pool lends to another pool, or borrows from it, and on which terms.

For each direction the rules are asked in their order, and the first that fits decides. What no rule
fits is allowed if no rule of that direction allows anything, and denied otherwise: rules that only
forbid leave the rest as it is, and rules that allow some mean these alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kestrelctl.core.model.flock_rule import FlockDirection, FlockRule
from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.core.model.worker.matching_ads import Attributes, in_lower_case
from kestrelctl.core.scheduling.expression_answers import Side
from kestrelctl.flock.rules.flock_globs import fits_name
from kestrelctl.flock.rules.rule_fit import beyond_terms, rule_fits
from kestrelctl.flock.rules.start_text import start_text

#: The isolation of tasks of other pools where no rule names one: in general, and between pools that
#: are all of one machine.
DEFAULT_ISOLATION = "bubblewrap"
LOCAL_ISOLATION = "plain"


class LoanTerms(msgspec.Struct, frozen=True):
    """The terms of what is lent or borrowed.

    Attributes:
        max_cpus: processors at once; None for any number.
        max_seconds: the time of an attempt; None for any time.
        isolation: the least isolation, one of `RUNGS`.
        lease_seconds: the longest loan; None for as long as pools usually agree on.
    """

    max_cpus: float | None
    max_seconds: float | None
    isolation: str
    lease_seconds: float | None


class Verdict(msgspec.Struct, frozen=True):
    """Whether something is allowed.

    Attributes:
        rule: the name of the rule that decided; empty if none fits.
        why: the reason in words why it is not; empty if it is allowed.
        terms: the terms on which it is; terms of nothing if it is not allowed.
    """

    allowed: bool
    rule: str
    why: str
    terms: LoanTerms


class Policy:
    """The rules in force.

    Args:
        rules: in any order, each without a problem (`flock_rule_check.problem_with_rule`). One
            whose expression cannot be read any more fits nothing if it allows, anything if it
            denies.
        default_isolation: the least that tasks of others get where no rule says so.
    """

    def __init__(
        self, rules: Iterable[FlockRule] = (), default_isolation: str = DEFAULT_ISOLATION
    ) -> None:
        ordered = sorted(rules, key=lambda rule: (rule.order, rule.name))
        self._rules: dict[FlockDirection, list[FlockRule]] = {
            direction: [rule for rule in ordered if rule.direction == direction]
            for direction in ("lend", "borrow")
        }
        self._default = LoanTerms(None, None, default_isolation, None)

    def rules(self) -> list[FlockRule]:
        """All rules, those to lend first, in the order in which they are asked."""
        return [*self._rules["lend"], *self._rules["borrow"]]

    def rules_about(self, direction: FlockDirection, pool: str) -> list[FlockRule]:
        """The rules that may be about tasks on their way to or from a pool, in their order."""
        return [rule for rule in self._rules[direction] if fits_name(rule.pools, pool)]

    def allows_the_rest(self, direction: FlockDirection) -> bool:
        """Whether what no rule fits is allowed."""
        return not any(rule.action == "allow" for rule in self._rules[direction])

    # -- of a pool as a whole ----------------------------------------------------------------------

    def may_lend_to(self, pool: str) -> Verdict:
        """Whether some tasks of a pool may run here; `judge_task` says which."""
        return self._of_pool("lend", pool)

    def may_borrow_from(self, pool: str) -> Verdict:
        """Whether some tasks of this pool may run there; `judge_task` says which."""
        return self._of_pool("borrow", pool)

    def limits(self, direction: FlockDirection, pool: str) -> LoanTerms:
        """The widest terms that any tasks of a pool get; of no processors if none are allowed.

        `max_cpus` is what rules grant to all pools that they fit: see `room_by_rule`.
        """
        found = [self._terms(rule) for rule in self._grants(direction, pool)]
        if not found:
            return LoanTerms(0.0, None, self._default.isolation, None)
        return LoanTerms(
            max_cpus=_together([each.max_cpus for each in found]),
            max_seconds=_most([each.max_seconds for each in found]),
            isolation=max((each.isolation for each in found), key=RUNGS.index),
            lease_seconds=_most([each.lease_seconds for each in found]),
        )

    def room_by_rule(
        self, direction: FlockDirection, pool: str, lent: Mapping[str, float]
    ) -> dict[str, float] | None:
        """Returns how many processors each rule lets a pool have at once, by the rule's name; None
        for any number.

        Args:
            lent: what each pool has now, by its domain. What others have that share a rule with it
                is taken off; its own is not.
        """
        room: dict[str, float] = {}
        for rule in self._grants(direction, pool):
            if rule is None or rule.max_cpus is None:
                return None
            others = sum(
                cpus
                for other, cpus in lent.items()
                if other != pool and rule in self._grants(direction, other)
            )
            room[rule.name] = max(0.0, rule.max_cpus - others)
        return room

    # -- of a task ---------------------------------------------------------------------------------

    def judge_task(
        self,
        direction: FlockDirection,
        pool: str,
        *,
        user: str,
        group: str = "",
        about: Attributes,
        seconds: float | None = None,
        cpus: float = 0.0,
        running: Mapping[str, float] | None = None,
    ) -> Verdict:
        """Whether a task may be lent machines of this pool, or may borrow those of another.

        Args:
            pool: the other pool: to lend, the task's; to borrow, the machines'.
            user, group: whose task it is: his account, and his group at the task's own pool.
            about: to lend, the job's ad; to borrow, that of the class of machines.
            seconds: how long the task says that it may run (`matching_ads.job_seconds`).
            cpus: how many processors it takes.
            running: by rule, how many processors the tasks hold that it has let pass.
        """
        side = Side(in_lower_case(about))
        for rule in self.rules_about(direction, pool):
            if not rule_fits(rule, user, group, side):
                continue
            if rule.action == "deny":
                return self._denied(rule.name, f"rule {rule.name} denies it")
            why = beyond_terms(rule, seconds, cpus, (running or {}).get(rule.name, 0.0))
            if why:
                return self._denied(rule.name, f"rule {rule.name} allows it {why}")
            return Verdict(True, rule.name, "", self._terms(rule))
        return self._of_the_rest(direction)

    def start_expression(
        self,
        direction: FlockDirection,
        pool: str,
        *,
        owners: Mapping[str, str] | None = None,
        machines: Attributes | None = None,
    ) -> str:
        """Makes a loan's `start`: what it says of users, of `requirements` to lend, and of time.

        It never refuses a task that `judge_task` allows, but for users beyond the most that an
        expression can name. A task that it lets pass is still to be judged where it arrives, or
        before it goes out: `start` knows no group, and of users only whole names, unless `owners`
        are given.

        Args:
            pool: the other pool.
            owners: the users of whom jobs may come, and the group of each; None if they are not
                known. At home they are: then it says exactly what the rules to borrow say of these.
            machines: the ad of the class that is lent, for rules to borrow.
        """
        side = None if machines is None else Side(in_lower_case(machines))
        rules = self.rules_about(direction, pool)
        return start_text(
            rules, self.allows_the_rest(direction), owners, side if direction == "borrow" else None
        )

    # -- inside ------------------------------------------------------------------------------------

    def _grants(self, direction: FlockDirection, pool: str) -> list[FlockRule | None]:
        """The rules that let some tasks of a pool pass, in their order; None for no rule."""
        found: list[FlockRule | None] = []
        for rule in self.rules_about(direction, pool):
            if rule.action == "allow":
                found.append(rule)
            if rule_fits(rule, None, None, None):
                return found
        if self.allows_the_rest(direction):
            found.append(None)
        return found

    def _of_pool(self, direction: FlockDirection, pool: str) -> Verdict:
        grants = self._grants(direction, pool)
        if grants:
            first = grants[0]
            return Verdict(True, first.name if first else "", "", self.limits(direction, pool))
        for rule in self.rules_about(direction, pool):
            if rule_fits(rule, None, None, None):
                return self._denied(rule.name, f"rule {rule.name} denies it")
        return self._of_the_rest(direction)

    def _of_the_rest(self, direction: FlockDirection) -> Verdict:
        if self.allows_the_rest(direction):
            return Verdict(True, "", "", self._default)
        return self._denied("", "no rule allows it")

    def _denied(self, rule: str, why: str) -> Verdict:
        return Verdict(False, rule, why, LoanTerms(0.0, None, self._default.isolation, None))

    def _terms(self, rule: FlockRule | None) -> LoanTerms:
        if rule is None:
            return self._default
        isolation = rule.isolation or self._default.isolation
        return LoanTerms(rule.max_cpus, rule.max_seconds, isolation, rule.lease_seconds)


def _together(amounts: Sequence[float | None]) -> float | None:
    """Returns the sum of amounts; None, which stands for any amount, is more than all."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _most(amounts: Sequence[float | None]) -> float | None:
    """Returns the largest amount; None, which stands for any amount, is larger."""
    known = [amount for amount in amounts if amount is not None]
    return max(known) if len(known) == len(amounts) else None
