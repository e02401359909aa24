"""Shows how far the runs of a bench are: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from kestrelctl.cli.show.progress import LINE_SECONDS
from kestrelctl.cli.show.screen import Screen
from kestrelctl.cli.show.series import Series, rate
from kestrelctl.grammar.quantities import duration

#: Takes (run, tasks, tasks done).
Show = Callable[[str, int, int], None]


class _Rate(ProgressColumn):
    """The recent rate in tasks a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.1f}/s" if task.speed else "")


class Bars:
    """A bar for each run.

    Args:
        keep: whether bars stay when they are full; not if each run gets a row in a table.
    """

    def __init__(self, screen: Screen, *, keep: bool) -> None:
        console = Console(stderr=True, no_color=not screen.color)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate())
        # Output to standard output meanwhile stays there, even if that is a file.
        self._progress = Progress(
            *columns, TimeRemainingColumn(), console=console, transient=not keep,
            redirect_stdout=False,
        )  # fmt: skip
        self._keep = keep
        self._bars: dict[str, TaskID] = {}

    def show(self, run: str, tasks: int, done: int) -> None:
        """Shows how far a run is."""
        if run not in self._bars:
            self._bars[run] = self._progress.add_task(f"sleep {run}", total=tasks)
        self._progress.start()
        self._progress.update(self._bars[run], completed=done)

    def make_room(self) -> None:
        """Removes the bars, unless they are kept, so that something can be printed."""
        if not self._keep:
            self.end()
            while self._bars:
                self._progress.remove_task(self._bars.popitem()[1])

    def end(self) -> None:
        """Ends the display of bars."""
        self._progress.stop()


def now_and_then(say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Show:
    """Says how far a run is, in a line, but not oftener than every ten seconds."""
    due = clock() + LINE_SECONDS
    seen: dict[str, Series] = {}

    def show(run: str, tasks: int, done: int) -> None:
        nonlocal due
        now = clock()
        if run not in seen:
            due = now + LINE_SECONDS
        series = seen.setdefault(run, Series())
        series.add(now, done)
        if now >= due and done < tasks:
            due = now + LINE_SECONDS
            left = duration(series.seconds_for(tasks - done)) or "—"
            say(f"sleep {run}: {done:,}/{tasks:,} done, {rate(series.recent)}, {left} left")

    return show
