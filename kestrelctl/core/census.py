"""A pool at one moment, in numbers: one walk over its workers, one over its jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from operator import attrgetter

import msgspec

from kestrelctl.core.attempts.endings import in_backoff
from kestrelctl.core.features.table import GATES
from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.gates import passing, takeable
from kestrelctl.core.jobs.tokens import TokensLeft
from kestrelctl.core.members.availability import WORKER_STATES, worker_state
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.records import TokenRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.worker.assets import MILLI, Amounts, known
from kestrelctl.core.scheduling.ladder import shape_reason
from kestrelctl.core.scheduling.shortage import Shortage, shortage
from kestrelctl.core.scheduling.supply import ClassSupply
from kestrelctl.core.state import State

#: Reasons that hold back no task by themselves, so that there is nothing to count.
_NOTHING_WAITS_FOR = (Reason.ALL_STARTED, Reason.MORE_MEMORY)
#: The words that are counted: reasons that several rooms speak of, then those of single features.
WAITING_REASONS = tuple(
    dict.fromkeys(
        [reason.value for reason in Reason if reason not in _NOTHING_WAITS_FOR]
        + [str(gate.reason) for gate in GATES]
    )
)


class WorkerNumbers(msgspec.Struct, frozen=True):
    """One worker of the manager's list."""

    jid: str
    online: bool
    running: int
    capacity: Amounts
    state: str
    streak: int  #: fast failures in a row


class TokenNumbers(msgspec.Struct, frozen=True):
    """An asset of the whole pool, in whole tokens."""

    name: str
    total: int
    held: int  #: by attempts; more than there are after an operator took some away
    waiting: int  #: tasks that ask for it and that no worker has


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's numbers: what it has and does.

    Attributes:
        waiting: tasks that no worker has, by reason; together those that wait.
        running: tasks that run, as far as the manager can tell.
        queued: tasks that wait at a worker behind others.
        owners: (waiting, at a worker) tasks of each owner with an active job.
        shares: (share of the pool, what his running tasks count for him) of each user who runs
            something, or waits for it; the shares together are 1. Guests have none: they get what
            others leave.
        capacity, free: of the workers that are online.
        long_tasks: running tasks of which workers have said what they use.
        long_tasks_bytes: the memory that these hold.
        tokens: what the whole pool has, by name.
        skew_seconds: the largest difference of a clock, either way; None if none is known.
    """

    jobs_active: int
    jobs_cancelling: int
    waiting: Counter[str]
    running: int
    queued: int
    owners: dict[str, tuple[int, int]]
    shares: dict[str, tuple[float, float]]
    workers_by_state: Counter[str]
    workers: list[WorkerNumbers]
    capacity: Amounts
    free: Amounts
    skew_seconds: float | None
    long_tasks: int
    long_tasks_bytes: int
    tokens: list[TokenNumbers]


def take_census(state: State, now: float) -> Census:
    """Counts everything. Takes a few milliseconds for thousands of workers."""
    by_class: defaultdict[WorkerClass, Counter[str]] = defaultdict(Counter)
    workers: list[WorkerNumbers] = []
    capacity: Counter[str] = Counter(cpus=0, memory=0)
    free: Counter[str] = Counter(cpus=0, memory=0)
    running = queued = 0
    skew: float | None = None
    for jid, worker in state.workers.items():
        word, cls, runs = worker_state(worker, now), worker.cls, worker.running
        by_class[cls][word] += 1
        has = worker.assets if worker.outlines else cls.capacity
        workers.append(WorkerNumbers(jid, worker.online, runs, has, word, worker.streak))
        running += runs
        queued += len(worker.held) - runs
        if worker.online:
            for name, amount in worker.free.items():
                free[name] += amount if amount > 0 else 0  # after a shrink
            found = worker.skew.seconds
            if found is not None:
                skew = max(abs(found), skew or 0.0)
    by_state = Counter(dict.fromkeys(WORKER_STATES, 0))
    for counted in by_class.values():
        by_state.update(counted)
    states = {state.supply.of_class(cls): counted for cls, counted in by_class.items()}
    for supply in states:
        for name, amount in known(supply.cls.capacity).items():
            capacity[name] += amount * supply.members
    for worker in filter(attrgetter("outlines"), state.workers.values()):
        for asset, outline in worker.outlines.items():
            capacity[asset] += outline.estimate if worker.online else 0
    owners: dict[str, tuple[int, int]] = {}
    for job in state.jobs.values():
        waiting, held = owners.get(job.owner, (0, 0))
        owners[job.owner] = (waiting + job.remaining - job.running, held + job.running)
    long_tasks = [
        use.memory_bytes
        for worker in filter(attrgetter("uses"), state.workers.values())
        for number, (_, use) in worker.uses.items()
        if number in worker.held
    ]
    cancelling = sum(job.cancelling for job in state.jobs.values())
    return Census(
        jobs_active=len(state.jobs) - cancelling,
        jobs_cancelling=cancelling,
        waiting=_waiting(state, states, now),
        running=running,
        queued=queued,
        owners=owners,
        shares=_shares(state),
        workers_by_state=by_state,
        workers=workers,
        capacity=dict(capacity),
        free={name: free[name] for name in capacity},
        skew_seconds=skew,
        long_tasks=len(long_tasks),
        long_tasks_bytes=sum(long_tasks),
        tokens=count_tokens(state),
    )


def _waiting(state: State, states: dict[ClassSupply, Counter[str]], now: float) -> Counter[str]:
    """Counts the tasks that no worker has, by what holds them back."""
    found: Counter[str] = Counter(dict.fromkeys(WAITING_REASONS, 0))
    backoffs = _backoffs(state)
    held_back: Reason | None = None
    if state.store_error:
        held_back = Reason.STORE_FAILING
    elif not state.connected:
        held_back = Reason.RECOVERING

    @cache
    def reason_for(shape: Shape) -> str:
        return shape_reason(shape, state.supply, states, now)

    tokens = TokensLeft(state.tokens)
    for job in state.jobs.values():
        backoff = backoffs[job.id]
        found[Reason.BACKOFF] += backoff
        lines = job.lines()
        ready = sum(len(line.ready) for line in lines)
        passed_over = 0 if job.pairing is None else len(job.pairing.behind)
        found[Reason.RECOVERING] += len(job.live) - job.running - ready - backoff - passed_over
        found[Reason.PARENTS] += job.waiting_behind
        for line in lines:
            may_go, gate = passing(line)
            if gate is not None:
                found[gate] += line.waiting - may_go
            # Tasks that the next pass would hand out have no worker yet either.
            kept = Reason.RESERVED if line in state.kept else None
            wanted = line.shape.tokens
            if may_go and wanted and held_back is None:
                with_tokens = min(may_go, tokens.times_free(wanted))
                tokens.give(wanted, with_tokens)
                lacking = Reason.TOKENS if state.tokens.settled else Reason.RECOVERING
                found[lacking] += may_go - with_tokens
                may_go = with_tokens
            if may_go:
                found[held_back or kept or reason_for(line.shape)] += may_go
    return found


def count_tokens(state: State) -> list[TokenNumbers]:
    """Counts the tokens of the whole pool: all, those that are held, and the tasks that wait."""
    if not state.tokens.names:
        return []
    waiting: Counter[str] = Counter()
    for job in state.jobs.values():
        for line in job.lines():
            for name in line.shape.tokens:
                waiting[name] += line.waiting
    return [
        TokenNumbers(
            name,
            record.total,
            state.tokens.held.get(name, 0) // MILLI,
            waiting[name],
        )
        for name, record in sorted(state.settings.of(TokenRecord).items())
    ]


def take_shortage(state: State) -> Shortage:
    """Finds what the pool lacks; nothing is known to be lacking while nothing is handed out.

    Takes some tens of milliseconds for forty shapes and a thousand classes of workers.
    """
    if not state.demand:
        return Shortage()
    if state.store_error or not state.connected or state.reconcile_until is not None:
        return Shortage()
    supplies = state.supply.classes()
    workers = {supply: len(supply.hungry) + len(supply.parked) for supply in supplies}
    running: Counter[Shape] = Counter()
    for job in state.jobs.values():
        running[job.shape] += job.running
        if job.larger:
            for task in job.live.values():
                if task.attempt is not None:
                    running[job.shape] -= 1
                    running[task.line.shape] += 1
    # Less those that only wait there, or run where nothing new may: few workers need a closer look.
    takes = set[str]().union(*(s.hungry for s in supplies), *(s.parked for s in supplies))
    known = state.workers.values()
    for worker in [w for w in known if len(w.held) > w.running or w.jid not in takes]:
        counts = worker.jid in takes
        for task in worker.held.values():
            attempt = task.attempt
            if not counts or (attempt is not None and attempt.phase is Phase.QUEUED):
                running[task.line.shape] -= 1
    waiting: dict[int, Counter[Shape]] = {}
    tokens = TokensLeft(state.tokens)
    for job in state.demand.jobs():
        # Another worker would do nothing for tasks that wait for tokens of the pool.
        tasks = min(takeable(job), tokens.times_free(job.shape.tokens))
        tokens.give(job.shape.tokens, tasks)
        waiting.setdefault(job.precedence, Counter())[job.shape] += tasks
    return shortage(running, waiting, workers)


def _shares(state: State) -> dict[str, tuple[float, float]]:
    active = [sharer for sharer in state.sharers.users() if sharer.is_active]
    together = sum(sharer.share for sharer in active if sharer.at_home)
    return {
        sharer.name: (sharer.share / together if sharer.at_home else 0.0, sharer.charged)
        for sharer in active
    }


def _backoffs(state: State) -> Counter[int]:
    """Counts the tasks of each job that wait for their next attempt."""
    found: Counter[int] = Counter()
    for entry in set(state.backoffs):
        task = in_backoff(state, entry)
        if task is not None:
            found[task.job.id] += 1
    return found
