"""The maximum flow of a graph, level by level, and its minimum cut; held against SciPy's."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow
from stepcount import steps

from kestrelctl.core.scheduling.flow import Flow

Arcs = dict[tuple[str, int], int]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[dict[str, int]], dict[int, int], Arcs]:
    """Levels of demands, capacities of suppliers, arcs between them."""
    demands = [f"d{n}" for n in range(draw(st.integers(1, 6)))]
    capacities = dict(enumerate(draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))))
    amount = st.one_of(st.none(), st.integers(0, 9))
    drawn = {(d, s): draw(amount) for d in demands for s in capacities}
    arcs = {pair: capacity for pair, capacity in drawn.items() if capacity is not None}
    levels = [
        {d: draw(st.integers(0, 12)) for d in draw(st.sets(st.sampled_from(demands)))}
        for _ in range(draw(st.integers(1, 3)))
    ]
    return levels, capacities, arcs


def scipys(wanted: dict[str, int], capacities: dict[int, int], arcs: Arcs) -> int:
    """The maximum flow, as SciPy finds it."""
    demands = {d: 1 + n for n, d in enumerate(wanted)}
    suppliers = {s: 1 + len(wanted) + n for n, s in enumerate(capacities)}
    size = 2 + len(demands) + len(suppliers)
    matrix = np.zeros((size, size), dtype=np.int32)
    for demand, node in demands.items():
        matrix[0, node] = wanted[demand]
    for supplier, node in suppliers.items():
        matrix[node, size - 1] = capacities[supplier]
    for (demand, supplier), capacity in arcs.items():
        if demand in demands:
            matrix[demands[demand], suppliers[supplier]] = capacity
    return int(maximum_flow(csr_matrix(matrix), 0, size - 1).flow_value)


@given(graphs())
def test_each_level_flows_as_much_as_scipy_says(
    graph: tuple[list[dict[str, int]], dict[int, int], Arcs],
) -> None:
    levels, capacities, arcs = graph
    flow: Flow[str, int] = Flow(capacities, arcs)
    so_far: Counter[str] = Counter()
    for level in levels:
        left = flow.add(level)
        went = Counter(level)
        went.subtract(left)
        assert scipys(dict(so_far + Counter(level)), capacities, arcs) == (so_far + went).total()
        so_far += went


@given(graphs())
def test_what_flows_is_what_was_let_in_and_fits(
    graph: tuple[list[dict[str, int]], dict[int, int], Arcs],
) -> None:
    levels, capacities, arcs = graph
    flow: Flow[str, int] = Flow(capacities, arcs)
    let_in: Counter[str] = Counter()
    for level in levels:
        left = flow.add(level)
        assert all(0 < left[demand] <= level[demand] for demand in left)
        let_in.update(level)
        let_in.subtract(left)
        out, into = Counter(), Counter()
        for (demand, supplier), amount in flow.flows().items():
            assert 0 < amount <= arcs[demand, supplier]
            out[demand] += amount
            into[supplier] += amount
        assert +out == +let_in
        assert all(amount <= capacities[supplier] for supplier, amount in into.items())


@given(graphs())
def test_the_cut_is_as_wide_as_the_flow(
    graph: tuple[list[dict[str, int]], dict[int, int], Arcs],
) -> None:
    levels, capacities, arcs = graph
    flow: Flow[str, int] = Flow(capacities, arcs)
    wanted: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for level in levels:
        left.update(flow.add(level))
        wanted.update(level)
    inside, full = flow.cut()
    nowhere = {demand for demand in wanted if not any(demand == d for d, _ in arcs)}
    assert set(+left) <= inside | nowhere
    assert full <= set(flow.saturated())
    crossing = sum(capacities[supplier] for supplier in full)
    crossing += sum(n for (d, s), n in arcs.items() if d in inside and s not in full)
    crossing += sum(n for demand, n in wanted.items() if demand not in inside | nowhere)
    assert crossing == sum(flow.flows().values())


def test_large_random_graphs_flow_as_much_as_scipy_says() -> None:
    r = random.Random(11)
    for _ in range(60):
        capacities = {s: r.randrange(200) for s in range(r.randint(1, 40))}
        wanted = {f"d{n}": r.randrange(300) for n in range(r.randint(1, 40))}
        arcs = {(d, s): r.randrange(150) for d in wanted for s in capacities if r.random() < 0.3}
        left = Flow(capacities, arcs).add(wanted)
        assert sum(wanted.values()) - sum(left.values()) == scipys(wanted, capacities, arcs)


def test_a_higher_level_keeps_what_it_has_but_moves_for_a_lower_one() -> None:
    flow: Flow[str, str] = Flow(
        {"any": 5, "gpu": 5}, {("plain", "gpu"): 9, ("plain", "any"): 9, ("gpus", "gpu"): 9}
    )
    assert flow.add({"plain": 5}) == {}
    assert flow.add({"gpus": 7}) == {"gpus": 2}
    assert flow.flows() == {("plain", "any"): 5, ("gpus", "gpu"): 5}


def test_who_is_full_by_chance_is_not_saturated() -> None:
    flow: Flow[str, str] = Flow(
        {"any": 5, "gpu": 5, "idle": 1},
        {("plain", "any"): 9, ("gpus", "gpu"): 9},
    )
    assert flow.add({"plain": 5, "gpus": 7}) == {"gpus": 2}
    assert flow.saturated() == ["gpu"]


def test_who_is_full_of_what_could_make_room_elsewhere_is_saturated_with_that() -> None:
    arcs = {("plain", "any"): 9, ("plain", "gpu"): 9, ("gpus", "gpu"): 9}
    flow: Flow[str, str] = Flow({"any": 3, "gpu": 5}, arcs)
    assert flow.add({"plain": 6, "gpus": 4}) != {}
    assert flow.saturated() == ["any", "gpu"]


def test_a_demand_that_nobody_can_take_is_left_whole() -> None:
    flow: Flow[str, str] = Flow({"any": 5}, {("plain", "any"): 5})
    assert flow.add({"odd": 3, "plain": 5}) == {"odd": 3}
    assert flow.saturated() == []


def test_who_takes_all_that_it_can_of_a_demand_is_saturated() -> None:
    flow: Flow[str, str] = Flow({"any": 9, "none": 9}, {("big", "any"): 5, ("big", "none"): 0})
    assert flow.add({"big": 7}) == {"big": 2}
    assert flow.saturated() == ["any"]


@pytest.mark.parametrize("suppliers", [25, 1000])
def test_forty_demands_cost_a_few_steps_for_each_arc(suppliers: int) -> None:
    r = random.Random(3)
    capacities = {s: r.randrange(1, 20) for s in range(suppliers)}
    demands = [f"d{n}" for n in range(40)]
    arcs = {(d, s): 20 for d in demands for s in capacities if r.random() < 0.5}
    flow = Flow(capacities, arcs)

    def level_by_level() -> None:
        for first in range(0, 40, 4):
            flow.add(dict.fromkeys(demands[first : first + 4], 10 * suppliers // 32))

    assert steps(level_by_level) < 150 * len(arcs)
