"""Values that change all the time: jobs ask for them, and workers stay of few classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.classad.evaluation import Ad, Expression
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.member_change import what_changed
from kestrelctl.core.model.records import WorkerRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.core.model.worker.significance import Significance, interests

Value = bool | int | float | str


def reads(driver: PoolDriver, worker: str, **properties: Value) -> None:
    """A worker tells of its host."""
    known = driver.pool.workers[worker].ad.properties
    driver.tell(
        ev.PropertiesRead(
            at=driver.now,
            worker=worker,
            properties=known | properties,
            changed=frozenset(properties),
        )
    )


def classes(driver: PoolDriver) -> int:
    return len({id(worker.cls) for worker in driver.pool.workers.values()})


def test_a_task_starts_when_the_value_that_it_asks_for_comes() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    job = driver.submit(requirements="Property_ram_free >= 1000")
    assert driver.jobs_at("w") == []
    reads(driver, "w", ram_free=999)
    assert driver.jobs_at("w") == []
    reads(driver, "w", ram_free=1000)
    assert driver.jobs_at("w") == [job]


@pytest.mark.parametrize("asked_before", ["", "Property_up == 1", "Property_up == 3"])
@pytest.mark.parametrize("value", [1, 1.0, True])
def test_a_value_of_1_is_true_whatever_others_ask(asked_before: str, value: Value) -> None:
    """As HTCondor has it, and as `worker list --where` shows it."""
    driver = PoolDriver()
    driver.join("w", cpus=1)
    reads(driver, "w", up=value)
    assert Expression("Property_up == true").evaluate(Ad({"Property_up": value})) is True
    if asked_before:
        driver.submit(requirements=f"Cpus > 1 && {asked_before}")
    job = driver.submit(requirements="Property_up == true")
    assert driver.jobs_at("w") == [job]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Property_up < true", 5),
        ("Property_up == false", 5),
        ("Property_up == false", -5),
        ("Property_up == true", -5),
    ],
)
def test_a_value_that_is_neither_is_not_taken_for_one(text: str, value: Value) -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1)
    reads(driver, "w", up=value)
    driver.submit(requirements=text)
    assert driver.jobs_at("w") == []


def test_a_worker_whose_owner_is_there_starts_nothing_more() -> None:
    driver = PoolDriver()
    driver.join("desk", cpus=4, start="MY.Property_console_users == 0")
    first = driver.submit()
    assert driver.jobs_at("desk") == [], "whether somebody is there is not known"
    reads(driver, "desk", console_users=0)
    assert driver.jobs_at("desk") == [first]
    reads(driver, "desk", console_users=1)
    second = driver.submit()
    assert driver.jobs_at("desk") == [first], "what runs goes on"
    job = driver.pool.state.jobs[second]
    refusal = driver.pool.explain(job, driver.now).groups[0].refusal
    assert refusal.reason is Reason.START
    assert refusal.found == "another MY.Property_console_users"
    reads(driver, "desk", console_users=0)
    assert driver.jobs_at("desk") == [first, second]


def test_a_changing_number_leaves_workers_in_as_many_classes_as_it_is_asked_for_sides() -> None:
    driver = PoolDriver()
    for n in range(50):
        driver.join(f"w{n}", cpus=1)
    driver.submit(requirements="Property_load < 0.05 && Property_load < 2.5")
    for tick in range(20):
        for n in range(50):
            reads(driver, f"w{n}", load=(n * 7 + tick) % 50 / 10, uptime=1000 * n + tick)
        assert classes(driver) <= 4, "below both, between them, 2.5 itself, above"
    assert len(driver.pool.state.supply.classes()) <= 6


def test_what_nobody_asks_for_changes_no_class() -> None:
    driver = PoolDriver()
    driver.join("w")
    before = driver.pool.workers["w"].cls
    version = driver.pool.state.supply.version
    reads(driver, "w", load=3.0)
    assert driver.pool.workers["w"].cls is before
    assert driver.pool.state.supply.version == version


def test_values_outlast_a_hello_of_the_same_process_and_not_a_restart() -> None:
    driver = PoolDriver()
    driver.join("w", incarnation="one")
    reads(driver, "w", load=3.0)
    driver.join("w", incarnation="one")
    assert driver.pool.workers["w"].ad.properties == {"load": 3.0}
    driver.join("w", incarnation="two")
    assert driver.pool.workers["w"].ad.properties == {}


def test_values_outlast_another_size_and_are_no_update_and_not_stored() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    reads(driver, "w", load=3.0)
    ad = driver.pool.workers["w"].ad
    larger = replace(ad, assets={"cpus": 3.0}, properties={})
    effects = driver.tell(ev.Resized(at=driver.now, worker="w", ad=larger))
    assert driver.pool.workers["w"].ad.properties == {"load": 3.0}
    assert what_changed(ad, driver.pool.workers["w"].ad) == "cpus 2 to 3"
    records = [
        each for effect in effects if isinstance(effect, fx.Persist) for each in effect.records
    ]
    [stored] = [each for each in records if isinstance(each, WorkerRecord)]
    assert stored.ad == larger


def test_of_a_worker_that_nobody_knows_a_hello_is_asked() -> None:
    driver = PoolDriver()
    driver.tell(
        ev.PropertiesRead(at=driver.now, worker="w", properties={"a": 1}, changed=frozenset("a"))
    )
    assert "w" not in driver.pool.workers
    assert "w" in driver.pool.state.asked


@pytest.mark.parametrize(
    "text",
    [
        "Property_a",
        "!Property_a",
        "Property_a + 1 > 2",
        "Property_a > RequestMemory",
        'Property_a < "m"',
        "Property_a > 9007199254740992",
        "member(Property_a, {1, Cpus})",
    ],
)
def test_more_than_a_comparison_with_constants_is_refused(text: str) -> None:
    problem = problem_with_job(JobSpec(program=Program(argv=("x",)), requirements=text))
    assert problem is not None
    assert "Property_a changes all the time" in problem


@pytest.mark.parametrize(
    "text",
    [
        "Property_a > 5",
        "5.5 <= TARGET.Property_a",
        "Property_a == -3 || Property_a > .5",
        'Property_a == "north" || member(Property_a, {"south", 7})',
        "Property_a == true",
        "isUndefined(Property_a) || Property_a =!= undefined",
    ],
)
def test_comparisons_with_constants_are_taken(text: str) -> None:
    assert problem_with_job(JobSpec(program=Program(argv=("x",)), requirements=text)) is None


def test_an_operator_gives_no_attribute_the_name_of_a_property() -> None:
    assert problem_with_ad(WorkerAd(attributes={"Property_load": 0})) == (
        "the attribute Property_load is one of the pool's own"
    )


_NUMBERS = st.one_of(
    st.integers(-10, 10), st.integers(-(2**63), 2**63 - 1), st.floats(-12, 12).map(lambda x: x / 4)
)
_MARKS = st.one_of(st.integers(-8, 8), st.sampled_from([-2.5, -0.5, 0.25, 1.5, 1e-9, 3e7]))


@given(
    value=st.one_of(_NUMBERS, st.booleans(), st.sampled_from(["north", "South", "5", ""])),
    comparisons=st.lists(
        st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "=?=", "=!="]), _MARKS),
        min_size=1,
        max_size=5,
    ),
    texts=st.sets(st.sampled_from(["north", "south"])),
)
def test_the_value_that_stands_for_others_answers_as_they_do(
    value: Value, comparisons: list[tuple[str, int | float]], texts: set[str]
) -> None:
    asked = [f"Property_a {sign} {mark}" for sign, mark in comparisons]
    asked += [f'Property_a == "{text}"' for text in sorted(texts)]
    significance = Significance(())
    for text in asked:
        significance.learn(interests(text).mine)
    [(_, kind, stands)] = significance.of({"Property_a": value})
    assert kind == type(value).__name__
    for text in asked:
        expression = Expression(text)
        assert not isinstance(stands, tuple)
        assert expression.evaluate(Ad({"property_a": stands})) == expression.evaluate(
            Ad({"property_a": value})
        ), text
