"""One frame of `kestrelctl top`: a pool as lines that fill a screen, and no more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kestrelctl.cli.job.view import unnamed
from kestrelctl.cli.pool.store_trouble import store_trouble
from kestrelctl.cli.show.grid import STATE_STYLES, Column, Grid, Line, aligned, bar, crop, spread
from kestrelctl.cli.show.history import History, ended_tasks, finished_tasks
from kestrelctl.cli.show.series import Series, rate, sparkline
from kestrelctl.core.model.wording import one_line, plural
from kestrelctl.grammar.quantities import duration, short_address, size
from kestrelctl.protocol.answers import Overview, WorkerLine
from kestrelctl.protocol.job_answers import JobLine

#: From these heights on, less important lines are shown, too.
ROOMY = 20
SPACIOUS = 30
#: The seconds that a character of a sparkline stands for, and the most characters.
BAR_SECONDS = 5.0
MOST_BARS = 120
_LABEL = 10
_KEYS = "q quit  p pause  j/k scroll"
_STATE_ORDER = ("busy", "idle", "draining", "quarantined", "unheard", "offline")


@dataclass(slots=True)
class View:
    """The view that the user has chosen.

    Attributes:
        pool: the pool as the user names it; empty to show its domain.
        scroll: the number of jobs above the first one shown.
        away_since: the time of the pool's last answer, if it is away (seconds since the epoch).
        away_why: the reason, as far as it is known.
    """

    pool: str = ""
    scroll: int = 0
    paused: bool = False
    away_since: float | None = None
    away_why: str = ""


def frame(history: History, view: View, now: float, width: int, height: int) -> list[Line]:
    """Draws a screenful: exactly `height` lines, none wider than `width`.

    It corrects `view` if the user scrolled too far.
    """
    found = history.latest
    lines = _head(history, view, now, width, height)
    jobs, notable = [*found.jobs, *found.ended], found.notable
    rows = height - len(lines) - 1
    gap = int(height >= ROOMY)
    wanted = len(notable) + 1 + gap if notable else 0
    below = min(wanted, max(rows - (len(jobs) + 1), rows // 3))
    if below < 2 + gap:
        below = 0
    fitting = max(0, rows - below - 1)
    view.scroll = max(0, min(view.scroll, len(jobs) - fitting))
    heading, *shown = _jobs(jobs, history, width) if jobs else [[("no jobs", "dim")]]
    lines += [heading, *shown[view.scroll : view.scroll + fitting]]
    if below:
        lines += [[("", "")]] * gap + _workers(notable, found.at, width)[: below - gap]
    lines = lines[: max(0, height - 1)]
    lines += [[("", "")]] * (height - 1 - len(lines))
    place = _place(found, len(jobs), view.scroll, fitting)
    footer = spread([(_KEYS, "dim")], [(place, "dim")], width)
    return [crop(line, width) for line in [*lines, footer]][:height]


def sheet(history: History, now: float, width: int, pool: str = "") -> list[Line]:
    """Draws everything, in as many lines as it takes, to be printed once.

    Args:
        pool: the same as for a `View`.
    """
    found = history.latest
    lines = _head(history, View(pool=pool), now, width, SPACIOUS)
    jobs = [*found.jobs, *found.ended]
    lines += _jobs(jobs, history, width) if jobs else [[("no jobs", "")]]
    if found.notable:
        lines += [[("", "")], *_workers(found.notable, found.at, width)]
    return [crop(line, width) for line in lines]


# -- head ------------------------------------------------------------------------------------------


def _head(history: History, view: View, now: float, width: int, height: int) -> list[Line]:
    found = history.latest
    roomy, spacious = height >= ROOMY, height >= SPACIOUS
    lines = [_title(found, view, now, width), *_problems(found, view, now)]
    lines.append(_labelled("workers", _states(found)))
    if roomy:
        lines.append(_labelled("in use", _capacity(found, width)))
    waiting = sum(found.waiting.values())
    tasks = f"{waiting:,} waiting, {found.running:,} running"
    if found.queued:
        tasks += f", {found.queued:,} queued at workers"
    lines.append(_labelled("tasks", tasks))
    if waiting or roomy:
        reasons = sorted(found.waiting.items(), key=lambda item: -item[1])
        why = ", ".join(f"{n:,} {reason}" for reason, n in reasons)
        lines.append(_labelled("why wait", why or "—"))
    if spacious:
        counts = ((name.removeprefix("tasks_"), n) for name, n in found.totals.items() if n)
        totals = (f"{n:,} {name.replace('_', ' ')}" for name, n in counts)
        lines.append(_labelled("so far", ", ".join(totals) or "none"))
    lines.append(_speed("finished", history.finished, found, width))
    if roomy:
        lines += [_speed("sent", history.sent, found, width), [("", "")]]
    return lines


def _title(found: Overview, view: View, now: float, width: int) -> Line:
    left: Line = [(view.pool or found.pool, "bold")]
    left.append((f"  manager {found.version}, up {duration(found.up_seconds)}", ""))
    left.append((f", epoch {found.epoch}", "dim"))
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    right: Line = [("paused  ", "bold yellow")] if view.paused else []
    return spread(left, [*right, (clock, "dim")], width)


def _problems(found: Overview, view: View, now: float) -> list[Line]:
    lines: list[Line] = []
    if view.away_since is not None:
        since = time.strftime("%H:%M:%S", time.localtime(view.away_since))
        ago = duration(max(1.0, now - view.away_since))
        text = f"AWAY since {since} ({ago}): {one_line(view.away_why)}"
        lines.append([(text, "bold red")])
    if found.store_error:
        trouble = store_trouble(one_line(found.store_error), found.store_error_since)
        lines.append([(f"STORE {trouble}", "bold red")])
    return lines


def _labelled(label: str, rest: str | Line) -> Line:
    pieces: Line = [(rest, "")] if isinstance(rest, str) else rest
    return [(aligned(label, _LABEL), "bold"), *pieces]


def _states(found: Overview) -> Line:
    line: Line = [(f"{sum(found.workers.values()):,}", "")]
    for number, state in enumerate(s for s in _STATE_ORDER if found.workers.get(s)):
        line.append((", " if number else ": ", ""))
        line.append((f"{found.workers[state]:,} {state}", STATE_STYLES[state]))
    return line


def _capacity(found: Overview, width: int) -> Line:
    line: Line = []
    bars = max(6, min(30, (width - _LABEL) // max(1, len(found.capacity)) - 27))
    for name, whole in found.capacity.items():
        used = whole - found.free.get(name, 0.0)
        if name in ("memory", "disk"):
            amount = f"{size(int(used)) or '0 B'} of {size(int(whole)) or '0 B'}"
        else:
            amount = f"{_number(used)} of {_number(whole)}"
        line.append((f"{'   ' if line else ''}{name} ", ""))
        line.append((bar(used / whole if whole else 0.0, bars), "cyan"))
        line.append((f" {amount}", ""))
    return line


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _speed(label: str, series: Series, found: Overview, width: int) -> Line:
    idle = not found.running + found.queued
    now = f"{rate(series.recent if idle else series.per_second):>9}  "
    n = min(MOST_BARS, width - _LABEL - len(now) - 16)
    bars = series.bars(n, BAR_SECONDS) if n >= 8 else []
    known = [each for each in bars if each is not None]
    if len(known) < 2:
        return _labelled(label, now)
    peak = f"  peak {rate(max(known))}" if max(known) else ""
    return _labelled(label, [(now, ""), (sparkline(bars), "cyan"), (peak, "dim")])


# -- jobs and workers ------------------------------------------------------------------------------


def _jobs(jobs: Sequence[JobLine], history: History, width: int) -> list[Line]:
    def name(job: JobLine) -> str:
        return job.name or unnamed(job)

    def per_second(job: JobLine) -> str:
        series = history.job(job)
        if series is None:
            return ""
        return rate(series.per_second if job.running else series.recent)

    def left(job: JobLine) -> str:
        series = history.job(job)
        known = series.seconds_for(job.tasks - ended_tasks(job)) if series else None
        seconds = known if job.running else None
        return duration(seconds) or ("—" if series else "")

    def share(job: JobLine) -> float:
        return finished_tasks(job) / max(1, job.tasks)  # cancelled tasks do not count as done

    def bad(job: JobLine) -> str:
        return "red" if job.failed + job.lost else ""

    columns: list[Column[JobLine]] = [
        Column("JOB", lambda j: str(j.job_id), right=True, width=3),
        Column("NAME", name, width=12),
        Column("OWNER", lambda j: short_address(j.owner), width=5, drop=3),
        Column("STATE", lambda j: j.state, gives=False, width=6, drop=5),
        Column("PROGRESS", lambda j: bar(share(j), 10), gives=False, drop=1),
        Column("%", lambda j: str(int(100 * share(j))), right=True, width=3, drop=7),
        Column("TASKS", lambda j: f"{j.tasks:,}", right=True, width=6, drop=2),
        Column("DONE", lambda j: f"{j.done:,}", right=True, width=6),
        Column("RUN", lambda j: f"{j.running:,}", right=True, width=3),
        Column("WAIT", lambda j: f"{j.waiting:,}", right=True, width=4),
        Column("FAIL", lambda j: f"{j.failed + j.lost:,}", right=True, width=4, style=bad),
        Column("RATE", per_second, right=True, width=6, drop=4),
        Column("LEFT", left, right=True, width=6, drop=6),
    ]
    return list(Grid(columns).lines(jobs, width))


def _workers(workers: Sequence[WorkerLine], at: float, width: int) -> list[Line]:
    def note(worker: WorkerLine) -> str:
        if worker.until is not None:
            return f"{duration(max(1.0, worker.until - at))} more"
        if worker.since is not None:
            return f"for {duration(max(1.0, at - worker.since))}"
        if worker.failures:
            return f"{plural(worker.failures, 'fast failure')} in a row"
        return ""

    columns: list[Column[WorkerLine]] = [
        Column("WORKER", lambda w: short_address(w.worker), width=8),
        Column("STATE", lambda w: w.state, gives=False, width=6),
        Column("RUN", lambda w: f"{w.running:,}", right=True, width=3),
        Column("QUEUED", lambda w: f"{w.queued:,}", right=True, drop=1),
        Column("DONE", lambda w: f"{w.done:,}", right=True, width=6, drop=2),
        Column("FAIL", lambda w: f"{w.failed:,}", right=True, width=4, drop=3),
        Column("NOTE", note, width=8, style=lambda w: "yellow", drop=4),
    ]
    return list(Grid(columns).lines(workers, width))


def _place(found: Overview, jobs: int, scroll: int, fitting: int) -> str:
    more = found.jobs_active - len(found.jobs)
    if jobs <= fitting and not more:
        return ""
    return f"jobs {scroll + 1:,}-{min(jobs, scroll + fitting):,} of {jobs + more:,}"
