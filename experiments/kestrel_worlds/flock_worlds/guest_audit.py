"""Compares what really happened across pools with what was promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kestrel_worlds.audit import Audit, Execution
from kestrel_worlds.simulation_clock import SimulationClock
from kestrelctl.core.effects import Effect, Run
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.flock.rules.policy import Policy
from kestrelctl.flock.service.guest_jobs import held_of
from kestrelctl.flock.service.loan_addresses import loan_of
from kestrelctl.store.port import StoreRecord


class Guest(msgspec.Struct):
    """An attempt of one pool that another one runs.

    Attributes:
        number, job_id, index: those of the attempt, at its home.
        guest_job: the job of the lender that runs it.
        executions: the runs of its command: several, if a worker there was lost or given up.
    """

    home: str
    lender: str
    loan: str
    number: int
    job_id: int
    index: int
    guest_job: int
    executions: list[Execution] = []
    over_at: float | None = None  #: when it was durable in the lender that the job has ended

    @property
    def running(self) -> list[Execution]:
        """The executions that go on."""
        return [each for each in self.executions if each.ended_at is None]


class GuestAudit:
    """Sees the guests of all pools.

    Attributes:
        pools: the audit of each pool, by its domain.
        guests: the guests that are durable in their lenders, by lender and job.
    """

    def __init__(self) -> None:
        self.pools: dict[str, PoolAudit] = {}
        self.guests: dict[tuple[str, int], Guest] = {}

    @property
    def problems(self) -> list[str]:
        """The promises that were broken, in all pools, in the order of time."""
        found = [problem for audit in self.pools.values() for problem in audit.problems]
        return sorted(found, key=lambda problem: float(problem.partition(":")[0]))

    def told(self, sender: str, to: str) -> None:
        """Checks that a pool that tells something about the flock does not talk to itself."""
        self.pools[sender].expect(sender != to, "talks to itself")

    def reported(self, home: str, result: Result) -> None:
        """Notes a result that a lender reports."""
        self.pools[home].kept(result)

    def counted_on(self, home: str, lender: str, loan: str, at: float) -> list[int]:
        """Lists attempts that have run at a lender since before that moment, and that are the
        latest of tasks that have not ended.
        """
        audit = self.pools[home]
        return [
            guest.number
            for guest in self.guests.values()
            if (guest.home, guest.lender, guest.loan) == (home, lender, loan)
            and any(run.began_at < at for run in guest.running)
            and audit.is_open(guest)
        ]

    def dropped(self, lender: str, home: str, loan: str, numbers: list[int]) -> None:
        """Checks unacknowledged results that a lender forgets: no home may count on them."""
        audit = self.pools[home]
        for guest in list(self.guests.values()):
            if (guest.home, guest.lender, guest.loan) == (home, lender, loan):
                lost = guest.number in numbers and audit.is_open(guest) and audit.holds(guest)
                text = f"the result of {guest.number} of {home} is dropped, which waits for it"
                self.pools[lender].expect(not lost, text)

    def came(self, lender: str, record: JobRecord) -> None:
        """Notes a guest that is durable in its lender, or of which something has changed."""
        audit = self.pools[lender]
        guest = self.guests.get((lender, record.job_id))
        if guest is None:
            found = self._new(lender, audit, record.job_id, record.spec)
            if found is None:
                return
            guest = self.guests[lender, record.job_id] = found
        if record.state != "active" and guest.over_at is None:
            guest.over_at = audit.now

    def _new(self, lender: str, audit: PoolAudit, job_id: int, spec: JobSpec) -> Guest | None:
        held, said = held_of(spec), spec.guest
        if held is None or said is None:
            audit.expect(False, f"nobody can tell of whom job {job_id} is a guest")
            return None
        home = self.pools.get(said.pool)
        at_home = home.job(said.job_id) if home is not None else None
        where = f"job {job_id}, a guest of {said.pool},"
        audit.expect(said.pool != lender, f"{where} is at home")
        audit.expect(at_home is not None, f"{where} is of a job that is not durable there")
        if at_home is not None:
            audit.expect(at_home.spec.guest is None, f"{where} was lent on")
            audit.expect(at_home.owner == said.user, f"{where} is said to be of {said.user}")
        return Guest(said.pool, lender, said.loan, held.number, said.job_id, held.index, job_id)

    def began(self, lender: str, execution: Execution) -> None:
        """Notes that a guest's command starts to run."""
        guest = self.guests.get((lender, execution.job_id))
        if guest is None:
            return
        guest.executions.append(execution)
        home = self.pools.get(guest.home)
        if home is not None:
            home.runs_elsewhere(guest)

    def ended(self, lender: str, execution: Execution) -> None:
        """Notes that a guest's command has ended."""
        guest = self.guests.get((lender, execution.job_id))
        home = self.pools.get(guest.home) if guest is not None else None
        if guest is not None and home is not None:
            home.ran_elsewhere(guest.number, execution.outcome)


class PoolAudit(Audit):
    """The audit of one pool of a flock: machines of others run its tasks, too."""

    def __init__(self, domain: str, clock: SimulationClock, whole: GuestAudit) -> None:
        super().__init__(clock)
        self.domain = domain
        self._whole = whole
        #: The workers that the pool knows.
        self.workers: Callable[[], Mapping[str, Worker]] = dict
        #: The latest attempt of each task.
        self._latest: dict[tuple[int, int], int] = {}
        whole.pools[domain] = self

    @property
    def now(self) -> float:
        """The current moment."""
        return self._clock.now

    def expect(self, condition: bool, text: str) -> None:
        if not condition:
            super().expect(condition, f"{self.domain}: {text}")

    def is_open(self, guest: Guest) -> bool:
        """Whether a task waits for the end of an attempt: it has no later one, and is not over."""
        task = (guest.job_id, guest.index)
        latest = self._latest.get(task) == guest.number
        return latest and task not in self.over_since and guest.job_id not in self.stopped_since

    def holds(self, guest: Guest) -> bool:
        """Whether this pool counts on an attempt."""
        worker = self.workers().get(loan_of(guest.lender, guest.loan))
        return worker is not None and guest.number in worker.held

    def decided(self, effects: Sequence[Effect]) -> None:
        super().decided(effects)
        for effect in effects:
            if isinstance(effect, Run):
                for number, job_id, index, n, _ in effect.spans:
                    for k in range(n):
                        self._latest[job_id, index + k] = number + k

    def job(self, job_id: int) -> JobRecord | None:
        """Returns a job that is durable; None if there is none."""
        return self._jobs.get(job_id)

    def committed(self, records: Sequence[StoreRecord]) -> None:
        super().committed(records)
        for record in records:
            if isinstance(record, JobRecord) and record.spec.guest is not None:
                self._whole.came(self.domain, record)

    def handed_in(self, home: str, policy: Policy) -> None:
        """Checks that the rules in force allow a task of another pool that is taken."""
        verdict = policy.may_lend_to(home)
        self.expect(verdict.allowed, f"takes a guest of {home}, against its rules: {verdict.why}")

    def began(
        self,
        number: int,
        job_id: int,
        index: int,
        worker: str,
        item: str | None,
        gpus: tuple[str, ...] = (),
    ) -> str:
        found = super().began(number, job_id, index, worker, item, gpus)
        self._whole.began(self.domain, self.executions[number])
        return found

    def ended(self, number: int, outcome: int | None) -> None:
        super().ended(number, outcome)
        self._whole.ended(self.domain, self.executions[number])

    def runs_elsewhere(self, guest: Guest) -> None:
        """Notes that a lender runs an attempt; again, if its worker there was lost."""
        number = guest.number
        worker = loan_of(guest.lender, guest.loan)
        job = self._jobs.get(guest.job_id)
        self.expect(job is not None, f"attempt {number} is of job {guest.job_id}: not durable")
        known = self.executions.get(number)
        if known is None:
            execution = Execution(number, guest.job_id, guest.index, worker, {}, self.now)
            self.executions[number] = execution
            return
        same = (known.job_id, known.index, known.worker) == (guest.job_id, guest.index, worker)
        self.expect(same, f"attempt {number} runs at {known.worker} and at {worker}")

    def ran_elsewhere(self, number: int, outcome: int | None) -> None:
        """Notes the end of a run at a lender; `outcome` is None if its worker's death ended it."""
        execution = self.executions[number]
        execution.ended_at = self.now
        if execution.outcome != Outcome.DONE:
            execution.outcome = outcome
