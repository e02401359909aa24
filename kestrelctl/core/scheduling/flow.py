"""Maximum flow through a graph of demands and suppliers, level by level, and its minimum cut.

Dinic's algorithm (E. A. Dinic, 1970) on whole numbers. Demands are shapes, suppliers what a class
of workers has of an asset (`shortage` makes the graph); neither is known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

D = TypeVar("D", bound=Hashable)
S = TypeVar("S", bound=Hashable)

#: The node that everything flows to.
_SINK = 0


class Flow(Generic[D, S]):
    """A flow from demands to suppliers. It grows with each call of `add`, and is a maximum then.

    Args:
        capacities: what each supplier can take; not below zero.
        arcs: (demand, supplier) -> how much of that demand the supplier can take; not below zero.
    """

    def __init__(self, capacities: Mapping[S, int], arcs: Mapping[tuple[D, S], int]) -> None:
        # Arc 2k goes forward, arc 2k + 1 back: what is left of one is what the other may take back.
        self._ends: list[int] = []
        self._left: list[int] = []
        self._arcs: list[list[int]] = [[]]
        self._dead: list[bool] = [False]
        self._suppliers = {supplier: self._node() for supplier in capacities}
        self._demands = {demand: self._node() for demand in dict.fromkeys(d for d, _ in arcs)}
        for supplier, node in self._suppliers.items():
            self._connect(node, _SINK, capacities[supplier])
        self._between = {
            (demand, supplier): self._connect(
                self._demands[demand], self._suppliers[supplier], capacity
            )
            for (demand, supplier), capacity in arcs.items()
        }

    def _node(self) -> int:
        self._arcs.append([])
        self._dead.append(False)
        return len(self._arcs) - 1

    def _connect(self, start: int, end: int, capacity: int) -> int:
        arc = len(self._ends)
        self._ends += (end, start)
        self._left += (capacity, 0)
        self._arcs[start].append(arc)
        self._arcs[end].append(arc + 1)
        return arc

    def add(self, wanted: Mapping[D, int]) -> dict[D, int]:
        """Lets as much more flow as can. What flowed before keeps flowing, perhaps elsewhere.

        Args:
            wanted: how much more of each demand; demands of one call are equal among each other.

        Returns:
            What is left of each demand that does not flow whole: the *unmet* ones.
        """
        left = {demand: amount for demand, amount in wanted.items() if amount > 0}
        open_ = {d: self._demands[d] for d in left if d in self._demands}
        while sources := {d: node for d, node in open_.items() if left[d] and not self._dead[node]}:
            distances = self._distances(sources.values())
            if distances is None:
                break
            nexts = [0] * len(self._arcs)
            for demand, node in sources.items():
                while left[demand] and (sent := self._send(node, left[demand], distances, nexts)):
                    left[demand] -= sent
        return {demand: amount for demand, amount in left.items() if amount}

    def _distances(self, sources: Iterable[int]) -> list[int] | None:
        """Steps from the sources to each node along what is left, as far as the sink; else None.

        What was reached then is dead for good: no later path can go through it, so that all
        searches in vain together look at each arc once.
        """
        distances = [-1] * len(self._arcs)
        reached = deque(sources)
        for node in reached:
            distances[node] = 0
        seen = list(reached)
        while reached:
            node = reached.popleft()
            if 0 <= distances[_SINK] <= distances[node]:
                break
            for arc in self._arcs[node]:
                end = self._ends[arc]
                if self._left[arc] and distances[end] < 0 and not self._dead[end]:
                    distances[end] = distances[node] + 1
                    reached.append(end)
                    seen.append(end)
        if distances[_SINK] >= 0:
            return distances
        for node in seen:
            self._dead[node] = True
        return None

    def _send(self, source: int, most: int, distances: list[int], nexts: list[int]) -> int:
        """Sends something along one shortest path; returns how much, 0 if there is none."""
        path: list[int] = []
        node = source
        while node != _SINK:
            arcs, step = self._arcs[node], distances[node] + 1
            place = nexts[node]
            while place < len(arcs):
                arc = arcs[place]
                if self._left[arc] and distances[self._ends[arc]] == step:
                    break
                place += 1
            nexts[node] = place
            if place < len(arcs):
                path.append(arc)
                node = self._ends[arc]
            elif path:
                node = self._ends[path.pop() ^ 1]
                nexts[node] += 1
            else:
                return 0
        sent = min(most, *(self._left[arc] for arc in path))
        for arc in path:
            self._left[arc] -= sent
            self._left[arc ^ 1] += sent
        return sent

    def flows(self) -> dict[tuple[D, S], int]:
        """Returns how much of each demand flows to each supplier; zeros are left out."""
        flowing = {pair: self._left[arc + 1] for pair, arc in self._between.items()}
        return {pair: amount for pair, amount in flowing.items() if amount}

    def cut(self) -> tuple[set[D], set[S]]:
        """The source's side of the minimum cut: demands of which no more could flow, and suppliers
        that could take no more of them, whatever was moved. What leaves it is full.
        """
        demands = {demand for demand, node in self._demands.items() if self._dead[node]}
        return demands, {s for s, node in self._suppliers.items() if self._dead[node]}

    def saturated(self) -> list[S]:
        """Suppliers at which the cut is: more of these would meet more demand.

        Each of them is full of what could flow nowhere else, or takes as much as it can of a demand
        that could not. A supplier that is full by chance is not among them.
        """
        demands, suppliers = self.cut()
        for (demand, supplier), arc in self._between.items():
            if demand in demands and self._left[arc + 1] and not self._left[arc]:
                suppliers.add(supplier)
        return [supplier for supplier in self._suppliers if supplier in suppliers]
