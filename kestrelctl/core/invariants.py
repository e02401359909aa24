"""Checks what must hold at every moment: after each event in tests; too slow for production."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import isclose

from kestrelctl.core.features.feature import Must
from kestrelctl.core.features.table import feature_violations
from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.fair_share import weight_of
from kestrelctl.core.jobs.gates import takeable
from kestrelctl.core.jobs.job import Standing
from kestrelctl.core.jobs.queued_bytes import account_of, encoded_bytes
from kestrelctl.core.jobs.quota import Quota, counted
from kestrelctl.core.members.availability import closed
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.worker.assets import MILLI
from kestrelctl.core.state import State


def violations(state: State) -> list[str]:
    """Every broken invariant, in words; empty if all is well."""
    found: list[str] = []

    def must(condition: bool, text: str, *details: object) -> None:
        if not condition:
            found.append(text % details)

    held_by = _worker_violations(state, must)
    _job_violations(state, held_by, must)
    must(
        set(state.demand.jobs())
        == {line for job in state.jobs.values() for line in job.lines() if takeable(line) > 0},
        "the queue does not hold the jobs with takeable tasks",
    )
    must(not (state.touched_jobs or state.touched_workers), "something was touched and not settled")
    _token_violations(state, must)
    must(
        all(not state.jobs[job_id].stored for job_id in state.keys.values()),
        "a key is kept in memory that the store knows",
    )
    totals = state.totals
    came = totals.tasks_restored + totals.tasks_submitted
    there = sum(job.remaining for job in state.jobs.values())
    must(
        came == totals.tasks_ended + there,
        "%s tasks came, %s ended, %s are there",
        came,
        totals.tasks_ended,
        there,
    )
    must(
        {
            worker.jid: job.id
            for job, (workers, _) in state.kept.items()
            for worker in workers
            if state.workers.get(worker.jid) is worker
        }
        == {jid: w.kept_for.id for jid, w in state.workers.items() if w.kept_for is not None},
        "workers are kept for other jobs than the list says",
    )
    backlogged = {jid for jid, worker in state.workers.items() if worker.queued}
    must(backlogged <= state.backlogged.keys(), "%s have a backlog", backlogged)
    must(state.online == sum(w.online for w in state.workers.values()), "online count is off")
    must(
        state.sessions
        == {
            account: {w.jid: w for w in state.workers.values() if w.online and w.account == account}
            for account in {w.account for w in state.workers.values() if w.online}
        },
        "the sessions of accounts are off",
    )
    online_of = Counter(id(w.cls) for w in state.workers.values() if w.online)
    for supply in state.supply.classes():
        members = online_of[id(supply.cls)]
        must(
            supply.members == members, "a class counts %s members, not %s", supply.members, members
        )
    present = [supply for supply in state.supply.classes() if supply.members]
    must(state.supply.present() == present, "classes are left out, or have nobody")
    _matching_violations(state, must)
    _sharing_violations(state, must)
    _spanning_violations(state, must)
    feature_violations(state, must)
    _pairing_violations(state, must)
    _flock_violations(state, must)
    return found


def _flock_violations(state: State, must: Must) -> None:
    """Checks that guests come behind the pool's own jobs, and nothing goes where it may not."""
    guests = {job.id for job in state.jobs.values() if job.spec.guest is not None}
    must(state.guests == guests, "the guests are %s, not %s", guests, state.guests)
    kept = [job.id for job in state.kept if job.id in guests]
    must(not kept, "workers are kept for guests: jobs %s", kept)
    for turn in state.demand.turns():
        for _, job in (entry for line in turn.lines.values() for entry in line):
            behind = turn.priority < 0
            must(behind == (job.id in guests), "job %s has the wrong turn", job.id)
    for worker in state.workers.values():
        lent = is_neighbour(worker.jid)
        must(lent == (worker.cls.distance_seconds > 0), "%s is of the wrong class", worker.jid)
        must(not lent or worker.kept_for is None, "%s is lent, and kept", worker.jid)
        stay = [task.job.id for task in worker.held.values() if lent and task.line.shape.stays]
        must(not stay, "tasks of jobs %s are at a neighbour", stay)


def _pairing_violations(state: State, must: Must) -> None:
    """Checks what is known of tasks that wait for those of others against the tasks."""
    for job in state.jobs.values():
        pairing = job.pairing
        waits = bool(job.spec.after_each) and not job.cancelling
        must(waits == (pairing is not None), "job %s: for whose tasks it waits is off", job.id)
        if pairing is None:
            never = job.cancelling or not job.bad.within(job.cursor, job.spec.count)
            must(never, "job %s: tasks ended badly beyond its cursor", job.id)
            continue
        known = state.pairs.get(pairing.parent, {}).get(job.id) is job
        must(known, "tasks of job %s wait, and nobody knows", job.id)
        early = pairing.free.within(0, job.cursor - 1)
        must(not early, "job %s: %s are free below the cursor", job.id, early)
        both = [each for one in job.bad for each in pairing.free.within(*one)]
        must(not both, "job %s: %s are free and cancelled", job.id, both)
        beyond = job.bad.within(job.cursor, job.spec.count)
        cancelled = sum(last - first + 1 for first, last in beyond)
        must(cancelled == pairing.cancelled, "job %s: cancelled beyond: %s", job.id, cancelled)
        must(not pairing.passed, "job %s: cancelled tasks have no rows", job.id)
        if pairing.cancels:
            vain = pairing.in_vain.within(job.cursor, job.spec.count)
            must(vain == beyond, "job %s: %s are in vain, %s cancelled", job.id, vain, beyond)
        standings = {index: job.live[index].standing for index in pairing.behind & job.live.keys()}
        must(len(standings) == len(pairing.behind), "job %s: ended tasks wait", job.id)
        for index, standing in standings.items():
            right = standing in (Standing.BEHIND, Standing.UNHEARD)
            must(right, "job %s: task %s waits, and is %s", job.id, index, standing)
            hopeless = pairing.cancels and index in pairing.in_vain
            must(not hopeless, "job %s: task %s waits in vain", job.id, index)
        parent = state.jobs.get(pairing.parent)
        if parent is not None and pairing.cancels:
            going = [i for i in parent.live if i in pairing.free or i in pairing.in_vain]
            must(not going, "job %s: %s have not ended in its parent", job.id, going)
    for parent_id, children in state.pairs.items():
        there = [job_id for job_id in children if job_id in state.jobs]
        must(bool(there) and len(there) == len(children), "nobody waits for job %s", parent_id)


def _spanning_violations(state: State, must: Must) -> None:
    """Checks that members of a job run together or not at all, and none is done before others."""
    for job in (job for job in state.jobs.values() if job.spec.span > 1):
        standings = Counter(task.standing for task in job.live.values())
        going = sum(
            task.attempt is not None and not task.attempt.moved_for and not task.is_unwanted
            for task in job.live.values()
        )
        whole = going + standings[Standing.UNHEARD] == job.spec.span
        must(not going or whole, "of job %s only %s members run", job.id, going)
        must(not job.counts.done, "%s members of job %s are done", job.counts.done, job.id)


def _sharing_violations(state: State, must: Must) -> None:
    """Checks what users are counted to have at workers against what they have there."""
    must(not state.eased, "bounds were eased and nobody was woken for that")
    running: Counter[str] = Counter()
    charged: defaultdict[str, float] = defaultdict(float)
    held: dict[Quota, Quota] = {}
    for worker in state.workers.values():
        for task in worker.held.values():
            attempt, sharer = task.attempt, task.job.sharer
            if attempt is None:
                continue
            if attempt.phase is Phase.RUNNING:
                running[sharer.name] += 1
                charged[sharer.name] += weight_of(attempt.claim)
            for quota in sharer.quotas:
                if quota not in held:
                    held[quota] = Quota(quota.whose, quota.max_running, quota.limits)
                held[quota].take(counted(attempt.claim.amounts, attempt.tokens), 1)
    queued: Counter[str] = Counter()
    for job in state.jobs.values():
        queued[account_of(job.owner, job.spec.guest)] += job.encoded_bytes
        apart = job.has_items or job.is_long
        must(apart or job.encoded_bytes == encoded_bytes(job.spec), "job %s: its size", job.id)
        must(not job.stored or job.spec.items is None, "job %s still has its items", job.id)
    counted_bytes = dict(state.queued_bytes.by_account)
    must(counted_bytes == queued, "active jobs have %s bytes, really %s", counted_bytes, queued)
    waiting = Counter(turn.sharer.name for turn in state.demand.turns())
    together = 0
    for turn in state.demand.turns():
        asked = 0
        for bit in turn.lines:
            asked |= bit
        must(turn.shapes == asked, "a turn of %s asks for other shapes", turn.sharer.name)
        must(not turn.short & ~asked, "a turn of %s has short tasks of none", turn.sharer.name)
        together |= asked
    must(state.demand.waiting == together, "other shapes wait than the queue says")
    for sharer in state.sharers.users():
        name = sharer.name
        runs = sharer.running == running[name] and isclose(
            sharer.charged, charged[name], abs_tol=1e-6
        )
        must(runs, "%s is counted to run %s, really %s", name, sharer.running, running[name])
        must(sharer.turns == waiting[name], "the turns of %s are counted wrongly", name)
        must(sharer.share > 0, "%s has a share of %s", name, sharer.share)
        seen = not sharer.is_active or state.sharers.looks_at(sharer)
        must(seen, "%s has something, and nobody looks at his share", name)
        for quota in sharer.quotas:
            really = held.get(quota) or Quota(quota.whose, quota.max_running, quota.limits)
            must(
                (quota.attempts, quota.amounts) == (really.attempts, really.amounts),
                "%s is counted to have %s at workers, really %s",
                quota.whose,
                (quota.attempts, quota.amounts),
                (really.attempts, really.amounts),
            )


def _matching_violations(state: State, must: Must) -> None:
    """Checks the classes of workers and the shapes of jobs against what expressions ask now."""
    if state.supply.significance:
        for worker in state.workers.values():
            asked = state.supply.facts_of(worker.ad, worker.jid)
            fits = not worker.cls.ad_known or worker.cls.facts == asked
            must(fits, "%s is not of the class that expressions ask for", worker.jid)
    if state.demand.significance:
        for line in (line for job in state.jobs.values() for line in job.lines()):
            right = state.demand.shape_of(line.asks, line.owner)
            must(line.shape is right, "job %s has another shape than it should", line.id)


def _token_violations(state: State, must: Must) -> None:
    """Checks the books of tokens against the attempts that hold some, and jobs against them."""
    really: Counter[str] = Counter()
    for worker in state.workers.values():
        for task in worker.held.values():
            if task.attempt is not None:
                really.update(task.attempt.tokens)
    must(state.tokens.held == really, "tokens held: %s, really %s", state.tokens.held, really)
    for line in (line for job in state.jobs.values() for line in job.lines()):
        asked = {name for name, n in line.asks.request.items() if n}
        of_pool = asked.intersection(state.tokens.names)
        must(line.shape.tokens.keys() == of_pool, "job %s asks workers for tokens", line.id)
        must(not of_pool & line.shape.request.keys(), "job %s asks twice", line.id)
    for name, kept in state.tokens.kept.items():
        mine = all(state.tokens.kept.get(other) is kept for other in kept.wanted)
        must(mine and name in kept.wanted, "%s is kept without the rest of it", name)
    known = [shape for shape in state.demand.shapes if shape.tokens]
    must(state.demand.of_tokens == known, "the shapes that ask for tokens are off")
    spanning = sum(shape.bit for shape in state.demand.shapes if shape.span > 1)
    must(state.demand.spanning == spanning, "the shapes of jobs that span workers are off")


def _worker_violations(state: State, must: Must) -> set[int]:
    """Checks every worker's books against its attempts; returns the numbers of these."""
    held_by: dict[int, str] = {}
    for worker in state.workers.values():
        jid = worker.jid
        capacity_of = worker.capacity()
        taken: dict[str, int] = dict.fromkeys([*capacity_of, *worker.free], 0)
        running = 0
        running_of: dict[int, int] = {}
        for number, task in worker.held.items():
            must(number not in held_by, "attempt %s at %s and %s", number, jid, held_by.get(number))
            held_by[number] = jid
            attempt = task.attempt
            if attempt is None:
                must(False, "held attempt %s is over", number)
                continue
            must(attempt.worker == jid, "attempt %s says it is at %s", number, attempt.worker)
            must(attempt.number == number, "attempt %s has number %s", number, attempt.number)
            must(task.standing is Standing.UNDER_WAY, "attempt %s: %s", number, task.standing)
            must(task.job.live.get(task.index) is task, "attempt %s is not live", number)
            waits = task.job.spec.on_worker_lost is OnWorkerLost.WAIT and not task.is_unwanted
            must(worker.online or waits, "attempt %s stays at %s, which is gone", number, jid)
            if attempt.phase is Phase.RUNNING:
                running += 1
                running_of[task.job.id] = running_of.get(task.job.id, 0) + 1
                for name, amount in attempt.claim.amounts.items():
                    must(amount > 0, "attempt %s is charged %s %s", number, amount, name)
                    taken[name] = taken.get(name, 0) + amount
        must(running == worker.running, "%s: %s run, really %s", jid, worker.running, running)
        counted = {job.id: n for job, n in worker.running_of.items()}
        must(counted == running_of, "%s: running_of %s, really %s", jid, counted, running_of)
        for name, charged in taken.items():
            free = worker.free.get(name, 0)
            must(free >= 0 or worker.overdrawn, "%s: %s free %s", jid, free, name)
            adds_up = free + charged == capacity_of.get(name, 0)
            must(adds_up, "%s: %s does not add up", jid, name)
            must("/" not in name or charged <= MILLI, "%s: %s of %s is charged", jid, charged, name)
        guessed = worker.outlines.keys()
        must(guessed == worker.cls.unknown, "%s: estimates of %s", jid, sorted(guessed))
        policy = worker.cls.policy
        must(
            policy is (state.policies.of(worker.counted_ad, jid) if worker.cls.ad_known else None),
            "%s has policy %s, and another is in force for it",
            jid,
            policy,
        )
        supply = state.supply.of(worker)
        takes = jid in supply.hungry or jid in supply.parked
        # A quarantine that has just ended is noticed with the next look at the leases.
        is_open = closed(worker, state.at) is None
        must(not takes or is_open, "%s gets tasks though it may not", jid)
        must(
            takes or not is_open or worker.quarantined_until > 0,
            "%s may take tasks but nobody looks at it",
            jid,
        )
    return set(held_by)


def _job_violations(state: State, held: set[int], must: Must) -> None:
    """Checks every job's counts against its tasks."""
    for job in state.jobs.values():
        by_standing = dict.fromkeys(Standing, 0)
        for index, task in job.live.items():
            standing = task.standing
            by_standing[standing] += 1
            must(task.index == index, "job %s: task %s says %s", job.id, index, task.index)
            must(index < job.cursor, "job %s: live task %s beyond the cursor", job.id, index)
            ready = standing is Standing.READY
            waits_in = [line for line in job.lines() if index in line.ready]
            right = [task.line] if ready else []
            behind = job.pairing is not None and index in job.pairing.behind
            must(
                behind or standing is not Standing.BEHIND,
                "job %s: task %s waits for nothing",
                job.id,
                index,
            )
            must(index not in job.bad, "job %s: task %s goes on and is bad", job.id, index)
            must(waits_in == right, "job %s: task %s waits wrongly", job.id, index)
            must(
                task.line.shape.request.get("memory")
                == (
                    job.spec.retry_memory_bytes[task.memory_step - 1] * MILLI
                    if task.memory_step
                    else job.shape.request.get("memory")
                ),
                "job %s: task %s asks for other memory than its rule says",
                job.id,
                index,
            )
            under_way = standing is Standing.UNDER_WAY
            must(
                (task.attempt is not None) == under_way,
                "job %s: task %s %s",
                job.id,
                index,
                standing,
            )
            if task.attempt is not None:
                here = task.attempt.number in held
                must(here, "job %s: nobody holds running task %s", job.id, index)
            if standing is Standing.UNHEARD:
                recovering = state.reconcile_until is not None or not state.connected
                must(recovering, "job %s: nobody will ever ask for task %s", job.id, index)
            elif task.is_unwanted:
                must(under_way, "job %s: cancelled task %s waits", job.id, index)
            must(task.failures < job.spec.max_failures, "job %s: task %s failed out", job.id, index)
        must(by_standing[Standing.UNDER_WAY] == job.running, "job %s: running count is off", job.id)
        must(
            job.counts.total() + job.remaining == job.spec.count,
            "job %s: %s and %s remaining of %s",
            job.id,
            job.counts,
            job.remaining,
            job.spec.count,
        )
        must(min(job.counts.done, job.counts.failed, job.counts.lost) >= 0, "negative count")
        queued_lines = [line for line in job.lines() if line.place is not None]
        for line in queued_lines:
            n = takeable(line)
            must(line.takeable == n, "job %s: %s may go, really %s", job.id, line.takeable, n)
