"""The report of a sweep as one HTML page that needs no network and no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from kestrelctl.bench import reference
from kestrelctl.bench.result import Result, Run
from kestrelctl.bench.style import CSS
from kestrelctl.bench.table import rows


class Picture(NamedTuple):
    """An image in both colour schemes, as data URIs, and what it shows, in words."""

    alt: str
    light: str
    dark: str


TABLE_COLUMNS = (
    "sleep",
    "tasks",
    "workers",
    "makespan",
    "tasks/s",
    "of limit",
    "lost",
    "duplicates",
    "latency p50/p99, ms",
    "2009",
    "times 2009",
)
COST_COLUMNS = (
    "sleep",
    "executor",
    "server CPU",
    "manager CPU",
    "worker CPU",
    "CPU per task",
    "manager memory",
)

NUMBERS = (
    (
        "Makespan",
        "From the submission of the job to the last accepted result, in seconds. Starting the "
        "pool is not part of it.",
    ),
    (
        "Limit",
        "The larger of two bounds. <em>Workers</em>: N tasks of t seconds (mean) on W workers need "
        "N·t/W seconds, whatever schedules them. <em>Spawn</em>: a machine that starts R processes "
        "a second needs N/R seconds for N tasks that are processes. “Of limit” is this bound over "
        "the makespan; “busy” means that the workers are the limit, and is their utilisation.",
    ),
    (
        "What the limit is worth",
        "N·t/W is arithmetic. A makespan below it means a wrong clock or worker count, and such a "
        "run is refused, not reported. The spawn limit is measured: one process per core "
        "starts and reaps <code>sleep 0</code> and nothing else, the median of several rounds. The "
        "pool has to share the same cores, so 100 % is out of reach, and a noisy moment can move "
        "the figure by some percent.",
    ),
    (
        "Lost, duplicates",
        "Tasks without an accepted result; tasks with more than one. Both have to be 0.",
    ),
    (
        "Latency",
        "What dispatch added to a task: from its hand-out to its report at the manager, less the "
        "time it waited at the worker behind others and the time it ran. Median and 99th "
        "percentile.",
    ),
    (
        "Times 2009",
        "Tasks per second over those of 2009. Where the workers are the limit, a "
        "perfect run of today is not much faster than a good one of then.",
    ),
)


def page(result: Result, pictures: Sequence[Sequence[Picture]]) -> str:
    """The whole page. `pictures` holds, for each run in turn, the images of its curves."""
    curves = "".join(
        _curves(result, run, shown)
        for run, shown in zip(result.runs, pictures, strict=True)
        if shown
    )
    body = f"""<main>
{_header(result)}
<h2>Beside 2009</h2>
{_bars(result)}
<div class="card">{_table("Every run beside 2009", TABLE_COLUMNS, rows(result))}</div>
{_notes(result)}
<h2>The curves</h2>
{curves or "<p>No curves were recorded.</p>"}
<h2>What it cost</h2>
<p>CPU seconds during the run, and the manager's resident memory.</p>
<div class="card">{_table("Cost of every run", COST_COLUMNS, map(_cost, result.runs))}</div>
<h2>Reading the numbers</h2>
<dl>{"".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in NUMBERS)}</dl>
<h2>Method</h2>
{_method(result)}
</main>"""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_title(result)}</title>
<style>{CSS}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _title(result: Result) -> str:
    counts = {run.jobs for run in result.runs}
    return f"{counts.pop():,} short tasks" if len(counts) == 1 else "Many short tasks"


def _header(result: Result) -> str:
    machine = result.machine
    lost = sum(run.lost for run in result.runs)
    duplicates = sum(run.duplicates for run in result.runs)
    lead = ""
    for run in result.runs[:1]:
        lead = (
            f"Kestrel ran {run.jobs:,} tasks of <code>sleep {escape(run.sleep)}</code> in "
            f"{run.makespan_seconds:,.1f} s on {run.workers:,} workers: "
            f"{run.tasks_per_second:,.0f} tasks a second."
        )
        if run.reference:
            lead += (
                f" The first Kestrel, in 2009, did {run.reference.tasks_per_second:,.0f} a second "
                f"on {run.reference.workers:,} workers."
            )
    verdict = "Over all runs, no task was lost and none was counted twice."
    if lost or duplicates:
        verdict = f'<span class="wrong">{lost:,} tasks lost, {duplicates:,} duplicates.</span>'
    return f"""<header>
<p class="over">Kestrel {escape(machine.kestrel)} · {escape(machine.date[:10])} ·
{machine.cores} cores, {escape(machine.cpu_model)}</p>
<h1>{_title(result)}</h1>
<p class="lead">{lead} {verdict}</p>
</header>"""


def _bars(result: Result) -> str:
    """Rates of 2009 and now for each run, with the limit as a line; each run has its own scale."""
    parts = []
    for run in result.runs:
        limit = result.limit(run)
        ceiling = run.jobs / limit.seconds if limit else 0.0
        then = run.reference.tasks_per_second if run.reference else 0.0
        full = max(ceiling, then, run.tasks_per_second)
        tick = f'<div class="tick" style="left:{ceiling / full:.2%}"></div>' if limit else ""
        parts.append(
            f'<span class="name">sleep {escape(run.sleep)}</span>'
            f"<span>now</span>{_bar(run.tasks_per_second / full, 'bar now', tick)}"
            f'<span class="value">{_rate(run.tasks_per_second)}</span>'
            f'<span class="name"></span><span class="soft">2009</span>{_bar(then / full, "bar")}'
            f'<span class="value soft">{_rate(then) if then else "-"}</span>'
        )
    bars = '<span class="gap"></span>'.join(parts)
    return f"""<p class="soft"><span class="key now"></span>tasks per second now
<span class="key"></span>in 2009 <span class="key bound"></span>limit of this machine and its
workers. Each sleep time has a scale of its own.</p>
<div class="card bars">{bars}</div>"""


def _bar(share: float, kind: str, tick: str = "") -> str:
    return f'<div class="track"><div class="{kind}" style="width:{share:.2%}"></div>{tick}</div>'


def _rate(tasks_per_second: float) -> str:
    return f"{tasks_per_second:,.0f}/s"


def _table(caption: str, columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{_cells(columns, line)}</tr>" for line in lines)
    return (
        f'<table aria-label="{escape(caption)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _cells(columns: Sequence[str], line: Sequence[str]) -> str:
    first, *rest = line
    cells = [f'<th scope="row" data-label="{columns[0]}">{escape(first)}</th>']
    for column, cell in zip(columns[1:], rest, strict=True):
        wrong = column in ("lost", "duplicates") and cell != "0"
        text = f'<span class="wrong">{escape(cell)}</span>' if wrong else escape(cell)
        cells.append(f'<td data-label="{escape(column)}">{text}</td>')
    return "".join(cells)


def _notes(result: Result) -> str:
    notes = [
        f"<b>sleep {run.sleep}:</b> {escape(run.reference.note)}"
        for run in result.runs
        if run.reference and run.reference.note
    ]
    if not any(run.reference for run in result.runs):
        return ""
    return f"""<p>The runs of 2009 had 50,000 tasks each on more than 900 workers of a cluster.
Here the workers share one machine: a sleeping task needs no core, so many fit on one. Their
messages cross no network, but all processes are started by the cores of this machine.</p>
<p class="soft">{"<br>".join(notes)}</p>"""


def _curves(result: Result, run: Run, pictures: Iterable[Picture]) -> str:
    limit = result.limit(run)
    text = f"{run.jobs:,} tasks in {run.makespan_seconds:,.1f} s"
    if limit:
        share = f"{limit.seconds / run.makespan_seconds:.0%}"
        what = {
            "workers": "of the workers' time was spent in tasks",
            "spawn": "of the rate at which this machine can start processes",
        }[limit.of]
        text += f"; {share} {what}"
    images = "".join(
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{picture.dark}">'
        f'<img alt="{escape(picture.alt)}" src="{picture.light}"></picture></figure>'
        for picture in pictures
    )
    return f'<h3>sleep {escape(run.sleep)}</h3><p>{text}.</p><div class="pair">{images}</div>'


def _cost(run: Run) -> list[str]:
    parts = (run.server_cpu_seconds, run.manager_cpu_seconds, run.worker_cpu_seconds)
    return [
        run.sleep,
        run.executor,
        *(f"{seconds:,.1f} s" for seconds in parts),
        f"{1000 * sum(parts) / run.jobs:,.2f} ms",
        f"{run.manager_rss_mb:,.0f} MB",
    ]


def _method(result: Result) -> str:
    machine = result.machine
    facts = {
        "Processor": f"{machine.cpu_model}, {machine.cores} cores",
        "Memory": f"{machine.memory_mb:,} MB",
        "Kernel": machine.kernel,
        "Kestrel": machine.kestrel,
        "Prosody": machine.prosody,
        "Python": machine.python,
        "Date": machine.date,
        "Spawn limit": f"{result.spawn_limit_per_second:,.0f} processes per second, bare",
    }
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    command = f"<pre>{escape(result.command)}</pre>" if result.command else ""
    return f"""<dl class="facts">{listed}</dl>
{command}
<p>Each task is a real <code>sleep</code> where the executor is “process”. The sleep times of a
range are drawn uniformly from a fixed seed, the same every time; the bound uses their exact sum.
Times are cut into equal bins. The area shows each bin; in the curves of tasks per second the lines
are means over the time the legend names, because equal tasks come in waves.</p>
<p class="soft"><small>2009: {escape(reference.SOURCE)}</small></p>"""
