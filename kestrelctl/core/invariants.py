"""What must hold at every moment. Runs after every event in tests; too slow for production."""

from __future__ import annotations

from collections.abc import Callable

from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.gates import takeable
from kestrelctl.core.jobs.job import Standing
from kestrelctl.core.members.availability import closed
from kestrelctl.core.model.spec import OnWorkerLost
from kestrelctl.core.state import State


def violations(state: State) -> list[str]:
    """Every broken invariant, in words; empty if all is well."""
    found: list[str] = []

    def must(condition: bool, text: str) -> None:
        if not condition:
            found.append(text)

    held_by = _worker_violations(state, must)
    _job_violations(state, held_by, must)
    must(
        {job.id for job in state.demand.jobs()}
        == {job.id for job in state.jobs.values() if takeable(job) > 0},
        "the queue does not hold the jobs with takeable tasks",
    )
    must(not (state.touched_jobs or state.touched_workers), "something was touched and not settled")
    totals = state.totals
    came = totals.tasks_restored + totals.tasks_submitted
    there = sum(job.remaining for job in state.jobs.values())
    must(
        came == totals.tasks_ended + there,
        f"{came} tasks came, {totals.tasks_ended} ended, {there} are there",
    )
    must(state.online == sum(w.online for w in state.workers.values()), "online count is off")
    for supply in state.supply.classes():
        members = sum(w.online for w in state.workers.values() if w.cls is supply.cls)
        must(supply.members == members, f"a class counts {supply.members} members, not {members}")
    return found


Must = Callable[[bool, str], None]


def _worker_violations(state: State, must: Must) -> set[int]:
    """Holds every worker's books against its attempts; returns the numbers of these."""
    held_by: dict[int, str] = {}
    for worker in state.workers.values():
        jid = worker.jid
        taken: dict[str, int] = dict.fromkeys(worker.cls.capacity, 0)
        running = 0
        running_of: dict[int, int] = {}
        for number, task in worker.held.items():
            must(number not in held_by, f"attempt {number} at {jid} and {held_by.get(number)}")
            held_by[number] = jid
            attempt = task.attempt
            if attempt is None:
                must(False, f"held attempt {number} is over")
                continue
            must(attempt.worker == jid, f"attempt {number} says it is at {attempt.worker}")
            must(attempt.number == number, f"attempt {number} has number {attempt.number}")
            must(task.standing is Standing.UNDER_WAY, f"attempt {number}: {task.standing}")
            must(task.job.live.get(task.index) is task, f"attempt {number} is not live")
            waits = task.job.spec.on_worker_lost is OnWorkerLost.WAIT and not task.job.cancelling
            must(worker.online or waits, f"attempt {number} stays at {jid}, which is gone")
            if attempt.phase is Phase.RUNNING:
                running += 1
                running_of[task.job.id] = running_of.get(task.job.id, 0) + 1
                for name, amount in attempt.claim.amounts.items():
                    taken[name] += amount
        must(running == worker.running, f"{jid}: {worker.running} run, really {running}")
        counted = {job.id: n for job, n in worker.running_of.items()}
        must(counted == running_of, f"{jid}: running_of {counted}, really {running_of}")
        for name, capacity in worker.cls.capacity.items():
            free = worker.free.get(name, 0)
            must(free >= 0, f"{jid}: {free} free {name}")
            must(free + taken[name] == capacity, f"{jid}: {name} does not add up")
        supply = state.supply.of(worker)
        takes = jid in supply.hungry or jid in supply.parked
        # A quarantine that has just ended is noticed with the next look at the leases.
        is_open = closed(worker, state.at) is None
        must(not takes or is_open, f"{jid} gets tasks though it may not")
        must(
            takes or not is_open or worker.quarantined_until > 0,
            f"{jid} may take tasks but nobody looks at it",
        )
    return set(held_by)


def _job_violations(state: State, held: set[int], must: Must) -> None:
    """Holds every job's counts against its tasks."""
    for job in state.jobs.values():
        by_standing = dict.fromkeys(Standing, 0)
        for index, task in job.live.items():
            standing = task.standing
            by_standing[standing] += 1
            must(task.index == index, f"job {job.id}: task {index} says {task.index}")
            must(index < job.cursor, f"job {job.id}: live task {index} beyond the cursor")
            ready = standing is Standing.READY
            must((index in job.ready) == ready, f"job {job.id}: task {index} waits wrongly")
            under_way = standing is Standing.UNDER_WAY
            must((task.attempt is not None) == under_way, f"job {job.id}: task {index} {standing}")
            if task.attempt is not None:
                here = task.attempt.number in held
                must(here, f"job {job.id}: nobody holds running task {index}")
            if standing is Standing.UNHEARD:
                recovering = state.reconcile_until is not None or not state.connected
                must(recovering, f"job {job.id}: nobody will ever ask for task {index}")
            elif job.cancelling:
                must(under_way, f"job {job.id}: cancelled task {index} waits")
            must(task.failures < job.spec.max_failures, f"job {job.id}: task {index} failed out")
        must(by_standing[Standing.UNDER_WAY] == job.running, f"job {job.id}: running count is off")
        must(
            job.counts.total() + job.remaining == job.spec.count,
            f"job {job.id}: {job.counts} and {job.remaining} remaining of {job.spec.count}",
        )
        must(min(job.counts.done, job.counts.failed, job.counts.lost) >= 0, "negative count")
        limit = job.spec.max_running
        queued = job.place is not None
        must(limit is None or job.running <= max(limit, 0) or not queued, "max_running passed")
