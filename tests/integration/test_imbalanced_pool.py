"""Hosts of a real pool make environments for three classes of work."""

from __future__ import annotations

import pytest

from kestrel_experiments.imbalance.class_load import ImbalancePlan
from kestrel_experiments.imbalance.run import imbalance_run

pytestmark = pytest.mark.timeout(300)


async def test_work_of_all_classes_gets_the_environments_that_it_needs() -> None:
    plan = ImbalancePlan(hosts=3, tasks=12, mean_seconds=0.3, idle_seconds=1.0)
    static = await imbalance_run(plan, "static", 1)
    on_demand = await imbalance_run(plan, "on-demand", 1)
    for run in (static, on_demand):
        assert run.wrong == []
        assert run.audit.tasks == 12
        assert [waits.tasks for waits in run.waits] == [10, 1, 1]
    assert static.started == 0, "all are there before the load begins"
    assert on_demand.started >= 3, "one for each class at least"
    assert on_demand.starting_seconds > 0
