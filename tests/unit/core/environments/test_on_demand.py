"""Which environments are started and stopped, and why not more."""

from __future__ import annotations

from typing import Any

from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources
from kestrelctl.core.environments.on_demand import (
    Decision,
    EnvironmentNeed,
    HostRoom,
    StartDecision,
    StartObstacle,
    decide,
)
from kestrelctl.core.environments.start_failures import StartFailures
from kestrelctl.core.environments.started import Environment
from kestrelctl.core.environments.started import EnvironmentPhase as Phase

GPU = "gpu"
NOW = 1000.0


def of(name: str = GPU, cpus: int = 1000, maximum: int = 10, **more: Any) -> EnvironmentClass:
    given: dict[str, Any] = {"start_seconds": 60.0, "idle_seconds": 300.0} | more
    return EnvironmentClass(
        name=name, kind="venv", tags=(name,), resources=EnvironmentResources(cpus=cpus / 1000),
        maximum=maximum, **given,
    )  # fmt: skip


def host(name: str = "h", cpus: int = 4000, *classes: str) -> HostRoom:
    return HostRoom(name, {"cpus": cpus}, {"cpus": cpus}, frozenset(classes or (GPU,)))


def one(
    number: int = 1,
    phase: Phase = Phase.READY,
    since: float = 0.0,
    **more: Any,
) -> Environment:
    return Environment(
        **{"number": number, "of": GPU, "host": "h", "phase": phase, "since": since} | more
    )


def need(tasks: int, **places: int) -> EnvironmentNeed:
    return EnvironmentNeed(tasks, places or {GPU: 1})


def what(
    classes: list[EnvironmentClass],
    needs: list[EnvironmentNeed],
    hosts: list[HostRoom],
    *there: Environment,
    failures: StartFailures | None = None,
    now: float = NOW,
) -> Decision:
    return decide(classes, needs, hosts, there, failures or StartFailures(), now)


def test_nothing_is_started_that_nobody_needs() -> None:
    found = what([of()], [], [host()])
    assert found.start == []
    assert found.obstacles == {GPU: StartObstacle.NOT_NEEDED}


def test_as_many_are_started_as_tasks_need() -> None:
    assert what([of()], [need(2)], [host()]).start == [StartDecision(GPU, "h")] * 2


def test_an_environment_serves_as_many_tasks_as_have_room_in_it() -> None:
    assert len(what([of()], [need(5, gpu=2)], [host()]).start) == 3


def test_what_one_leaves_free_serves_tasks_of_another_shape() -> None:
    assert len(what([of()], [need(1, gpu=2), need(2, gpu=4)], [host()]).start) == 1


def test_no_more_are_started_than_the_class_allows() -> None:
    found = what([of(maximum=3)], [need(9)], [host()])
    assert len(found.start) == 3
    assert found.obstacles[GPU] is StartObstacle.MAXIMUM


def test_one_that_stops_still_counts() -> None:
    """What it holds is not free yet."""
    assert not what([of(maximum=1)], [need(1)], [host()], one(phase=Phase.STOPPING)).start


def test_no_host_is_given_more_than_it_has_free() -> None:
    found = what([of(cpus=1500)], [need(9)], [host(cpus=4000)])
    assert len(found.start) == 2
    assert found.obstacles[GPU] is StartObstacle.NO_ROOM


def test_that_no_host_may_start_it_is_told_from_that_none_has_room() -> None:
    found = what([of()], [need(1)], [host("h", 4000, "another")])
    assert found.obstacles[GPU] is StartObstacle.NO_HOST


def test_hosts_are_filled_evenly() -> None:
    found = what([of()], [need(4)], [host("a"), host("b")])
    assert sorted(found.start) == [StartDecision(GPU, "a")] * 2 + [StartDecision(GPU, "b")] * 2


def test_the_host_of_which_most_is_left_is_taken() -> None:
    assert what([of()], [need(1)], [host("a", 1000), host("b", 4000)]).start == [
        StartDecision(GPU, "b")
    ]


def test_of_classes_that_could_do_it_the_cheapest_for_a_task_is_started() -> None:
    classes = [of("large", cpus=4000), of("small", cpus=1000)]
    hosts = [host("h", 8000, "large", "small")]
    assert what(classes, [need(1, large=8, small=1)], hosts).start == [StartDecision("small", "h")]
    assert what(classes, [need(8, large=8, small=1)], hosts).start == [StartDecision("large", "h")]


def test_what_is_starting_is_not_started_again() -> None:
    starting = one(phase=Phase.STARTING, since=NOW - 1)
    assert not what([of()], [need(1)], [host()], starting).start
    assert len(what([of()], [need(2)], [host()], starting).start) == 1


def test_one_that_has_just_joined_will_take_work() -> None:
    assert not what([of()], [need(1)], [host()], one(since=NOW - 0.1)).start
    assert what([of()], [need(1)], [host()], one(since=NOW - 5)).start


def test_the_minimum_is_there_without_any_work() -> None:
    assert len(what([of(minimum=2)], [], [host()], one()).start) == 1


def test_one_that_has_nothing_to_do_is_stopped_after_a_while() -> None:
    idle = one(idle_since=NOW - 300)
    [stop] = what([of()], [], [host()], idle).stop
    assert (stop.number, stop.failed) == (1, False)
    assert not what([of()], [], [host()], one(idle_since=NOW - 299)).stop


def test_the_minimum_stays_though_it_idles() -> None:
    found = what([of(minimum=1)], [], [host()], one(1, idle_since=0.0), one(2, idle_since=0.0))
    assert len(found.stop) == 1


def test_one_that_somebody_asked_for_stays() -> None:
    assert not what([of()], [], [host()], one(idle_since=0.0, asked_for=True)).stop


def test_one_that_does_not_come_up_in_time_is_stopped_as_a_failure() -> None:
    [stop] = what([of()], [need(1)], [host()], one(phase=Phase.STARTING, since=NOW - 60)).stop
    assert stop.failed
    assert stop.why == "its worker did not join within 60 s"


def test_one_that_idles_though_work_seemed_to_need_it_counts_as_failed() -> None:
    """Else it would be stopped and started for ever."""
    [stop] = what([of()], [need(1)], [host()], one(idle_since=NOW - 300)).stop
    assert stop.failed


def test_one_of_a_class_that_is_gone_is_stopped_as_soon_as_it_idles() -> None:
    assert not what([], [], [host()], one()).stop
    [stop] = what([], [], [host()], one(idle_since=NOW - 1)).stop
    assert stop.why == "there is no such class any more"


def test_after_a_failure_the_next_start_waits_longer_each_time() -> None:
    failures = StartFailures()
    pauses = []
    for times in range(1, 9):
        failures.failed(GPU, "h", NOW, "no image")
        latest = failures.latest(GPU, "h")
        assert latest is not None
        assert latest.times == times
        pauses.append(latest.next_try_at - NOW)
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600]
    found = what([of()], [need(1)], [host()], failures=failures)
    assert found.start == []
    assert found.obstacles[GPU] is StartObstacle.FAILED
    assert what([of()], [need(1)], [host()], failures=failures, now=NOW + 600).start


def test_another_host_is_tried_after_a_failure() -> None:
    failures = StartFailures()
    failures.failed(GPU, "a", NOW, "no image")
    hosts = [host("a", 8000), host("b", 1000)]
    assert what([of()], [need(1)], hosts, failures=failures).start == [StartDecision(GPU, "b")]


def test_the_next_try_is_the_earliest_and_there_is_none_while_one_place_has_not_failed() -> None:
    failures = StartFailures()
    failures.failed(GPU, "h", 100.0, "no")
    failures.failed(GPU, "i", 104.0, "no")
    both = [(GPU, "h"), (GPU, "i")]
    assert failures.pause_seconds(both, 105.0) == 5.0
    assert failures.pause_seconds(both, 111.0) == 0.0, "it is tried, or soon will be"
    assert failures.pause_seconds([*both, (GPU, "j")], 105.0) is None
    assert failures.pause_seconds([], 105.0) is None


def test_a_success_and_the_end_of_a_host_are_new_beginnings() -> None:
    failures = StartFailures()
    failures.failed(GPU, "h", NOW, "no image")
    failures.succeeded(GPU, "h")
    assert failures.latest(GPU, "h") is None
    failures.failed(GPU, "h", NOW, "no image")
    failures.forget_host("h")
    assert failures.may_start(GPU, "h", NOW)


def test_a_node_goes_with_its_class_and_is_kept_as_long_as_its_class_is() -> None:
    node = one(node=True, idle_since=None)
    assert [each.number for each in what([], [], [], node).stop] == [node.number]
    assert what([of()], [], [], node).stop == []


def test_one_of_a_class_that_is_gone_does_not_start_for_ever() -> None:
    late = one(phase=Phase.STARTING, since=NOW - EnvironmentClass.start_seconds)
    [stop] = what([], [], [host()], late).stop
    assert (stop.number, stop.failed) == (1, True)


def test_one_that_is_drained_goes_as_soon_as_it_has_no_work() -> None:
    """And that is no failure, though work needs its class."""
    drained = one(idle_since=NOW, draining=True)
    [stop] = what([of(minimum=1)], [need(9)], [host()], drained).stop
    assert (stop.number, stop.failed) == (1, False)
    assert not what([of()], [], [host()], one(draining=True)).stop


def test_what_gets_free_goes_first_to_the_class_that_has_starved() -> None:
    classes, needs = [of("large"), of("small")], [need(9, large=1), need(1, small=1)]
    hosts = [host("h", 1000, "large", "small")]
    assert what(classes, needs, hosts).start == [StartDecision("large", "h")]
    found = decide(classes, needs, hosts, [], StartFailures(), NOW, ["small"])
    assert found.start == [StartDecision("small", "h")]
