"""1,000 tasks cost a pool no more than what is recorded (`step_counts`)."""

from __future__ import annotations

import step_counts
from step_counts import PYTHON, grown

HOW = "if that is meant, `python tests/simulation/step_counts.py record`, and say why"


def test_a_thousand_tasks_cost_what_is_recorded() -> None:
    step_counts.warm()
    now, recorded = step_counts.counts(), step_counts.recorded()
    before = recorded.get(PYTHON)
    if before is None:  # lines are counted otherwise there; the rest is the same everywhere
        before = next(iter(recorded.values()))
        now = {what: count for what, count in now.items() if not what.startswith("lines")}
    assert now.keys() <= before.keys()
    assert grown(before, now) == {}, HOW


def test_all_that_costs_something_is_counted() -> None:
    rooms = {"core", "manager", "worker", "other rooms"}
    sent = {"stanzas", "bytes of payloads", "commits", "records"}
    for counted in (found := step_counts.recorded()).values():
        assert counted.keys() == {f"lines of {room}" for room in rooms} | sent
    assert "python 3.11" in found


def test_what_grows_by_more_than_three_percent_is_told() -> None:
    before = {"commits": 100, "stanzas": 1000}
    assert grown(before, {"commits": 103, "stanzas": 900}) == {}
    assert grown(before, {"commits": 104, "stanzas": 1030}) == {"commits": "100 -> 104"}
    assert grown(before, {"letters": 1}) == {"letters": "0 -> 1"}
