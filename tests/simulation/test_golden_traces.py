"""Two hundred worlds say and decide what is recorded of them (`golden_traces`)."""

from __future__ import annotations

import golden_traces
import pytest
from golden_traces import WORLDS, Trace, difference, recorded, run, trace_of
from hashseeds import printed_with_other_hashes

RECORDED = recorded()
HOW = "if that is meant, `python tests/simulation/golden_traces.py record`; else ask `compare`"


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_decides_and_says_what_is_recorded(world: str) -> None:
    now, before = trace_of(world), RECORDED[world]
    assert now.decisions == before.decisions, f"{world} decides otherwise: {HOW} {world} HEAD"
    assert now.log == before.log, f"{world} decides the same and says otherwise: {HOW} {world} HEAD"


def test_all_worlds_are_recorded_and_no_others() -> None:
    assert list(RECORDED) == WORLDS
    assert len(WORLDS) == 200


@pytest.mark.parametrize("world", ["small-17", "flock-7"])
def test_the_order_of_hashes_changes_no_decision(world: str) -> None:
    program = (
        "import sys; sys.path[:0] = ['tests/simulation', 'tests/check'];"
        f"from golden_traces import trace_of; print(*trace_of({world!r}))"
    )
    assert printed_with_other_hashes(program) == {" ".join(RECORDED[world])}


@pytest.fixture(scope="module")
def told() -> str:
    """What a few of the worlds say and decide."""
    some = ("small-3", "small-24", "small-27", "small-30", "checkpointing-3", "flock-0")
    reports = [run(world) for world in some]
    return "\n".join(line for each in reports for line in (*each.decisions, *each.story))


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("tasks that failed again", ": failed, 2 failures"),
        ("losses", " 1 losses"),
        ("retries by users", " Retry "),
        ("tokens", " PutToken "),
        ("stages", " Staged "),
        ("jobs after jobs", '"after":[['),
        ("tasks after tasks", '"after_each":'),
        ("spans", '"span":'),
        ("holds", " PutOnHold "),
        ("crashes of managers", "manager    is killed"),
        ("checkpoints", ": goes on"),
        ("neighbours", " says as a worker "),
    ],
)
def test_the_worlds_know(what: str, shown: str, told: str) -> None:
    assert shown in told, what


def test_what_has_changed_is_told_in_two_kinds() -> None:
    before = {"small-1": Trace("a", "b"), "small-2": Trace("c", "d"), "small-3": Trace("e", "f")}
    now = {**before, "small-2": Trace("C", "d"), "small-3": Trace("E", "F")}
    assert difference(before, now).splitlines() == [
        "3 worlds",
        "1 decide otherwise: small-3",
        "1 decide the same and have another log: small-2",
    ]
    assert difference(before, before) == "3 worlds, all as before"


def test_the_first_difference_is_shown_with_what_was_before_it() -> None:
    old, new = ["a", "b", "c"], ["a", "b", "d"]
    assert golden_traces.first_difference(old, new).splitlines()[-4:] == [" a", " b", "-c", "+d"]
    assert golden_traces.first_difference(old, old) == ""
