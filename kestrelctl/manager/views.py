"""Jobs, tasks and workers as users see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from kestrelctl.core.counting.percentile import percentile
from kestrelctl.core.jobs.attempt import Attempt, Phase
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.availability import worker_state
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.model.end_reason import NO_REASON
from kestrelctl.core.model.files.inputs import shown_input
from kestrelctl.core.model.job.checkpoint import Checkpoint
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.program import Program, cut_words
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.result import logs_are_stored
from kestrelctl.core.model.worker.assets import MILLI, natural, unit_key, without_units
from kestrelctl.core.model.worker.use import Use
from kestrelctl.core.pool import Pool
from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.core.scheduling.shortage import class_words, shape_words
from kestrelctl.protocol import codec
from kestrelctl.protocol.answers import EnvironmentView, RunningTask, UnitView, UserLine, WorkerView
from kestrelctl.protocol.job_answers import (
    CheckpointView,
    JobExplanation,
    JobView,
    Obstacle,
    RunningUse,
    StoryEntry,
    TaskFiles,
    TaskView,
)
from kestrelctl.protocol.properties import ToldReading
from kestrelctl.protocol.triggers import FiredView
from kestrelctl.protocol.views import AssetView, GroupView, SaturatedClass, UnmetShape, UserView
from kestrelctl.store.sums import Spread, Used


def checkpoint_view(checkpoint: Checkpoint | None, now: float) -> CheckpointView | None:
    """The latest checkpoint of a task, if there is one."""
    if checkpoint is None:
        return None
    return CheckpointView(
        n=checkpoint.n,
        age_seconds=round(max(0.0, now - checkpoint.at), 3),
        size_bytes=checkpoint.stored.size_bytes,
    )


#: The longest command, and the longest requirements, in characters, in an answer about many jobs.
LONGEST_COMMAND = 200
#: The longest item, in characters, of a task that is asked for alone.
LONGEST_ITEM = 10_000
#: The most running tasks that are shown of a worker.
MOST_RUNNING = 100
#: The most shapes, and the most classes, of a shortage that are shown.
MOST_LACKING = 10
#: Bytes of an answer around its page of views.
_FRAME_BYTES = 1000

V = TypeVar(
    "V",
    JobView,
    TaskView,
    WorkerView,
    StoryEntry,
    UserLine,
    UserView,
    GroupView,
    TaskFiles,
    MembershipEvent,
    FiredView,
    EnvironmentView,
)


def shown(job: Job, unstored: Counts | None) -> tuple[Counts, int]:
    """Counts the tasks of an active job that are shown as ended, and those shown as running.

    Args:
        unstored: those whose end is not durable: to users they have not ended.
    """
    counts, running = job.counts, job.running
    if unstored is None:
        return counts, running
    durable = Counts(
        done=counts.done - unstored.done,
        failed=counts.failed - unstored.failed,
        lost=counts.lost - unstored.lost,
        cancelled=counts.cancelled - unstored.cancelled,
    )
    return durable, running + unstored.total()


def job_view(record: JobRecord, job: Job | None, unstored: Counts | None = None) -> JobView:
    """A job: from memory while it is active, otherwise from its record.

    The store may say already that a job has ended while it is still in memory, because nobody has
    been told yet: then it is active, and has no end.

    Args:
        unstored: as for `shown`.
    """
    spec = record.spec
    counts, running = shown(job, unstored) if job else (record.counts, 0)
    waiting = job.remaining - job.running if job else 0
    state = record.state
    if job is not None:
        state = "cancelling" if job.cancelling else "active"
    latencies = sorted(job.latencies) if job else []
    return JobView(
        job_id=record.job_id,
        name=spec.name,
        owner=record.owner,
        state=state,
        tasks=spec.count,
        submitted_at=record.submitted_at,
        ended_at=None if job else record.ended_at,
        waiting=waiting,
        running=running,
        done=counts.done,
        failed=counts.failed,
        lost=counts.lost,
        cancelled=counts.cancelled,
        spec=msgspec.structs.replace(spec.head(), further=()),
        ids=spec.ids(),
        resumed=job.resumed if job else record.resumed,
        stopped_by=job.stopped_by if job else record.stopped_by,
        hold=job.hold if job else record.hold,
        mean_seconds=job.mean_seconds if job else None,
        dispatch_p50_seconds=percentile(latencies, 50),
        dispatch_p99_seconds=percentile(latencies, 99),
    )


def summary(view: JobView) -> JobView:
    """Reduces a job to what anybody may know: whose it is, what it takes, and how far it is."""
    spec, guest = view.spec, view.spec.guest
    return JobView(
        job_id=view.job_id,
        name="",
        owner=view.owner,
        state=view.state,
        tasks=view.tasks,
        submitted_at=view.submitted_at,
        ended_at=view.ended_at,
        waiting=view.waiting,
        running=view.running,
        done=view.done,
        failed=view.failed,
        lost=view.lost,
        cancelled=view.cancelled,
        spec=JobSpec(
            program=Program(argv=()),
            request=spec.request,
            priority=spec.priority,
            service=spec.service,
            guest=guest and GuestOf(pool=guest.pool, job_id=0, user="", loan=""),
        ),
        hold=None if view.hold is None else msgspec.structs.replace(view.hold, reason=""),
    )


def abridged(view: JobView) -> JobView:
    """A job whose command, ids and requirements are cut where they become long: one of many in an
    answer.
    """
    ids, spec = view.ids, view.spec.head(LONGEST_COMMAND)
    address = "".join(cut_words((spec.program.output_to,), LONGEST_COMMAND))
    return msgspec.structs.replace(
        view,
        spec=msgspec.structs.replace(
            spec, program=msgspec.structs.replace(spec.program, output_to=address)
        ),
        ids=ids if len(ids) <= LONGEST_COMMAND else f"{ids[:LONGEST_COMMAND]}…",
    )


def uncut(view: JobView, spec: JobSpec) -> JobView:
    """A job with its command and its requirements as they are.

    Args:
        spec: whole.
    """
    return msgspec.structs.replace(
        view,
        spec=msgspec.structs.replace(
            view.spec,
            program=msgspec.structs.replace(view.spec.program, argv=spec.program.argv),
            requires=spec.requires,
            requirements=spec.requirements,
            rank=spec.rank,
        ),
    )


def with_used(view: JobView, used: Used) -> JobView:
    """A job with what its attempts took."""
    return msgspec.structs.replace(
        view,
        attempts=used.attempts,
        cpu_seconds=used.cpu_seconds,
        wall_seconds=used.wall_seconds,
        wait_seconds=used.wait_seconds,
        memory_byte_seconds=_known_byte_seconds(used),
        peak_bytes=used.peak_bytes or None,
    )


def with_spread(view: JobView, used: Used, found: Spread) -> JobView:
    """A job with the percentiles of what its tasks took.

    Args:
        used: tells the most of each, of all tasks.
    """
    if not found.tasks:
        return view
    spread = {
        "wait_seconds": [*found.wait_seconds, used.longest_wait_seconds],
        "wall_seconds": [*found.wall_seconds, used.longest_wall_seconds],
        "cpu_seconds": [*found.cpu_seconds, used.longest_cpu_seconds],
    }
    if found.memory_tasks:
        spread["peak_bytes"] = [*found.peak_bytes, used.peak_bytes]
    return msgspec.structs.replace(
        view,
        spread=spread,
        spread_tasks=found.tasks,
        spread_memory_tasks=found.memory_tasks,
        sampled=not found.whole,
    )


def _known_byte_seconds(used: Used) -> float | None:
    """The memory time; None if attempts took memory and nobody knows how much."""
    return used.byte_seconds if used.peak_bytes or not used.attempts else None


def user_line(user: str, used: Used) -> UserLine:
    """Makes the line of what a user, or a group, has used."""
    return UserLine(
        user=user,
        attempts=used.attempts,
        tasks=used.tasks,
        cpu_seconds=used.cpu_seconds,
        wall_seconds=used.wall_seconds,
        wait_seconds=used.wait_seconds,
        memory_byte_seconds=_known_byte_seconds(used),
        peak_bytes=used.peak_bytes or None,
    )


def detailed(view: JobView, spec: JobSpec) -> JobView:
    """A job with what else only its spec tells, as far as one answer can hold it.

    Args:
        spec: whole.
    """
    program = spec.program
    told = msgspec.structs.replace(
        spec,
        program=msgspec.structs.replace(
            program,
            inputs=(),
            parent_files=(),
            stdin=None,
            environment=view.spec.program.environment,
        ),
        items=None,
        further=(),
        guest=view.spec.guest,
    )
    names = [*map(shown_input, program.inputs), *(each.name for each in program.parent_files)]
    whole = msgspec.structs.replace(
        view,
        spec=told,
        inputs=names or None,
        stdin=shown_input(program.stdin) if program.stdin else "",
    )
    return whole if _json_bytes(whole) + _FRAME_BYTES <= codec.MAX_PAYLOAD_BYTES else view


def first_that_fit(views: Iterable[V], beside: msgspec.Struct | None = None) -> list[V]:
    """Returns as many views as one answer may hold; at least one, if there is any.

    Args:
        beside: what else is in the answer.
    """
    found: list[V] = []
    room = codec.MAX_PAYLOAD_BYTES - _FRAME_BYTES - (_json_bytes(beside) if beside else 0)
    for view in views:
        room -= _json_bytes(view) + 1
        if room < 0 and found:
            break
        found.append(view)
    return found


def _json_bytes(view: msgspec.Struct) -> int:
    """The bytes of a view in a stanza."""
    return codec.text_bytes(msgspec.json.encode(view).decode())


def task_view(record: TaskRecord, job: JobRecord, now: float) -> TaskView:
    """A task that has a row."""
    result = record.result
    wait_seconds = None if result is None else waits_seconds(job, result.started_at)
    if record.state is TaskState.WAITING:
        wait_seconds = waits_seconds(job, now)
    return TaskView(
        index=record.index,
        task_id=job.spec.task_id(record.index),
        state=record.state,
        worker=record.worker,
        exit_code=result.exit_code if result and not result.signal else None,
        signal=result.signal if result else 0,
        reason=result.reason if result else NO_REASON,
        failures=record.failures,
        losses=record.losses,
        started_at=result.started_at if result else None,
        wall_seconds=result.wall_seconds if result else None,
        cpu_seconds=result.cpu_seconds if result else None,
        peak_bytes=(result.peak_bytes or None) if result else None,
        wait_seconds=wait_seconds,
        stdout_bytes=result.stdout_bytes if result else 0,
        stderr_bytes=result.stderr_bytes if result else 0,
        output_files=result.output_files if result else 0,
        outputs_bytes=result.outputs.size_bytes if result and result.outputs else 0,
        logs_stored=result is not None and logs_are_stored(result),
        stages=result.stages if result else (),
        checkpoint=checkpoint_view(record.checkpoint, now),
    )


def running_use(pool: Pool, job: Job) -> RunningUse | None:
    """Sums up what running tasks of a job use, as far as was said; a walk over tasks under way."""
    said = [
        found for task in job.live.values() if (found := last_use(pool, task.attempt)) is not None
    ]
    if not said:
        return None
    return RunningUse(
        tasks=len(said),
        wall_seconds=sum(use.wall_seconds for _, use in said),
        cpu_seconds=sum(use.cpu_seconds for _, use in said),
        memory_bytes=sum(use.memory_bytes for _, use in said),
        since=min(at for at, _ in said),
    )


def waits_seconds(job: JobRecord, until: float) -> float:
    """Returns how long a task has waited since its job was submitted, to the microsecond.

    Args:
        until: when it started, or now; seconds since the epoch.
    """
    return round(max(0.0, until - job.submitted_at), 6)


def run_seconds(
    attempt: Attempt | None, said: tuple[float, Use] | None, now: float
) -> float | None:
    """Returns how long an attempt has run, to the microsecond; None if it does not, or began before
    this manager and its worker has not spoken of it since.

    Args:
        said: what it was last said to have used, and when.
    """
    if attempt is None or attempt.phase is not Phase.RUNNING:
        return None
    if said is not None:
        said_at, use = said
        return round(use.wall_seconds + max(0.0, now - said_at), 6)
    began_at = attempt.promoted_at or attempt.sent_at
    return round(max(0.0, now - began_at), 6) if began_at else None


def cut_item(item: str, longest: int) -> str:
    """An item as it is shown.

    Args:
        longest: where it is cut, in characters.
    """
    return item if len(item) <= longest else f"{item[:longest]}…"


def with_item(view: TaskView, item: str | None, longest: int) -> TaskView:
    """A task with its item, if it has one; see `cut_item`."""
    if item is None:
        return view
    return msgspec.structs.replace(view, item=cut_item(item, longest))


def last_use(pool: Pool, attempt: Attempt | None) -> tuple[float, Use] | None:
    """Returns what a running attempt was last said to have used, and when."""
    worker = pool.workers.get(attempt.worker) if attempt is not None else None
    return worker.uses.get(attempt.number) if worker is not None and attempt is not None else None


def _running_tasks(worker: Worker, now: float) -> list[RunningTask]:
    found: list[RunningTask] = []
    for number, task in worker.held.items():
        attempt = task.attempt
        if attempt is None or attempt.phase is not Phase.RUNNING:
            continue
        said = worker.uses.get(number)
        said_at, use = said or (None, None)
        found.append(
            RunningTask(
                job_id=task.job.id,
                task_id=task.job.spec.task_id(task.index),
                sent_at=attempt.sent_at,
                said_at=said_at,
                wall_seconds=run_seconds(attempt, said, now),
                cpu_seconds=use.cpu_seconds if use else None,
                memory_bytes=use.memory_bytes if use else None,
            )
        )
        if len(found) == MOST_RUNNING:
            break
    return found


_NOTHING_READ: Mapping[str, PropertyReading] = {}


def worker_view(
    worker: Worker,
    now: float,
    *,
    with_tasks: bool = False,
    groups: Iterable[str] = (),
    properties: Mapping[str, PropertyReading] = _NOTHING_READ,
) -> WorkerView:
    """A worker, as users see it.

    Args:
        with_tasks: also what runs there.
        groups: of workers, that it is in.
        properties: what was read of its host.
    """
    ad = worker.ad
    remaining = worker.remaining_seconds(now)
    return WorkerView(
        worker=worker.jid,
        state=worker_state(worker, now),
        assets=natural(worker.assets),
        free=natural(without_units(worker.free)),
        units={
            asset: [
                UnitView(
                    id=unit.id,
                    free=max(0, worker.free.get(unit_key(asset, unit.id), 0)) / MILLI,
                    vendor=unit.vendor,
                    model=unit.model,
                    memory_bytes=unit.memory_bytes,
                )
                for unit in units
            ]
            for asset, units in ad.units.items()
        },
        shared=sorted(ad.shared),
        unknown=ad.unknown,
        tags=sorted(worker.cls.tags),
        running=worker.running,
        queued=worker.queued,
        done=worker.tasks_done,
        failed=worker.tasks_failed,
        host=ad.host,
        os=ad.os,
        arch=ad.arch,
        version=ad.version,
        joined_at=worker.joined_at,
        quarantined_until=worker.quarantined_until or None,
        quarantined_for=worker.quarantined_for,
        ends_at=None if remaining is None else now + remaining,
        offered_cpus=ad.assets["cpus"] if worker.is_cut else None,
        attributes=ad.attributes,
        start=ad.start,
        runs=_running_tasks(worker, now) if with_tasks else [],
        groups=list(groups),
        properties=[
            ToldReading(name, each.at, each.value, each.missing)
            for name, each in sorted(properties.items())
        ],
    )


def pool_assets(pool: Pool) -> list[AssetView]:
    """The assets that the whole pool has itself."""
    return [
        AssetView(name=each.name, total=each.total, held=each.held, waiting=each.waiting)
        for each in pool.tokens()
    ]


def lacking(pool: Pool) -> tuple[list[UnmetShape], list[SaturatedClass]]:
    """Tells what the pool lacks: the largest part of it."""
    found = pool.shortage()
    tags = pool.known_tags()
    shapes = sorted(found.unmet.items(), key=lambda entry: -entry[1])[:MOST_LACKING]
    classes = sorted(found.saturated.items(), key=lambda entry: -entry[1].workers)[:MOST_LACKING]
    return (
        [
            UnmetShape(shape=shape_words(shape, tags), tasks=tasks, request=natural(shape.request))
            for shape, tasks in shapes
        ],
        [
            SaturatedClass(
                worker_class=class_words(cls), workers=full.workers, assets=list(full.assets)
            )
            for cls, full in classes
        ],
    )


def explanation(pool: Pool, job: Job, unstored: Counts | None, now: float) -> JobExplanation:
    """Explains why a job's tasks wait; the answer to a request still needs the request's id."""
    found = pool.explain(job, now)
    return JobExplanation(
        id="",
        job=job_view(job.record(), job, unstored),
        waiting=sum(line.waiting for line in job.lines()) + job.waiting_behind,
        job_reasons=found.job_reasons,
        obstacles=[
            Obstacle(workers=group.workers, example=group.example, refusal=group.refusal)
            for group in found.groups[:20]
        ],
        could_run=found.could,
        ever=found.ever,
        tasks_ahead=found.tasks_ahead,
        clauses=found.clauses,
    )
