"""What must hold at every moment. Runs after every event in tests; too slow for production."""

from __future__ import annotations

from kestrelctl.core.job import Phase
from kestrelctl.core.model import OnWorkerLost
from kestrelctl.core.state import State


def violations(state: State) -> list[str]:
    """Every broken invariant, in words; empty if all is well."""
    found: list[str] = []

    def must(condition: bool, text: str) -> None:
        if not condition:
            found.append(text)

    held_by: dict[int, str] = {}
    for worker in state.workers.values():
        taken: dict[str, int] = dict.fromkeys(worker.cls.capacity, 0)
        charged = 0
        running_of: dict[int, int] = {}
        for number, task in worker.held.items():
            must(
                number not in held_by, f"attempt {number} at {worker.jid} and {held_by.get(number)}"
            )
            held_by[number] = worker.jid
            must(task.worker is worker, f"attempt {number} does not know its worker")
            must(task.number == number, f"attempt {number} has number {task.number}")
            must(task.phase is Phase.RUNNING, f"held attempt {number} is {task.phase}")
            must(task.job.live.get(task.index) is task, f"attempt {number} is not live")
            waits = task.job.spec.on_worker_lost is OnWorkerLost.WAIT and not task.job.cancelling
            must(worker.online or waits, f"attempt {number} stays at {worker.jid}, which is gone")
            if task.charged:
                charged += 1
                running_of[task.job.id] = running_of.get(task.job.id, 0) + 1
                for name, amount in task.job.shape.request.items():
                    taken[name] += amount
        must(charged == worker.charged, f"{worker.jid}: {worker.charged} charged, really {charged}")
        counted = {job.id: n for job, n in worker.running_of.items()}
        must(counted == running_of, f"{worker.jid}: running_of {counted}, really {running_of}")
        for name, capacity in worker.cls.capacity.items():
            free = worker.free.get(name, 0)
            must(free >= 0, f"{worker.jid}: {free} free {name}")
            must(free + taken[name] == capacity, f"{worker.jid}: {name} does not add up")
        takes = worker.jid in worker.cls.hungry or worker.jid in worker.cls.parked
        ready = worker.online and worker.synced and not (worker.draining or worker.leaving)
        must(not takes or ready, f"{worker.jid} gets tasks though it may not")
        must(
            takes or not ready or worker.quarantined_until > 0,
            f"{worker.jid} may take tasks but nobody looks at it",
        )
    for job in state.jobs.values():
        by_phase = dict.fromkeys(Phase, 0)
        for index, task in job.live.items():
            by_phase[task.phase] += 1
            must(task.index == index, f"job {job.id}: task {index} says {task.index}")
            must(index < job.cursor, f"job {job.id}: live task {index} beyond the cursor")
            waits = task.phase is Phase.WAITING
            must((index in job.requeued) == waits, f"job {job.id}: task {index} waits wrongly")
            if task.phase is Phase.RUNNING:
                must(task.number in held_by, f"job {job.id}: nobody holds running task {index}")
            if task.phase is Phase.LIMBO:
                recovering = state.limbo_until is not None or not state.connected
                must(recovering, f"job {job.id}: nobody will ever ask for task {index}")
            elif job.cancelling:
                must(task.phase is Phase.RUNNING, f"job {job.id}: cancelled task {index} waits")
            must(task.failures < job.spec.max_failures, f"job {job.id}: task {index} failed out")
        must(by_phase[Phase.RUNNING] == job.running, f"job {job.id}: running count is off")
        must(
            job.counts.total() + job.remaining == job.spec.count,
            f"job {job.id}: {job.counts} and {job.remaining} remaining of {job.spec.count}",
        )
        must(min(job.counts.done, job.counts.failed, job.counts.lost) >= 0, "negative count")
        must(job.queued == (job.takeable() > 0), f"job {job.id}: queued is {job.queued}")
        limit = job.spec.max_running
        must(limit is None or job.running <= max(limit, 0) or not job.queued, "max_running passed")
    must(
        sorted(job.id for job in state.queue.jobs())
        == sorted(job.id for job in state.jobs.values() if job.queued),
        "the queue does not hold the queued jobs",
    )
    totals = state.totals
    came = totals.tasks_restored + totals.tasks_submitted
    there = sum(job.remaining for job in state.jobs.values())
    must(
        came == totals.tasks_ended + there,
        f"{came} tasks came, {totals.tasks_ended} ended, {there} are there",
    )
    must(state.online == sum(w.online for w in state.workers.values()), "online count is off")
    return found
