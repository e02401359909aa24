"""Assets with units, shared assets, and workers whose capacity changes, as the pool sees them."""

from __future__ import annotations

import math

import msgspec
import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.agent.unit_variables import unit_variables, variables_without_units
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.worker.ad import AssetChange, AssetUnit, WorkerAd, changed, unit_ids
from kestrelctl.core.model.worker.ad_rules import MAX_UNITS, problem_with_ad
from kestrelctl.core.scheduling.explain import Group

TWO_GPUS = WorkerAd(
    assets={"cpus": 8.0, "gpus": 2.0}, units={"gpus": (AssetUnit("a"), AssetUnit("b"))}
)


def joined(driver: PoolDriver, name: str = "w", ad: WorkerAd = TWO_GPUS, **more: object) -> None:
    fields: dict[str, object] = {"holds": [], "incarnation": "one"} | more
    driver.tell(ev.Joined(at=driver.now, worker=name, ad=ad, **fields))  # type: ignore[arg-type]


def asked(driver: PoolDriver, count: int = 1, **request: float) -> int:
    """A job that asks for one processor and this."""
    spec = ev.JobSpec(
        program=Program(argv=("true",)), count=count, request={"cpus": 1.0, **request}
    )
    driver.tell(ev.Submit(at=driver.now, request="r", owner="ada", spec=spec))
    return driver.answers[-1].job_id


def resize(driver: PoolDriver, ad: WorkerAd, name: str = "w") -> None:
    driver.tell(ev.Resized(at=driver.now, worker=name, ad=ad))


def with_assets(ad: WorkerAd = TWO_GPUS, **assets: float) -> WorkerAd:
    return msgspec.structs.replace(ad, assets={**ad.assets, **assets})


def with_gpus(*ids: str) -> WorkerAd:
    return changed(TWO_GPUS, AssetChange(units={"gpus": ids}), {})


def units_of(driver: PoolDriver, name: str = "w") -> list[tuple[str, ...]]:
    """The units of each attempt that runs there, oldest first."""
    tasks = driver.worker(name).held.values()
    return [task.attempt.claim.units.get("gpus", ()) for task in tasks if task.attempt is not None]


def group(driver: PoolDriver, job_id: int) -> Group:
    job = driver.pool.job(job_id)
    assert job is not None
    [found] = driver.pool.explain(job, driver.now).groups
    return found


# -- units -----------------------------------------------------------------------------------------


def test_whole_units_are_exclusive_and_fractions_share_one() -> None:
    driver = PoolDriver()
    joined(driver)
    asked(driver, gpus=0.5)
    asked(driver, gpus=1)
    asked(driver, gpus=0.5)
    assert units_of(driver) == [("a",), ("b",), ("a",)]
    assert driver.worker("w").free["gpus"] == 0


def test_the_worker_is_sent_amounts_and_chooses_the_units_itself() -> None:
    driver = PoolDriver()
    joined(driver)
    asked(driver, gpus=1)
    [run] = driver.of(fx.Run)
    assert run.claims == [{"cpus": 1000, "gpus": 1000}]


def test_nothing_is_sent_that_no_single_unit_has_room_for() -> None:
    driver = PoolDriver()
    joined(driver)
    asked(driver, 2, gpus=0.6)
    job_id = asked(driver, gpus=0.7)
    assert driver.worker("w").free["gpus"] == 800
    assert driver.jobs_at("w").count(job_id) == 0
    refusal = group(driver, job_id).refusal
    assert refusal.reason is Reason.BUSY
    assert refusal.found == "0.8 gpus free, in pieces of several units"


def test_a_manager_that_was_restarted_hears_which_units_are_taken() -> None:
    driver = PoolDriver()
    joined(driver)
    asked(driver, 2, gpus=1)
    driver.report("w")
    held = driver.held("w")
    assert units_of(driver) == [("b",)]
    claim = {"cpus": 1000, "gpus": 1000, "gpus/b": 1000}
    driver.restart()
    joined(
        driver,
        holds=[(*attempt, 0) for attempt in held],
        claims=[claim],
        seals=driver.seals("w", held),
    )
    assert driver.worker("w").free == {"cpus": 7000, "gpus": 1000, "gpus/a": 1000, "gpus/b": 0}
    asked(driver, gpus=1)
    assert units_of(driver)[-1] == ("a",)


def test_a_task_that_is_charged_all_of_a_machine_is_told_of_no_more_units() -> None:
    driver = PoolDriver()
    joined(driver)
    asked(driver, gpus=1)
    for process in range(4):
        driver.lose("w")
        joined(driver, incarnation=f"{process}")
        driver.live(5)
    assert driver.worker("w").free["cpus"] == 0, "nothing runs beside what may have ended it"
    assert units_of(driver) == [("a",)]


# -- shared assets, and assets that nobody has -----------------------------------------------------


def test_a_shared_asset_is_used_by_whole_uses() -> None:
    driver = PoolDriver()
    joined(driver, ad=WorkerAd(assets={"cpus": 8.0, "seats": 2.0}, shared=("seats",)))
    asked(driver, 3, seats=0.1)
    assert driver.worker("w").running == 2
    assert driver.worker("w").free["seats"] == 0


def test_an_asset_that_nobody_has_is_told_from_one_that_is_too_small() -> None:
    driver = PoolDriver()
    joined(driver, ad=WorkerAd(assets={"cpus": 8.0, "fpga": 2.0}))
    missing, small = asked(driver, abacus=1), asked(driver, fpga=3)
    refusal = group(driver, missing).refusal
    assert (refusal.reason, refusal.wanted) == (Reason.MISSING_ASSET, "abacus")
    refusal = group(driver, small).refusal
    assert (refusal.reason, refusal.found) == (Reason.TOO_SMALL, "2 fpga")


# -- capacity that changes -------------------------------------------------------------------------


def test_a_shrink_below_what_is_used_starts_nothing_and_kills_nothing() -> None:
    driver = PoolDriver()
    joined(driver, ad=WorkerAd(assets={"cpus": 4.0}))
    asked(driver, 10)
    driver.report("w")
    before = driver.held("w")[:4]
    resize(driver, WorkerAd(assets={"cpus": 2.0}))
    assert driver.held("w")[:4] == before
    assert not driver.of(fx.Kill)
    assert driver.worker("w").free == {"cpus": -2000}
    assert not driver.of(fx.Run)
    for left in (3, 2):
        driver.report("w")
        assert driver.worker("w").running == left
    driver.report("w")
    assert driver.worker("w").running == 2, "below its capacity it starts again"


def test_growth_starts_what_waits() -> None:
    driver = PoolDriver()
    joined(driver, ad=WorkerAd(assets={"cpus": 1.0}))
    asked(driver, 10)
    resize(driver, WorkerAd(assets={"cpus": 4.0}))
    assert driver.worker("w").running == 4


def test_what_is_free_is_never_shown_below_zero() -> None:
    driver = PoolDriver()
    joined(driver, ad=WorkerAd(assets={"cpus": 4.0}))
    joined(driver, "x", ad=WorkerAd(assets={"cpus": 4.0}))
    asked(driver, 8)
    driver.report("x")
    resize(driver, WorkerAd(assets={"cpus": 1.0}))
    found = driver.pool.census(driver.now)
    assert (found.capacity["cpus"], found.free["cpus"]) == (5000, 1000)


def test_a_unit_that_goes_while_it_is_used_is_given_to_nobody_else() -> None:
    driver = PoolDriver()
    joined(driver)
    job_id = asked(driver, 3, gpus=1)
    resize(driver, with_gpus("b"))
    assert units_of(driver) == [("a",), ("b",)]
    assert driver.worker("w").free["gpus"] == -1000
    driver.report("w")
    assert units_of(driver) == [("b",)], "one unit is left, and that is taken"
    resize(driver, with_gpus("b", "c"))
    assert units_of(driver) == [("b",), ("c",)]
    assert driver.jobs_at("w") == [job_id, job_id]


def test_a_worker_may_come_back_with_other_units_of_the_same_number() -> None:
    driver = PoolDriver()
    joined(driver)
    joined(driver, ad=with_gpus("c", "d"), incarnation="two")
    asked(driver, 2, gpus=1)
    assert units_of(driver) == [("c",), ("d",)]


def test_a_capacity_that_changes_quickly_leaves_nothing_behind() -> None:
    driver = PoolDriver()
    joined(driver)
    asked(driver, 100)
    for number in range(600):
        resize(driver, with_assets(cpus=1.0 + number))
    assert len(driver.pool.state.supply.classes()) < 300
    resize(driver, TWO_GPUS)
    driver.finish_all()
    assert driver.worker("w").free == {"cpus": 8000, "gpus": 2000, "gpus/a": 1000, "gpus/b": 1000}


def test_a_worker_that_has_shrunk_is_stored_so() -> None:
    driver = PoolDriver()
    joined(driver)
    resize(driver, with_gpus("b"))
    driver.restart()
    assert driver.worker("w").ad == with_gpus("b")


def test_a_resize_does_not_count_beyond_what_an_account_may_offer() -> None:
    driver = PoolDriver()
    most = driver.pool.state.config.max_account_cpus
    joined(driver, ad=WorkerAd(assets={"cpus": 1.0}))
    resize(driver, WorkerAd(assets={"cpus": 2 * most}))
    assert driver.worker("w").cls.capacity["cpus"] == most * 1000


def test_one_that_has_not_said_what_it_holds_is_asked_for_that_instead() -> None:
    driver = PoolDriver()
    resize(driver, TWO_GPUS)
    assert [effect.worker for effect in driver.of(fx.AskWho)] == ["w"]
    assert "w" not in driver.pool.workers


# -- the agent -------------------------------------------------------------------------------------


def agent_with(ad: WorkerAd = TWO_GPUS) -> Agent:
    agent = Agent(ad.assets, units=unit_ids(ad))
    agent.holds()
    agent.on_welcome(agent.greeting, [], 0.0, 0.0)
    return agent


def give(agent: Agent, first: int, n: int, **claim: int) -> list[int]:
    template = Template(job_id=1, program=Program(argv=("true",)))
    return agent.on_run([(first, 1, 0, n, 0, 9)], [claim], [template], [], [], now=0.0)


def test_a_hello_names_the_units_of_what_runs() -> None:
    agent = agent_with()
    give(agent, 100, 1, cpus=1000, gpus=1000)
    give(agent, 200, 1, cpus=1000, gpus=2000)
    agent.start_next(0.0)
    _, claims, _ = agent.holds()
    assert claims == [{"cpus": 1000, "gpus": 1000, "gpus/a": 1000}, {"cpus": 1000, "gpus": 2000}]


def test_what_can_never_start_any_more_is_given_back() -> None:
    agent = agent_with()
    give(agent, 100, 1, cpus=1000, gpus=2000)
    give(agent, 200, 2, cpus=1000, gpus=1000)
    assert agent.resize({"cpus": 8.0, "gpus": 1.0}, {"gpus": ["b"]}) == [100]
    attempt = agent.start_next(0.0)
    assert attempt is not None
    assert attempt.claim.units == {"gpus": ("b",)}
    assert give(agent, 300, 2, cpus=1000, gpus=2000) == [300, 301], "sent before that"


# -- what a task is told ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "expected"),
    [
        ("nvidia", {"CUDA_VISIBLE_DEVICES": "a", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ("amd", {"ROCR_VISIBLE_DEVICES": "a"}),
        (
            "",
            {
                "CUDA_VISIBLE_DEVICES": "a",
                "ROCR_VISIBLE_DEVICES": "a",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            },
        ),
    ],
)
def test_the_vendors_programs_are_told_by_their_own_variables(
    vendor: str, expected: dict[str, str]
) -> None:
    ad = WorkerAd(units={"gpus": (AssetUnit("a", vendor), AssetUnit("b", vendor))})
    assert unit_variables({"gpus": ("a",)}, ad) == {"KESTREL_GPUS": "a", **expected}
    hidden = {name: "" for name in expected if name.endswith("VISIBLE_DEVICES")}
    assert variables_without_units(ad) == hidden


def test_units_of_another_asset_are_told_by_its_name() -> None:
    ad = WorkerAd(units={"fpga": (AssetUnit("x"), AssetUnit("y"))})
    assert unit_variables({"fpga": ("x", "y")}, ad) == {"KESTREL_FPGA": "x,y"}
    assert variables_without_units(ad) == {}


# -- what is asked of a worker ---------------------------------------------------------------------


def test_of_known_units_so_many_may_be_asked_for_by_number() -> None:
    began = TWO_GPUS.units
    one = changed(TWO_GPUS, AssetChange(amounts={"gpus": 1.0}), began)
    assert unit_ids(one) == {"gpus": ("a",)}
    assert changed(one, AssetChange(amounts={"gpus": 2.0}), began) == TWO_GPUS
    beyond = changed(one, AssetChange(amounts={"gpus": 3.0}), began)
    assert problem_with_ad(beyond) == "there are 2 units of gpus, not 3"


def test_an_asset_may_become_of_another_kind() -> None:
    shared = changed(TWO_GPUS, AssetChange(shared={"seats": 3.0}), {})
    assert (shared.assets["seats"], shared.shared) == (3.0, ("seats",))
    summed = changed(shared, AssetChange(amounts={"gpus": 1.5, "seats": 2.5}), {})
    assert summed.units == {}
    assert problem_with_ad(summed) == "seats is shared by a whole number of uses, and has no units"


def unit_ad(*units: AssetUnit, amount: float | None = None) -> WorkerAd:
    n = float(len(units)) if amount is None else amount
    return WorkerAd(assets={"cpus": 1.0, "gpus": n}, units={"gpus": units})


@pytest.mark.parametrize(
    ("ad", "why"),
    [
        (WorkerAd(assets={"cpus": 1.0} | {f"a{n}": 1.0 for n in range(99)}), "at most 16 assets"),
        (unit_ad(*(AssetUnit(str(n)) for n in range(MAX_UNITS + 1))), "at most 256 units"),
        (unit_ad(AssetUnit("a"), amount=1e9), "there are 1 units of gpus, not 1,000,000,000"),
        (unit_ad(AssetUnit("a"), amount=math.nan), "0 of gpus, or 0.001"),
        (unit_ad(AssetUnit("a"), AssetUnit("a")), "the same id"),
        (unit_ad(AssetUnit("a\x1b[31m")), "is no id of a unit"),
        (unit_ad(AssetUnit("")), "is no id of a unit"),
        (unit_ad(AssetUnit("a,b")), "is no id of a unit"),
        (unit_ad(AssetUnit("a", "nvidia", "A\n100")), "says nothing of a unit"),
        (unit_ad(AssetUnit("a", memory_bytes=1 << 62)), "bytes of memory"),
        (WorkerAd(units={"cpus": (AssetUnit("0"),)}), "cpus is an amount"),
        (WorkerAd(units={"\x00": ()}), "is no name of an asset"),
        (WorkerAd(shared=("seats\n",)), "is no name of an asset"),
        (WorkerAd(assets={"cpus": 1.0, "s": 1.5}, shared=("s",)), "a whole number of uses"),
        (
            WorkerAd(assets={"cpus": 1.0, "worker": 1.0}, units={"worker": (AssetUnit("a"),)}),
            "KESTREL_WORKER means something else",
        ),
        (WorkerAd(assets={"cpus": 1.0, "s": 1.0}, shared=("s", "s")), "shared twice"),
        (WorkerAd(assets={"cpus": 0.0}), "0.001 to 1,000,000 cpus"),
    ],
)
def test_an_ad_that_cannot_be_meant_is_refused_with_a_word(ad: WorkerAd, why: str) -> None:
    assert why in str(problem_with_ad(ad))


def test_an_ad_that_was_stored_before_there_were_units_still_loads() -> None:
    old = b'{"assets": {"cpus": 4.0, "gpus": 2.0}, "tags": ["R"]}'
    ad = msgspec.json.decode(old, type=WorkerAd)
    assert (ad.units, ad.shared) == ({}, ())
    assert msgspec.json.decode(msgspec.json.encode(TWO_GPUS), type=WorkerAd) == TWO_GPUS
