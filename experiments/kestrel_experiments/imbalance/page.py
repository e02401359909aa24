"""The results of sharing hosts out among classes of work: as a table, as plots, on a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec

from kestrel_experiments.flock.table import number, with_range
from kestrel_experiments.imbalance.class_load import SHARES, Sharing
from kestrel_experiments.imbalance.result import (
    WANTED_RATIO,
    ImbalanceResult,
    ImbalanceRun,
    SharingFigures,
    figures,
)
from kestrel_experiments.spread_figure import spread_figure
from kestrelctl.bench.report.files import write_files
from kestrelctl.bench.report.markup import document, facts, keys, over, table, tile
from kestrelctl.bench.report.plot import BOUND, Plot, drawing
from kestrelctl.core.model.wording import plural

COLUMNS = (
    "hosts",
    "makespan, s",
    "of static",
    "utilisation",
    *(f"{of} waits, s" for of in SHARES),
    *(f"{of} longest, s" for of in SHARES),
    "started",
    "starting, s",
)
_WORDS: dict[Sharing, str] = {
    "static": "a third for each class",
    "on-demand": "on demand",
    "kept": "on demand, some of each kept",
}


def rows(runs: Sequence[ImbalanceRun]) -> list[list[str]]:
    """Makes a row for each way to share hosts out, in the order of `COLUMNS`: medians of the seeds,
    and for makespan and ratio 5 to 95 % of them, too.
    """
    return [
        [
            _WORDS[each.sharing],
            with_range(each.makespan_seconds),
            with_range(each.ratio),
            f"{each.utilisation.median:.0%}",
            *(number(each.waits[of][0].median) for of in SHARES),
            *(number(each.waits[of][1].median) for of in SHARES),
            f"{each.started.median:,.0f}",
            number(each.starting_seconds.median),
        ]
        for each in figures(runs)
    ]


def sentences(result: ImbalanceResult) -> list[str]:
    """Tells the load, what became of it, and everything that is wrong."""
    plan, runs = result.plan, result.runs
    seeds = len({run.seed for run in runs})
    shares = ", ".join(f"{of} {share:.0%}" for of, share in SHARES.items())
    lost = sum(run.audit.lost for run in runs)
    twice = sum(run.audit.twice for run in runs)
    bound = ", ".join(
        f"{_WORDS[each.sharing]} {min(own):,.1f} s"
        for each in figures(runs)
        if (own := [run.bound_seconds for run in runs if run.sharing == each.sharing])
    )
    said = [
        f"{plan.hosts:,} hosts, {plural(plan.tasks, 'task')} of {plan.mean_seconds:g} s on average "
        f"({shares}), {plural(seeds, 'seed')}",
        f"no pool could be done sooner than (the least of the seeds): {bound}",
        f"{lost:,} lost, {twice:,} accepted twice",
    ]
    if any(run.sharing == "kept" for run in runs):
        said.append(f"kept of each class: {plan.kept:,}")
    late_ms = max((run.late_ms for run in runs), default=0.0)
    if late_ms:
        said.append(f"tasks were submitted at most {late_ms:,.0f} ms late")
    if result.ended_early:
        said.append(f"ended early by {result.ended_early}")
    said += [f"{run.sharing}, seed {run.seed}: {what}" for run in runs for what in run.wrong]
    return said


@drawing()
def busy_plot(result: ImbalanceResult) -> Plot:
    """Plots how many hosts run a task over time, for the first seed."""
    first = min(run.seed for run in result.runs)
    shown = [run for run in result.runs if run.seed == first]
    longest = max(len(run.busy) * run.bin_seconds for run in shown)
    words = "; ".join(f"{_WORDS[run.sharing]}: {run.utilisation:.0%}" for run in shown)
    plot = Plot(
        f"Hosts that run a task, over time. Of their time until the end: {words}.",
        x_label="seconds",
        y_label="hosts that run a task",
    )
    plot.axes.axhline(result.plan.hosts, label="all hosts", **BOUND)
    for run in shown:
        edges = [place * run.bin_seconds for place in range(len(run.busy) + 1)]
        plot.stairs(edges, run.busy, _series(run.sharing), label=_WORDS[run.sharing])
    plot.numbers("x", longest)
    plot.numbers("y")
    return plot


def waits_plot(result: ImbalanceResult) -> Plot:
    """Plots the mean queue time of each class."""
    found = figures(result.runs)
    groups = {
        f"class {of}": {_WORDS[each.sharing]: each.waits[of][0] for each in found} for of in SHARES
    }
    return spread_figure(groups, "mean queue time, seconds", number)


def _series(sharing: Sharing) -> int:
    return list(_WORDS).index(sharing)


def page(result: ImbalanceResult) -> str:
    """Writes the whole page."""
    found = figures(result.runs)
    legend = keys((f"curve s{_series(each.sharing)}", _WORDS[each.sharing]) for each in found)
    simulated = result.start_seconds is not None
    kind = "simulated" if simulated else "real"
    said = "".join(f"<li>{escape(line)}</li>" for line in sentences(result))
    wrong = sum(len(run.wrong) for run in result.runs)
    verdict = "Every task ended once."
    if wrong:
        verdict = f'<span class="wrong">{plural(wrong, "finding")} of the audit.</span>'
    return document(
        "Hosts for three classes of work",
        f"""<header>
{over(result.machine)}
<h1>Hosts for three classes of work</h1>
<p class="lead">One class has most of the work. {result.plan.hosts:,} {kind} hosts are given to the
classes for good, or to each as work comes. {verdict}</p>
<div class="tiles">{"".join(map(_tile, found))}</div>
</header>
<section><h2>Busy hosts</h2>{legend}<figure>{busy_plot(result).markup()}</figure>
<p class="soft">Of the first seed. The dashed line: all hosts.</p></section>
<section><h2>Queue times</h2>{legend}<figure>{waits_plot(result).markup()}</figure>
<p class="soft">Dots: the median of the seeds. Lines: from the 5th to the 95th percentile. What is
shorter than 0.1 s stands at 0.1.</p></section>
<section><h2>In figures</h2><div class="card">{table("Figures", COLUMNS, rows(result.runs))}</div>
<ul>{said}</ul></section>
<section><h2>Method</h2>
{facts(result.machine, {}, result.command)}</section>""",
    )


def _tile(each: SharingFigures) -> str:
    below = "the static partition"
    if each.ratio is not None:
        below = f"{number(each.ratio.median)} of it; wanted: at most {WANTED_RATIO:g}"
    return tile(_WORDS[each.sharing], f"{number(each.makespan_seconds.median)} s", "in all", below)


def write_imbalance_report(directory: Path, result: ImbalanceResult) -> list[Path]:
    """Writes `environments.html`, `environments.json` and plots as SVG; returns them, the page
    first.

    Raises:
        UsageError: they cannot be written.
    """
    return write_files(
        directory,
        {
            "environments.html": page(result).encode(),
            "environments.json": msgspec.json.format(msgspec.json.encode(result)),
            "environments-busy.svg": busy_plot(result).picture(),
            "environments-waits.svg": waits_plot(result).picture(),
        },
    )
