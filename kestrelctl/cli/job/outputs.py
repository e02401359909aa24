"""Says how much the tasks of a job wrote, and where that is."""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.access.connection import Connection, ask
from kestrelctl.core.model.end_reason import EndKind, EndReason
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.core.model.wording import plural
from kestrelctl.grammar.quantities import short_address, size
from kestrelctl.protocol.job_answers import JobView, Tasks, TaskView
from kestrelctl.protocol.job_requests import ListTasks

#: The most tasks that are looked at: those of one answer.
MOST_TASKS = 1000
_MOST_WORKERS = 5


async def output_of(connection: Connection, view: JobView) -> tuple[str, str]:
    """Returns a sentence on the output of a job's tasks that have ended, and one on the files that
    they left; empty if there is nothing."""
    states = [TaskState.DONE, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED]
    request = ListTasks(job=str(view.job_id), states=states, limit=MOST_TASKS)
    page = await ask(connection, request, Tasks)
    told = describe(page.tasks), describe_files(page.tasks, view.spec.program.output_to)
    if page.after is not None:
        some = f"of the first {plural(len(page.tasks), 'task')} that ended: "
        output, files = (each and some + each for each in told)
        return output, files
    return told


def describe_files(tasks: Sequence[TaskView], address: str = "") -> str:
    """Says how many files tasks left, and their size, or the address where they are."""
    left = [task for task in tasks if task.output_files]
    if not left:
        return ""
    files = plural(sum(task.output_files for task in left), "file")
    there = f"at {address}" if address else size(sum(t.outputs_bytes for t in left))
    return f"{files} of {plural(len(left), 'task')}, {there}"


def describe(tasks: Sequence[TaskView]) -> str:
    """Says how much tasks wrote, who has it, and how many were cut off."""
    wrote = [task for task in tasks if task.stdout_bytes or task.stderr_bytes]
    if not wrote:
        return ""
    whole = size(sum(task.stdout_bytes + task.stderr_bytes for task in wrote))
    said = f"{whole} of {plural(len(wrote), 'task')}"
    long = [task for task in wrote if max(task.stdout_bytes, task.stderr_bytes) > TAIL_BYTES]
    if not long:
        return f"{said}, all with the manager"
    said += f"; of {len(long):,} the manager has the last {size(TAIL_BYTES)}, the rest is "
    said += " and ".join(_where_the_rest_is(long))
    cut = sum(EndReason.of(task.reason).kind is EndKind.OUTPUT_LIMIT for task in long)
    return f"{said}; {cut:,} cut off at the limit" if cut else said


def _where_the_rest_is(long: Sequence[TaskView]) -> list[str]:
    workers = sorted({short_address(task.worker) for task in long if not task.logs_stored})
    named = ", ".join(workers[:_MOST_WORKERS]) + (", …" if workers[_MOST_WORKERS:] else "")
    in_share = any(task.logs_stored for task in long)
    return [*(["in the file share"] if in_share else []), *([f"on {named}"] if named else [])]
