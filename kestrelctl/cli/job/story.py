"""`kestrelctl job story`: what happened to a job and its tasks, line by line."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.job.arguments import job_argument
from kestrelctl.cli.show.command_output import CommandOutput, Record, plain
from kestrelctl.cli.show.grid import aligned, text_width
from kestrelctl.cli.show.screen import Mode
from kestrelctl.core.model.job.hold import POOL
from kestrelctl.grammar.click_types import WholeNumber
from kestrelctl.grammar.id_ranges import parse_tasks
from kestrelctl.grammar.quantities import short_address
from kestrelctl.protocol.job_answers import Story, StoryEntry
from kestrelctl.protocol.job_requests import TellStory

_SHOWN = 200
#: The sentence for each event; {on} is ` on w3`, and {by} is ` by ada@example.org`. A cause that a
#: sentence does not name follows in brackets unless it is the worker, then the detail.
_SENTENCES = {
    "submitted": "submitted{by}",
    "cancelled": "cancelled{by}",
    "held": "put on hold{by}",
    "released": "released{by}",
    "retried": "retried{by}",
    "ended": "{cause}{on}",
    "failed": "failed{on}",
    "more-memory": "ran out of memory{on}",
    "restarted": "ended{on}, and is started again",
    "scaled": "scaled{by}",
    "lost": "lost: worker {worker} went away",
    "refused": "refused{on}",
    "found-again": "found again{on}: the attempt had survived",
    "killed": "killed{on}",
    "moved": "moved away from {worker}",
    "goes-on": "ended{on}, to go on from a checkpoint",
    "resumed": "went on{on}",
    "began-anew": "began anew{on}: its checkpoint could not be had",
    "recalled": "taken back from {worker} before it started",
    "given-back": "given back by {worker} before it started",
    "superseded": "stopped{on}: an earlier attempt had survived",
    "quarantined": "worker {worker} was put in quarantine",
    "dropped": "the story is full: what follows is not told",
    "started": "started{on}",
    "waiting": "waits",
    "sent": "sent to {worker}",
    "queued": "waits at {worker} behind others",
    "running": "runs{on}",
}
#: The events after the loss or failure of an attempt that mean that the task did not run again.
_NOT_AGAIN = ("ended", "found-again", "retried")


@click.command("story", cls=CliCommand)
@job_argument()
@click.argument("tasks", type=parse_tasks, nargs=-1, metavar="[TASK]...")
@click.option(
    "--limit",
    type=WholeNumber(1),
    default=_SHOWN,
    show_default=True,
    help="Number of lines to show, the latest.",
)
@pass_invocation
def story(invocation: Invocation, job: str, tasks: Sequence[list[int]], limit: int) -> None:
    """Tell what happened to a job: to TASKs from beginning to end, or the latest of all.

    Times count from the submission; -o wide also has the time of day.
    """
    task_ids = [task_id for each in tasks for task_id in each]

    async def work(connection: Connection) -> CommandOutput:
        told = await ask(connection, TellStory(job=job, task_ids=task_ids, limit=limit), Story)
        if told.more:
            invocation.screen.say("some of it is left out; name tasks, or raise --limit")
        return report(told, of_day=invocation.screen.mode is Mode.WIDE)

    invocation.talk(work)


def report(told: Story, *, of_day: bool = False) -> Record:
    """Writes the story as lines.

    Args:
        of_day: whether each line begins with the time of day.
    """
    job = told.job
    attempts = {} if told.more else attempts_by_number(told.entries)
    since = [offset(entry.at - job.submitted_at) for entry in told.entries]
    whose = ["job" if entry.task_id is None else f"task {entry.task_id}" for entry in told.entries]
    at_width, who_width = (max(map(text_width, cells), default=0) for cells in (since, whose))
    name = f" ({job.name})" if job.name else ""
    blocks = [f"job {job.job_id}{name}, since {_local(job.submitted_at)}"]
    blocks += [f"task {task_id} has the item {item}" for task_id, item in told.items.items()]
    again = _run_again(told.entries)
    for entry, at, who, goes_on in zip(told.entries, since, whose, again, strict=True):
        day = f"{_local(entry.at)}  " if of_day else ""
        attempt = attempts.get((entry.task_id, entry.number))
        said = (f"attempt {attempt} " if attempt else "") + sentence(entry)
        said += "; runs again" if goes_on else ""
        at = aligned(at, at_width, right=True)
        blocks.append(f"{day}{at}  {aligned(who, who_width)}  {said}")
    return Record(
        str(job.job_id),
        {
            "job": plain(job),
            "entries": plain(told.entries),
            "more": told.more,
            "items": plain(told.items),
        },
        blocks,
    )


def sentence(entry: StoryEntry) -> str:
    """Says what happened, but not when and to which task."""
    worker = short_address(entry.worker) or "?"
    pattern = _SENTENCES.get(entry.what, "{what}{on}")
    if entry.what == "lost" and entry.cause == "unable":
        pattern = "lost: worker {worker} could not start it"
    cause = "" if entry.cause == entry.worker else entry.cause.partition("/")[0]
    said = pattern.format(
        what=entry.what,
        worker=worker,
        cause=cause,
        on=f" on {worker}" if entry.worker else "",
        by=f" by {'the pool' if cause == POOL else cause}" if cause else "",
    )
    if cause and "{cause}" not in pattern and "{by}" not in pattern:
        said += f" ({cause})"
    return f"{said}; {entry.detail}" if entry.detail else said


def _run_again(entries: Sequence[StoryEntry]) -> list[bool]:
    """Tells of each entry whether it ends an attempt that came to nothing and is run again.

    A failure or refusal is an entry only if its task runs again, unless the task is ended first.
    The next entry of the task tells whether a loss was the last that the task may have.
    """
    following: dict[int | None, StoryEntry] = {}
    found: list[bool] = []
    for entry in reversed(entries):
        after = following.get(entry.task_id)
        by_itself = entry.what in ("failed", "refused")
        goes_on = by_itself if after is None else after.what not in _NOT_AGAIN
        found.append(goes_on and entry.what in ("failed", "lost", "refused"))
        following[entry.task_id] = entry
    return found[::-1]


def attempts_by_number(entries: Sequence[StoryEntry]) -> dict[tuple[int | None, int], int]:
    """Counts the attempts of each task that had several: 1, 2, ..., by task and number.

    Later attempts have higher numbers. Empty if attempts may be missing.
    """
    if any(entry.what == "dropped" for entry in entries):
        return {}
    numbers: dict[int | None, set[int]] = {}
    for entry in entries:
        if entry.number:
            numbers.setdefault(entry.task_id, set()).add(entry.number)
    return {
        (task_id, number): place
        for task_id, found in numbers.items()
        if len(found) > 1
        for place, number in enumerate(sorted(found), start=1)
    }


def offset(seconds: float) -> str:
    """Writes a time since submission: `+1.25 s`, `+2m 05s`, `+3h 00m 05s`, `+2d 03h 00m 05s`."""
    sign = "-" if round(seconds, 2) < 0 else "+"
    size = abs(seconds)
    if size < 99.995:
        return f"{sign}{size:.2f} s"
    minutes, second = divmod(round(size), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = [f"{days}d", f"{hour:02}h", f"{minute:02}m", f"{second:02}s"]
    first = 0 if days else 1 if hour else 2
    return sign + " ".join(parts[first:]).removeprefix("0")


def _local(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
