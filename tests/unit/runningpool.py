"""A pool whose tasks run at once, inside the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cli_fake_pool import JOB, TASK, FakePool
from msgspec.structs import replace

from kestrelctl.core.model.job.placeholders import fill
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import TaskOutput


class Exit(NamedTuple):
    """How a task ends, and what it prints; with `state` as the pool has it.

    Attributes:
        lost_bytes: how much of either output nobody has any more.
    """

    code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    state: TaskState = TaskState.DONE
    lost_bytes: int = 0


class RunningPool(FakePool):
    """Runs each task of a job when it is submitted.

    Args:
        program: how a command ends.
        ends_first: the order in which a job's tasks end, one in each look; all at once if empty.
    """

    def __init__(
        self, program: Callable[[tuple[str, ...]], Exit], *, ends_first: tuple[int, ...] = ()
    ) -> None:
        super().__init__(
            SubmitJob=self._submit, UploadItems=self._upload, ListJobs=self._jobs,
            ListTasks=self._tasks, AllLogs=self._logs, CancelJobs=self._cancel,
        )  # fmt: skip
        self._program = program
        self._ends_first = ends_first
        self._uploads: dict[str, list[str]] = {}
        self.jobs: dict[int, dict[int, Exit]] = {}
        self.specs: dict[int, JobSpec] = {}
        self.ran: list[tuple[str, ...]] = []
        self._looks: dict[int, int] = {}
        self.cancelled: set[int] = set()

    def _upload(self, request: rq.UploadItems) -> an.AnyAnswer:
        self._uploads.setdefault(request.upload, []).extend(request.lines)
        return an.Changed(id="", what=[request.upload], tasks=len(request.lines))

    def _submit(self, request: rq.SubmitJob) -> an.AnyAnswer:
        job_id = 7 + len(self.jobs)
        items = self._uploads.get(request.upload, request.spec.items) or ()
        spec = self.specs[job_id] = replace(request.spec, items=tuple(items))
        exits = self.jobs[job_id] = {}
        for index, item in enumerate(items):
            argv = fill(spec.program.argv, index, index, item, spec.program.placeholders)
            self.ran.append(argv)
            exits[index] = self._program(argv)
        self._looks[job_id] = 0
        return an.Submitted(id="", job_id=job_id, tasks=len(items))

    def _ended(self, job_id: int) -> dict[int, Exit]:
        exits = self.jobs[job_id]
        if not self._ends_first:
            return exits
        order = self._ends_first[: self._looks[job_id]]
        if job_id in self.cancelled:
            rest = {i: Exit(state=TaskState.CANCELLED) for i in exits if i not in order}
            return {i: exits[i] for i in order if i in exits} | rest
        return {i: exits[i] for i in order if i in exits}

    def _jobs(self, request: rq.ListJobs) -> an.AnyAnswer:
        job_id = int(request.jobs)
        self._looks[job_id] += 1
        is_over = len(self._ended(job_id)) == len(self.jobs[job_id])
        state = "done" if is_over else "active"
        return an.Jobs(id="", jobs=[replace(JOB, job_id=job_id, state=state, running=0)])

    def _tasks(self, request: rq.ListTasks) -> an.AnyAnswer:
        ended = self._ended(int(request.job))
        there = sorted(index for index in ended if index > request.after)
        page = there[: request.limit]
        views = [
            replace(
                TASK, index=index, task_id=index, state=_state(ended[index]),
                exit_code=ended[index].code, started_at=1000.5, wall_seconds=0.25,
                stdout_bytes=len(ended[index].stdout) + ended[index].lost_bytes,
                stderr_bytes=len(ended[index].stderr) + ended[index].lost_bytes,
            )
            for index in page
        ]  # fmt: skip
        return an.Tasks(id="", tasks=views, after=page[-1] if len(there) > len(page) else None)

    def _logs(self, request: rq.AllLogs) -> an.AnyAnswer:
        exits = self.jobs[int(request.job)]
        asked = sorted(i for i in request.ids or exits if i > request.after)
        outputs = [
            TaskOutput(task_id=index, data=getattr(exits[index], request.stream)) for index in asked
        ]
        return an.LogPage(id="", outputs=outputs)

    def _cancel(self, request: rq.CancelJobs) -> an.AnyAnswer:
        self.cancelled |= {int(each) for each in request.jobs.split(",")}
        return an.Changed(id="", what=request.jobs.split(","))


def _state(found: Exit) -> TaskState:
    return TaskState.FAILED if found.code else found.state


def echo(argv: tuple[str, ...]) -> Exit:
    """Prints its words, as echo does; the word `fail3` fails with 3 and complains."""
    code = next((int(word[4:]) for word in argv if word.startswith("fail")), 0)
    said = " ".join(argv[1:]).encode() + b"\n"
    return Exit(code, said, b"bad\n" if code else b"")
