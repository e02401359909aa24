"""Whether more is used at once than is allowed, by what machines really run: tokens of the pool,
and quotas of users and groups, as their owners count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import NamedTuple

from kestrelctl.core.model.records import GroupRecord, UserRecord
from kestrelctl.core.model.worker.assets import MILLI, Amounts
from kestrelctl.core.state import State

#: The asset that is bounded, and its owner: empty for the tokens of the pool.
What = tuple[str, str]


class InUse(NamedTuple):
    """An attempt that really runs."""

    number: int
    worker: str
    owner: str
    request: Amounts  #: what its task asks for, which is no more than what is charged


class BoundAudit:
    """Counts what runs under each bound, after each event.

    An attempt that the pool gave up as lost may still run where nobody can reach it, and comes on
    top: only that is forgiven. Such an attempt is known by its worker, which is away or has yet to
    speak, or by the order to kill it. Attempts of an owner from before he came into a group are not
    counted for that group.
    """

    def __init__(self) -> None:
        #: bound -> (moment from which on it holds, thousandths), in the order of time
        self._bounds: dict[What, list[tuple[float, float]]] = {}
        self._sent_at: dict[int, float] = {}
        self._forgiven: set[int] = set()
        #: owner -> (his group, the first attempt that counts for it)
        self._groups: dict[str, tuple[str, int]] = {}

    def sent(self, first_number: int, n: int, now: float) -> None:
        """Notes that `n` attempts are handed out, with numbers from `first_number` on."""
        self._sent_at.update((first_number + k, now) for k in range(n))

    def look(self, state: State, running: Iterable[InUse], killed: Container[int]) -> list[str]:
        """Tells what is wrong now, in words; nothing if all is well.

        Args:
            running: attempts that really run.
            killed: attempts whose end was ordered.
        """
        self._learn(state)
        recovering = not state.connected or state.reconcile_until is not None
        used: Counter[What] = Counter()
        since: dict[What, float] = {}
        for one in running:
            number = one.number
            if number in self._forgiven:
                continue
            worker = state.workers.get(one.worker)
            if worker is None or number not in worker.held:
                heard = worker is not None and worker.incarnation
                if recovering and number < state.first_number and not heard:
                    continue  # An earlier start of the manager sent it, and its worker will say so.
                if worker is None or not (worker.online and worker.synced) or number in killed:
                    self._forgiven.add(number)
                    continue
            sent_at = self._sent_at.get(number, 0.0)
            for what, n in self._counted(one):
                used[what] += n
                since[what] = min(since.get(what, inf), sent_at)
        return [
            f"{n} thousandths of {' of '.join(filter(None, what))} are used at once, "
            f"and there were to be {most} at most"
            for what, n in used.items()
            if n > (most := self._most(what, since[what]))
        ]

    def _learn(self, state: State) -> None:
        """Notes the bounds that hold from now on."""
        tokens, sharers = state.tokens, state.sharers
        now: dict[What, float] = {(name, ""): tokens.total(name) for name in tokens.names}
        for sharer in sharers.users():
            now.update(_bounds(sharer.record))
            name, group = sharer.name, sharer.record.group
            if self._groups.get(name, ("", 0))[0] != group:
                self._groups[name] = (group, state.next_number)
        for record in sharers.groups():
            now.update(_bounds(record))
        for what in {**now, **self._bounds}:
            before = inf if what[1] else 0.0
            known = self._bounds.setdefault(what, [(0.0, before)])
            if known[-1][1] != now.get(what, before):
                known.append((state.at, now.get(what, before)))

    def _counted(self, one: InUse) -> Iterator[tuple[What, int]]:
        """Yields how much an attempt counts under each bound that there may be."""
        group, first = self._groups.get(one.owner, ("", 0))
        owners = [one.owner, group] if group and first <= one.number else [one.owner]
        for asset, n in one.request.items():
            yield (asset, ""), n
            for owner in owners:
                yield (asset, owner), n
        for owner in owners:
            yield ("attempts", owner), MILLI

    def _most(self, what: What, since: float) -> float:
        """Returns the highest value of a bound since a moment, at which it may have had several."""
        known = self._bounds.get(what)
        if known is None:
            return inf
        ended = [bound for (_, bound), (until, _) in pairwise(known) if until >= since]
        return max([*ended, known[-1][1]])


def _bounds(record: UserRecord | GroupRecord) -> Iterator[tuple[What, float]]:
    """Yields the bounds of a user or a group; they differ by name: those of users are accounts."""
    if record.max_running is not None:
        yield ("attempts", record.name), record.max_running * MILLI
    for asset, n in record.limits.items():
        yield (asset, record.name), n
