"""Every invariant has something to say when it is broken."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from poolkit import PoolDriver

from kestrelctl.core.invariants import violations
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.state import State


class Books:
    """A pool in good order: a job of three tasks, of which a worker runs one."""

    def __init__(self) -> None:
        driver = PoolDriver()
        driver.join("w")
        job_id = driver.submit(3, max_running=1)
        self.state: State = driver.pool.state
        self.job: Job = self.state.jobs[job_id]
        self.worker: Worker = self.state.workers["w"]
        self.number, self.task = next(iter(self.worker.held.items()))

    def add(self, index: int, standing: Standing) -> None:
        """Another task among the live ones."""
        self.job.live[index] = Task(self.job, index, standing)


def test_books_in_good_order_break_none() -> None:
    assert violations(Books().state) == []


def _drop_capacity(books: Books) -> None:
    books.worker.free["cpus"] = -1


def _lose_attempt(books: Books) -> None:
    books.task.attempt = None


def _make_a_guest(books: Books) -> None:
    home = GuestOf(pool="home.example", job_id=7, user="bob@home.example", loan="0a")
    books.job.spec = msgspec.structs.replace(books.job.spec, max_running=2)
    books.state.demand.update(books.job)
    books.job.spec = msgspec.structs.replace(books.job.spec, guest=home)
    books.state.kept[books.job] = ([], 0.0)


def _lend(books: Books) -> None:
    books.worker.jid = "flock@x/0a"
    books.worker.kept_for = books.job
    books.job.shape.stays = True


BROKEN: dict[str, Callable[[Books], object]] = {
    "-1 free cpus": _drop_capacity,
    "held attempt {number} is over": _lose_attempt,
    "says it is at v": lambda b: setattr(b.task.attempt, "worker", "v"),
    "has number 7": lambda b: setattr(b.task.attempt, "number", 7),
    "is not live": lambda b: b.job.live.clear(),
    "stays at w, which is gone": lambda b: setattr(b.worker, "online", False),
    "w: 5 run, really 1": lambda b: setattr(b.worker, "running", 5),
    "running_of {{}}, really": lambda b: b.worker.running_of.clear(),
    "w: cpus does not add up": lambda b: b.worker.free.update(cpus=1),
    "w gets tasks though it may not": lambda b: setattr(b.worker, "draining", True),
    "task 0 says 4": lambda b: setattr(b.task, "index", 4),
    "live task 2 beyond the cursor": lambda b: b.add(2, Standing.READY),
    "task 2 waits wrongly": lambda b: b.add(2, Standing.READY),
    "task 2 Standing.UNDER_WAY": lambda b: b.add(2, Standing.UNDER_WAY),
    "nobody holds running task 0": lambda b: b.worker.held.clear(),
    "nobody will ever ask for task 2": lambda b: b.add(2, Standing.UNHEARD),
    "cancelled task 2 waits": lambda b: (
        setattr(b.job, "cancelling", True),
        b.add(2, Standing.READY),
    ),
    "task 0 failed out": lambda b: setattr(b.task, "failures", 99),
    "running count is off": lambda b: setattr(b.job, "running", 2),
    "remaining of 3": lambda b: setattr(b.job.counts, "done", 1),
    "3 tasks came, 5 ended": lambda b: setattr(b.state.totals, "tasks_done", 5),
    "the guests are set(), not {{99}}": lambda b: b.state.guests.add(99),
    "are kept for guests": _make_a_guest,
    "job 1 has the wrong turn": _make_a_guest,
    "w is of the wrong class": lambda b: setattr(b.worker.cls, "distance_seconds", 0.1),
    "flock@x/0a is lent, and kept": _lend,
    "tasks of jobs [1] are at a neighbour": _lend,
    "a class counts 1 members, not 0": lambda b: setattr(b.worker, "online", False),
}


@pytest.mark.parametrize("words", BROKEN)
def test_it_is_named(words: str) -> None:
    books = Books()
    BROKEN[words](books)
    found = "\n".join(violations(books.state))
    assert words.format(number=books.number) in found
