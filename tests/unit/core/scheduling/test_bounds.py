"""What strangers say of numbers and sizes: nothing of it gets into what is counted for good."""

from __future__ import annotations

import json
import math

import pytest
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.jobs.job import MOST_REFUSED
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.core.scheduling.demand import SPARE_SHAPES
from kestrelctl.core.scheduling.supply import SPARE_CLASSES
from kestrelctl.protocol import codec, directions, workers


@pytest.mark.parametrize("field", [4, 5, 6, 7])
@pytest.mark.parametrize("value", [1e308, -1e308])
def test_a_time_that_cannot_be_is_refused(field: int, value: float) -> None:
    result: list[object] = [1, 1, 0, Outcome.DONE, 0.0, 0.0, 0.0, 0.0]
    result[field] = value
    with pytest.raises(codec.BadMessage):
        directions.from_worker.decode(json.dumps({"type": "report", "results": [result]}))


def test_the_longest_times_leave_sums_and_means_finite() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    driver.submit(4)
    held = list(driver.pool.state.workers["w"].held.items())
    results = [
        [number, task.job.id, task.index, Outcome.DONE, 1e11, 1e11, -1e11] for number, task in held
    ]
    report = directions.from_worker.decode(json.dumps({"type": "report", "results": results}))
    assert isinstance(report, workers.Report)
    driver.tell(ev.Reported(at=driver.now, worker="w", results=report.results))
    totals = driver.pool.state.totals
    assert totals.tasks_done == 4
    assert math.isfinite(totals.runs.sum)
    assert math.isfinite(totals.dispatches.sum)


HELLO = {"type": "hello", "version": workers.VERSION, "incarnation": "one", "ad": {}}
BEYOND = 1 << 63


@pytest.mark.parametrize(
    "message",
    [
        *(HELLO | {"holds": [held]} for held in ([BEYOND, 1, 0, -1], [1, BEYOND, 0, -1])),
        *(HELLO | {"holds": [held]} for held in ([1, 1, BEYOND, -1], [-1, 1, 0, -1])),
        HELLO | {"greeting": BEYOND},
        HELLO | {"version": BEYOND},
        {"type": "returned", "numbers": [BEYOND]},
        {"type": "output", "request": "r", "offset": BEYOND},
        {"type": "output", "request": "r", "offset": 0, "size_bytes": -1},
    ],
)
def test_a_number_that_cannot_be_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(codec.BadMessage):
        directions.from_worker.decode(json.dumps(message))


@pytest.mark.parametrize(
    ("ad", "why"),
    [
        (WorkerAd(host="h" * 300), "host"),
        (WorkerAd(os="h" * 300), "os"),
        (WorkerAd(arch="h" * 300), "arch"),
        (WorkerAd(version="h" * 300), "version"),
        (WorkerAd(tags=tuple(map(str, range(5000)))), "tags"),
        (WorkerAd(tags=("x" * 20_000,)), "tags"),
    ],
)
def test_an_ad_is_short_because_the_pool_remembers_it(ad: WorkerAd, why: str) -> None:
    assert why in str(problem_with_ad(ad))


def test_what_machines_say_of_themselves_is_short_enough() -> None:
    tags = tuple(f"model-{i}" for i in range(200))
    assert problem_with_ad(WorkerAd(host="h" * 253, os="Linux", tags=tags)) is None


@pytest.mark.parametrize(
    ("assets", "why"),
    [
        ({}, "0.001 to 1,000,000 cpus, not 0"),
        ({"cpus": 0.0004}, "0.001 to 1,000,000 cpus, not 0.0004"),
        ({"cpus": 2e6}, "0.001 to 1,000,000 cpus, not 2,000,000"),
        ({"cpus": math.nan}, "cpus, not nan"),
        ({"cpus": 1.0, "fpga": 0.0004}, "0 of fpga, or 0.001 to less than 2^60, not 0.0004"),
        ({"cpus": 1.0, "fpga": 0.0009}, "0 of fpga, or 0.001 to less than 2^60, not 0.0009"),
        ({"cpus": 1.0, "fpga": -1.0}, "0 of fpga, or 0.001 to less than 2^60, not -1"),
        ({"cpus": 1.0, "memory": 2.0**60}, "0 of memory, or 0.001 to less than 2^60, not 1.15"),
        ({"cpus": 1.0, "fpga": math.inf}, "fpga, or 0.001 to less than 2^60, not inf"),
        (
            {"cpus": 1.0, "FPGA": 1.0},
            "'FPGA' is no name of an asset: that begins with a small letter and has up to 32 small "
            "letters, digits and _",
        ),
    ],
)
def test_an_amount_that_cannot_be_counted_is_refused(assets: dict[str, float], why: str) -> None:
    assert why in str(problem_with_ad(WorkerAd(assets=assets)))
    assert why in str(problem_with_job(JobSpec(program=Program(argv=("x",)), request=assets)))


@pytest.mark.parametrize("amount", [0.0, 0.001, 2.0**59])
def test_an_amount_that_can_be_counted_is_not(amount: float) -> None:
    assets = {"cpus": 1_000_000.0, "fpga": amount}
    assert problem_with_ad(WorkerAd(assets=assets)) is None
    assert problem_with_job(JobSpec(program=Program(argv=("x",)), request=assets)) is None


def test_a_task_remembers_few_of_the_attempts_whose_results_were_refused() -> None:
    driver = PoolDriver()
    driver.join("w", "liar")
    driver.submit(2)
    [(sent, job_id, index)] = driver.held("w")
    for number in range(sent - 1000, sent):
        driver.fail("liar", (number, job_id, index))
    task = driver.pool.state.jobs[job_id].live[index]
    assert len(task.refused_numbers) == MOST_REFUSED
    assert task.is_over(sent - 1)


def test_ads_that_nobody_has_any_more_are_forgotten() -> None:
    driver = PoolDriver()
    for n in range(1000):
        driver.join("w", cpus=1 + n / 1000)
    assert len(driver.pool.state.supply.classes()) <= 2 * SPARE_CLASSES + 1
    job = driver.submit(1, cpus=1.5)
    assert driver.pool.state.jobs[job].running == 1


def test_what_no_job_asks_for_any_more_is_forgotten() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    kept = driver.submit(1, cpus=8)
    for n in range(1000):
        driver.cancel(driver.submit(1, cpus=5 + n / 1000))
    state = driver.pool.state
    assert len(state.demand.shapes) <= 2 * SPARE_SHAPES + 1
    assert all(len(cls.shapes()) <= 2 * SPARE_SHAPES + 1 for cls in state.supply.classes())
    driver.join("v", cpus=8)
    assert state.jobs[kept].running == 1


def test_many_that_are_all_in_use_are_kept() -> None:
    driver = PoolDriver()
    names = [f"w{n}" for n in range(3 * SPARE_CLASSES)]
    for n, name in enumerate(names):
        driver.join(name, cpus=1 + n / 1000)
    assert len(driver.pool.state.supply.classes()) >= len(names)
    driver.submit(len(names))
    assert all(worker.held for worker in driver.pool.state.workers.values())


def test_whatever_a_worker_says_that_it_charges_the_books_add_up() -> None:
    driver = PoolDriver()
    driver.join("first")
    driver.submit(5)
    [first] = driver.held("first")
    driver.restart()
    said: list[dict[str, int]] = [{"cpus": 0}, {}, {"cpus": 10**12}, {"unicorns": 5}]
    for place in (-1, *range(len(said) + 1)):
        hello = ev.Joined(
            at=driver.now,
            worker="first",
            incarnation=str(place),
            ad=WorkerAd(),
            holds=[(*first, place)],
            claims=said,
            seals=driver.seals("first", [first]),
        )
        driver.tell(hello)
        assert first in driver.held("first"), "what it runs is believed, and only that"
    driver.finish_all()
    assert driver.ended == [1]


def test_jobs_that_span_workers_are_known_when_shapes_are_forgotten() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", cpus=1)
    spans = driver.submit(2, span=2, cpus=1)
    driver.submit(cpus=8)
    for n in range(3 * SPARE_SHAPES):
        driver.cancel(driver.submit(cpus=2, requires=(f"tag{n}",)))
    late = driver.submit(2, span=2, cpus=1)
    assert len(driver.pool.state.demand.shapes) <= 2 * SPARE_SHAPES + 1
    assert {*driver.jobs_at("w1"), *driver.jobs_at("w2")} == {spans}
    driver.report("w1")
    driver.report("w2")
    assert driver.jobs_at("w1") == driver.jobs_at("w2") == [late]
