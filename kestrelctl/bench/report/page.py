"""The report of one bench or several as one HTML page that needs no network and no other file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from kestrelctl.bench import reference
from kestrelctl.bench.knee import HALF, MOST, Curve, curves, length
from kestrelctl.bench.report import figures
from kestrelctl.bench.report.figures import PlottedRun
from kestrelctl.bench.report.markup import bars, document, facts, keys, over, table, tile
from kestrelctl.bench.report.table import is_beside_2009, notes, rows, spread
from kestrelctl.bench.report.wording import LIMIT_WORDS, NUMBERS, share_of_limit
from kestrelctl.bench.result import BenchResult, BenchRun

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
)
COLUMNS_OF_2009 = ("2009, tasks/s", "times 2009")
COST_COLUMNS = (
    "sleep",
    "workers",
    "executor",
    "server CPU",
    "manager CPU",
    "worker CPU",
    "CPU per task",
    "manager memory",
)


class Named(NamedTuple):
    """A result, and its name on the page."""

    label: str
    result: BenchResult


def page(results: Sequence[Named]) -> str:
    """Makes the whole page. The first result leads; the others are drawn over it.

    Runs of a sweep have as many tasks as fit in their time, so they show in the figure of
    efficiency and in tables, but not beside others' makespans.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    plain = [
        [PlottedRun(label, number, run, result.limit(run)) for run in result.runs]
        for number, (label, result) in enumerate(results)
        if result.sweep is None
    ]
    matched = _matched([series for each in plain for series in each])
    body = f"""{_header(results)}
{"".join(_efficiency(*each, one=len(results) == 1) for each in results)}
{_beside(matched)}
{_curves(matched)}
{_latency(results)}
{_tables(results)}
<section><h2>Reading the numbers</h2>
<dl>{"".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in NUMBERS)}</dl></section>
{_method(results)}"""
    return document(_title(results), body)


def _matched(series: Iterable[PlottedRun]) -> list[list[PlottedRun]]:
    """Groups runs of the same sleep time and executor, in the order of the first of each.

    If results have several such runs, the first is put beside the first of the others, and so on.
    """
    groups: dict[tuple[str, str, int], list[PlottedRun]] = {}
    seen: Counter[tuple[int, str, str]] = Counter()
    for each in series:
        key = (each.number, each.run.sleep, each.run.executor)
        seen[key] += 1
        groups.setdefault((*key[1:], seen[key]), []).append(each)
    return [groups[key] for key in sorted(groups, key=_order(groups))]


def _order(groups: Iterable[tuple[str, str, int]]) -> Callable[[tuple[str, str, int]], int]:
    """Makes the sort key of groups: groups of one sleep time follow each other."""
    kinds = list(dict.fromkeys((sleep, executor) for sleep, executor, _ in groups))
    return lambda key: kinds.index((key[0], key[1]))


def _names(matched: Sequence[Sequence[PlottedRun]]) -> list[str]:
    """Names each group by its sleep time, and by what tells it from others of that sleep time."""
    plain = [f"sleep {series[0].run.sleep}" for series in matched]
    names = [
        name if plain.count(name) == 1 else f"{name} on {series[0].run.size} workers"
        for name, series in zip(plain, matched, strict=True)
    ]
    return [
        name if names.count(name) == 1 else f"{name}, run {names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]


def _title(results: Sequence[Named]) -> str:
    counts = {run.jobs for _, result in results if not result.sweep for run in result.runs}
    if counts:
        return f"{counts.pop():,} short tasks" if len(counts) == 1 else "Many short tasks"
    return "How short may tasks be?"


def _header(results: Sequence[Named]) -> str:
    runs = [run for _, result in results for run in result.runs]
    result = results[0].result
    tiles = _knee_tiles(result) if result.sweep else _rate_tiles(result)
    lost, duplicates = sum(run.lost for run in runs), sum(run.duplicates for run in runs)
    verdict = "Over all runs, no task was lost and none was counted twice."
    early = "".join(
        f' <span class="wrong">{escape(label)}: ended early by {escape(each.ended_early)}.</span>'
        for label, each in results
        if each.ended_early
    )
    if lost or duplicates:
        verdict = f'<span class="wrong">{lost:,} tasks lost, {duplicates:,} duplicates.</span>'
    beside = ""
    if len(results) > 1:
        beside = keys((f"s{number}", label) for number, (label, _) in enumerate(results))
    return f"""<header>
{over(result.machine)}
<h1>{_title(results)}</h1>
<p class="lead">{_lead(result)} {verdict}{early}</p>
{beside}<div class="tiles">{tiles}</div>
</header>"""


def _lead(result: BenchResult) -> str:
    if result.sweep:
        return (
            "A pool that hands out R tasks a second cannot keep W workers busy with tasks shorter "
            "than W/R seconds. Here R was measured on several numbers of workers, and with tasks "
            "of several lengths how much of the workers' time went into them."
        )
    run = result.runs[0]
    lead = (
        f"Kestrel ran {run.jobs:,} tasks of <code>sleep {escape(run.sleep)}</code> in "
        f"{run.makespan_seconds:,.1f} s on {run.size} workers: "
        f"{run.tasks_per_second:,.0f} tasks a second."
    )
    if run.reference:
        lead += (
            f" The first Kestrel, in 2009, did {run.reference.tasks_per_second:,.0f} a second "
            f"on {run.reference.workers:,} workers."
        )
    return lead


def _rate_tiles(result: BenchResult) -> str:
    parts = []
    for run in result.runs[:4]:
        limit = result.limit(run)
        words = ""
        if limit:
            share = limit.seconds / run.makespan_seconds
            words = LIMIT_WORDS[limit.of].format(share_of_limit(share))
        parts.append(
            tile(f"sleep {run.sleep}", f"{run.tasks_per_second:,.0f}", "tasks per second", words)
        )
    return "".join(parts)


def _knee_tiles(result: BenchResult) -> str:
    return "".join(
        tile(
            f"{curve.workers:,} workers",
            curve.text_of(MOST),
            f"tasks keep them {MOST:.0%} busy",
            _knee_words(curve),
        )
        for curve in curves(result.runs)
    )


def _knee_words(curve: Curve) -> str:
    """Names the knee, and says how busy workers were with tasks of that length."""
    if not curve.knee_seconds:
        return ""
    share = curve.share_at(curve.knee_seconds)
    busy = "" if share is None else f": {share:.0%} busy"
    return f"measured. Knee {length(curve.knee_seconds)}{busy}"


def drawn_curves(result: BenchResult) -> list[Curve]:
    """The curves of efficiency of a result that are drawn, on the page and as images."""
    found = curves(result.runs)
    most = max((len(curve.points) for curve in found), default=0)
    return found if most >= (1 if result.sweep else 3) else []  # two points are no curve


def _efficiency(label: str, result: BenchResult, *, one: bool) -> str:
    found = drawn_curves(result)
    if not found:
        return ""
    shown = "".join(map(_efficiency_figure, figures.in_figures(found)))
    lengths = sorted({seconds for curve in found for seconds, _ in curve.points})
    columns = ["workers", "tasks/s", "knee", "50% at", "90% at", *map(length, lengths)]
    figures_ = table(f"Efficiency, {label}", columns, (_efficiency_row(c, lengths) for c in found))
    name = "" if one else f": {escape(label)}"
    return f"""<section><h2>Efficiency against task length{name}</h2>
<div class="wide">{shown}
<div class="card">{figures_}
<p class="soft">Tasks a second are those of <code>sleep 0</code>, and the knee follows from them by
arithmetic: at R a second, dispatch reaches each of W workers once in W/R seconds. All else is
measured: the task lengths with which half and nine tenths of the workers' time went into tasks, and
this share for each length.</p></div></div>
</section>"""


def _efficiency_figure(shown: Sequence[Curve]) -> str:
    legend = keys(
        (f"curve s{number}", f"{curve.workers:,} workers") for number, curve in enumerate(shown)
    )
    marks = "Dashed: half of the time."
    if any(curve.knee_seconds for curve in shown):
        marks += " Diamonds: the knee, W/R."
    if any(curve.half_seconds for curve in shown):
        marks += " Rings: half of the time in tasks, as measured."
    return f"""<figure>{figures.efficiency(shown).markup()}
<figcaption>{legend}<p class="soft">{marks}</p></figcaption></figure>"""


def _efficiency_row(curve: Curve, lengths: Sequence[float]) -> list[str]:
    rate, knee, points = curve.dispatch_per_second, curve.knee_seconds, dict(curve.points)
    return [
        f"{curve.workers:,}",
        f"{rate:,.0f}" if rate else "-",
        length(knee) if knee else "-",
        curve.text_of(HALF),
        curve.text_of(MOST),
        *(f"{points[seconds]:.0%}" if seconds in points else "-" for seconds in lengths),
    ]


def _beside(matched: Sequence[Sequence[PlottedRun]]) -> str:
    if not matched:
        return ""
    then = any(series[0].run.reference for series in matched)
    limit = ""
    if any(series[0].limit for series in matched):
        limit = '<span class="key bound"></span>limit of this machine and its workers. '
    names = _names(matched)
    runs = [each.run for series in matched for each in series]
    notes = dict.fromkeys(
        f"<b>sleep {escape(run.sleep)}:</b> {escape(run.reference.note)}"
        for run in runs
        if run.reference and run.reference.note
    )
    cluster = f"""<p>The runs of 2009 had 50,000 tasks each on more than 900 workers of a cluster.
Here the workers share one machine: a sleeping task needs no core, so many fit on one. Their
messages cross no network, but all processes are started by the cores of this machine.</p>
<p class="soft">{"<br>".join(notes)}</p>"""
    return f"""<section><h2>{"Beside 2009" if then else "Makespan and rate"}</h2>
<p class="soft">{limit}Each sleep time has a scale of its own.</p>
<div class="pair">
<div class="card"><h3>Makespan</h3><p class="soft">shorter is better</p>
<div class="bars">{"".join(map(_makespans, names, matched))}</div></div>
<div class="card"><h3>Tasks per second</h3><p class="soft">longer is better</p>
<div class="bars">{"".join(map(_rates, names, matched))}</div></div>
</div>
{cluster if then else ""}</section>"""


def _makespans(name: str, series: Sequence[PlottedRun]) -> str:
    """Draws bars of the runs with as many tasks as the first, and the least the first one needs."""
    first = series[0]
    jobs = first.run.jobs
    shown = [
        (place, each.run.makespan_seconds, each.kind)
        for each, place in zip(series, _places(series), strict=True)
        if each.run.jobs == jobs
    ]
    if first.run.reference and first.run.reference.tasks == jobs:
        shown.append(("2009", first.run.reference.makespan_seconds, "then"))
    limit = first.limit.seconds if first.limit else 0.0
    return bars(name, f"{jobs:,} tasks", shown, limit, "{:,.1f} s")


def _rates(name: str, series: Sequence[PlottedRun]) -> str:
    """Draws bars of all runs, and the most that the first one could do."""
    first = series[0]
    shown = [
        (place, each.run.tasks_per_second, each.kind)
        for each, place in zip(series, _places(series), strict=True)
    ]
    if first.run.reference:
        shown.append(("2009", first.run.reference.tasks_per_second, "then"))
    limit = first.run.jobs / first.limit.seconds if first.limit else 0.0
    workers = f"{first.run.size} workers"
    if _mixed(series) or workers in name:
        workers = ""
    return bars(name, workers, shown, limit, "{:,.0f}/s")


def _mixed(series: Sequence[PlottedRun]) -> bool:
    return len({each.run.workers for each in series}) > 1


def _places(series: Sequence[PlottedRun]) -> list[str]:
    """The names of the results, with their numbers of workers unless these are all the same."""
    mixed = _mixed(series)
    return [f"{s.label} on {s.run.size}" if mixed else s.label for s in series]


def _curves(matched: Sequence[Sequence[PlottedRun]]) -> str:
    parts = []
    for name, group in zip(_names(matched), matched, strict=True):
        series = [each for each in group if each.run.timeline is not None]
        if not series:
            continue
        first = series[0]
        legend = [
            (f"curve {s.kind}", f"{place}: {s.run.jobs:,} tasks in {s.run.makespan_seconds:,.1f} s")
            for s, place in zip(series, _places(series), strict=True)
        ]
        if first.run.reference:
            then = first.run.reference
            made = f"{then.tasks:,} tasks in {then.makespan_seconds:,.0f} s"
            legend.append(("dash then", f"2009, mean: {made}"))
        if first.limit:
            rate = first.run.jobs / first.limit.seconds
            what = "bare process starts" if first.limit.of == "spawn" else "all workers busy"
            end = f"the earliest possible end: {first.limit.seconds:,.1f} s"
            legend.append(("dash bound", f"{what}: {rate:,.0f}/s; {end}"))
        parts.append(
            f'<div class="block"><h3>{escape(name)}</h3>{keys(legend)}<div class="pair">'
            + "".join(f"<figure>{draw(series).markup()}</figure>" for draw in figures.OVER_TIME)
            + "</div></div>"
        )
    if not parts:
        return ""
    return f"""<section><h2>The curves</h2>
<p class="soft">Over the seconds since the submission. Tasks completed: the wide line is of those
that have ended, the thin one of those that were started. Tasks finished a second: the line is a
mean over time, the area behind it what each moment had.</p>{"".join(parts)}</section>"""


def _latency(results: Sequence[Named]) -> str:
    """Draws the latency of every run, and beside it the CPU time that the system itself used."""
    series = [
        PlottedRun(label, number, run, None)
        for number, (label, result) in enumerate(results)
        for run in result.runs
    ]
    many = len({each.run.workers for each in series}) > 1
    groups: dict[str, list[PlottedRun]] = {}
    for each in series:
        where = f" on {each.run.size}" if many else ""
        name = f"sleep {each.run.sleep}{where}"
        again = sum(each.number == other.number for other in groups.get(name, []))
        groups.setdefault(f"{name} ({again + 1})" if again else name, []).append(each)
    cost = _cost_bars(
        {
            name: plain
            for name, group in groups.items()
            if (plain := [each for each in group if not results[each.number].result.sweep])
        }
    )
    return f"""<section><h2>Latency{" and cost" if cost else ""}</h2>
<div class="pair"><figure>{"<h3>Latency</h3>" if cost else ""}<p class="soft">What dispatch added to
a task: filled, the median; open, the 99th percentile; in milliseconds.</p>
{figures.latency(groups).markup()}</figure>{cost}</div></section>"""


def _cost_bars(groups: Mapping[str, Sequence[PlottedRun]]) -> str:
    """Draws the CPU time per task, all on one scale; empty if not measured, as on a given pool."""
    most = max((_cpu_ms(each) for group in groups.values() for each in group), default=0.0)
    if not most:
        return ""
    listed = "".join(
        bars(name, "", [(s.label, _cpu_ms(s), s.kind) for s in group], 0, "{:.2f} ms", most)
        for name, group in groups.items()
    )
    return (
        '<div class="card"><h3>CPU time per task</h3><p class="soft">Server, manager and workers '
        f'together, without the tasks.</p><div class="bars">{listed}</div></div>'
    )


def _cpu_ms(series: PlottedRun) -> float:
    return 1000 * series.run.cpu_seconds / series.run.jobs


def _tables(results: Sequence[Named]) -> str:
    parts = []
    for label, result in results:
        name = f"<h3>{escape(label)}</h3>" if len(results) > 1 else ""
        columns = TABLE_COLUMNS + (COLUMNS_OF_2009 if is_beside_2009(result) else ())
        runs = table(f"Every run, {label}", columns, _lines(result))
        cost = table(f"Cost of every run, {label}", COST_COLUMNS, map(_cost, result.runs))
        said = "".join(f'<p class="soft">{escape(note)}</p>' for note in notes(result))
        parts.append(
            f'{name}<div class="card">{runs}{said}</div><div class="card">{cost}'
            '<p class="soft">CPU seconds during the run, and the manager\'s resident memory.</p>'
            "</div>"
        )
    return f"<section><h2>Every run, and what it cost</h2>{''.join(parts)}</section>"


def _lines(result: BenchResult) -> list[list[str]]:
    """The rows of the table in the terminal, with the latency before the columns of 2009."""
    place = len(TABLE_COLUMNS) - 1
    found = []
    for run, cells in zip(result.runs, rows(result), strict=True):
        latency = run.dispatch_latency_ms
        cells.insert(place, f"{latency.p50:.1f}/{latency.p99:.1f}")
        found.append(cells)
    return found


def _cost(run: BenchRun) -> list[str]:
    parts = (run.server_cpu_seconds, run.manager_cpu_seconds, run.worker_cpu_seconds)
    return [
        run.sleep,
        run.size,
        run.executor,
        *(f"{seconds:,.1f} s" for seconds in parts),
        f"{1000 * run.cpu_seconds / run.jobs:,.2f} ms",
        f"{run.manager_rss_mb:,.0f} MB",
    ]


def _method(results: Sequence[Named]) -> str:
    parts = []
    for label, result in results:
        more = {}
        if result.spawn_limit_per_second:
            more["Spawn limit"] = (
                f"{result.spawn_limit_per_second:,.0f} processes per second, bare{spread(result)}"
            )
        if result.sweep:
            more["Cell"] = f"as many tasks as {result.sweep.cell_seconds:g} s allow, in whole waves"
        name = f"<h3>{escape(label)}</h3>" if len(results) > 1 else ""
        parts.append(name + facts(result.machine, more, result.command))
    return f"""<section><h2>Method</h2>
{"".join(parts)}
<p>Each task is a real <code>sleep</code> where the executor is “process”. The sleep times of a
range are drawn uniformly from a fixed seed, the same every time; the bound uses their exact sum.
Curves are means over equal bins; tasks per second are means over a fortieth of the run or one sleep
time, whichever is longer, because equal tasks come in waves. Of 2009 only makespans are known, so
its lines are means.</p>
<p class="soft"><small>2009: {escape(reference.SOURCE)}</small></p></section>"""
