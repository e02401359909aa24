"""How jobs are found and shown."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Sequence

from msgspec.structs import replace

from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.show.command_output import Column, Listing, Record, Table
from kestrelctl.cli.show.grid import Grid, cut
from kestrelctl.cli.submit.job_file import SCRATCH
from kestrelctl.core.jobs.job import how_stopped
from kestrelctl.core.model.job.checkpoint_rules import DEFAULT_SECONDS
from kestrelctl.core.model.job.ending_rules import rules_text
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.plural import plural
from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.grammar.quantities import ago, duration, short_address, size
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol.answers import JobExplanation, JobLine, Jobs, JobView
from kestrelctl.protocol.requests import ExplainJob, ListJobs

#: What stands where the name or command of another user's job would.
PRIVATE = "(private)"
#: For how many waiting jobs a list says why they wait: each takes a request.
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
    """One job.

    Args:
        details: with what lists leave out.

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
    """Jobs, newest last, and how many there are, however many were asked for.

    Args:
        limit: at most so many, the newest; 0 for all.
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
    """By job id: why nothing runs of an active job. Only for the newest twenty such jobs."""
    stuck = [view for view in views if view.state == "active" and view.waiting and not view.running]
    stuck = [view for view in stuck if view.whole]  # of others' jobs the pool does not say

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
        Column("TIME", lambda v: duration((v.ended_at or now) - v.submitted_at), right=True),
        Column("REASON", lambda v: reasons.get(v.job_id, "")),
    ]
    return Listing(views, columns, lambda v: str(v.job_id), nothing="no jobs")


def job_name(view: JobView) -> str:
    """What stands for a job in a list."""
    said = view.name or cut(_command(view), _LONGEST_COMMAND)
    return said or unnamed(view)


def unnamed(job: JobView | JobLine) -> str:
    """What stands for a job whose name and command are not for this user."""
    if job.guest_of:
        return f"guest of {job.guest_of}: {short_address(job.owner)}"
    return PRIVATE


def totals(views: Sequence[JobView], of: int = 0) -> str:
    """One line for all of them.

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


def _checkpoints(view: JobView) -> str:
    program = view.spec.program
    if not program.checkpoints:
        return ""
    every = duration(program.checkpoint_seconds or DEFAULT_SECONDS)
    code = program.checkpoint_exit
    goes_on = "" if code is None else f", and exit code {code} goes on"
    used = f"; {plural(view.resumed, 'attempt')} went on from one"
    return f"{shlex.join(program.checkpoints)} every {every}{goes_on}{used}"


def job_record(view: JobView, now: float, reason: str, output: str, files: str) -> Record:
    """Everything about a job.

    Args:
        now: seconds since the epoch.
        reason: why it waits, if it does.
        output: how much its tasks wrote, and where that is.
        files: how many its tasks left.
    """
    spec, program = view.spec, view.spec.program
    environment = program.environment
    span = f" ({view.ids})" if view.whole else ""
    blocks: list[tuple[str, str] | Table] = [
        ("job", f"{view.job_id} {view.name}".rstrip()),
        ("state", ", ".join(filter(None, (_state(view), stop_words(view))))),
        ("waits because", reason),
        ("on hold", _hold(view, now)),
        ("owner", view.owner),
        ("guest of", view.guest_of),
        ("command", _command(view) or PRIVATE),
        ("directory", (program.workdir or SCRATCH) if view.whole else ""),
        ("inputs", shlex.join(view.inputs or ())),
        ("standard input", view.stdin),
        ("outputs", shlex.join(program.outputs)),
        ("outputs go to", program.output_to),
        ("checkpoints", _checkpoints(view)),
        ("tasks", f"{view.tasks:,}{span}"),
        ("", totals([view]).partition("tasks: ")[2]),
        ("submitted", ago(view.submitted_at, now)),
        ("ended", ago(view.ended_at, now)),
        ("took", duration(view.ended_at - view.submitted_at) if view.ended_at else ""),
        ("time of a task", duration(view.mean_seconds)),
        ("output", output),
        ("files", files),
        ("standard error", "into standard output" if program.join else ""),
        ("logs", "kept in the file share" if program.keep_logs else ""),
        ("priority", str(spec.priority)),
        ("spans", f"{spec.span:,} workers at once" if spec.span > 1 else ""),
        ("cpus", f"{spec.request.get('cpus', 0):g}"),
        ("memory", size(int(spec.request.get("memory", 0)))),
        ("disk", size(int(spec.request.get("disk", 0)))),
        *((name, f"{n:.10g}") for name, n in sorted(spec.request.items()) if name not in _NAMED),
        ("retry memory", ", then ".join(map(size, spec.retry_memory_bytes))),
        ("requires", " ".join(spec.requires)),
        ("requirements", spec.requirements),
        ("rank", spec.rank),
        ("environment", environment.of if environment else ""),
        ("neighbours", "none: it stays on the pool's own workers" if spec.stays else ""),
        ("max running", str(spec.max_running or "")),
        ("max failures", str(spec.max_failures) if view.whole else ""),
        ("endings", rules_text(spec)),
        ("back-off", _pauses(view)),
        ("after each", f"task of job {spec.after_each}" if spec.after_each else ""),
        ("hold after", f"{plural(spec.hold_after, 'failure')} in a row" if spec.hold_after else ""),
        ("stop after", plural(spec.stop_after, "failed task") if spec.stop_after else ""),
        ("max losses", str(spec.max_losses) if view.whole else ""),
        ("on worker lost", spec.on_worker_lost.value if view.whole else ""),
        ("time limit", duration(program.time_limit_seconds)),
        ("time request", duration(spec.time_request_seconds)),
        ("deadline", _deadline(view, now)),
        ("stop signal", f"SIG{program.stop_signal}" if program.stop_signal else ""),
        ("stop grace", duration(program.stop_grace_seconds)),
        ("variables", shlex.join(f"{name}={value}" for name, value in program.env.items())),
        ("cleanup", shlex.join(program.cleanup)),
        *((f"stage {stage.name}", _stage(stage)) for stage in program.stages),
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


#: Assets with a line of their own.
_NAMED = ("cpus", "memory", "disk")


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
        attempts: how many it is of. `-` if there are some and it is not known.
    """
    if byte_seconds is None and attempts:
        return "-"
    if not byte_seconds:
        return ""
    hours = byte_seconds / _GIB_HOUR
    return f"{hours:,.3g} GiB h" if hours >= 0.01 else f"{size(round(byte_seconds)) or '0 B'} s"


def _running(view: JobView, now: float) -> str:
    """What tasks use that have run for a while."""
    use = view.running_use
    if use is None:
        return ""
    return (
        f"{plural(use.tasks, 'task')} with {duration(use.cpu_seconds)} of processor time in"
        f" {duration(use.wall_seconds)}, {size(use.memory_bytes) or '0 B'} of memory"
        f" (said {ago(use.since, now)} at the earliest)"
    )


def _spread(view: JobView) -> list[tuple[str, str] | Table]:
    """The percentiles of what ended tasks took."""
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
        Table(Grid(headings), rows),
    ]


def stop_words(view: JobView) -> str:
    """What stopped a job that nobody cancelled; empty if nothing did."""
    return how_stopped(view.stopped_by, view.failed + view.lost) if view.stopped_by else ""


def _state(view: JobView) -> str:
    """The state; of a service that runs, that it is one; of a job on hold, that it is held."""
    if view.hold is not None:
        return "held"
    return "service" if view.spec.service and view.state == "active" else view.state


def _hold(view: JobView, now: float) -> str:
    """Who holds it, since when and why."""
    if view.hold is None:
        return ""
    why = f": {view.hold.reason}" if view.hold.reason else ""
    return f"by {view.hold.by}, {ago(view.hold.at, now)}{why}"


def _stage_sums(view: JobView) -> list[Table]:
    """How the stages of ended tasks went."""
    if not view.stage_sums:
        return []
    headings = [("STAGE", False), ("TASKS", True), ("MEAN", True), ("REPEATED", True)]
    rows = [
        [each.name, f"{each.tasks:,}", duration(each.mean_seconds), f"{each.repeated:,}"]
        for each in view.stage_sums
    ]
    return [Table(Grid(headings), rows)]


def _stage(stage: Stage) -> str:
    """Its command, and what is said of its tries."""
    limit = f"{duration(stage.time_limit_seconds)} a try" if stage.time_limit_seconds else ""
    tries = f"up to {plural(stage.tries, 'try', 'tries')}" if stage.tries > 1 else ""
    rules = ", ".join(filter(None, (limit, tries)))
    return shlex.join(stage.argv) + (f" ({rules})" if rules else "")


def _deadline(view: JobView, now: float) -> str:
    if view.deadline_at is None:
        return ""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.deadline_at))
    left = view.deadline_at - now
    return f"{moment}, in {duration(left)}" if left > 0 else f"{moment}, over"


def _pauses(view: JobView) -> str:
    longest = duration(view.spec.max_backoff_seconds)
    words = (duration(view.spec.backoff_seconds), f"at most {longest}" if longest else "")
    return ", ".join(filter(None, words))


def _command(view: JobView) -> str:
    return shlex.join(view.spec.program.argv)
