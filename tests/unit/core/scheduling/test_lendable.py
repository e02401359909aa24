"""What a pool could lend, what its own lack, and whether that would fit elsewhere."""

from __future__ import annotations

import pytest
from flockkit import FAR, NEAR, join, lend, visit
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import PolicyRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.share_change import GroupChange, ShareChange
from kestrelctl.core.model.worker.ad import AssetUnit, WorkerAd
from kestrelctl.core.scheduling import supply
from kestrelctl.core.scheduling.lendable import LendableClass
from kestrelctl.core.scheduling.unmet import Unmet


def lendable(driver: PoolDriver) -> list[LendableClass]:
    """What the pool could lend now."""
    return driver.pool.lendable(driver.now)


def only(driver: PoolDriver) -> LendableClass:
    """The same, if that is one class."""
    (found,) = lendable(driver)
    return found


def unmet(driver: PoolDriver) -> list[Unmet]:
    """What the pool lacks now."""
    return driver.pool.unmet(driver.now)


def tell_ad(driver: PoolDriver, name: str, ad: WorkerAd) -> None:
    """A worker says hello with this ad."""
    driver.tell(
        ev.Joined(
            at=driver.now, worker=name, incarnation="one", ad=ad, holds=[], claims=[], seals=[]
        )
    )


# -- what could be lent ---------------------------------------------------------------------------


def test_workers_that_offer_the_same_are_one_class_with_all_that_is_free_of_them() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", "w3", cpus=4, memory_bytes=8_000)
    driver.submit(5, memory_bytes=1_000)
    found = only(driver)
    assert (found.machines, found.wanted) == (3, 0)
    assert found.free == {"cpus": 7.0, "memory": 19_000.0}
    assert found.whole == {"cpus": 12.0, "memory": 24_000.0}


def test_guests_take_of_what_is_free_like_everybody() -> None:
    driver = PoolDriver()
    join(driver, "w1", cpus=4)
    visit(driver, 3)
    assert only(driver).free == {"cpus": 1.0}


def test_memory_of_a_machine_without_a_free_processor_is_not_free() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", memory_bytes=8_000)
    driver.submit(1, memory_bytes=1_000)
    assert only(driver).free == {"cpus": 1.0, "memory": 8_000.0}


def test_a_machine_on_which_something_waits_has_nothing_to_lend() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=2)
    driver.submit(3)
    for _ in range(3):
        driver.now += 0.01
        driver.submit(100)
        driver.report("w1", seconds=0.01)
    assert driver.worker("w1").queued > 0
    driver.worker("w1").free["cpus"] = 1000  # as it is between an end and the next look
    assert only(driver).free == {"cpus": 0.0}


def test_workers_are_told_apart_by_assets_tags_kinds_and_what_they_start() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    driver.join("w3", cpus=2)
    driver.join("w4", tags=("r",))
    driver.join("w5", start="RequestMemory < 100")
    found = lendable(driver)
    assert sorted(each.machines for each in found) == [1, 1, 1, 2]
    assert len({each.id for each in found}) == 4
    assert {(each.ad.tags, each.ad.start) for each in found} == {
        ((), ""),
        (("R",), ""),
        ((), "RequestMemory < 100"),
    }


def test_a_class_keeps_its_id_whatever_expressions_ask_and_after_a_restart() -> None:
    driver = PoolDriver()
    driver.join("w1", attributes={"rack": 1})
    driver.join("w2", attributes={"rack": 2})
    before = only(driver)
    driver.submit(5, requirements="rack == 1")
    assert len(driver.pool.state.supply.classes()) > 1
    during = only(driver)
    assert (during.id, during.machines) == (before.id, 2)
    driver.restart()
    driver.join("w1", "w2")
    assert only(driver).id == before.id
    assert len(before.id) == 12
    assert int(before.id, 16)


def test_an_ad_says_what_all_workers_of_a_class_say_and_names_no_machine() -> None:
    driver = PoolDriver()
    common = {"os": "Linux 6.1", "arch": "x86_64", "version": "1"}
    same = {"site": "a", "rack": 1, "fast": True}
    tell_ad(driver, "w1", WorkerAd(host="h1", attributes=same, **common))  # type: ignore[arg-type]
    assert only(driver).ad == WorkerAd(attributes=same, **common)  # type: ignore[arg-type]
    other = {"site": "a", "rack": 2, "fast": 1}
    found = WorkerAd(host="h2", attributes=other, os="Linux 6.1", arch="x86_64", version="2")
    tell_ad(driver, "w2", found)
    assert only(driver).ad == WorkerAd(attributes={"site": "a"}, os="Linux 6.1", arch="x86_64")
    driver.lose("w2")
    assert only(driver).ad == WorkerAd(attributes=same, **common)  # type: ignore[arg-type]
    tell_ad(driver, "w1", WorkerAd(host="h1", attributes={"site": "b"}))
    assert only(driver).ad == WorkerAd(attributes={"site": "b"})


def test_units_have_numbers_instead_of_the_ids_of_a_machine() -> None:
    driver = PoolDriver()
    units = (AssetUnit("GPU-5f", "nvidia", "A100", 80), AssetUnit("GPU-6a", "nvidia", "A100", 80))
    assets = {"cpus": 4.0, "gpus": 2.0, "uses": 3.0}
    tell_ad(driver, "w1", WorkerAd(assets=assets, units={"gpus": units}, shared=("uses",)))
    alike = (AssetUnit("0", "nvidia", "A100", 80), AssetUnit("1", "nvidia", "A100", 80))
    found = only(driver)
    assert (found.ad.units, found.ad.shared) == ({"gpus": alike}, ("uses",))
    assert found.free == assets
    others = {"gpus": (AssetUnit("GPU-1", "amd"), AssetUnit("GPU-2", "amd"))}
    tell_ad(driver, "w2", WorkerAd(assets=assets, units=others, shared=("uses",)))
    assert only(driver).ad.units == {"gpus": (AssetUnit("0"), AssetUnit("1"))}


def test_of_what_nobody_knows_how_much_there_is_nothing_is_lent() -> None:
    driver = PoolDriver()
    tell_ad(driver, "w1", WorkerAd(assets={"cpus": 4.0}, unknown={"db": 75}))
    driver.submit(1)
    found = only(driver)
    assert (found.ad.assets, found.ad.unknown) == ({"cpus": 4.0}, {})
    assert (found.free, found.whole) == ({"cpus": 3.0}, {"cpus": 4.0})


def test_what_neighbours_lend_is_not_lent_on() -> None:
    driver = PoolDriver()
    lend(driver, NEAR, cpus=8)
    driver.join("w1")
    assert only(driver).whole == {"cpus": 1.0}


def test_what_neighbours_lend_changes_nothing_of_what_is_to_be_lent() -> None:
    driver = PoolDriver()
    driver.join("w1")
    before = driver.pool.state.supply.version
    lend(driver, FAR)
    driver.lose(FAR)
    assert driver.pool.state.supply.version == before


def test_a_class_that_nobody_is_of_any_more_is_not_looked_at() -> None:
    driver = PoolDriver()
    driver.join("w1")
    lend(driver, FAR)
    supply = driver.pool.state.supply
    assert len(supply.present()) == 2
    driver.lose(FAR)
    assert [each.members for each in supply.present()] == [1]


def test_workers_that_may_take_nothing_are_not_lent() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", "w3", "w4")
    driver.tell(ev.Drain(at=driver.now, worker="w1", by="root"))
    driver.lose("w2")
    driver.tell(ev.Leaving(at=driver.now, worker="w3"))
    assert (only(driver).machines, only(driver).free) == (1, {"cpus": 1.0})
    driver.lose("w4")
    assert lendable(driver) == []


def test_a_worker_that_is_kept_for_a_job_that_starves_is_not_lent() -> None:
    driver = PoolDriver(Config(starving_seconds=10.0))
    driver.join("w1", "w2", "w3", "w4", cpus=2)
    driver.submit(7)
    driver.submit(1, cpus=2, owner="grace")
    driver.live(30.0)
    assert driver.pool.state.kept
    assert only(driver).machines == 3
    assert only(driver).wanted == 1


def test_a_worker_that_asks_for_nothing_or_leaves_soon_has_nothing_to_lend() -> None:
    driver = PoolDriver()
    driver.join("w1", wants=0)
    tell_ad(driver, "w2", WorkerAd(ends_at=driver.now + 59.0))
    assert (only(driver).machines, only(driver).free) == (2, {"cpus": 0.0})
    tell_ad(driver, "w2", WorkerAd(ends_at=driver.now + 61.0))
    assert only(driver).free == {"cpus": 1.0}


def test_who_asks_again_hears_what_has_begun_and_ended_since() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", cpus=2)
    assert only(driver).free == {"cpus": 4.0}
    driver.submit(3)
    assert only(driver).free == {"cpus": 1.0}
    driver.report("w1")
    assert only(driver).free == {"cpus": 2.0}
    driver.lose("w2")
    assert (only(driver).machines, only(driver).whole) == (1, {"cpus": 2.0})


def test_who_asks_again_hears_that_a_worker_is_kept_and_let_go() -> None:
    driver = PoolDriver(Config(starving_seconds=10.0))
    driver.join("w1", "w2", "w3", "w4", cpus=2)
    driver.submit(7)
    big = driver.submit(1, cpus=2, owner="grace")
    assert only(driver).machines == 4
    driver.live(30.0)
    assert only(driver).machines == 3
    driver.cancel(big)
    driver.live(30.0)
    assert (only(driver).machines, only(driver).free) == (4, {"cpus": 1.0})


def test_a_worker_that_leaves_has_nothing_to_lend_from_then_on() -> None:
    driver = PoolDriver()
    tell_ad(driver, "w1", WorkerAd(ends_at=driver.now + 61.0))
    assert only(driver).free == {"cpus": 1.0}
    driver.now += 2.0
    assert only(driver).free == {"cpus": 0.0}


def test_more_changes_than_are_remembered_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply, "MOST_STIRRED", 2)
    driver = PoolDriver()
    driver.join("w1", "w2", "w3", "w4")
    assert only(driver).free == {"cpus": 4.0}
    driver.submit(4)
    driver.report("w3")
    assert only(driver).free == {"cpus": 1.0}


def test_nothing_is_free_while_nothing_is_handed_out() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.tell(ev.StoreFailing(at=driver.now, why="disk full"))
    assert (only(driver).machines, only(driver).free) == (1, {})


def test_a_class_is_wanted_as_far_as_own_tasks_wait_that_could_run_there() -> None:
    driver = PoolDriver()
    join(driver, "w1", cpus=1)
    join(driver, "w2", cpus=4)
    driver.submit(5)  # all processors
    driver.submit(3)
    driver.submit(2, cpus=4, owner="grace")
    driver.submit(7, cpus=64)
    visit(driver, 100)
    assert {each.whole["cpus"]: each.wanted for each in lendable(driver)} == {1.0: 3, 4.0: 5}


def test_of_what_waits_those_are_overdue_whose_jobs_have_waited_for_long() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=1)
    driver.join("w2", cpus=4)
    driver.submit(5)  # all processors
    driver.submit(2)
    driver.submit(1, cpus=4)
    driver.now += 30.0
    driver.submit(7)
    found = driver.pool.lendable(driver.now, 30.0)
    assert {each.whole["cpus"]: each.overdue for each in found} == {1.0: 2, 4.0: 3}
    assert [each.overdue for each in driver.pool.lendable(driver.now, 30.1)] == [0, 0]
    assert [each.overdue for each in lendable(driver)] == [0, 0]


def test_what_waits_for_something_else_wants_no_worker() -> None:
    driver = PoolDriver()
    driver.own("seats", 1)
    driver.join("w1", cpus=1)
    driver.submit(3, seats=1)
    driver.submit(3, held=True)
    driver.submit(3, max_running=1)
    driver.tell(
        ev.SetUser(
            at=driver.now, cause="root", request="u", name="eve", change=ShareChange(max_running=2)
        )
    )
    for cpus in (1, 0.5, 0.25):
        driver.submit(3, owner="eve", cpus=cpus)
    # One of the third job, and two of eve's nine, which ask for different amounts.
    assert only(driver).wanted == 3
    assert sum(each.tasks for each in unmet(driver)) == 3


# -- what its own lack ----------------------------------------------------------------------------


def test_unmet_is_what_waits_for_nothing_but_a_worker_by_shape_and_owner() -> None:
    driver = PoolDriver()
    driver.put(GroupChange("lab", ShareChange()))
    change = ShareChange()
    driver.tell(
        ev.SetUser(
            at=driver.now, cause="root", request="u", name="grace", change=change, group="lab"
        )
    )
    driver.join("w1")
    driver.submit(3)
    driver.submit(4, priority=50)
    driver.submit(2, cpus=2, owner="grace", priority=200)
    visit(driver, 9)
    found = [(e.shape.request, e.owner, e.group, e.tasks) for e in unmet(driver)]
    assert found == [
        ({"cpus": 2000}, "grace", "lab", 2),
        ({"cpus": 1000}, "ada", "", 6),
    ]


def test_nothing_is_unmet_that_has_a_worker() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=4)
    driver.submit(4)
    assert unmet(driver) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"stays": True, "count": 2},
        {"service": True, "count": 2},
        {"span": 2, "count": 2},
        {"held": True, "count": 2},
    ],
    ids=["stays", "service", "span", "held"],
)
def test_what_goes_to_no_neighbour_is_not_unmet(spec: dict[str, int]) -> None:
    driver = PoolDriver()
    driver.submit(**spec)  # type: ignore[arg-type]
    assert unmet(driver) == []
    driver.submit(1)
    assert len(unmet(driver)) == 1


def test_nothing_is_unmet_before_workers_have_said_what_they_run() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.submit(5)
    driver.restart()
    assert unmet(driver) == []
    driver.wait(driver.pool.config.reconcile_seconds)
    assert sum(each.tasks for each in unmet(driver)) == 5


def test_nothing_is_unmet_while_nothing_is_handed_out() -> None:
    driver = PoolDriver()
    driver.submit(5)
    driver.tell(ev.StoreFailing(at=driver.now, why="disk full"))
    assert unmet(driver) == []


def test_of_very_many_jobs_no_more_than_some_are_looked_at() -> None:
    driver = PoolDriver()
    spec = JobSpec(program=Program(argv=("true",)), count=2)
    for _ in range(1_010):
        driver.pool.handle(ev.Submit(at=driver.now, request="r", owner="ada", spec=spec))
    driver.pool.handle(ev.JobStored(at=driver.now, job_id=1, jobs=1_010))
    (found,) = driver.pool.unmet(driver.now)
    assert found.tasks == 2 * 1_000 + 10


# -- whether it would fit elsewhere ---------------------------------------------------------------


def shape(driver: PoolDriver, **spec: object) -> Shape:
    """How a job asks."""
    job = driver.pool.job(driver.submit(**spec))  # type: ignore[arg-type]
    assert job is not None
    return job.shape


def why_not(driver: PoolDriver, asked: Shape, ad: WorkerAd, jid: str = FAR) -> Reason | None:
    """Why tasks would not fit such a worker."""
    found = driver.pool.would_fit(asked, ad, jid)
    return None if found is None else found.reason


def test_a_worker_that_is_not_there_is_held_against_tasks_like_any() -> None:
    driver = PoolDriver()
    asked = shape(driver, cpus=4, requires=("GPU",))
    fits = WorkerAd(assets={"cpus": 4.0}, tags=("gpu",))
    assert why_not(driver, asked, fits) is None
    assert why_not(driver, shape(driver, cpus=5), fits) is Reason.TOO_SMALL
    assert why_not(driver, asked, fits) is None
    assert why_not(driver, asked, WorkerAd(assets={"cpus": 4.0})) is Reason.MISSING_TAGS
    assert why_not(driver, asked, WorkerAd(assets={"cpus": 3.0}, tags=("gpu",))) is Reason.TOO_SMALL


def test_what_stays_at_home_would_fit_no_neighbour() -> None:
    driver = PoolDriver()
    asked = shape(driver, stays=True)
    assert why_not(driver, asked, WorkerAd()) is Reason.STAYS_HOME
    assert why_not(driver, asked, WorkerAd(), "w1") is None


def test_requirements_see_all_that_such_a_worker_says() -> None:
    driver = PoolDriver()
    asked = shape(driver, requirements='rack == 7 && Arch == "X86_64"')
    fits = WorkerAd(attributes={"rack": 7}, arch="x86_64")
    assert why_not(driver, asked, fits) is None
    assert why_not(driver, asked, WorkerAd(attributes={"rack": 8}, arch="x86_64")) is (
        Reason.REQUIREMENTS
    )
    assert why_not(driver, asked, WorkerAd(arch="x86_64")) is Reason.UNDEFINED


def test_what_such_a_worker_starts_counts_as_far_as_shapes_tell() -> None:
    driver = PoolDriver()
    asked = shape(driver, memory_bytes=2**30)
    memory = {"cpus": 1.0, "memory": 2.0**31}
    assert why_not(driver, asked, WorkerAd(assets=memory, start="RequestMemory < 100")) is (
        Reason.START
    )
    owner = WorkerAd(assets=memory, start='TARGET.Owner == "eve"')
    assert why_not(driver, asked, owner) is None  # nobody knows yet whose it is
    driver.join("w1", start='TARGET.Owner == "eve"')
    asked = shape(driver, memory_bytes=2**30)
    assert why_not(driver, asked, owner) is Reason.START


def test_a_policy_that_would_be_in_force_there_counts() -> None:
    driver = PoolDriver()
    driver.put(PolicyRecord("double", "true", "ConsumptionCpus = 2 * TARGET.RequestCpus"))
    asked = shape(driver, cpus=2)
    assert why_not(driver, asked, WorkerAd(assets={"cpus": 3.0})) is Reason.TOO_SMALL


def test_the_question_leaves_the_pool_as_it_is() -> None:
    driver = PoolDriver()
    driver.join("w1")
    asked = shape(driver)
    classes = len(driver.pool.state.supply.classes())
    for cpus in range(1, 50):
        ad = WorkerAd(assets={"cpus": float(cpus)}, start='JobName == "x"', attributes={"rack": 1})
        driver.pool.would_fit(asked, ad, NEAR)
    assert len(driver.pool.state.supply.classes()) == classes
    assert not driver.pool.state.demand.significance
    assert "rack" not in driver.pool.state.supply.significance.known
