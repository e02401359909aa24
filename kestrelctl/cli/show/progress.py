"""Shows on standard error how far jobs are: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import enum
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kestrelctl.cli.show.grid import Line, bar, crop, rich_text
from kestrelctl.cli.show.history import ended_tasks, finished_tasks
from kestrelctl.cli.show.screen import Screen
from kestrelctl.cli.show.series import Series, rate
from kestrelctl.core.model.wording import one_line
from kestrelctl.grammar.quantities import duration
from kestrelctl.protocol.job_answers import JobView

#: The time between two lines if standard error is no terminal.
LINE_SECONDS = 10.0
_NARROWEST_BAR = 8
_WIDEST_BAR = 50


class Look(enum.Enum):
    """The places where progress of jobs is shown."""

    NONE = "none"
    TERMINAL = "terminal"
    ANYWHERE = "anywhere"


class JobsProgress:
    """The progress of jobs.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._whole = Series()
        self._jobs: dict[int, Series] = {}

    def lines(self, views: Sequence[JobView], width: int) -> list[Line]:
        """Makes a line with a bar for all jobs, and if there are several one for a job at work."""
        self._note(views)
        found = [_barred(*self._facts(views), width)]
        active = [view for view in views if view.state in ("active", "cancelling")]
        if len(views) > 1 and active:
            current = next((view for view in active if view.running), active[0])
            found.append(_barred(*self._facts([current]), width))
        return found

    def sentence(self, views: Sequence[JobView]) -> str:
        """Says the same in words."""
        self._note(views)
        title, _, facts = self._facts(views)
        return f"{title}: {', '.join(text for text, _ in facts)}"

    def _note(self, views: Sequence[JobView]) -> None:
        now = self._clock()
        self._whole.add(now, sum(map(finished_tasks, views)))
        for view in views:
            self._jobs.setdefault(view.job_id, Series()).add(now, finished_tasks(view))

    def _facts(self, views: Sequence[JobView]) -> tuple[str, float, Line]:
        """Returns a title of the jobs, the share of their tasks that has ended, and the facts."""
        one = views[0] if len(views) == 1 else None
        series = self._jobs[one.job_id] if one else self._whole
        tasks, ended = sum(view.tasks for view in views), sum(map(ended_tasks, views))
        done = sum(view.done for view in views)
        running = sum(view.running for view in views)
        failed = sum(view.failed + view.lost for view in views)
        cancelled = sum(view.cancelled for view in views)
        facts: Line = [(f"{done:,}/{tasks:,} done", "")]
        if running or ended < tasks:
            facts.append((f"{running:,} running", "cyan"))
        if failed:
            facts.append((f"{failed:,} failed", "red"))
        if cancelled:
            facts.append((f"{cancelled:,} cancelled", "yellow"))
        if ended < tasks:
            left = series.seconds_for(tasks - ended) if running else None
            facts.append((rate(series.per_second if running else series.recent), ""))
            facts.append((f"{duration(left) or '—'} left", ""))
        title = f"job {one.job_id}" if one else f"{len(views):,} jobs"
        return title, ended / tasks if tasks else 1.0, facts


def _barred(title: str, share: float, facts: Line, width: int) -> Line:
    """Puts title, bar and facts on one line; the bar takes the room that is left, if enough is."""
    title = one_line(title)
    text = "  ".join(words for words, _ in facts)
    percent = f"{int(100 * share):>3} %"
    room = min(_WIDEST_BAR, width - len(title) - len(percent) - len(text) - 5)
    line: Line = [(title, "bold"), ("  ", "")]
    if room >= _NARROWEST_BAR:
        line += [(bar(share, room), "green"), (" ", "")]
    line += [(percent, ""), ("  ", "")]
    for number, (words, style) in enumerate(facts):
        line += [("  " if number else "", ""), (words, style)]
    return crop(line, width)


@dataclass(frozen=True, slots=True)
class Meter:
    """Shows jobs as they were at the latest look.

    Attributes:
        lively: whether somebody watches it.
    """

    show: Callable[[Sequence[JobView]], None] = lambda _: None
    lively: bool = False


@contextlib.contextmanager
def shown(screen: Screen, look: Look) -> Iterator[Meter]:
    """Shows how far jobs are, for the time of a `with`, if that is wanted and possible."""
    if look is Look.NONE or screen.quiet or screen.mode.is_json:
        yield Meter()
    elif sys.stderr.isatty():
        with _on_terminal(screen) as meter:
            yield meter
    else:
        yield Meter(now_and_then(screen)) if look is Look.ANYWHERE else Meter()


@contextlib.contextmanager
def _on_terminal(screen: Screen) -> Iterator[Meter]:
    from rich.console import Console
    from rich.live import Live

    progress = JobsProgress()
    console = Console(stderr=True, no_color=not screen.color, highlight=False)
    with Live(console=console, auto_refresh=False) as live:

        def show(views: Sequence[JobView]) -> None:
            if views:
                live.update(rich_text(progress.lines(views, console.width)), refresh=True)

        yield Meter(show, lively=True)


def now_and_then(
    screen: Screen, clock: Callable[[], float] = time.monotonic
) -> Callable[[Sequence[JobView]], None]:
    """Says how far jobs are, in a line, but not oftener than every ten seconds."""
    progress = JobsProgress(clock)
    due = clock() + LINE_SECONDS

    def show(views: Sequence[JobView]) -> None:
        nonlocal due
        sentence = progress.sentence(views) if views else ""
        if sentence and clock() >= due:
            due = clock() + LINE_SECONDS
            screen.say(sentence)

    return show
