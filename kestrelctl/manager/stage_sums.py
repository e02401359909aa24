"""How the stages of a job's tasks went, added up."""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.stage import STAGES, StageRun
from kestrelctl.protocol.stage_views import StageSum

#: Of so many tasks at most: those of one page.
MOST_TASKS = 1000


def stage_sums(rows: Iterable[TaskRecord]) -> list[StageSum]:
    """What each stage took in the latest attempts of tasks, in the order of the stages."""
    found: dict[str, list[StageRun]] = {name: [] for name in STAGES}
    for row in rows:
        for run in row.result.stages if row.result is not None else ():
            found[run.name].append(run)
    return [
        StageSum(
            name=name,
            tasks=len(runs),
            mean_seconds=sum(run.wall_seconds for run in runs) / len(runs),
            repeated=sum(run.tries - 1 for run in runs),
        )
        for name, runs in found.items()
        if runs
    ]
