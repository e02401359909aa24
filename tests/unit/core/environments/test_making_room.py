"""Which environment is drained for a class that starves, and when none is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources
from kestrelctl.core.environments.making_room import PATIENCE_SECONDS, MadeRoom, RoomMaking
from kestrelctl.core.environments.on_demand import EnvironmentNeed, HostRoom
from kestrelctl.core.environments.start_failures import StartFailures
from kestrelctl.core.environments.started import Environment
from kestrelctl.core.environments.started import EnvironmentPhase as Phase


def of(name: str, cpus: float = 1.0, minimum: int = 0) -> EnvironmentClass:
    return EnvironmentClass(
        name=name, kind="venv", tags=(name,), resources=EnvironmentResources(cpus=cpus),
        minimum=minimum, maximum=10,
    )  # fmt: skip


def one(number: int, name: str, host: str = "h", **more: Any) -> Environment:
    given: dict[str, Any] = {"phase": Phase.READY, "since": 0.0, "has_worked": True} | more
    return Environment(number=number, of=name, host=host, **given)


class Pool:
    """Two hosts that are full: a has three environments, b has two, c has none."""

    def __init__(self, *more: EnvironmentClass, **replaced: EnvironmentClass) -> None:
        self.rooms = RoomMaking()
        self.failures = StartFailures()
        self.classes = {name: of(name) for name in "abc"} | replaced
        self.there = [one(1, "a"), one(2, "a"), one(3, "a"), one(4, "b"), one(5, "b")]
        self.needs = [EnvironmentNeed(9, {"a": 1}), EnvironmentNeed(1, {"c": 1})]
        self.makes = frozenset("abc")

    def look(self, now: float) -> list[MadeRoom]:
        hosts = [HostRoom(name, {"cpus": 0}, {"cpus": 4}, self.makes) for name in ("h", "i")]
        found = self.rooms.look(self.classes, self.needs, hosts, self.there, (), self.failures, now)
        for made in found:
            for each in self.there:
                each.draining = each.draining or each.number == made.number
        return found

    def drained(self, first: float, last: float) -> list[tuple[float, int, str]]:
        """What is drained when it is looked every second: when, which, and for whom."""
        return [
            (now, made.number, made.starving)
            for now in map(float, range(int(first), int(last)))
            for made in self.look(now)
        ]


def test_one_of_the_class_that_has_most_is_drained_for_a_class_that_has_starved() -> None:
    pool = Pool()
    assert pool.drained(0, 100) == [(PATIENCE_SECONDS, 3, "c")]
    assert pool.rooms.starving(PATIENCE_SECONDS) == ["c"]


def test_it_is_said_for_whom_and_why() -> None:
    pool = Pool()
    pool.look(0.0)
    [made] = pool.look(12.0)
    assert made.why == "work for class c has waited for 12 s, and no host has room for it"


def test_nothing_is_drained_for_a_class_that_starves_for_a_moment() -> None:
    pool = Pool()
    assert not pool.drained(0, 9)
    waits, pool.needs = pool.needs, []
    pool.look(9.0)
    pool.needs = waits
    assert not pool.drained(10, 20)


def test_nothing_is_drained_for_a_class_that_has_an_environment() -> None:
    pool = Pool()
    pool.there.append(one(6, "c"))
    assert not pool.drained(0, 100)


def test_the_only_environment_of_a_class_is_not_drained_while_it_works() -> None:
    pool = Pool()
    pool.there = [one(1, "a"), one(4, "b")]
    assert not pool.drained(0, 100)
    pool.there[1].idle_since = 100.0
    assert pool.drained(100, 110) == [(100.0, 4, "c")]


def test_one_that_idles_is_drained_rather_than_one_that_works() -> None:
    pool = Pool()
    pool.there[3].idle_since = 0.0
    assert pool.drained(0, 100) == [(PATIENCE_SECONDS, 4, "c")]


def test_no_class_is_left_less_than_its_minimum() -> None:
    pool = Pool(a=of("a", minimum=3), b=of("b", minimum=2))
    pool.there[0].idle_since = 0.0
    assert not pool.drained(0, 100)


def test_what_somebody_asked_for_and_nodes_of_something_else_stay() -> None:
    pool = Pool()
    pool.there = [one(1, "a", asked_for=True), one(2, "a", asked_for=True)]
    pool.there += [one(3, "b", node=True), one(4, "b", node=True)]
    assert not pool.drained(0, 100)


def test_nothing_is_drained_where_the_class_would_still_have_no_room() -> None:
    assert not Pool(c=of("c", cpus=2.0)).drained(0, 100)
    elsewhere = Pool()
    elsewhere.makes = frozenset("ab")
    assert not elsewhere.drained(0, 100)


def test_nothing_is_drained_where_a_start_of_the_class_has_failed_of_late() -> None:
    pool = Pool()
    pool.failures.failed("c", "h", 9.0, "no such image")
    assert not pool.drained(0, 11)
    pool.there[0] = one(1, "a", "i")
    assert pool.drained(11, 12) == [(11.0, 1, "c")]


def test_each_class_that_starves_is_made_room_for_by_an_environment_of_its_own() -> None:
    pool = Pool(d=of("d"))
    pool.makes = frozenset("abcd")
    pool.needs.append(EnvironmentNeed(1, {"d": 1}))
    assert [made[1:] for made in pool.drained(0, 100)] == [(3, "c"), (5, "d")]


def test_one_is_drained_for_work_that_either_of_two_classes_could_do() -> None:
    pool = Pool(d=of("d"))
    pool.makes = frozenset("abcd")
    pool.needs[1] = EnvironmentNeed(1, {"c": 1, "d": 1})
    assert pool.drained(0, 100) == [(PATIENCE_SECONDS, 3, "c")]


def test_nothing_more_is_drained_while_another_environment_is_about_to_go() -> None:
    pool = Pool()
    pool.there[4].phase = Phase.STOPPING
    assert not pool.drained(0, 100)


def test_where_it_was_of_no_use_the_next_is_drained_later_each_time() -> None:
    """Somebody else took the room, or the start failed: a pool does not swing."""
    pool = Pool()
    pool.there = [one(number, "a") for number in range(1, 9)]
    at: list[float] = []
    for now in map(float, range(400)):
        at += [now for _ in pool.look(now)]
        pool.there = [each for each in pool.there if not each.draining]
    pauses = [round(b - a) for a, b in pairwise(at)]
    assert at[0] == PATIENCE_SECONDS
    assert pauses == [21, 41, 81, 161]


def test_when_it_was_of_use_the_next_time_is_as_soon_as_the_first() -> None:
    pool = Pool()
    pool.drained(0, 11)
    pool.there = [*pool.there[:2], *pool.there[3:], one(6, "c")]
    pool.drained(11, 20)
    pool.rooms.has_worked("c")
    pool.there = [each for each in pool.there if each.of != "c"] + [one(7, "a")]
    assert pool.drained(20, 40) == [(30.0, 7, "c")]


def test_two_classes_do_not_take_one_place_from_each_other_in_turn() -> None:
    """Two hosts, and three classes that always have work: one of them waits."""
    pool = Pool()
    pool.there = [one(1, "a"), one(2, "a")]
    pool.needs = [EnvironmentNeed(9, {"a": 1}), EnvironmentNeed(9, {"b": 1})]
    assert pool.drained(0, 30) == [(PATIENCE_SECONDS, 2, "b")]
    pool.there = [one(1, "a"), one(3, "b")]
    pool.rooms.has_worked("b")
    pool.needs.append(EnvironmentNeed(9, {"c": 1}))
    assert not pool.drained(30, 500)


def test_where_somebody_resumes_what_was_drained_another_is_drained_later() -> None:
    pool = Pool()
    pool.drained(0, 15)
    pool.there[2].draining = False
    assert pool.drained(15, 100) == [(35.0, 3, "c")]
