"""What holds for settings of every kind: set, bounded, removed, found again."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import GroupRecord, PolicyRecord, TokenRecord
from kestrelctl.core.model.setting import Setting, SettingGone
from kestrelctl.core.model.share_change import GroupChange, ShareChange
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.settings.kind import AnyKind
from kestrelctl.core.settings.table import BY_STRUCT, BY_WANTED, KINDS


class Example(NamedTuple):
    """Settings of one kind, as an admin wants them."""

    first: Setting | GroupChange
    other: Setting | GroupChange  #: of the same name
    wrong: Setting | GroupChange
    missing: str  #: the error if there is none of the name `seats`
    bound: str


EXAMPLES: dict[type[Setting], Example] = {
    PolicyRecord: Example(
        PolicyRecord("seats", "true", "ConsumptionCpus = 2"),
        PolicyRecord("seats", "Cpus > 1", "ConsumptionCpus = 2"),
        PolicyRecord("no name", "true", "ConsumptionCpus = 2"),
        "the pool has no policy seats",
        "a pool has at most 100 policies",
    ),
    TokenRecord: Example(
        TokenRecord("seats", 2),
        TokenRecord("seats", 3),
        TokenRecord("cpus", 2),
        "the pool has no asset seats of its own",
        "a pool has at most 100 assets of its own",
    ),
    GroupRecord: Example(
        GroupChange("seats", ShareChange(weight=2.0)),
        GroupChange("seats", ShareChange(max_running=5)),
        GroupChange("no name", ShareChange()),
        "the pool has no group seats",
        "a pool has at most 1,000 groups",
    ),
    FlockRule: Example(
        FlockRule(name="seats", direction="lend", action="deny"),
        FlockRule(name="seats", direction="borrow", action="deny"),
        FlockRule(name="no name", direction="lend", action="deny"),
        "there is no rule 'seats'",
        "a pool has at most 100 rules of its flock",
    ),
    WorkerGroup: Example(
        WorkerGroup(name="seats", tags=("gpu",)),
        WorkerGroup(name="seats", names=("h*",)),
        WorkerGroup(name="seats", where="Cpus >="),
        "there is no group of workers 'seats'",
        "a pool has at most 100 groups of workers",
    ),
}

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)


def answered(answer: fx.Answer) -> tuple[str | None, str]:
    return answer.error, answer.message


def test_each_kind_has_its_place_in_the_table() -> None:
    assert BY_STRUCT.keys() == EXAMPLES.keys()
    assert len({kind.word for kind in KINDS}) == len(BY_STRUCT) == len(BY_WANTED) == len(KINDS)


@each_kind
def test_it_is_there_until_it_is_removed_also_after_a_restart(kind: AnyKind) -> None:
    driver, wanted = PoolDriver(), EXAMPLES[kind.struct]
    assert answered(driver.put(wanted.first)) == (None, "")
    [first] = driver.pool.settings(kind.struct)
    assert first in driver.records
    assert answered(driver.put(wanted.other)) == (None, "")
    [other] = driver.pool.settings(kind.struct)
    assert first != other
    driver.restart()
    assert driver.pool.settings(kind.struct) == [other]
    assert answered(driver.drop(kind.struct, "seats")) == (None, "")
    assert driver.records[-1] == SettingGone(kind.struct, "seats")
    assert driver.pool.settings(kind.struct) == []
    driver.restart()
    assert driver.pool.settings(kind.struct) == []


@each_kind
def test_what_is_wrong_is_refused_and_changes_nothing(kind: AnyKind) -> None:
    driver = PoolDriver()
    driver.put(EXAMPLES[kind.struct].first)
    before = driver.pool.settings(kind.struct)
    answer = driver.put(EXAMPLES[kind.struct].wrong)
    assert answer.error == "usage"
    assert driver.pool.settings(kind.struct) == before


@each_kind
def test_to_remove_one_that_is_not_there_is_an_error(kind: AnyKind) -> None:
    answer = PoolDriver().drop(kind.struct, "seats")
    assert answered(answer) == ("not-found", EXAMPLES[kind.struct].missing)
    assert answer.hint == kind.listed_by


@each_kind
def test_there_is_a_bound_and_what_is_there_can_be_changed(kind: AnyKind) -> None:
    driver, wanted = PoolDriver(), EXAMPLES[kind.struct]
    driver.put(wanted.first)
    [first] = driver.pool.settings(kind.struct)
    for n in range(kind.most - 1):
        driver.pool.state.settings.put(kind.struct(**_fields(first) | {"name": f"s{n}"}))
    assert answered(driver.put(wanted.other)) == (None, "")
    driver.pool.state.settings.put(kind.struct(**_fields(first) | {"name": "one more"}))
    driver.drop(kind.struct, "seats")
    answer = driver.put(wanted.first)
    assert answered(answer) == ("usage", EXAMPLES[kind.struct].bound)
    assert answer.hint == kind.listed_by


def _fields(setting: Setting) -> dict[str, object]:
    return {name: getattr(setting, name) for name in setting.__struct_fields__}


@each_kind
def test_it_is_announced_and_answered_when_it_is_durable(kind: AnyKind) -> None:
    driver = PoolDriver()
    driver.put(EXAMPLES[kind.struct].first)
    kinds = [type(effect) for effect in driver.effects]
    assert kinds.index(fx.Persist) < kinds.index(fx.SettingChanged) < kinds.index(fx.Answer)
    assert fx.SettingChanged.after_commit
    assert driver.of(fx.SettingChanged) == [fx.SettingChanged(kind=kind.struct)]


@each_kind
def test_the_log_says_who_has_set_and_removed_it(kind: AnyKind) -> None:
    driver = PoolDriver()
    driver.put(EXAMPLES[kind.struct].first)
    [said] = [note.text for note in driver.of(fx.Note) if "seats" in note.text]
    assert said.endswith(" set by root")
    driver.drop(kind.struct, "seats")
    [said] = [note.text for note in driver.of(fx.Note) if "seats" in note.text]
    assert said.endswith(" was removed by root")


@pytest.mark.parametrize(
    "stored",
    [
        GroupRecord(name="heavy", weight=0.0),
        GroupRecord(name="heavy", max_queued=-1),
        WorkerGroup(name="heavy", where="Cpus >="),
        PolicyRecord("heavy", "Cpus >=", "ConsumptionCpus = 2"),
    ],
)
def test_what_was_stored_and_cannot_hold_is_not_in_force_and_told_of(stored: Setting) -> None:
    driver = PoolDriver()
    driver.records.append(stored)
    driver.restart()
    assert driver.pool.settings(type(stored)) == []
    [note] = [note for note in driver.of(fx.Note) if "heavy" in note.text]
    assert (note.level, "is not in force: " in note.text) == ("error", True)


def test_the_answer_counts_the_workers_of_a_group() -> None:
    driver = PoolDriver()
    driver.join("w1", tags=("gpu",))
    driver.join("w2")
    assert driver.put(WorkerGroup(name="seats", tags=("gpu",))).tasks == 1
    assert driver.pool.worker_groups.of("w9", WorkerAd(tags=("gpu",))) == ("seats",)
    driver.drop(WorkerGroup, "seats")
    assert driver.pool.worker_groups.all == []
