"""The audit after a storm sees each way in which a promise can be broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from audit import Told, Witness, accepted, audit
from msgspec.structs import replace

from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.protocol.answers import JobView, StoryEntry, TaskView

FIRST, SECOND = 1001, 1002
JOB = JobView(job_id=1, name="", owner="u", state="done", tasks=2, submitted_at=0.0, done=2)


def task(index: int, **more: object) -> TaskView:
    fields = {"state": TaskState.DONE, "worker": "far1-0@w/vm", "started_at": 5.0} | more
    return TaskView(index=index, task_id=index, **fields)  # type: ignore[arg-type]


def entry(task_id: int, what: str, number: int, cause: str = "") -> StoryEntry:
    return StoryEntry(at=1.0, task_id=task_id, what=what, number=number, cause=cause)


@dataclass
class Facts:
    """A sound storm: of two tasks the second was lost once, and then ran at another worker."""

    acknowledged: dict[int, int] = field(default_factory=lambda: {1: 2})
    job: JobView = JOB
    tasks: list[TaskView] = field(default_factory=lambda: [task(0), task(1, losses=1)])
    story: list[StoryEntry] = field(
        default_factory=lambda: [
            entry(0, "started", FIRST),
            entry(1, "lost", SECOND, "lease"),
            entry(1, "started", 1003),
        ]
    )
    lines: list[str] = field(
        default_factory=lambda: [
            f"s 1 0 {FIRST} far1-0@w/vm",
            f"s 1 1 {SECOND} far2-1@w/vm",
            f"e 1 0 {FIRST} far1-0@w/vm",
            "s 1 1 1003 far1-3@w/vm",
            "e 1 1 1003 far1-3@w/vm",
        ]
    )
    seen: dict[int, TaskView] = field(default_factory=lambda: {0: task(0)})

    def breaches(self) -> list[str]:
        seen = {task_id: accepted(view) for task_id, view in self.seen.items()}
        told = {1: Told(self.job, self.tasks, self.story, seen)}
        return audit(self.acknowledged, told, Witness.read(self.lines)).breaches


def test_what_is_sound_is_no_breach() -> None:
    assert Facts().breaches() == []


def test_a_loss_that_the_pool_does_not_count_is_no_breach() -> None:
    facts = Facts()
    facts.tasks[1] = task(1)
    facts.story[1] = replace(facts.story[1], detail="not counted: it may not have begun")
    assert facts.breaches() == []
    facts.story.append(entry(1, "found-again", SECOND))
    assert facts.breaches() == []


def test_a_loss_that_counts_after_one_that_did_not_is_taken_back_as_well() -> None:
    facts = Facts()
    facts.tasks[1] = task(1)
    counted = facts.story[1]
    spared = replace(counted, detail="not counted: it may not have begun")
    found = entry(1, "found-again", SECOND)
    facts.story[1:2] = [spared, counted, found]
    assert facts.breaches() == []


def no_result_of_the_first(facts: Facts) -> None:
    del facts.lines[2]


def elsewhere(facts: Facts) -> None:
    facts.tasks[0] = task(0, worker="far3-0@w/vm")
    facts.seen.clear()


def never_begun(facts: Facts) -> None:
    facts.tasks[1] = task(1, state=TaskState.LOST, losses=3)
    facts.story[1:] = [entry(1, "lost", number, "lease") for number in (SECOND, 1003, 1004)]
    facts.job = replace(JOB, state="failed", done=1, lost=1)


@pytest.mark.parametrize(
    ("happened", "found"),
    [
        (lambda f: f.acknowledged.update({7: 3}), "job 7 was acknowledged and is gone"),
        (lambda f: f.acknowledged.update({1: 3}), "has 2 tasks instead of 3"),
        (lambda f: f.lines.append(f.lines[0]), "was started 2 times"),
        (lambda f: f.lines.append(f"s 1 1 {FIRST} far1-0@w/vm"), "was given to 2 tasks"),
        (lambda f: f.lines.append("s 8 1 1009 far1-0@w/vm"), "which the pool does not know"),
        (lambda f: f.tasks.append(task(1, losses=1)), "not each of its 2 tasks is listed once"),
        (lambda f: f.tasks.pop(), "counts 2 done tasks and lists 1"),
        (lambda f: f.story.pop(), "0 results are told of"),
        (lambda f: f.story.append(entry(0, "started", 1009)), "2 results are told of"),
        (lambda f: f.story.pop(1), "1 losses, its story tells 0"),
        (lambda f: f.seen.update({0: task(0, started_at=4.0)}), "another result was accepted"),
        (no_result_of_the_first, f"attempt {FIRST} was accepted and never ended"),
        (elsewhere, "ran on far1-0@w/vm and was accepted from far3-0@w/vm"),
        (never_begun, "given up after 3 losses, it had begun 2 times"),
    ],
)
def test_each_breach_is_seen(happened: Callable[[Facts], object], found: str) -> None:
    facts = Facts()
    happened(facts)
    assert any(found in breach for breach in facts.breaches()), facts.breaches()
