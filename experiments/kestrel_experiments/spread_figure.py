"""A figure over many seeds: a row for each setting of each group, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kestrel_experiments.flock.statistics import SeedSpread
from kestrelctl.bench.report.svg import WIDTH, Plot, Scale, decades, written_out

_ROW = 28
_LEFT = 70
#: The least value that a logarithmic axis shows.
LEAST = 0.1


def spread_figure(
    groups: Mapping[str, Mapping[str, SeedSpread]],
    what: str,
    say: Callable[[float], str],
    beside: Mapping[str, float] | None = None,
) -> str:
    """The dot is the median of the seeds, the line goes from the 5th to the 95th percentile.

    Args:
        groups: by group and by setting.
        what: it is, with its unit.
        say: writes a value.
        beside: a diamond in the first row of a group.
    """
    beside = beside or {}
    spreads = [each for rows in groups.values() for each in rows.values()]
    values = [*(v for each in spreads for v in (each.low, each.high)), *beside.values()]
    span = decades(max(LEAST, min(values)), max(LEAST * 10, *values))
    count = len(spreads)
    bottom = 8 + _ROW * count
    x = Scale(span[0], span[-1], _LEFT, WIDTH - 70, logarithmic=True)
    plot = Plot("", x, Scale(0, count, 8, bottom), bottom + 52)
    for tick in span:
        plot.upright(tick, 0, count, "grid")
        plot.text(x(tick), bottom + 20, written_out(tick), "middle")
    plot.text((x.start + x.end) / 2, bottom + 44, what, "middle soft")
    words = []
    first = 0
    for group, rows in groups.items():
        plot.text(0, plot.y(first + len(rows) / 2) + 5, group)
        for place, (setting, each) in enumerate(rows.items()):
            row = first + place + 0.5
            low, high = max(LEAST, each.low), max(LEAST, each.high)
            plot.polyline(((low, row), (high, row)), f"curve thick s{place}")
            plot.dot(max(LEAST, each.median), row, f"s{place}", radius=5.5)
            plot.text(WIDTH, plot.y(row) + 5, say(each.median), "end")
            words.append(f"{group} {setting}: {say(each.median)}")
        if group in beside:
            plot.diamond(beside[group], first + 0.5, "then")
        first += len(rows)
    plot.alt = f"{what}, median of the seeds. {'; '.join(words)}."
    return plot.markup()
