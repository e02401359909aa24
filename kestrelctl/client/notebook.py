"""Shows a pool and its jobs in a notebook."""

from __future__ import annotations

import html

from kestrelctl.core.model.wording import plural
from kestrelctl.protocol import answers as an

_ENDS = ("done", "failed", "lost", "cancelled")


def bar(done: int, whole: int) -> str:
    """Returns a bar of progress."""
    return f'<progress value="{done}" max="{max(1, whole)}"></progress>'


def job_html(view: an.JobView) -> str:
    """Returns a job in a line: how far it is, and how its tasks are."""
    name = f" <b>{html.escape(view.name)}</b>" if view.name else ""
    return f"{_bar_of(view)} job {view.job_id}{name} is {_state(view)}: {_counts(view)}"


def pool_html(name: str, status: an.PoolSummary) -> str:
    """Returns a pool in a line: its workers, and what there is to do."""
    workers = ", ".join(f"{count:,} {state}" for state, count in sorted(status.workers.items()))
    said = f"workers: {html.escape(workers) or 'none'}; {plural(status.jobs_active, 'job')} active"
    tasks = f"{status.tasks_waiting:,} tasks wait, {status.tasks_running:,} run"
    return f"pool <b>{html.escape(name)}</b>: {said}; {tasks}"


class JobTable(list[an.JobView]):
    """Jobs, as a list; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{view.job_id}</td><td>{html.escape(view.name)}</td><td>{_state(view)}</td>"
            f"<td>{view.tasks:,}</td><td>{_bar_of(view)} {_counts(view)}</td></tr>"
            for view in self
        )
        head = "".join(f"<th>{each}</th>" for each in ("job", "name", "state", "tasks", ""))
        return f"<table><tr>{head}</tr>{rows}</table>"


def _bar_of(view: an.JobView) -> str:
    return bar(sum(getattr(view, end) for end in _ENDS), view.tasks)


def _state(view: an.JobView) -> str:
    return html.escape(view.state if view.hold is None else "on hold")


def _counts(view: an.JobView) -> str:
    named = ((word, getattr(view, word)) for word in ("waiting", "running", *_ENDS))
    return ", ".join(f"{count:,} {word}" for word, count in named if count)
