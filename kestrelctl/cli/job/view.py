"""Finds and shows jobs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.at_once import needs_loop
from kestrelctl.cli.show.command_output import Listing, Record, Table
from kestrelctl.cli.show.grid import Column, cut
from kestrelctl.core.model.end_reason import how_stopped
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.grammar.job_options import NAMED_ASSETS, OPTIONS
from kestrelctl.grammar.quantities import ago, duration, short_address, short_number, size
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol.job_answers import JobExplanation, JobLine, Jobs, JobView
from kestrelctl.protocol.job_requests import ExplainJob, ListJobs

#: Stands in place of the name or command of another user's job.
PRIVATE = "(private)"
#: The most waiting jobs for which a list says why they wait: each takes a request.
_MOST_REASONS = 20
_GIB_HOUR = 2**30 * 3600.0
_SPREAD = {
    "wait_seconds": "wait",
    "wall_seconds": "run time",
    "cpu_seconds": "processor time",
    "peak_bytes": "memory",
}
#: The longest command that stands for a name in a list: a pipe has no width to cut it to.
_LONGEST_COMMAND = 60


async def one_job(connection: Connection, job_id: str, *, details: bool = False) -> JobView:
    """Asks for one job.

    Args:
        details: whether to include what lists leave out.

    Raises:
        NotFound: there is none of that id.
    """
    views = (await ask(connection, ListJobs(jobs=job_id, details=details), Jobs)).jobs
    if not views:
        raise NotFound(f"there is no job {job_id}", hint="kestrelctl job list")
    return views[0]


async def all_pages(
    connection: Connection, request: ListJobs, limit: int
) -> tuple[list[JobView], int]:
    """Returns jobs, the newest last, and how many there are, however many were asked for.

    Args:
        limit: the most jobs to return, the newest; 0 for all.
    """
    found: list[JobView] = []
    total: int | None = None
    before: int | None = None
    while True:
        left = limit - len(found) if limit else 0
        page = await ask(connection, replace(request, limit=left, before=before), Jobs)
        total = page.total if total is None else total
        found[:0] = page.jobs
        before = page.before
        if before is None or 0 < limit <= len(found):
            return found, max(total or 0, len(found))


async def why_waiting(connection: Connection, views: Sequence[JobView]) -> dict[int, str]:
    """Says by job id why nothing runs of an active job, for the newest twenty such jobs."""
    stuck = [view for view in views if view.state == "active" and view.waiting and not view.running]
    stuck = [view for view in stuck if view.whole]  # the pool does not explain others' jobs

    async def why(view: JobView) -> str:
        try:
            request = ExplainJob(job=str(view.job_id))
            return conclusion(await ask(connection, request, JobExplanation))[0]
        except KestrelError:
            return ""  # it may have ended meanwhile; the list is still right

    stuck = stuck[-_MOST_REASONS:]
    if len(stuck) <= 1:
        return {view.job_id: await why(view) for view in stuck}
    needs_loop()
    import asyncio

    reasons = await asyncio.gather(*map(why, stuck))
    return {view.job_id: reason for view, reason in zip(stuck, reasons, strict=True)}


def job_list(views: Sequence[JobView], now: float, reasons: dict[int, str]) -> Listing[JobView]:
    """Makes a line for each job, however many tasks it has.

    Args:
        now: seconds since the epoch.
        reasons: the reasons why jobs wait, by job id.
    """
    columns: list[Column[JobView]] = [
        Column("JOB", lambda v: str(v.job_id), right=True),
        Column("NAME", job_name),
        Column("OWNER", lambda v: v.owner, wide=True),
        Column("STATE", _state),
        Column("TASKS", lambda v: f"{v.tasks:,}", right=True),
        Column("WAITING", lambda v: f"{v.waiting:,}", right=True),
        Column("RUNNING", lambda v: f"{v.running:,}", right=True),
        Column("DONE", lambda v: f"{v.done:,}", right=True),
        Column("FAILED", lambda v: f"{v.failed:,}", right=True),
        Column("LOST", lambda v: f"{v.lost:,}", right=True, wide=True),
        Column("CANCELLED", lambda v: f"{v.cancelled:,}", right=True, wide=True),
        Column("PRIORITY", lambda v: str(v.spec.priority), right=True, wide=True),
        Column("TASK TIME", lambda v: duration(v.mean_seconds), right=True, wide=True),
        Column(
            "TIME", lambda v: duration(max(0.0, (v.ended_at or now) - v.submitted_at)), right=True
        ),
        Column("REASON", lambda v: reasons.get(v.job_id, "")),
    ]
    return Listing(views, columns, lambda v: str(v.job_id), nothing="no jobs")


def job_name(view: JobView) -> str:
    """The name of a job in a list: its name or its command."""
    said = view.name or cut(_command(view), _LONGEST_COMMAND)
    return said or unnamed(view)


def unnamed(job: JobView | JobLine) -> str:
    """The name shown for a job whose name and command are not for this user."""
    if job.guest_of:
        return f"guest of {job.guest_of}: {short_address(job.owner)}"
    return PRIVATE


def totals(views: Sequence[JobView], of: int = 0) -> str:
    """Sums up jobs in one line.

    Args:
        of: how many jobs there are, if these are only the newest.
    """
    counts = [
        f"{n:,} {name}"
        for name in ("waiting", "running", "done", "failed", "lost", "cancelled")
        if (n := sum(getattr(view, name) for view in views))
    ]
    jobs = plural(len(views), "job")
    if of > len(views):
        jobs = f"the newest {len(views):,} of {plural(of, 'job')}, --limit 0 shows all"
    return f"{jobs}; tasks: {', '.join(counts) or 'none'}"


def job_record(view: JobView, now: float, reason: str, output: str, files: str) -> Record:
    """Shows everything about a job.

    Args:
        now: seconds since the epoch.
        reason: says why it waits, if it does.
        output: says how much its tasks wrote, and where that is.
        files: says how many files its tasks left.
    """
    span = f" ({view.ids})" if view.whole else ""
    resumed = plural(view.resumed, "attempt") + " went on from a checkpoint"
    blocks: list[tuple[str, str] | Table] = [
        ("job", f"{view.job_id} {view.name}".rstrip()),
        ("state", ", ".join(filter(None, (_state(view), stop_words(view))))),
        ("waits because", reason),
        ("on hold", _hold(view, now)),
        ("owner", view.owner),
        ("guest of", view.guest_of),
        ("command", _command(view) or PRIVATE),
        ("inputs", shlex.join(view.inputs or ())),
        ("standard input", view.stdin),
        ("tasks", f"{view.tasks:,}{span}"),
        ("", totals([view]).partition("tasks: ")[2]),
        ("submitted", ago(view.submitted_at, now)),
        ("ended", ago(view.ended_at, now)),
        ("took", duration(view.ended_at - view.submitted_at) if view.ended_at else ""),
        ("time of a task", duration(view.mean_seconds)),
        ("output", output),
        ("files", files),
        ("deadline", _deadline(view, now)),
        *_asked(view),
        ("resumed", resumed if view.resumed else ""),
        ("running now", _running(view, now)),
        ("attempts", f"{view.attempts:,} with results" if view.attempts else ""),
        ("processor time", duration(view.cpu_seconds)),
        ("run time", duration(view.wall_seconds)),
        ("memory used", _memory_used(view)),
        ("memory time", memory_time(view.memory_byte_seconds)),
        *_spread(view),
        *_stage_sums(view),
    ]
    return Record(str(view.job_id), view, blocks)


#: The options of a job that everybody sees.
_OF_ANYBODY = ("priority", *NAMED_ASSETS, "asset")


def _asked(view: JobView) -> Iterator[tuple[str, str]]:
    """Yields the options of the job that are shown, with their titles."""
    for option in OPTIONS:
        if option.row is not None and (view.whole or option.name in _OF_ANYBODY):
            title = option.row.title or option.name.replace("-", " ")
            yield title, option.row.shows(view.spec)


def memory(peak_bytes: int | None) -> str:
    """The most memory of what has run; `-` if it is not known."""
    return size(peak_bytes) if peak_bytes else "-"


def _memory_used(view: JobView) -> str:
    if view.peak_bytes:
        return f"{size(view.peak_bytes)} at most"
    return "not known: its tasks ended before it was looked at" if view.attempts else ""


def memory_time(byte_seconds: float | None, attempts: int | None = None) -> str:
    """Memory over time, in gibibyte hours, or in a smaller unit times seconds; empty for none.

    Args:
        attempts: the number of attempts it is of; `-` if there are some and it is not known.
    """
    if byte_seconds is None and attempts:
        return "-"
    if not byte_seconds:
        return ""
    hours = byte_seconds / _GIB_HOUR
    return (
        f"{short_number(hours)} GiB h"
        if hours >= 0.01
        else f"{size(round(byte_seconds)) or '0 B'} s"
    )


def _running(view: JobView, now: float) -> str:
    """Says what the tasks that have run for a while use."""
    use = view.running_use
    if use is None:
        return ""
    return (
        f"{plural(use.tasks, 'task')} with {duration(use.cpu_seconds)} of processor time in"
        f" {duration(use.wall_seconds)}, {size(use.memory_bytes) or '0 B'} of memory"
        f" (said {ago(use.since, now)} at the earliest)"
    )


def _spread(view: JobView) -> list[tuple[str, str] | Table]:
    """Shows the percentiles of what ended tasks took."""
    if not view.spread:
        return []
    of = plural(view.spread_tasks, "ended task")
    rows = []
    for name, title in _SPREAD.items():
        values = view.spread.get(name, [])
        if name != "peak_bytes":
            rows.append([title, *map(duration, values)])
            continue
        some = 0 < view.spread_memory_tasks < view.spread_tasks
        known = f" of {view.spread_memory_tasks:,}" if some else ""
        rows.append([title + known, *(memory(int(value)) for value in values or [0] * 4)])
    headings = [("OF A TASK", False), ("P50", True), ("P90", True), ("P99", True), ("MOST", True)]
    return [
        ("percentiles", f"of {'a sample of ' if view.sampled else ''}{of}"),
        Table(headings, rows),
    ]


def stop_words(view: JobView) -> str:
    """Says what stopped a job that nobody cancelled; empty if nothing did."""
    return how_stopped(view.stopped_by, view.failed + view.lost) if view.stopped_by else ""


def _state(view: JobView) -> str:
    """The state of a job; `service` for an active service, `held` for a job on hold."""
    if view.hold is not None:
        return "held"
    return "service" if view.spec.service and view.state == "active" else view.state


def _hold(view: JobView, now: float) -> str:
    """Says who holds the job, since when and why."""
    if view.hold is None:
        return ""
    why = f": {view.hold.reason}" if view.hold.reason else ""
    return f"by {view.hold.by}, {ago(view.hold.at, now)}{why}"


def _stage_sums(view: JobView) -> list[Table]:
    """Shows the mean times and repetitions of the stages of ended tasks."""
    if not view.stage_sums:
        return []
    headings = [("STAGE", False), ("TASKS", True), ("MEAN", True), ("REPEATED", True)]
    rows = [
        [each.name, f"{each.tasks:,}", duration(each.mean_seconds), f"{each.repeated:,}"]
        for each in view.stage_sums
    ]
    return [Table(headings, rows)]


def _deadline(view: JobView, now: float) -> str:
    if view.deadline_at is None:
        return ""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.deadline_at))
    left = view.deadline_at - now
    return f"{moment}, in {duration(left)}" if left > 0 else f"{moment}, over"


def _command(view: JobView) -> str:
    return shlex.join(view.spec.program.argv)


def why_ended(reason: str, exit_code: int | None, signal: int) -> str:
    """Says why a task ended as it did, in a few words; empty if there is nothing to say."""
    if not (reason or signal or exit_code):
        return ""
    return how_it_ended(reason, signal, exit_code or 0)
