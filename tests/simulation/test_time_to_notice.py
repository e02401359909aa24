"""How soon a pool knows that something broke, and acts on it, in simulated seconds."""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

import pytest

import kestrel_worlds
from kestrel_worlds import faults
from kestrel_worlds.faults import Kind
from kestrel_worlds.nodes import Nodes
from kestrel_worlds.workload import Submission
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd

#: Longer than any promise about it; the faults' own durations are drawn at random.
BROKEN_SECONDS = 60.0
FAULT_SECONDS = 40.0
#: By then all workers are there.
JOINED_SECONDS = 1.0

#: The pool hands something out; and one task of a job.
RUN = r'says (\w+)@\S+ \{"type":"run"'
RUN_OF_ONE = RUN + r',"spans":\[\[\d+,(\d+,\d+),1,0,\d+\]\]'


def hang(nodes: Nodes, random: Random, _seconds: float) -> None:
    faults.hang_worker(nodes, random, BROKEN_SECONDS)


def cut(nodes: Nodes, random: Random, _seconds: float) -> None:
    faults.cut_worker(nodes, random, BROKEN_SECONDS)


def crash(nodes: Nodes, random: Random, _seconds: float) -> None:
    faults.crash_worker(nodes, random, BROKEN_SECONDS)


class Told(NamedTuple):
    """One line of a story."""

    at: float
    who: str
    what: str


def story(
    seed: int, kind: Kind, workers: int, tasks: int, *, task: str = "long", broken: int = 3
) -> list[Told]:
    """What happens in a pool of workers with one processor each while some things break."""
    spec = JobSpec(program=Program(argv=("task",)), name=task, count=tasks, max_losses=9)
    report = kestrel_worlds.run(
        seed,
        kestrel_worlds.WorldSettings(
            ads=[WorkerAd()] * workers,
            submissions=[Submission(at_seconds=0.0, spec=spec)],
            faults=broken,
            fault_kinds={kind: 1.0},
            fault_seconds=FAULT_SECONDS,
            check=False,
        ),
    )
    report.raise_problems()
    parts = (line.split(maxsplit=2) for line in report.story)
    return [Told(float(at), who, what) for at, who, what in parts]


def seconds_until_gone(told: list[Told], fault: str) -> list[tuple[float, str]]:
    """For each worker that had joined: after the fault, until it is gone, and the pool's reason.

    A worker that was not given up at all counts as given up at the end of the story.
    """
    joined: set[str] = set()
    broken: dict[str, float] = {}
    found: dict[str, tuple[float, str]] = {}
    for at, who, what in told:
        if match := re.match(r"Joined (\w+)@", what):
            joined.add(match[1])
        elif what == fault and who in joined:
            broken.setdefault(who, at)
        elif match := re.match(r"worker (\w+)@\S+ is gone \((\S+)\)", what):
            if match[1] in broken:
                found.setdefault(match[1], (at - broken[match[1]], match[2]))
        elif what == "has peace":
            break
    never = (told[-1].at, "never")
    return [found.get(who, never) for who, at in broken.items() if at < FAULT_SECONDS - 15]


@pytest.mark.parametrize(("kind", "fault"), [(hang, "hangs"), (cut, "is cut off")])
@pytest.mark.parametrize(("workers", "seeds", "broken"), [(2, 60, 2), (917, 2, 60)])
def test_a_silent_worker_is_given_up_within_fifteen_seconds(
    kind: Kind, fault: str, workers: int, seeds: int, broken: int
) -> None:
    """How long it takes depends on when a worker spoke last, so that many have to be looked at."""
    noticed = [
        seconds
        for seed in range(seeds)
        for seconds, _ in seconds_until_gone(
            story(seed, kind, workers, workers, broken=broken), fault
        )
    ]
    assert len(noticed) >= 40
    assert max(noticed) < 15


def test_a_killed_worker_is_known_to_be_gone_because_the_server_says_so() -> None:
    noticed = [
        found
        for seed in range(40)
        for found in seconds_until_gone(story(seed, crash, 6, 6), "is killed")
    ]
    assert len(noticed) >= 40
    assert {reason for _, reason in noticed} == {"unavailable"}
    assert max(seconds for seconds, _ in noticed) < 0.1


def seconds_until_elsewhere(told: list[Told]) -> list[float]:
    """From the death of each worker that ran a task until this task is sent to another.

    A task that was sent nowhere counts as sent at the end of the story. One that is lost again
    pauses, and is left out.
    """
    runs: dict[str, str] = {}  #: worker -> its task
    dead: dict[str, float] = {}  #: task -> when its worker was killed
    lost: set[str] = set()
    found: list[float] = []
    for at, who, what in told:
        if what == "is killed" and who in runs:
            task = runs.pop(who)
            # In the end all processes are killed.
            if JOINED_SECONDS < at < told[-1].at and task not in lost:
                dead[task] = at
            lost.add(task)
        elif match := re.match(r"Reported (\w+)@", what):
            runs.pop(match[1], None)
        elif match := re.match(RUN_OF_ONE, what):
            runs[match[1]] = match[2]
            if match[2] in dead:
                found.append(at - dead.pop(match[2]))
    return found + [told[-1].at] * len(dead)


def test_a_killed_workers_task_is_sent_elsewhere_within_a_tenth_of_a_second() -> None:
    """Ten workers have seven tasks, and three are killed: there is always an idle one."""
    resent = [
        seconds
        for seed in range(120)
        for seconds in seconds_until_elsewhere(story(seed, crash, 10, 7))
    ]
    assert len(resent) >= 40
    assert max(resent) < 0.1


def test_a_restarted_manager_hands_out_tasks_within_five_seconds() -> None:
    took = []
    for seed in range(20):
        told = story(seed, faults.crash_manager, 4, 800, task="medium")
        starts = [at for at, who, what in told if who == "manager" and what.startswith("starts")]
        ends = [at for at, who, what in told if who == "manager" and what == "is killed"]
        runs = [at for at, _, what in told if re.match(RUN, what)]
        for start, end in zip(starts[1:], [*ends[1:], told[-1].at], strict=True):
            if start < FAULT_SECONDS - 5 and end > start + 5:
                took.append(next((at for at in runs if at > start), told[-1].at) - start)
    assert len(took) >= 20
    assert max(took) < 5
