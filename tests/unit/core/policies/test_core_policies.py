"""Policies at work in the pool: what is charged, on both sides, and what is refused why."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.records import PolicyRecord
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.setting import SettingGone
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.scheduling.match import Terms

MIB = 1 << 20
PAGE = (Path(__file__).parents[4] / "docs" / "aggregates.md").read_text()
EVERY = "true"


def put(driver: PoolDriver, text: str, *, name: str = "lean", workers: str = EVERY) -> fx.Answer:
    return driver.put(PolicyRecord(name, workers, text))


def remove(driver: PoolDriver, name: str = "lean") -> fx.Answer:
    return driver.drop(PolicyRecord, name)


def why(driver: PoolDriver, job_id: int) -> list[tuple[str, str, str]]:
    found = driver.pool.explain(driver.pool.state.jobs[job_id], driver.now)
    return [(g.refusal.reason, g.refusal.wanted, g.refusal.found) for g in found.groups]


def test_without_a_policy_a_task_is_charged_what_it_asks_for() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    driver.submit(9, cpus=0.5)
    assert driver.worker("w").running == 4


def test_what_a_policy_charges_is_what_the_worker_is_told() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4, memory_bytes=1024 * MIB)
    assert put(driver, "CONSUMPTION_POLICY = True").error is None
    driver.submit(3, cpus=0.5, memory_bytes=100 * MIB)
    [run] = driver.of(fx.Run)
    assert run.claims == [{"cpus": 1000, "memory": 128 * MIB * 1000}]
    assert driver.worker("w").free == {"cpus": 1000, "memory": (1024 - 3 * 128) * MIB * 1000}


@pytest.mark.parametrize(
    ("text", "charged_mib", "more_mib"),
    [
        ("", 100, None),
        ("ConsumptionMemory = 0.25 * TARGET.RequestMemory", 25, 100),
        ("ConsumptionMemory = 0", None, 100),
        ("ConsumptionMemory = quantize(TARGET.RequestMemory, {128})", 128, None),
    ],
)
def test_a_task_may_use_what_it_asked_for_or_what_it_is_charged_if_that_is_more(
    text: str, charged_mib: int | None, more_mib: int | None
) -> None:
    """A worker limits a task to what it is charged, unless it is told of more."""
    driver = PoolDriver()
    driver.join("w", cpus=4, memory_bytes=1024 * MIB)
    if text:
        put(driver, text)
    driver.submit(3, memory_bytes=100 * MIB)
    [run] = driver.of(fx.Run)
    memory = {} if charged_mib is None else {"memory": charged_mib * MIB * 1000}
    assert run.claims == [{"cpus": 1000, **memory}]
    assert run.limits == ([] if more_mib is None else [(0, {"memory": more_mib * MIB * 1000})])


def test_what_tasks_may_use_is_told_of_the_claims_that_it_goes_with() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4, memory_bytes=1024 * MIB)
    put(driver, "ConsumptionMemory = 4")
    driver.hold_back()
    for asked_mib in (3, 9):
        driver.submit(memory_bytes=asked_mib * MIB)
    driver.let_go()
    [run] = driver.of(fx.Run)
    assert run.claims == [{"cpus": 1000, "memory": 4 * MIB * 1000}] * 2
    assert run.limits == [(1, {"memory": 9 * MIB * 1000})]


def test_a_suspected_task_may_use_what_it_asked_for_or_what_it_is_charged_for_safety() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, memory_bytes=1024 * MIB)
    put(driver, "ConsumptionMemory = 0.125 * TARGET.RequestMemory")
    driver.submit(memory_bytes=512 * MIB, max_losses=9)
    charged_mib, limits = [], []
    for process in "abcd":
        [task] = driver.worker("w").held.values()
        assert task.attempt is not None
        charged_mib.append(task.attempt.claim.amounts["memory"] / MIB / 1000)
        limits.append(task.attempt.claim.limits)
        driver.lose("w")
        driver.join("w", cpus=8, memory_bytes=1024 * MIB, incarnation=process)
        driver.live(2.0)
    asked = {"memory": 512 * MIB * 1000}
    assert charged_mib == [64, 64, 256, 1024]
    assert limits == [asked, asked, asked, {}]


def test_htcondors_defaults_send_nothing_to_a_worker_that_lacks_what_it_asks_for() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    put(driver, "CONSUMPTION_POLICY = True")
    job_id = driver.submit(memory_bytes=MIB)
    assert driver.held("w") == []
    assert [reason for reason, *_ in why(driver, job_id)] == [Reason.MISSING_ASSET]


def test_oversubscription_runs_more_than_there_are_processors() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    put(driver, "ConsumptionCpus = 0.25 * TARGET.RequestCpus")
    driver.submit(20)
    assert driver.worker("w").running == 8


def test_three_policies_side_by_side() -> None:
    """As in docs/aggregates.md, after the author's gist erikerlandson/4731965: each machine is used
    up by what its policy counts.
    """
    driver = PoolDriver()
    for name in ("crunch", "bigmem", "kiosk"):
        driver.join(name, cpus=5, memory_bytes=100 * MIB, tags=[name], tokens=3)
    policies = dict(
        re.findall(r"^```text policy (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    )
    assert list(policies) == ["crunch", "bigmem", "kiosk"]
    for name, text in policies.items():
        answer = put(driver, text, name=name, workers=f'member("{name}", Tags)')
        assert (answer.error, answer.tasks) == (None, 1)
    driver.submit(30, memory_bytes=10 * MIB)
    running = {name: driver.worker(name).running for name in ("crunch", "bigmem", "kiosk")}
    assert running == {"crunch": 5, "bigmem": 4, "kiosk": 3}
    free = {name: driver.worker(name).free for name in running}
    assert free["crunch"] == {"cpus": 0, "memory": 50 * MIB * 1000, "tokens": 3000}
    assert free["bigmem"] == {"cpus": 1000, "memory": 0, "tokens": 3000}
    assert free["kiosk"] == {"cpus": 5000, "memory": 100 * MIB * 1000, "tokens": 0}


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("ConsumptionCpus = TARGET.RequestCpus", 2.0),
        ("ConsumptionMemory = 600\nSlotWeight = floor(Memory / 256)", 3.0),
        ("ConsumptionMemory = 10\nSlotWeight = 10 * Cpus + Memory / 1024.0", 20 + 10 / 1024),
    ],
)
def test_a_match_costs_what_the_weight_falls_by(text: str, cost: float) -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4, memory_bytes=1024 * MIB)
    put(driver, text)
    job = driver.submit(1, cpus=2)
    state = driver.pool.state
    terms = state.supply.of(driver.worker("w")).terms(state.jobs[job].shape)
    assert isinstance(terms, Terms)
    assert terms.claim.cost == pytest.approx(cost)


@pytest.mark.parametrize(
    ("text", "cpus", "refusal"),
    [
        (
            "ConsumptionCpus = 50 - TARGET.RequestCpus",
            60,
            ("policy", "60 cpus", "policy lean: ConsumptionCpus comes to -10, which is negative"),
        ),
        (
            "ConsumptionCpus = 10 / (7 - TARGET.RequestCpus)",
            7,
            ("policy", "7 cpus", "policy lean: ConsumptionCpus comes to error"),
        ),
        (
            "ConsumptionCpus = TARGET.RequestCpus > 7 ? 0 : 1",
            8,
            ("policy", "8 cpus", "policy lean: nothing at all is charged"),
        ),
        (
            "SlotWeight = Cpus > 90 ? Cpus : 200",
            30,
            (
                "policy",
                "30 cpus",
                "policy lean: SlotWeight comes to 100 before a match and 200 after it",
            ),
        ),
        (
            "ConsumptionCpus = 60 * TARGET.RequestCpus",
            2,
            ("too-small", "120 cpus (by policy lean)", "100 cpus"),
        ),
    ],
)
def test_what_a_policy_comes_to_only_then_is_a_refusal(
    text: str, cpus: float, refusal: tuple[str, str, str]
) -> None:
    driver = PoolDriver()
    driver.join("w", cpus=100)
    assert put(driver, text).error is None
    job = driver.submit(1, cpus=cpus)
    assert why(driver, job) == [refusal]
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now)
    assert not found.ever


@pytest.mark.parametrize(
    ("requirements", "fits"),
    [("RequestMemory == 50", True), ("RequestMemory == 30", False), ("RequestTokens > 0", False)],
)
def test_requirements_see_what_is_consumed(requirements: str, fits: bool) -> None:
    """HTCondor's consumption_policy.cpp, `cp_override_requested`: only what was asked for is."""
    driver = PoolDriver()
    driver.join("w", cpus=5, memory_bytes=100 * MIB, tokens=3)
    put(driver, "ConsumptionMemory = quantize(TARGET.RequestMemory, {25})\nConsumptionTokens = 1")
    driver.submit(1, memory_bytes=30 * MIB, requirements=requirements)
    assert (driver.worker("w").running == 1) is fits


def test_rank_sees_what_was_asked_for() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=5)
    put(driver, "ConsumptionCpus = 3")
    job = driver.submit(1, rank="RequestCpus")
    state = driver.pool.state
    terms = state.supply.of(driver.worker("w")).terms(state.jobs[job].shape)
    assert isinstance(terms, Terms)
    assert terms.rank == 1


def test_a_policy_on_the_page_is_one() -> None:
    texts = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert texts
    for text in texts:
        driver = PoolDriver()
        driver.join("w", cpus=4, memory_bytes=1024 * MIB)
        assert put(driver, text).error is None


def test_a_policy_that_wants_what_a_worker_has_not_says_so() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=4, tokens=1)
    assert put(driver, "ConsumptionTokens = 1").error is None
    driver.join("w2", cpus=4)
    job = driver.submit(2)
    assert ("missing-asset", "tokens (by policy lean)", "cpus") in why(driver, job)


def test_a_bad_policy_is_refused_and_changes_nothing() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    put(driver, "ConsumptionCpus = 2")
    answer = put(driver, "# new\nConsumptionCpus = ConsumptionCpus + 1")
    assert answer.error == "usage"
    assert answer.message == "policy lean is refused: ConsumptionCpus refers to itself"
    assert answer.cause == (
        "line 2, column 19\nConsumptionCpus = ConsumptionCpus + 1\n" + " " * 18 + "^"
    )
    driver.submit(4)
    assert driver.worker("w").running == 2
    assert [r for r in driver.records if isinstance(r, PolicyRecord)] == [
        PolicyRecord("lean", "true", "ConsumptionCpus = 2")
    ]


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ("Cpus >", "a value is expected"),
        ("TARGET.Cpus > 1", "it is about workers alone"),
        ("random() > 0", "not the same each time"),
    ],
)
def test_whom_a_policy_is_for_must_be_an_expression_on_workers(workers: str, said: str) -> None:
    answer = put(PoolDriver(), "ConsumptionCpus = 2", workers=workers)
    assert answer.error == "usage"
    assert said in answer.message
    assert answer.cause.endswith("^")


def test_the_first_policy_by_name_that_is_for_a_worker_counts() -> None:
    driver = PoolDriver()
    driver.join("big", cpus=8)
    driver.join("small", cpus=2)
    put(driver, "ConsumptionCpus = 2", name="b-all")
    put(driver, "ConsumptionCpus = 4", name="a-big", workers="Cpus >= 8")
    driver.submit(20)
    assert (driver.worker("big").running, driver.worker("small").running) == (2, 1)


def test_what_does_not_count_of_an_ad_chooses_no_policy() -> None:
    driver = PoolDriver(Config(max_account_cpus=8))
    driver.join("w@pool/1", cpus=100)
    assert put(driver, "ConsumptionCpus = 2", workers="Cpus > 8").tasks == 0
    assert put(driver, "ConsumptionCpus = 4", name="all").tasks == 1
    driver.join("w@pool/1", cpus=100)
    driver.submit(9)
    assert driver.worker("w@pool/1").running == 2


def test_a_worker_that_joins_later_has_its_policy_at_once() -> None:
    driver = PoolDriver()
    put(driver, "ConsumptionCpus = 2")
    driver.submit(20)
    driver.join("w", cpus=8)
    assert driver.worker("w").running == 4


def test_a_new_policy_leaves_what_runs_as_it_was_charged() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8)
    driver.submit(2)
    put(driver, "ConsumptionCpus = 3")
    assert driver.worker("w").free == {"cpus": 6000}
    driver.submit(30)
    assert driver.worker("w").free == {"cpus": 0}
    driver.report("w", *driver.held("w"))
    assert driver.worker("w").running == 2
    assert remove(driver).error is None
    assert driver.worker("w").free == {"cpus": 0}
    driver.report("w", *driver.held("w"))
    assert driver.worker("w").running == 8
    assert driver.worker("w").free == {"cpus": 0}


def test_a_policy_outlasts_a_restart_until_it_is_removed() -> None:
    driver = PoolDriver()
    put(driver, "ConsumptionCpus = 2")
    driver.restart()
    driver.join("w", cpus=8)
    driver.submit(20)
    assert driver.worker("w").running == 4
    assert remove(driver).error is None
    assert SettingGone(PolicyRecord, "lean") in driver.records
    assert remove(driver).error == "not-found"


def test_a_stored_policy_that_charges_a_common_request_nothing_is_told_of() -> None:
    """It was taken under other rules. What it is right for goes on."""
    driver = PoolDriver()
    text = "ConsumptionCpus = TARGET.RequestCpus / 2"
    driver.records.append(PolicyRecord("half", "true", text))
    driver.restart()
    [note] = [each for each in driver.of(fx.Note) if "policy half" in each.text]
    assert note.level == "warning"
    assert note.text.startswith("policy half: ConsumptionCpus comes to 0 for a task that asks for")
    assert "write TARGET.RequestCpus / 2.0" in note.text
    driver.join("w", cpus=2)
    job = driver.submit(cpus=2)
    assert driver.jobs_at("w") == [job]


def test_a_stored_policy_that_cannot_be_read_does_not_stop_the_pool() -> None:
    driver = PoolDriver()
    put(driver, "ConsumptionCpus = 2")
    driver.records.append(PolicyRecord("lean", "true", "ConsumptionCpus = gone(1)"))
    driver.restart()
    notes = [effect.text for effect in driver.effects if isinstance(effect, fx.Note)]
    assert any("policy lean is not in force: there is no function gone()" in n for n in notes)
    driver.join("w", cpus=8)
    driver.submit(20)
    assert driver.worker("w").running == 8


def test_a_policy_is_evaluated_once_for_a_shape_and_a_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kestrelctl.core.policies.consumption import Consumption

    driver = PoolDriver()
    put(driver, "ConsumptionCpus = 2")
    counted = []
    real = Consumption.amounts

    def counting(self: Consumption, *arguments: object) -> object:
        counted.append(arguments)
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Consumption, "amounts", counting)
    driver.join("w1", "w2", "w3", cpus=8)
    driver.submit(100)
    driver.submit(100)
    for _ in range(5):
        driver.report("w1", *driver.held("w1")[:1])
    assert len(counted) == 1


def test_a_worker_of_which_only_the_address_is_known_has_no_policy() -> None:
    driver = PoolDriver()
    put(driver, "ConsumptionCpus = 2")
    cls = driver.pool.state.class_of(None, "w@pool/1")
    assert cls.policy is None
    job = driver.submit(1)
    terms = driver.pool.state.supply.of_class(cls).terms(driver.pool.state.jobs[job].shape)
    assert isinstance(terms, Refusal)
    assert terms.reason is Reason.UNHEARD


def test_a_pool_has_a_hundred_policies_at_most() -> None:
    driver = PoolDriver()
    for number in range(100):
        assert put(driver, "ConsumptionCpus = 2", name=f"p{number}").error is None
    assert put(driver, "ConsumptionCpus = 2", name="one-more").error == "usage"
    assert put(driver, "ConsumptionCpus = 1", name="p7").error is None


def test_a_worker_needs_no_classad_library() -> None:
    code = (
        "import sys; sys.modules['classad2'] = None\n"
        "import kestrelctl.cli.main, kestrelctl.cli.worker.commands, kestrelctl.worker.daemon\n"
        "import kestrelctl.core.agent.agent\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def join_unsure(driver: PoolDriver) -> None:
    """A worker that does not know how much `db` it has."""
    ad = WorkerAd(assets={"cpus": 8.0}, unknown={"db": 75})
    driver.tell(ev.Joined(at=driver.now, worker="w", ad=ad, holds=[], incarnation="one"))


def test_a_policy_may_charge_what_nobody_knows_the_amount_of() -> None:
    driver = PoolDriver()
    join_unsure(driver)
    assert put(driver, "ConsumptionDb = 2 * TARGET.RequestDb").error is None
    spec = ev.JobSpec(program=Program(argv=("true",)), count=9, request={"cpus": 1.0, "db": 1.0})
    driver.tell(ev.Submit(at=driver.now, request="r", owner="ada", spec=spec))
    [run] = driver.of(fx.Run)
    assert run.claims == [{"cpus": 1000, "db": 2000}]
    driver.report("w")
    assert driver.worker("w").assets["db"] == 4000
    assert driver.worker("w").running == 2


@pytest.mark.parametrize("text", ["ConsumptionDb = Db", "ConsumptionCpus = 1\nSlotWeight = Db"])
def test_a_policy_cannot_go_by_an_amount_that_nobody_knows(text: str) -> None:
    driver = PoolDriver()
    join_unsure(driver)
    answer = put(driver, text)
    assert answer.error == "usage"
    assert "comes to undefined" in answer.message


def test_a_worker_that_comes_later_with_an_unknown_amount_has_no_price() -> None:
    driver = PoolDriver()
    driver.tell(ev.Heard(at=driver.now, worker="nobody"))
    assert put(driver, "ConsumptionCpus = Db").error is not None
    assert put(driver, "ConsumptionDb = Db").error is None
    join_unsure(driver)
    assert why(driver, driver.submit()) == [
        ("policy", "1 cpu", "policy lean: ConsumptionDb comes to undefined")
    ]
