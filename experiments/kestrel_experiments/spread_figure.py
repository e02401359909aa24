"""A figure over many seeds: a row for each setting of each group, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kestrel_experiments.flock.statistics import SeedSpread
from kestrelctl.bench.report.plot import THEN, Plot, drawing

#: The least value that a logarithmic axis shows.
LEAST = 0.1


@drawing()
def spread_figure(
    groups: Mapping[str, Mapping[str, SeedSpread]],
    what: str,
    say: Callable[[float], str],
    beside: Mapping[str, float] | None = None,
) -> Plot:
    """Draws a dot for the median of the seeds, and a line from the 5th to the 95th percentile.

    Args:
        groups: the figures, by group and by setting.
        what: what the figures are, with their unit.
        say: writes a value.
        beside: values that are drawn as a diamond in the first row of a group.
    """
    beside = beside or {}
    spreads = [each for rows in groups.values() for each in rows.values()]
    words = [
        f"{group} {setting}: {say(each.median)}"
        for group, rows in groups.items()
        for setting, each in rows.items()
    ]
    alt = f"{what}, median of the seeds. {'; '.join(words)}."
    plot = Plot.of_rows(alt, len(spreads), left=70, right=70, x_label=what)
    values = [*(v for each in spreads for v in (each.low, each.high)), *beside.values()]
    plot.decades(max(LEAST, min(values)), max(LEAST * 10, *values))
    first = 0
    for group, rows in groups.items():
        plot.beside(first + len(rows) / 2, group)
        for place, each in enumerate(rows.values()):
            row = first + place + 0.5
            plot.span(max(LEAST, each.low), max(LEAST, each.high), row, place)
            plot.dots([(max(LEAST, each.median), row)], place, 11)
            plot.beside(row, say(each.median), right=True)
        if group in beside:
            plot.diamond(beside[group], first + 0.5, THEN)
        first += len(rows)
    return plot
