"""Whether tasks go on from their checkpoints, by what was made, what is durable and what is given.

Only what is not durable when a worker or the manager dies may be run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kestrelctl.core.effects import Run
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.task_state import FINAL_STATES
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.result import Outcome

#: (job id, index)
_Task = tuple[int, int]


class _Made(NamedTuple):
    task: _Task
    number: int
    step: int


class CheckpointAudit:
    """Sees every checkpoint that is made, committed and given.

    Args:
        expect: notes a problem unless a condition holds.

    Attributes:
        steps: how many steps each task has run in all.
        resumed: how many executions went on from a checkpoint.
        gone_on: how many attempts have ended to go on elsewhere.
    """

    def __init__(self, expect: Callable[[bool, str], None]) -> None:
        self._expect = expect
        self._made: dict[str, _Made] = {}
        #: The durable checkpoint of a task: (attempt, its number in the attempt, step).
        self._durable: dict[_Task, tuple[int, int, int]] = {}
        self.steps: Counter[_Task] = Counter()
        self.resumed = self.gone_on = 0

    def made(self, sha256: str, task: _Task, number: int, step: int) -> None:
        """Notes that an attempt has stored what it had at that step."""
        self._made[sha256] = _Made(task, number, step)

    def stepped(self, task: _Task) -> None:
        """Counts one more step that a task has run."""
        self.steps[task] += 1

    def began(
        self, task: _Task, number: int, given: MadeCheckpoint | None, *, lost: bool = False
    ) -> int:
        """Notes that an execution begins; returns the step from which it goes on.

        Args:
            lost: whether the share does not have what the execution is given.
        """
        where = f"task {task[0]}/{task[1]}"
        made = self._made.get(given.stored.sha256) if given is not None else None
        self._expect(
            given is None or (made is not None and made.task == task and made.number < number),
            f"{where} is given {made}, which is no earlier attempt's of its own",
        )
        if made is None or lost:
            return 0
        self.resumed += 1
        return made.step

    def handed_out(self, run: Run) -> None:
        """Checks that attempts sent to a worker lose nothing that was durable of their tasks."""
        given_to = dict(run.checkpoints)
        for first, job_id, first_index, n, _ in run.spans:
            for beyond in range(n):
                given = given_to.get(first + beyond)
                durable = self._durable.get((job_id, first_index + beyond))
                made = self._made.get(given.stored.sha256) if given is not None else None
                step = made.step if made is not None else 0
                self._expect(
                    durable is None or step >= durable[2],
                    f"task {job_id}/{first_index + beyond} goes on from step {step},"
                    f" and {durable} was durable",
                )

    def committed(self, row: TaskRecord) -> None:
        """Checks a task's row that is durable."""
        task = (row.job_id, row.index)
        where = f"task {row.job_id}/{row.index}"
        if row.result is not None and row.result.outcome == Outcome.GOES_ON:
            self.gone_on += 1
            nothing = row.checkpoint is None and row.state not in FINAL_STATES
            self._expect(not nothing, f"{where} goes on from nothing")
        if row.checkpoint is None or row.state in FINAL_STATES:
            self._durable.pop(task, None)
            return
        found = row.checkpoint
        made = self._made.get(found.stored.sha256)
        fits = made is not None and (made.task, made.number) == (task, found.number)
        self._expect(fits, f"{where} keeps {made} as of attempt {found.number}")
        before = self._durable.get(task)
        newer = before is None or before[:2] <= (found.number, found.n)
        self._expect(newer, f"{where} has kept {before}, and keeps {found.number}, {found.n}")
        if made is not None:
            self._durable[task] = (found.number, found.n, made.step)
