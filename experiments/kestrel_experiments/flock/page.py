"""The report of an experiment with a flock as one HTML page that needs no other file."""

from __future__ import annotations

from html import escape

from kestrel_experiments.flock import figures as figures
from kestrel_experiments.flock.result import FlockResult, ModeResult, summary
from kestrel_experiments.flock.source import FACTOR_OF_ABSTRACT, OVERALL, POOLS, SOURCE
from kestrel_experiments.flock.table import (
    COLUMNS,
    GAIN_COLUMNS,
    audit_lines,
    gain_rows,
    name_of,
    notes,
    number,
    rows,
    with_range,
)
from kestrelctl.bench.report.markup import document, facts, keys, over, table, tile
from kestrelctl.bench.report.plot import Plot

#: The wanted median of the time from when a machine falls idle until a waiting task of another pool
#: starts there.
WANTED_IDLE_MS = 100.0


def flock_page(result: FlockResult) -> str:
    """Writes the whole page."""
    settings = summary(result.runs)
    flocked = [setting for setting in settings if setting.mode != "without"]
    legend, of_flocks = _legend(settings, settings), _legend(settings, flocked)
    body = f"""{_header(result, settings)}
{_waits(settings, legend)}
{_distributions(result, legend)}
{_gains(result, settings, of_flocks)}
{_tables(result)}
{_lent(result, settings)}
{_method(result)}"""
    return document(_title(settings), body)


def _legend(settings: list[ModeResult], drawn: list[ModeResult]) -> str:
    """Makes the legend: the colours of those settings that a figure draws.

    Args:
        settings: all settings; the place of each tells its colour.
    """
    return keys(
        (f"curve s{place}", name_of(setting.mode, setting.delay_ms))
        for place, setting in enumerate(settings)
        if setting in drawn
    )


def _title(settings: list[ModeResult]) -> str:
    if any(setting.mode != "without" for setting in settings):
        return "Pools that lend each other machines"
    return "Pools on their own"


def _header(result: FlockResult, settings: list[ModeResult]) -> str:
    lost = sum(setting.lost for setting in settings)
    twice = sum(setting.twice for setting in settings)
    breaches = sum(setting.breaches for setting in settings)
    verdict = "No task was lost, and no result was accepted twice."
    if lost or twice or breaches:
        verdict = (
            f'<span class="wrong">{lost:,} tasks lost, {twice:,} accepted twice; '
            "what is wrong stands below.</span>"
        )
    early = ""
    if result.ended_early:
        early = f' <span class="wrong">Ended early by {escape(result.ended_early)}.</span>'
    flocked = next((setting for setting in settings if setting.gain is not None), None)
    tiles = "" if flocked is None else f'<div class="tiles">{_tiles(flocked)}</div>'
    tasks = sum(setting.tasks for setting in settings)
    return f"""<header>
{over(result.machine)}
<h1>{_title(settings)}</h1>
<p class="lead">Four pools of three machines with the traces of the source: {tasks:,} tasks in
{len(result.runs):,} runs, on real servers, with one unit of the trace at
{1000 * result.unit_seconds:g} ms. {verdict}{early}</p>
{tiles}
</header>"""


def _tiles(setting: ModeResult) -> str:
    gain = setting.gain
    assert gain is not None
    loaded = ", ".join(pool.name for pool in POOLS if pool.is_loaded)
    shown = []
    if gain.loaded_most is not None:
        shown.append(
            tile(
                f"longest wait of pool {loaded}",
                f"÷ {number(gain.loaded_most.median)}",
                "with flocking",
                f"the source's abstract: {FACTOR_OF_ABSTRACT:g}",
            )
        )
    if gain.overall_mean is not None:
        shown.append(
            tile(
                "mean wait of all tasks",
                f"÷ {number(gain.overall_mean.median)}",
                "with flocking",
                f"5 to 95 % of the seeds: {with_range(gain.overall_mean).partition('(')[2][:-1]}",
            )
        )
    if gain.unloaded_growth is not None:
        shown.append(
            tile(
                "mean wait of unloaded pools",
                f"{gain.unloaded_growth.median:+.2f}",
                "units of the trace",
                "what lending costs them",
            )
        )
    if setting.after_idle_ms is not None:
        p50, p99 = setting.after_idle_ms
        shown.append(
            tile(
                "idle to start elsewhere",
                f"{p50:,.0f} ms",
                "median",
                f"99th percentile {p99:,.0f} ms",
            )
        )
    return "".join(shown)


def longest_waits(settings: list[ModeResult]) -> Plot:
    """Plots the longest queue time of each pool."""
    return figures.spreads(settings, "most", "longest queue time, units of the trace")


def gain_figure(result: FlockResult) -> Plot:
    """Plots what flocking does to the longest wait of the loaded pool, seed by seed."""
    what = f"Longest wait of pool {_loaded()}"
    return figures.gains(result.runs, _loaded(), "most", what, FACTOR_OF_ABSTRACT)


def _loaded() -> str:
    return next(pool.name for pool in POOLS if pool.is_loaded)


def _waits(settings: list[ModeResult], legend: str) -> str:
    mean = figures.spreads(settings, "mean", "mean queue time, units of the trace")
    most = longest_waits(settings)
    return f"""<section><h2>Queue times</h2>
{legend}{keys([("then", "the source, pools alone")])}
<div class="pair">
<figure><h3>Mean</h3>{mean.markup()}</figure>
<figure><h3>Longest</h3>{most.markup()}</figure></div>
<p class="soft">Dots: the median of the seeds. Lines: from the 5th to the 95th percentile of the
seeds. Diamonds: the one draw of the source, without flocking. What is shorter than 0.1 stands at
0.1.</p></section>"""


def _distributions(result: FlockResult, legend: str) -> str:
    if not any(waits.waits for run in result.runs for waits in run.waits):
        return ""
    names = [*(pool.name for pool in POOLS if pool.is_loaded), OVERALL]
    shown = [name for name in names if any(run.of(name) is not None for run in result.runs)]
    drawn = "".join(
        f"<figure><h3>{'All pools' if name == OVERALL else f'Pool {name}'}</h3>"
        f"{figures.distribution(result.runs, name).markup()}</figure>"
        for name in shown
    )
    return f"""<section><h2>Who waits how long</h2>{legend}<div class="pair">{drawn}</div>
</section>"""


def _gains(result: FlockResult, settings: list[ModeResult], legend: str) -> str:
    if not any(setting.gain is not None for setting in settings):
        return ""
    overall = figures.gains(result.runs, OVERALL, "mean", "Mean wait of all tasks", 1.0)
    idle = figures.idle(result.runs, WANTED_IDLE_MS)
    idle_figure = f"<figure><h3>From idle to start</h3>{idle.markup()}</figure>" if idle else ""
    return f"""<section><h2>What flocking is worth, seed by seed</h2>{legend}
<div class="pair"><figure><h3>Longest wait of pool {_loaded()}</h3>{gain_figure(result).markup()}
</figure><figure><h3>Mean wait of all tasks</h3>{overall.markup()}</figure>{idle_figure}</div>
<p class="soft">Without flocking over with it, on the same trace. The dashed line over the longest
wait is the factor of the source's abstract, {FACTOR_OF_ABSTRACT:g}; over the mean it is 1: no
gain.</p></section>"""


def _tables(result: FlockResult) -> str:
    gains = gain_rows(result)
    second = f'<div class="card">{table("Gains", GAIN_COLUMNS, gains)}</div>' if gains else ""
    said = "".join(f'<p class="soft">{escape(note)}</p>' for note in notes(result))
    checked = "".join(f"<li>{escape(line)}</li>" for line in audit_lines(result))
    return f"""<section><h2>In figures</h2>
<div class="card">{table("Queue times", COLUMNS, rows(result))}{said}</div>{second}
<h3>What became of the tasks</h3><ul>{checked}</ul></section>"""


def _lent(result: FlockResult, settings: list[ModeResult]) -> str:
    lines = []
    for setting in settings:
        if setting.mode == "without":
            continue
        runs = setting.among(result.runs)
        for pool in setting.pools:
            if pool.pool == OVERALL:
                continue
            cells = [name_of(setting.mode, setting.delay_ms), pool.pool]
            for lender in setting.pools:
                if lender.pool == OVERALL:
                    continue
                count = sum(run.lent.get(pool.pool, {}).get(lender.pool, 0) for run in runs)
                cells.append(f"{count / len(runs):,.1f}" if pool.pool != lender.pool else "-")
            lines.append(cells)
    if not lines:
        return ""
    lenders = [f"on {pool.pool}" for pool in settings[0].pools if pool.pool != OVERALL]
    shown = table("Tasks that ran elsewhere", ["pools", "tasks of", *lenders], lines)
    return f"""<section><h2>Where tasks ran that did not run at home</h2>
<div class="card">{shown}<p class="soft">Tasks a seed, mean.</p></div></section>"""


def _method(result: FlockResult) -> str:
    return f"""<section><h2>Method</h2>
{facts(result.machine, {}, result.command)}
<p>A sequence is 100 tasks; the gaps between them and their lengths are drawn evenly from 1 to 17.
Pools A and B get 2 sequences each, C gets 3 and D 5, and each has three machines: workers of one
processor. A task is a real <code>sleep</code>, submitted at its moment. All machines, managers and
servers share this one machine; what they add is in the figures.</p>
<p>The queue time is from the submission to the start of the attempt that counted, by the records of
the pool to which the task was submitted. “Ideal” is what first come, first served would give on the
same traces if nothing took any time.</p>
<p>“Idle to start” is of tasks that waited already when a machine of another pool fell idle: from
the end of what ran there before, by the records of the machine's owner, to the start of the task.
“Submitted to start” is of those that came when the machine was idle already.</p>
<p class="soft"><small>The source: {escape(SOURCE)}</small></p></section>"""
