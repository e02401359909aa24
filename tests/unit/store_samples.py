"""Records to put into stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.after import After, GraphHead, IfParentFails, WantedEnd
from kestrelctl.core.model.job.checkpoint import Checkpoint
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, OnWorkerLost
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import Happening, JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome, Result

FULL_SPEC = JobSpec(
    program=Program(
        argv=("convert", "{}", "-resize", "50%"),
        placeholders=Placeholders.PASTE,
        env={"OMP_NUM_THREADS": "1"},
        cleanup=("rm", "-rf", "tmp"),
        time_limit_seconds=1.5,
        success_exits=((0, 0), (3, 5)),
        stop_signal="INT",
        stop_grace_seconds=30.0,
        outputs=("result.csv", "plots/*.größe"),
        output_to="file:///shared/ada@users.pool/run",
        stages=(Stage(name="in", argv=("fetch", "{n}"), time_limit_seconds=60.0, tries=3),),
        join=True,
        keep_logs=True,
    ),
    name="Größe halbieren",
    count=3,
    first=10,
    step=5,
    items=("a b.png", "ü.png", '"quoted".png'),
    request={"cpus": 0.5, "memory": 3 * 2**30, "fpga": 2},
    requires=("gpu", "linux"),
    priority=200,
    max_running=40,
    max_failures=3,
    max_losses=7,
    on_worker_lost=OnWorkerLost.WAIT,
    retry_on=((75, 75), (-9, -9)),
    backoff_seconds=5.0,
    max_backoff_seconds=60.0,
    deadline_seconds=3600.0,
    retry_memory_bytes=(4 * 2**30, 6 * 2**30),
    held=True,
    hold_after=20,
    after=(After(1, 3), After(7, 7, WantedEnd.FAILED)),
    after_each=5,
    if_parent_fails=IfParentFails.WAIT,
    graph=GraphHead(3, "digest"),
    stop_after=3,
    stays=True,
    guest=GuestOf(
        pool="home.example",
        job_id=8,
        user="grüße@home.example",
        group="lab",
        loan="0a1b2c3d4e5f",
        memo=b"\0\xff",
    ),
)

#: Where the files of a task are.
STORED = StoredFile(
    sha256="5a" * 32,
    size_bytes=3 << 30,
    pieces=(
        Piece(sha256="a5" * 32, size_bytes=1 << 30, url="https://share.pool/x/piece"),
        Piece(sha256="7e" * 32, size_bytes=2 << 30, url="https://share.pool/%C3%BC?a=1&b=<2>"),
    ),
)

#: A rule of the flock of which everything is said.
FULL_RULE = FlockRule(
    name="night.shift",
    direction="lend",
    action="allow",
    order=7,
    pools=("*.example.org", "größe.test"),
    users=("ada", "b?b@*"),
    groups=("phys*",),
    max_cpus=8.5,
    max_seconds=600.0,
    isolation="namespace",
    requirements='TARGET.RequestCpus <= 2 && JobName != "x"',
    lease_seconds=3600.0,
)


def job(job_id: int = 1, **changes: Any) -> JobRecord:
    """An active job of many tasks, none of them sent yet, unless the changes say otherwise."""
    fields: dict[str, Any] = {
        "owner": "ada@pool.internal",
        "spec": JobSpec(program=Program(argv=("true",)), count=100_000),
        "submitted_at": 1_700_000_000.25,
    }
    return JobRecord(job_id=job_id, **(fields | changes))


def result(index: int, job_id: int = 1, **changes: Any) -> Result:
    """A success without output, unless the changes say otherwise."""
    fields: dict[str, Any] = {
        "number": (1 << 40) + index,
        "outcome": Outcome.DONE,
        "started_at": 1_700_000_001.5,
        "wall_seconds": 0.125,
    }
    return Result(job_id=job_id, index=index, **(fields | changes))


def _ended(state: TaskState, outcome: int) -> Callable[..., TaskRecord]:
    def make(index: int, job_id: int = 1) -> TaskRecord:
        report = result(index, job_id, outcome=outcome)
        return TaskRecord(job_id, index, state, 0, 0, "w1@pool.internal/a", report)

    return make


done = _ended(TaskState.DONE, Outcome.DONE)
failed = _ended(TaskState.FAILED, Outcome.FAILED)


def lost(index: int, job_id: int = 1) -> TaskRecord:
    return TaskRecord(job_id, index, TaskState.LOST, 0, 5, "w1@pool.internal/a", None)


def cancelled(index: int, job_id: int = 1) -> TaskRecord:
    return TaskRecord(job_id, index, TaskState.CANCELLED, 0, 0, "", None)


def waiting(
    index: int,
    failures: int = 0,
    losses: int = 0,
    concluded: int = 0,
    retried_after: int = 0,
    memory_step: int = 0,
    least_seconds: float = 0.0,
    checkpoint: Checkpoint | None = None,
    job_id: int = 1,
) -> TaskRecord:
    """A task that runs again."""
    state = TaskState.WAITING
    return TaskRecord(
        job_id,
        index,
        state,
        failures,
        losses,
        "",
        None,
        concluded,
        retried_after,
        memory_step,
        least_seconds,
        checkpoint,
    )


def happening(index: int = -1, job_id: int = 1, **changes: Any) -> Happening:
    """The loss of an attempt, unless the changes say otherwise."""
    fields: dict[str, Any] = {
        "at": 1_700_000_002.75,
        "what": "lost",
        "number": (1 << 40) + 7,
        "worker": "w1@pool.internal/a",
        "cause": "lease",
    }
    return Happening(job_id=job_id, index=index, **(fields | changes))
