"""The results of simulated flocks as a page with plots that needs no network and no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kestrel_experiments.flock_simulation.flock_tally import NEAR_SHARES, FlockTally, PoolFigures
from kestrelctl.bench.report.markup import document, keys, table
from kestrelctl.bench.report.plot import Plot, drawing

COLUMNS = (
    "run",
    "tasks",
    "completion p50 / p90 / most",
    "mean wait p50 / p90 / most",
    "longest wait p50 / p90 / most",
    "at home",
    "within 0.1 / 0.2 / 0.3 / 0.5",
    "run again",
    "lost",
    "CPU",
    "memory",
)
MESSAGE_COLUMNS = ("run", "hear of one", "announcements", "overlay", "wishes", "grants")


def name_of(run: FlockTally) -> str:
    """Returns the name of a run beside others."""
    plan = run.plan
    more = [f"TTL {plan.ttl}" if plan.flocking else "each alone"]
    if plan.core:
        more.append("with cores")
    if plan.failing:
        more.append(f"{plan.failing:.0%} fail")
    if plan.joining:
        more.append(f"{plan.joining:.0%} join late")
    return f"{plan.pools:,} pools, {', '.join(more)}"


def row_of(run: FlockTally) -> list[str]:
    """Returns the cells of a run, as in `COLUMNS`."""
    flocks = run.plan.flocking
    near = " / ".join(f"{run.within(share):.1%}" for share in (0.1, 0.2, 0.3, 0.5))
    return [
        name_of(run),
        f"{run.tasks:,}",
        _spread(run.completion, "{:,.0f}"),
        _spread(run.mean_wait, "{:,.1f}"),
        _spread(run.most_wait, "{:,.0f}"),
        f"{run.local:.1%}",
        near if flocks else "-",
        f"{run.run_again:,}",
        f"{run.lost:,}",
        f"{run.cpu_seconds:,.0f} s",
        f"{run.peak_bytes / 2**20:,.0f} MiB",
    ]


def message_row(run: FlockTally) -> list[str]:
    """Returns the cells of a run, as in `MESSAGE_COLUMNS`: messages of a pool in a minute."""
    return [
        name_of(run),
        f"{run.hearers:,.1f}",
        f"{run.announcement_messages:,.1f}",
        f"{run.overlay_messages:,.1f}",
        f"{run.wishes:,.2f}",
        f"{run.grants:,.2f}",
    ]


def _spread(values: PoolFigures, form: str) -> str:
    return " / ".join(form.format(value) for value in (values.p50, values.p90, values.most))


@drawing()
def locality_plot(runs: Sequence[FlockTally]) -> Plot:
    """Plots the share of tasks that ran within each share of the diameter from home."""
    plot = Plot(
        "Share of tasks that ran within a share of the network's diameter from home.",
        x_label="distance from home, share of the network's diameter",
        y_label="share of tasks",
    )
    plot.percents("x")
    plot.percents("y")
    for number, run in enumerate(runs):
        if run.plan.flocking:
            plot.curve(zip(NEAR_SHARES, run.near, strict=True), number % 6)
    return plot


@drawing()
def completion_plot(runs: Sequence[FlockTally]) -> Plot:
    """Plots the share of pools whose last task had ended by each minute."""
    longest = max(run.minutes for run in runs)
    plot = Plot(
        "Share of pools whose last task had ended by each minute.",
        x_label="minutes of the source",
        y_label="share of pools that are done",
    )
    plot.numbers("x", longest)
    plot.percents("y")
    for number, run in enumerate(runs):
        pools = len(run.completions)
        step = max(1, pools // 200)
        points = [(at, (place + 1) / pools) for place, at in enumerate(run.completions)]
        line = [(0.0, 0.0), (points[0][0], 0.0), *points[::step], points[-1], (longest, 1.0)]
        plot.curve(line, number % 6)
    return plot


def flock_page(runs: Sequence[FlockTally], command: str) -> str:
    """Writes the whole page."""
    legend = keys((f"curve s{number % 6}", name_of(run)) for number, run in enumerate(runs))
    flocks = [run for run in runs if run.plan.flocking]
    near = f"<figure><h3>How near</h3>{locality_plot(runs).markup()}</figure>" if flocks else ""
    messages = table("Messages", MESSAGE_COLUMNS, map(message_row, flocks)) if flocks else ""
    body = f"""<h1>Simulated flocks</h1>
<p class="lead">Pools on a transit-stub network, with the traces of Butt, Zhang and Hu (2003), and
with Kestrel's own overlay and rules of flocking. Times are in minutes of the source.</p>
{legend}
<div class="pair">{near}<figure><h3>How soon</h3>{completion_plot(runs).markup()}</figure></div>
<div class="card">{table("Runs", COLUMNS, map(row_of, runs))}</div>
<div class="card">{messages}<p class="soft">Messages that one pool sends in a minute.</p></div>
<pre>{escape(command)}</pre>"""
    return document("Kestrel: simulated flocks", body)
