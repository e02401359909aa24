"""Hosts for three classes of work: the load, what a run adds up to, and how it is shown."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli_fake_pool import FakePool, run
from flockbenchkit import a_pool, a_task
from imbalancekit import PLAN, a_result, a_run
from msgspec.structs import replace

from kestrel_experiments.imbalance import run as imbalance_run
from kestrel_experiments.imbalance.class_load import (
    SHARINGS,
    ClassTask,
    ImbalancePlan,
    Sharing,
    class_load,
    environment_classes,
    least_makespan,
    thirds,
)
from kestrel_experiments.imbalance.environment_watch import EnvironmentSpan, EnvironmentWatch
from kestrel_experiments.imbalance.page import busy_plot, page, rows, sentences, waits_plot
from kestrel_experiments.imbalance.result import ClassWaits, figures, run_of
from kestrel_experiments.imbalance.run import class_file
from kestrelctl.core.environments.class_files import read_classes
from kestrelctl.core.environments.started import Environment, EnvironmentPhase
from kestrelctl.errors import KestrelError
from kestrelctl.grammar.quantities import parse_size

BOTH: tuple[ClassTask, ...] = (ClassTask(0.0, 0.5, "a"), ClassTask(1.0, 0.5, "b"))
BEGAN_AT = 100.0


# -- the load --------------------------------------------------------------------------------------


def test_the_first_class_has_four_fifths_of_the_tasks() -> None:
    plan = ImbalancePlan(hosts=6, tasks=33, mean_seconds=2.0)
    tasks = class_load(plan, 1)
    assert Counter(task.of for task in tasks) == {"a": 27, "b": 3, "c": 3}
    assert all(1.0 <= task.seconds <= 3.0 for task in tasks)
    assert tasks == sorted(tasks)


def test_tasks_come_within_the_time_that_all_hosts_need_for_them() -> None:
    for over in (0.1, 1.0):
        tasks = class_load(ImbalancePlan(hosts=4, tasks=400, mean_seconds=2.0, over=over), 1)
        assert 0.95 * over * 200 < tasks[-1].at <= over * 200


def test_a_seed_is_a_load() -> None:
    assert class_load(PLAN, 1) == class_load(PLAN, 1) != class_load(PLAN, 2)


def test_hosts_that_do_not_divide_go_to_the_first_classes() -> None:
    assert thirds(35) == {"a": 12, "b": 12, "c": 11}


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_real_manager_is_given_what_a_simulated_one_is(sharing: Sharing) -> None:
    classes = environment_classes(PLAN, sharing)
    read = read_classes(class_file(classes), "/classes.toml", parse_size)
    assert list(read.values()) == classes


def test_a_static_partition_has_all_its_environments_and_no_more() -> None:
    bounds = {
        sharing: [(cls.minimum, cls.maximum) for cls in environment_classes(PLAN, sharing)]
        for sharing in SHARINGS
    }
    assert bounds == {"static": [(2, 2)] * 3, "on-demand": [(0, 6)] * 3, "kept": [(1, 6)] * 3}
    two = replace(PLAN, kept=2)
    assert {cls.minimum for cls in environment_classes(two, "kept")} == {2}
    assert {cls.minimum for cls in environment_classes(two, "on-demand")} == {0}


def test_the_worst_class_bounds_a_static_partition() -> None:
    plan = ImbalancePlan(hosts=6, tasks=3, mean_seconds=4.0)
    tasks = [ClassTask(0.0, 8.0, "a"), ClassTask(0.0, 2.0, "b"), ClassTask(0.0, 2.0, "c")]
    assert least_makespan(plan, "static", tasks) == 4.0
    assert least_makespan(plan, "on-demand", tasks) == 2.0


# -- environments ----------------------------------------------------------------------------------


def seen(number: int, phase: EnvironmentPhase, since: float) -> Environment:
    return Environment(number=number, of="a", host="w1", phase=phase, since=since)


def test_an_environment_is_known_from_its_order_to_its_end() -> None:
    watch = EnvironmentWatch()
    watch.look([seen(1, EnvironmentPhase.STARTING, 10.0)], 10.1)
    assert watch.ready() == 0
    watch.look([seen(1, EnvironmentPhase.READY, 10.5)], 10.7)
    assert watch.ready() == 1
    watch.look([seen(1, EnvironmentPhase.STOPPING, 14.0)], 14.1)
    watch.look([], 15.0)
    assert list(watch.spans.values()) == [
        EnvironmentSpan(number=1, of="a", ordered_at=10.0, ready_at=10.5, gone_at=15.0)
    ]
    assert watch.ready() == 0


@pytest.mark.parametrize(
    ("ready_at", "gone_at", "seconds"),
    [(10.5, None, 0.5), (None, 13.0, 3.0), (None, None, 10.0), (25.0, 26.0, 10.0)],
)
def test_an_environment_costs_its_host_the_time_until_it_can_work(
    ready_at: float | None, gone_at: float | None, seconds: float
) -> None:
    span = EnvironmentSpan(number=1, of="a", ordered_at=10.0, ready_at=ready_at, gone_at=gone_at)
    assert span.starting_seconds(20.0) == seconds


# -- what a run adds up to -------------------------------------------------------------------------


def added_up(*tasks: Any, load: tuple[ClassTask, ...] = BOTH, **changes: Any) -> Any:
    given: dict[str, Any] = {
        "spans": (),
        "expected": {f"load-{n + 1}": task.seconds for n, task in enumerate(load)},
    }
    keys = [f"load-{n + 1}" for n in range(len(load))]
    told = a_pool("load", *tasks)
    return run_of(PLAN, "on-demand", 3, load, keys, BEGAN_AT, told, **(given | changes))


FIRST = a_task("load-1", submitted_at=100.0, started_at=101.0)
SECOND = a_task("load-2", submitted_at=101.0, started_at=104.5)


def test_queue_times_are_those_of_each_class() -> None:
    found = added_up(FIRST, SECOND)
    assert found.waits == [
        ClassWaits("a", 1, 1.0, 1.0), ClassWaits("b", 1, 3.5, 3.5), ClassWaits("c", 0, 0.0, 0.0),
    ]  # fmt: skip
    assert found.makespan_seconds == 5.0
    assert found.utilisation == pytest.approx(1.0 / (5.0 * 6), abs=1e-4)
    assert sum(found.busy) * found.bin_seconds == pytest.approx(1.0, abs=0.1)
    assert not found.wrong


def test_what_was_there_before_the_load_costs_it_nothing() -> None:
    spans = [
        EnvironmentSpan(number=1, of="a", ordered_at=90.0, ready_at=99.0),
        EnvironmentSpan(number=2, of="b", ordered_at=100.5, ready_at=102.0),
        EnvironmentSpan(number=3, of="b", ordered_at=104.0),
    ]
    found = added_up(FIRST, SECOND, spans=spans)
    assert (found.started, found.starting_seconds) == (2, 1.5 + 1.0)


def test_a_pool_that_is_done_too_soon_is_not_believed() -> None:
    load = tuple(ClassTask(0.0, 50.0, "a") for _ in range(2))
    with pytest.raises(KestrelError, match="impossible"):
        added_up(FIRST, SECOND, load=load)


def test_a_task_that_is_lost_is_found() -> None:
    found = added_up(FIRST)
    assert found.audit.lost == 1
    assert found.wrong == ["pool load: task load-2 has no accepted result"]


def test_a_ratio_is_that_of_one_seed() -> None:
    runs = [
        a_run("static", 1), a_run("on-demand", 1, makespan_seconds=5.0),
        a_run("static", 2, makespan_seconds=100.0), a_run("on-demand", 2, makespan_seconds=75.0),
        a_run("on-demand", 3, makespan_seconds=1000.0),
    ]  # fmt: skip
    static, on_demand = figures(runs)
    assert static.ratio is None
    assert on_demand.ratio is not None
    assert on_demand.ratio.median == 0.5
    assert on_demand.seeds == 3


# -- how it is shown -------------------------------------------------------------------------------


def test_a_row_has_what_was_asked_for() -> None:
    runs = [a_run(sharing) for sharing in SHARINGS]
    assert rows(runs)[1] == [
        "on demand", "10.0 (10.0-10.0)", "0.50 (0.50-0.50)", "80%", "1.00", "2.50", "0.00",
        "12.0", "3.00", "0.00", "7", "4.50",
    ]  # fmt: skip
    assert [row[0] for row in rows(runs)] == [
        "a third for each class", "on demand", "on demand, some of each kept",
    ]  # fmt: skip


def test_the_page_says_what_is_wrong() -> None:
    sound = a_result(a_run("static"), a_run("on-demand"))
    assert "Every task ended once." in page(sound)
    assert "0.50 of it; wanted: at most 0.6" in page(sound)
    wrong = a_result(a_run("static", problems=["<a task> runs twice"]))
    assert "1 finding of the audit." in page(wrong)
    assert "static, seed 1: &lt;a task&gt; runs twice" in page(wrong)
    assert "static, seed 1: <a task> runs twice" in sentences(wrong)


def test_plots_show_each_way_to_share_hosts_out() -> None:
    result = a_result(*(a_run(sharing, seed) for sharing in SHARINGS for seed in (4, 2)))
    assert busy_plot(result).markup().count("stroke-width: 2.4") == 3, "of one seed"
    assert waits_plot(result).markup().count("<use") == 9


# -- the command -----------------------------------------------------------------------------------


def test_options_that_make_no_sense_are_refused() -> None:
    for words, said in (
        (("--start", "1"), "real environments take as long as they do"),
        (("--simulated", "--start", "soon"), "not a sleep time: 'soon'"),
        (("--over", "0"), "--over"),
        (("--hosts", "2"), "--hosts"),
        (("--hosts", "6", "--keep", "3"), "6 hosts have no room for 3 of each class"),
        (("--sharing", "fair"), "--sharing"),
    ):
        result = run(FakePool(), "bench", "environments", *words)
        assert said in result.stderr
        assert result.exit_code == 2


def test_a_simulated_experiment_is_reported(tmp_path: Path) -> None:
    words = ("--simulated", "--hosts", "3", "--tasks", "10", "--seconds", "1", "--sharing", "kept")
    result = run(FakePool(), "bench", "environments", *words, "--report", str(tmp_path))
    assert result.exit_code == 0
    assert "on demand, some of each kept" in result.stdout
    assert "run 1 of 1: kept, seed 1:" in result.stderr
    assert sorted(os.listdir(tmp_path)) == [
        "environments-busy.svg", "environments-waits.svg", "environments.html",
        "environments.json",
    ]  # fmt: skip


def test_a_bench_that_a_signal_ends_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def one(plan: ImbalancePlan, sharing: Sharing, seed: int) -> Any:
        if sharing == "kept":
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        return a_run(sharing, seed)

    monkeypatch.setattr(imbalance_run, "imbalance_run", one)
    result = run(FakePool(), "bench", "environments")
    assert result.exit_code == 143
    assert "0.50 (0.50-0.50)" in result.stdout
    assert "ended early by SIGTERM after 2 of 3 runs" in result.stdout


def test_what_the_audit_finds_is_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async def one(plan: ImbalancePlan, sharing: Sharing, seed: int) -> Any:
        assert plan.hosts == 9
        return a_run(sharing, seed, problems=["a task runs twice"])

    monkeypatch.setattr(imbalance_run, "imbalance_run", one)
    result = run(FakePool(), "bench", "environments", "--hosts", "9", "--seeds", "2", "-q")
    assert result.exit_code == 1
    assert "6 findings of the audit" in result.stderr
    assert "a task runs twice" in result.stderr
