"""The progress bar of jobs, on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

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
from kestrelctl.protocol.answers import JobView


class _Counts(ProgressColumn):
    """`done 120/1,000  running 40  failed 2`."""

    def render(self, task: Task) -> Text:
        text = Text(f"done {task.fields['done']:,}/{task.total or 0:,.0f}  ")
        text.append(f"running {task.fields['running']:,}", style="cyan")
        if task.fields["failed"]:
            text.append(f"  failed {task.fields['failed']:,}", style="red")
        return text


class _Rate(ProgressColumn):
    """Tasks a second of late."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.1f}/s" if task.speed else "")


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, done=0, running=0, failed=0)

    def show(self, views: Sequence[JobView]) -> None:
        """Moves the bar to where the jobs are."""
        failed = sum(view.failed + view.lost + view.cancelled for view in views)
        done = sum(view.done for view in views)
        self._progress.update(
            self._task,
            description=f"job {views[0].job_id}" if len(views) == 1 else f"{len(views)} jobs",
            total=sum(view.tasks for view in views),
            completed=done + failed,
            done=done,
            running=sum(view.running for view in views),
            failed=failed,
        )


@contextlib.contextmanager
def bar(screen: Screen) -> Iterator[_Bar]:
    """A bar on standard error, for the length of a `with`."""
    console = Console(stderr=True, no_color=not screen.color)
    columns = (TextColumn("{task.description}"), BarColumn(), _Counts(), _Rate())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        yield _Bar(progress)


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
