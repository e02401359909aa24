"""How jobs are found and shown."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence

from kestrelctl.cli.command_output import Column, Listing, Record
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.explain import conclusion
from kestrelctl.cli.grid import cut
from kestrelctl.cli.quantities import ago, duration, size
from kestrelctl.core.model.plural import plural
from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.protocol.answers import JobExplanation, Jobs, JobView
from kestrelctl.protocol.requests import ExplainJob, ListJobs

#: What stands where the name of another user's job would.
PRIVATE = "(private)"
#: For how many waiting jobs a list says why they wait: each takes a request.
_MOST_REASONS = 20
#: The longest command that stands for a name in a list: a pipe has no width to cut it to.
_LONGEST_COMMAND = 60


async def one_job(connection: Connection, job_id: str) -> JobView:
    """One job.

    Raises:
        NotFound: there is none of that id.
    """
    views = (await ask(connection, ListJobs(jobs=job_id), Jobs)).jobs
    if not views:
        raise NotFound(f"there is no job {job_id}", hint="kestrelctl job list")
    return views[0]


async def why_waiting(connection: Connection, views: Sequence[JobView]) -> dict[int, str]:
    """By job id: why nothing runs of an active job. Only for the newest twenty such jobs."""
    stuck = [view for view in views if view.state == "active" and view.waiting and not view.running]
    stuck = [view for view in stuck if view.argv]  # of others' jobs the pool does not say

    async def why(view: JobView) -> str:
        try:
            request = ExplainJob(job=str(view.job_id))
            return conclusion(await ask(connection, request, JobExplanation))[0]
        except KestrelError:
            return ""  # it may have ended meanwhile; the list is still right

    stuck = stuck[-_MOST_REASONS:]
    reasons = await asyncio.gather(*map(why, stuck))
    return {view.job_id: reason for view, reason in zip(stuck, reasons, strict=True)}


def job_list(views: Sequence[JobView], now: float, reasons: dict[int, str]) -> Listing[JobView]:
    """A line for each job, however many tasks it has.

    Args:
        now: seconds since the epoch.
        reasons: by job id, why it waits.
    """
    columns: list[Column[JobView]] = [
        Column("JOB", lambda v: str(v.job_id), right=True),
        Column("NAME", lambda v: v.name or cut(_command(v), _LONGEST_COMMAND) or PRIVATE),
        Column("OWNER", lambda v: v.owner, wide=True),
        Column("STATE", lambda v: v.state),
        Column("TASKS", lambda v: f"{v.tasks:,}", right=True),
        Column("WAITING", lambda v: f"{v.waiting:,}", right=True),
        Column("RUNNING", lambda v: f"{v.running:,}", right=True),
        Column("DONE", lambda v: f"{v.done:,}", right=True),
        Column("FAILED", lambda v: f"{v.failed:,}", right=True),
        Column("LOST", lambda v: f"{v.lost:,}", right=True, wide=True),
        Column("CANCELLED", lambda v: f"{v.cancelled:,}", right=True, wide=True),
        Column("PRIORITY", lambda v: str(v.priority), right=True, wide=True),
        Column("TASK TIME", lambda v: duration(v.mean_seconds), right=True, wide=True),
        Column("TIME", lambda v: duration((v.ended_at or now) - v.submitted_at), right=True),
        Column("REASON", lambda v: reasons.get(v.job_id, "")),
    ]
    return Listing(views, columns, lambda v: str(v.job_id), nothing="no jobs")


def totals(views: Sequence[JobView]) -> str:
    """One line for all of them."""
    counts = [
        f"{n:,} {name}"
        for name in ("waiting", "running", "done", "failed", "lost", "cancelled")
        if (n := sum(getattr(view, name) for view in views))
    ]
    return f"{plural(len(views), 'job')}; tasks: {', '.join(counts) or 'none'}"


def job_record(view: JobView, now: float, reason: str, output: str) -> Record:
    """Everything about a job.

    Args:
        now: seconds since the epoch.
        reason: why it waits, if it does.
        output: how much its tasks wrote, and where that is.
    """
    last = view.first + (view.tasks - 1) * view.step
    step = f":{view.step}" if view.step != 1 else ""
    span = f" ({view.first}-{last}{step})" if view.argv else ""
    blocks = [
        ("job", f"{view.job_id} {view.name}"),
        ("state", view.state),
        ("waits because", reason),
        ("owner", view.owner),
        ("command", _command(view) or PRIVATE),
        ("tasks", f"{view.tasks:,}{span}"),
        ("", totals([view]).partition("tasks: ")[2]),
        ("submitted", ago(view.submitted_at, now)),
        ("ended", ago(view.ended_at, now)),
        ("took", duration(view.ended_at - view.submitted_at) if view.ended_at else ""),
        ("time of a task", duration(view.mean_seconds)),
        ("output", output),
        ("priority", str(view.priority)),
        ("cpus", f"{view.request.get('cpus', 0):g}"),
        ("memory", size(int(view.request.get("memory", 0)))),
        ("requires", " ".join(view.requires)),
        ("max running", str(view.max_running or "")),
    ]
    return Record(str(view.job_id), view, blocks)


def _command(view: JobView) -> str:
    return shlex.join(view.argv)
