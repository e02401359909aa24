"""An experiment with a flock beside an earlier one."""

from __future__ import annotations

from kestrel_experiments.flock.result import FlockResult, ModeResult, PoolSpread, summary
from kestrel_experiments.flock.table import name_of, number, text_table

COMPARISON_COLUMNS = ("pools", "pool", "mean", "before", "ratio", "most", "before", "ratio")


def comparison(name: str, before: FlockResult, now: FlockResult) -> str:
    """Compares the settings that both have, in plain text, and tells what makes that hard.

    Args:
        name: name of the earlier result.
    """
    earlier = {(each.mode, each.delay_ms): each for each in summary(before.runs)}
    lines = [
        line
        for setting in summary(now.runs)
        if (other := earlier.get((setting.mode, setting.delay_ms))) is not None
        for line in _lines(other, setting)
    ]
    if not lines:
        return f"{name} has no run in common"
    said = [f"beside {name}:", text_table(COMPARISON_COLUMNS, lines)]
    if before.unit_seconds != now.unit_seconds:
        units = f"{before.unit_seconds:g} s and {now.unit_seconds:g} s"
        said.append(f"a unit differs: {units}, so overhead weighs differently")
    if {run.seed for run in before.runs} != {run.seed for run in now.runs}:
        said.append("other seeds: what differs may be the draw")
    if before.most_tasks != now.most_tasks:
        said.append("other numbers of tasks: not to be compared")
    return "\n".join(said)


def _lines(before: ModeResult, now: ModeResult) -> list[list[str]]:
    earlier = {pool.pool: pool for pool in before.pools}
    return [
        [name_of(now.mode, now.delay_ms), pool.pool, *_cells(earlier[pool.pool], pool)]
        for pool in now.pools
        if pool.pool in earlier
    ]


def _cells(before: PoolSpread, now: PoolSpread) -> list[str]:
    cells = []
    for old, new in ((before.mean, now.mean), (before.most, now.most)):
        ratio = f"{new.median / old.median:.2f}" if old.median else "-"
        cells += [number(new.median), number(old.median), ratio]
    return cells
