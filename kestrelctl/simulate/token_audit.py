"""Whether more tokens of the pool are used at once than there are, by what machines really run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from itertools import pairwise
from math import inf

from kestrelctl.core.model.assets import Amounts
from kestrelctl.core.state import State


class TokenAudit:
    """Counts what runs with tokens, after each event.

    What the pool gave up as lost may still run where nobody can reach it, and comes on top: that is
    all that is forgiven. It is known by its worker, which is away, or has yet to speak, or by the
    order to kill it.
    """

    def __init__(self) -> None:
        #: of each asset, when there were how many, in the order of time
        self._totals: dict[str, list[tuple[float, int]]] = {}
        self._sent_at: dict[int, float] = {}
        self._forgiven: set[int] = set()

    def look(
        self, state: State, running: Iterable[tuple[int, str, Amounts]], killed: Container[int]
    ) -> list[str]:
        """What is wrong now, in words; empty if all is well.

        Args:
            running: attempts that really run, each with its worker and what its task asks for.
            killed: attempts whose end was ordered.
        """
        tokens = state.tokens
        for name in {**dict.fromkeys(tokens.names), **self._totals}:
            known = self._totals.setdefault(name, [(0.0, 0)])
            if known[-1][1] != tokens.total(name):
                known.append((state.at, tokens.total(name)))
        recovering = not state.connected or state.reconcile_until is not None
        used: Counter[str] = Counter()
        since: dict[str, float] = {}
        for number, jid, request in running:
            names = [name for name in request if name in self._totals]
            if not names or number in self._forgiven:
                continue
            worker = state.workers.get(jid)
            task = worker.held.get(number) if worker is not None else None
            if task is not None and task.attempt is not None:
                self._sent_at.setdefault(number, task.attempt.sent_at)
            elif recovering and number < state.first_number and not (worker and worker.incarnation):
                continue  # An earlier start of the manager sent it, and its worker will say so.
            elif worker is None or not (worker.online and worker.synced) or number in killed:
                self._forgiven.add(number)
                continue
            for name in names:
                used[name] += request[name]
                since[name] = min(since.get(name, inf), self._sent_at.get(number, 0.0))
        return [
            f"{n} thousandths of {name} are used at once, and there were at most {most}"
            for name, n in used.items()
            if n > (most := self._most(name, since[name]))
        ]

    def _most(self, name: str, since: float) -> int:
        """The most that there were at any time since that moment, at which there may be several."""
        totals = self._totals[name]
        ended = [total for (_, total), (until, _) in pairwise(totals) if until >= since]
        return max([*ended, totals[-1][1]])
