"""The bars of a sweep, on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

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

from kestrelctl.cli.screen import Screen


class _Rate(ProgressColumn):
    """Tasks a second of late."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.1f}/s" if task.speed else "")


@contextlib.contextmanager
def sweep(screen: Screen) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each run of a sweep; what is yielded takes (run, tasks, tasks done)."""
    console = Console(stderr=True, no_color=not screen.color)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate())
    bars: dict[str, TaskID] = {}
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:

        def show(run: str, tasks: int, done: int) -> None:
            if run not in bars:
                bars[run] = progress.add_task(f"sleep {run}", total=tasks)
            progress.update(bars[run], completed=done)

        yield show
