"""What a pool says of its tasks, compared with what the tasks themselves left behind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.protocol.answers import JobView, StoryEntry, TaskView

#: A task appends a line when it starts and one when it ends: `s|e JOB TASK ATTEMPT WORKER`.
WITNESS = "$KESTREL_JOB_ID $KESTREL_TASK_ID $KESTREL_ATTEMPT_ID $KESTREL_WORKER"

#: What an accepted result is known by: worker, start, duration.
Accepted = tuple[str, float | None, float | None]


def accepted(task: TaskView) -> Accepted:
    return task.worker, task.started_at, task.wall_seconds


def process_of(worker: str) -> str:
    """The worker process of a session `NAME-NUMBER@...`.

    What a process that died has left in its spool is reported by the first session of the next.
    """
    return worker.partition("@")[0].partition("-")[0]


@dataclass
class Witness:
    """What tasks left behind.

    Attributes:
        starts, ends: (job, task, attempt) and worker of each, in order.
    """

    starts: list[tuple[tuple[int, int, int], str]] = field(default_factory=list)
    ends: list[tuple[tuple[int, int, int], str]] = field(default_factory=list)

    @classmethod
    def read(cls, lines: Iterable[str]) -> Witness:
        found = cls()
        for line in lines:
            what, job, task, number, worker = line.split()
            into = found.starts if what == "s" else found.ends
            into.append(((int(job), int(task), int(number)), worker))
        return found


@dataclass
class Told:
    """What the pool says of a job: the job, its tasks, and the stories of these."""

    job: JobView
    tasks: list[TaskView]
    story: list[StoryEntry]
    #: Results that were seen as accepted while the storm lasted, by task id.
    seen: Mapping[int, Accepted] = field(default_factory=dict)


@dataclass
class Verdict:
    """What came of it.

    Attributes:
        breaches: promises that were broken, in words; without any, all of them hold.
        figures: what happened, for the table.
    """

    breaches: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)


def audit(acknowledged: Mapping[int, int], told: Mapping[int, Told], witness: Witness) -> Verdict:
    """Compares.

    Args:
        acknowledged: how many tasks were submitted, by job id.
        told: all jobs of the pool, by id.
        witness: what all their tasks left behind.
    """
    verdict = Verdict()
    breach = verdict.breaches.append
    for job_id, tasks in acknowledged.items():
        if job_id not in told:
            breach(f"job {job_id} was acknowledged and is gone")
        elif told[job_id].job.tasks != tasks:
            breach(f"job {job_id} has {told[job_id].job.tasks} tasks instead of {tasks}")
    starts = Counter(key for key, _ in witness.starts)
    for key, times in starts.items():
        if times > 1:
            breach(f"attempt {key[2]} of task {key[1]} of job {key[0]} was started {times} times")
    owners = defaultdict(set)
    for job_id, task_id, number in starts:
        owners[number].add((job_id, task_id))
    for number, tasks_of in owners.items():
        if len(tasks_of) > 1:
            breach(f"attempt {number} was given to {len(tasks_of)} tasks")
    for job_id, task_id, _ in starts:
        if job_id not in told:
            breach(f"task {task_id} ran of job {job_id}, which the pool does not know")
    runs = _Runs(witness)
    for each in told.values():
        _audit_job(each, runs, verdict)
    figures = verdict.figures
    figures["attempts started"] = len(witness.starts)
    figures["attempts that ran to their end"] = len(witness.ends)
    ran = Counter((job, task) for (job, task, _), _ in witness.ends)
    figures["tasks that ran to their end more than once"] = sum(n > 1 for n in ran.values())
    return verdict


class _Runs:
    def __init__(self, witness: Witness) -> None:
        self.ended = dict(witness.ends)
        self.started: dict[tuple[int, int], set[int]] = defaultdict(set)
        for (job, task, number), _ in witness.starts:
            self.started[job, task].add(number)


def _audit_job(told: Told, runs: _Runs, verdict: Verdict) -> None:
    job, breach, figures = told.job, verdict.breaches.append, verdict.figures
    name = f"job {job.job_id}"
    expected = [job.spec.first + job.spec.step * index for index in range(job.tasks)]
    if sorted(task.task_id for task in told.tasks) != expected:
        breach(f"{name}: not each of its {job.tasks} tasks is listed once")
    states = Counter(task.state for task in told.tasks)
    counted = {
        TaskState.DONE: job.done,
        TaskState.FAILED: job.failed,
        TaskState.LOST: job.lost,
        TaskState.CANCELLED: job.cancelled,
    }
    for state, count in counted.items():
        if states[state] != count:
            breach(f"{name}: counts {count} {state.value} tasks and lists {states[state]}")
    if job.state != ("failed" if job.failed or job.lost else "done"):
        breach(f"{name} is {job.state}: {job.done} of {job.tasks} done")
    number_of: dict[int, list[int]] = defaultdict(list)
    losses: Counter[int] = Counter()
    spared: set[tuple[int, int]] = set()
    for entry in told.story:
        if entry.task_id is None:
            continue
        if entry.what == "started":
            number_of[entry.task_id].append(entry.number)
        elif entry.what == "lost":
            if entry.cause == "unable" or entry.detail.startswith("not counted"):
                spared.add((entry.task_id, entry.number))
                figures["losses that are not counted"] += 1
            else:
                spared.discard((entry.task_id, entry.number))
                losses[entry.task_id] += 1
            figures[f"losses: {entry.cause}"] += 1
            if entry.number not in runs.started[job.job_id, entry.task_id]:
                figures["losses of attempts that never started"] += 1
        elif entry.what == "found-again":
            losses[entry.task_id] -= (entry.task_id, entry.number) not in spared
            figures["losses taken back"] += 1
    for task in told.tasks:
        which = f"{name}, task {task.task_id}"
        figures[f"tasks {task.state.value}"] += 1
        if losses[task.task_id] != task.losses:
            breach(f"{which}: {task.losses} losses, its story tells {losses[task.task_id]}")
        if told.seen.get(task.task_id, accepted(task)) != accepted(task):
            breach(f"{which}: another result was accepted after the first")
        if task.state is TaskState.DONE:
            _audit_result(job.job_id, task, number_of[task.task_id], runs, verdict)
        elif task.state is TaskState.LOST:
            times = len(runs.started[job.job_id, task.task_id])
            if times < task.losses:
                breach(f"{which}: given up after {task.losses} losses, it had begun {times} times")
        else:
            breach(f"{which} is {task.state.value}: {task.reason or 'no reason is told'}")


def _audit_result(
    job_id: int, task: TaskView, numbers: list[int], runs: _Runs, verdict: Verdict
) -> None:
    which = f"job {job_id}, task {task.task_id}"
    if len(numbers) != 1:
        verdict.breaches.append(f"{which}: {len(numbers)} results are told of")
        return
    where = runs.ended.get((job_id, task.task_id, numbers[0]))
    if where is None:
        verdict.breaches.append(f"{which}: attempt {numbers[0]} was accepted and never ended")
    elif process_of(where) != process_of(task.worker):
        verdict.breaches.append(f"{which}: ran on {where} and was accepted from {task.worker}")
