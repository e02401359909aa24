"""What a pool lacks: unmet demand per shape, and the classes of which more would help."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver
from stepcount import steps

from kestrelctl.core import events as ev
from kestrelctl.core.scheduling.shortage import class_words, shape_words

GIB = 1 << 30


def unmet(driver: PoolDriver) -> dict[str, int]:
    tags = driver.pool.known_tags()
    return {shape_words(s, tags): n for s, n in driver.pool.shortage().unmet.items()}


def saturated(driver: PoolDriver) -> dict[str, tuple[int, tuple[str, ...]]]:
    found = driver.pool.shortage().saturated
    return {class_words(cls): (full.workers, full.assets) for cls, full in found.items()}


def test_while_nothing_waits_nothing_is_short() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=2)
    driver.submit(2)
    assert unmet(driver) == {}
    assert saturated(driver) == {}


def test_what_waits_beyond_all_workers_is_unmet_and_they_are_saturated() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", cpus=2)
    driver.submit(7)
    assert unmet(driver) == {"1 cpu": 3}
    assert saturated(driver) == {"2 cpus": (2, ("cpus",))}


def test_what_nobody_could_run_is_unmet_and_saturates_nobody() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=2)
    driver.submit(3, cpus=4)
    driver.submit(2, requires=("hush",))
    assert unmet(driver) == {"4 cpus": 3, "1 cpu, tags that no worker has": 2}
    assert saturated(driver) == {}


def test_what_would_fit_if_all_were_placed_anew_is_not_unmet() -> None:
    driver = PoolDriver()
    driver.join("g1", tags=["gpu"])
    driver.submit(1)  # a plain task, at the only worker there is
    driver.join("w1")
    driver.submit(1, requires=("gpu",))
    assert unmet(driver) == {}
    driver.submit(1, requires=("gpu",))
    assert unmet(driver) == {"1 cpu, GPU": 1}
    assert saturated(driver) == {"1 cpu, GPU": (1, ("cpus",))}


def test_a_worker_that_could_make_room_is_saturated_too() -> None:
    driver = PoolDriver()
    driver.join("g1", tags=["gpu"])
    driver.join("w1", "w2")
    driver.submit(3)
    driver.submit(1, requires=("gpu",))
    assert unmet(driver) == {"1 cpu, GPU": 1}
    assert saturated(driver) == {"1 cpu, GPU": (1, ("cpus",)), "1 cpu": (2, ("cpus",))}


def test_higher_priority_is_met_first() -> None:
    driver = PoolDriver()
    driver.submit(3, requires=("a",))
    driver.submit(3, priority=200)
    driver.hold_back()
    driver.join("w1", cpus=4, tags=["a"])
    assert unmet(driver) == {"1 cpu, A": 2}


def test_tasks_of_different_sizes_share_what_there_is() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.submit(2, cpus=3)
    driver.submit(4, cpus=1)
    driver.join("w1", cpus=8)
    [(shape, tasks)] = unmet(driver).items()
    assert (shape, tasks) in {("3 cpus", 1), ("1 cpu", 2)}


def test_what_does_not_fit_beside_its_like_is_not_counted_twice() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.submit(4, cpus=3)
    driver.join("w1", "w2", "w3", cpus=4)  # twelve processors, and each has room for one
    assert unmet(driver) == {"3 cpus": 1}


def test_memory_that_is_short_is_named() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("w1", cpus=8, memory_bytes=4 * GIB)
    driver.submit(5, memory_bytes=GIB)
    assert unmet(driver) == {"1 cpu, 1024 MiB memory": 1}
    assert saturated(driver) == {"8 cpus, 4096 MiB memory": (1, ("memory",))}


def test_a_task_that_asks_for_nothing_is_never_short() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.submit(1)
    driver.hold_back()
    driver.submit(5, cpus=0)
    assert unmet(driver) == {}


def test_what_waits_by_the_jobs_own_limit_is_no_demand() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.submit(9, max_running=3)
    assert unmet(driver) == {"1 cpu": 2}


def test_what_waits_at_a_worker_behind_others_takes_nobodys_place() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.submit(200)
    for _ in range(3):  # short tasks: the worker gets some ahead
        driver.report("w1", seconds=0.001)
    worker = driver.worker("w1")
    assert worker.queued > 10
    waits = driver.pool.state.jobs[1].waiting
    assert unmet(driver) == {"1 cpu": waits}
    driver.hold_back()
    driver.join("w3", cpus=waits)
    assert unmet(driver) == {}


@pytest.mark.parametrize("word", ["draining", "offline"])
def test_a_worker_that_takes_nothing_meets_nothing(word: str) -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    driver.submit(2)
    if word == "draining":
        driver.tell(ev.Drain(at=driver.now, worker="w1", by="root"))
    else:
        driver.lose("w1")
    driver.submit(1)
    waits = 1 if word == "draining" else 2
    assert unmet(driver) == {"1 cpu": waits}
    assert saturated(driver) == {"1 cpu": (1, ("cpus",))}


def test_while_nothing_is_handed_out_nothing_is_said_to_be_short() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.submit(5)
    driver.pool.state.store_error = "disk full"
    assert driver.pool.shortage().unmet == {}


@pytest.mark.parametrize(("classes", "most"), [(25, 100_000), (1000, 3_000_000)])
def test_it_is_found_in_steps_that_grow_with_classes_and_shapes(classes: int, most: int) -> None:
    driver = PoolDriver()
    driver.hold_back()
    state = driver.pool.state
    check, driver.pool.check = driver.pool.check, lambda: None  # type: ignore[method-assign]
    for n in range(1000):
        kind = n % classes
        driver.join(f"w{n}", cpus=1 + kind, tags=[f"t{k}" for k in range(5) if kind >> k & 1])
    for n in range(40):
        tags = tuple(f"t{k}" for k in range(5) if n >> k & 1 and n % 3)
        driver.submit(1250, cpus=1 + n % 4, requires=tags, priority=n % 5)
    check()
    assert state.demand
    driver.pool.shortage()
    assert steps(driver.pool.shortage) < most
