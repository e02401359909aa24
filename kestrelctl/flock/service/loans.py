"""The lender's side: opens, resizes and ends loans as what is free and who asks changes."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from random import Random
from typing import Protocol

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import natural
from kestrelctl.core.model.worker.matching_ads import amounts_ad
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.lending import ClassToLend, Grant, Lender, LentKey, LoanLimit
from kestrelctl.flock.rules.policy import Policy
from kestrelctl.flock.service.files_home import Carrier
from kestrelctl.flock.service.guest_executor import GuestExecutor
from kestrelctl.flock.service.guest_jobs import held_of
from kestrelctl.flock.service.guest_outputs import GuestOutputs
from kestrelctl.flock.service.lent_ad import lent_machine, loan_ad, resting_ad
from kestrelctl.flock.service.loan import Loan, Terms
from kestrelctl.manager.outputs import Outputs
from kestrelctl.manager.service import Service
from kestrelctl.protocol.pools import Borrow, LentClass, NotLent
from kestrelctl.worker.process import Spool
from kestrelctl.worker.run.executor import Completion

log = logging.getLogger(__name__)
audit_log = logging.getLogger("kestrelctl.flock.audit")

#: An earlier process of the manager may have missed the end of guests that ended so long before the
#: last job that ended in its time: a commit takes less. Most have reported it.
MISSED_SECONDS = 60.0
#: It is of no use to report guests that ended so long ago.
LOST_SECONDS = 3600.0
DAY_SECONDS = 86_400.0
#: The time for which jobs of ended guests are kept: a manager that starts anew looks at them.
KEEP_SECONDS = LOST_SECONDS
#: The most that are forgotten at once.
MOST_FORGOTTEN = 100


class Spools(Protocol):
    """The spools in which results of loans wait for their borrowers: directories, or memory."""

    def open(self, borrower: str, loan: str) -> Spool:
        """The spool of a loan."""
        ...

    def kept(self) -> list[LentKey]:
        """The loans of which an earlier process has left results."""
        ...

    def remove(self, borrower: str, loan: str) -> None:
        """Removes the spool of a loan, which is not needed any more."""


class GuestCounts:
    """The counts of what guests did here, since the start of the manager."""

    def __init__(self) -> None:
        self.begun = self.done = self.failed = self.given_back = self.refused = 0
        self.cpu_seconds = 0.0
        self._day = 0
        self._today = 0

    def begin(self, wall: float) -> None:
        """Counts a guest that has begun."""
        self.begun += 1
        self._today = self.today(wall) + 1
        self._day = int(wall // DAY_SECONDS)

    def today(self, wall: float) -> int:
        """Returns how many guests have begun since midnight (UTC).

        Args:
            wall: now, seconds since the epoch.
        """
        return self._today if int(wall // DAY_SECONDS) == self._day else 0


class LoanKeeper:
    """All loans of one pool.

    Args:
        policy: the rules in force.
        carrier: brings what guests have left home.
        any_workdir: as in `lent_machine`.
    """

    def __init__(
        self,
        service: Service,
        outputs: Outputs,
        settings: FlockSettings,
        policy: Callable[[], Policy],
        spools: Spools,
        random: Random,
        carrier: Carrier,
        *,
        any_workdir: bool = False,
    ) -> None:
        self._any_workdir = any_workdir
        self.carrier = carrier
        self._service = service
        self._outputs = GuestOutputs(service, outputs)
        self._ended: deque[tuple[float, int]] = deque()
        self._settings = settings
        self._policy = policy
        self._spools = spools
        self._random = random
        self.lender = Lender(settings, self._limit)
        self.loans: dict[LentKey, Loan] = {}
        #: Job id of a guest -> the executor to tell of its end.
        self._holders: dict[int, GuestExecutor] = {}
        self.counts = GuestCounts()
        self._machines: dict[str, WorkerAd] = {}
        self._wanted_since: dict[str, float] = {}
        self._supplies: dict[str, ClassToLend] = {}
        self._running_cpus: dict[str, float] = {}
        self._stranded_at = 0.0
        service.listen(fx.TasksEnded, self._on_tasks_ended)
        service.listen(fx.JobEnded, self._on_job_ended)

    # -- the own pool ------------------------------------------------------------------------------

    def look(self) -> list[LentClass]:
        """Finds what is free; returns what others are told of it."""
        told: list[LentClass] = []
        self._supplies = {}
        moment = self._service.now()
        begun: dict[str, Counter[str]] = {}
        for loan in self.loans.values():
            if waiting := loan.begun():
                begun.setdefault(loan.loan, Counter()).update(waiting)
        reclaim_seconds = self._settings.reclaim_seconds
        for each in self._service.pool.lendable(moment, reclaim_seconds):
            since = moment
            if each.wanted:
                since = self._wanted_since.setdefault(each.id, moment)
            else:
                self._wanted_since.pop(each.id, None)
            # A task may have waited for something else before, such as a token.
            overdue = each.overdue if moment - since >= reclaim_seconds else 0
            machine = lent_machine(each.ad, any_workdir=self._any_workdir)
            self._machines[each.id] = machine
            free = {} if each.wanted else {n: each.free.get(n, 0.0) for n in machine.assets}
            for name, amount in begun.get(each.id, {}).items():
                if name in free:  # guests that are to be placed in a moment
                    free[name] = max(0.0, free[name] - amount)
            self._supplies[each.id] = ClassToLend(
                each.id, machine.assets, free, each.wanted, overdue
            )
            told.append(LentClass(id=each.id, ad=machine, machines=each.machines, free=free))
        return told

    def is_busy(self, loan: str, now: float) -> bool:
        """Whether own tasks have waited for workers of a class for so long that nobody is told."""
        since = self._wanted_since.get(loan)
        return since is not None and now - since >= self._settings.busy_seconds

    def _on_tasks_ended(self, ended: fx.TasksEnded) -> None:
        for record in ended.records:
            holder = self._holders.get(record.job_id)
            if holder is not None:
                holder.ended(record)

    def _on_job_ended(self, ended: fx.JobEnded) -> None:
        if ended.record.spec.guest is not None:
            self._ended.append((self._service.now(), ended.record.job_id))
            holder = self._holders.get(ended.record.job_id)
            if holder is not None:
                holder.closed(ended.record)

    # -- what borrowers say ------------------------------------------------------------------------

    def hear(self, borrower: str, asked: Borrow, now: float) -> NotLent | None:
        """Takes in a pool's wish to borrow; returns the refusal if it may not."""
        return self.lender.hear(borrower, asked, self._supplies, now)

    def repaid(self, borrower: str, loan: str | None = None) -> None:
        """Notes that a borrower wants no more."""
        self.lender.repaid(borrower, loan)

    def on_payload(self, sender: str, loan: str, payload: str) -> bool:
        """Takes in a borrower's message to its worker; returns whether there is such a loan."""
        pool = sender.partition("@")[2].partition("/")[0]
        if sender != f"pool@{pool}":
            return False
        found = self.loans.get((pool, loan))
        question = self._outputs.question(payload)
        if question is not None:  # also when the loan is over
            place = found.place_of(question.number) if found is not None else None
            self._outputs.answer(pool, loan, question, place)
            return True
        if found is not None:
            found.on_payload(sender, payload)
            return True
        return False

    def on_bounce(self, pool: str, condition: str) -> None:
        """Notes that a borrower's pool cannot be reached now."""
        for (borrower, _), loan in list(self.loans.items()):
            if borrower == pool:
                loan.on_bounce(condition)

    # -- loans -------------------------------------------------------------------------------------

    def share(self, now: float) -> None:
        """Opens, resizes and ends loans as is due.

        A borrower hears first that it has less, and then which of its tasks have ended for that:
        else it would send them again.
        """
        self._take_back(now)
        used = {key: loan.used for key, loan in self.loans.items()}
        for key, amounts in used.items():
            self.lender.note_used(now, key, amounts)
        self._running_cpus = {}
        for (borrower, _), amounts in used.items():
            cpus = amounts.get("cpus", 0.0)
            self._running_cpus[borrower] = self._running_cpus.get(borrower, 0.0) + cpus
        self._show_machines(now)
        for grant in self.lender.share(now, self._supplies):
            self._apply(grant, now)
        self._look_after(now)
        self.forget_ended(now)

    def _show_machines(self, now: float) -> None:
        """Has loans of an earlier process lend again as soon as a worker of their class is seen."""
        for key, loan in self.loans.items():
            if loan.machine is not None or key[1] not in self._machines:
                continue
            loan.machine = self._machines[key[1]]
            state = self.lender.loans.get(key)
            if state is not None:
                loan.resize(self._ad(loan.machine, Grant(*key, state.amounts, state.until), now))

    def _apply(self, grant: Grant, now: float) -> None:
        key = (grant.borrower, grant.loan)
        loan = self.loans.get(key)
        if key not in self.lender.loans:
            if loan is not None and loan.unreported:
                # Its results would be gone with its spool. It lends nothing more meanwhile.
                self.lender.adopt(*key, {}, now)
                loan.rest()
            elif loan is not None:
                loan.end()
            return
        if loan is None:
            if grant.amounts.get("cpus", 0.0) <= 0.0 or grant.loan not in self._machines:
                return
            self._open(key, self._machines[grant.loan], grant, now, ())
        else:
            loan.resize(self._ad(loan.machine, grant, now))

    def _ad(self, machine: WorkerAd | None, grant: Grant, now: float) -> WorkerAd:
        ends_at = max(now, grant.until)  # of the clock by which a loan says hello
        if machine is None:
            return resting_ad(grant.amounts, self._service.domain, ends_at)
        policy = self._policy().start_expression("lend", grant.borrower)
        return loan_ad(machine, grant.amounts, [policy], self._service.domain, ends_at)

    def _open(
        self,
        key: LentKey,
        machine: WorkerAd | None,
        grant: Grant,
        now: float,
        left: tuple[tuple[int, JobSpec], ...],
    ) -> None:
        borrower, loan_id = key
        log.info("lends %s machines of class %s", borrower, loan_id)
        self.loans[key] = Loan(
            self._service,
            borrower,
            loan_id,
            machine,
            self._ad(machine, grant, now),
            self._spools.open(borrower, loan_id),
            f"{self._random.getrandbits(64):016x}",
            self._random,
            self._judge,
            self._audit,
            self.carrier,
            partial(self._outputs.note, borrower),
            left,
            self._holders,
            self._over,
        )

    def _over(self, loan: Loan) -> None:
        key = (loan.borrower, loan.loan)
        if self.loans.get(key) is loan:
            del self.loans[key]
            self.lender.forget(*key)
            self._spools.remove(*key)
            log.info("the loan of class %s to %s is over", loan.loan, loan.borrower)

    def _take_back(self, now: float) -> None:
        """Gives guests back whose places own tasks wait for: waiting ones at once, others later.

        It also gives back guests that have lost their machine and find no other: their home may
        know one.
        """
        overdue = self.lender.overdue(now, self._supplies)
        for loan_id, supply in self._supplies.items():
            if not supply.wanted:
                continue
            places = overdue.get(loan_id, 0)
            for (_, of_class), loan in self.loans.items():
                if of_class != loan_id:
                    continue
                waiting = loan.waiting()
                running = [n for n in loan.newest_first() if n not in waiting]
                loan.give_back([*waiting, *running[:places]])
                places -= len(running[:places])
        if now >= self._stranded_at:
            reclaim_seconds = self._settings.reclaim_seconds
            self._stranded_at = now + reclaim_seconds / 4
            for loan in self.loans.values():
                loan.give_back(loan.stranded(now, reclaim_seconds))

    def _look_after(self, now: float) -> None:
        """Makes sure of what borrowers know; ends the loans of those who were not there for a
        whole lease.
        """
        for loan in list(self.loans.values()):
            loan.agree(now, self._settings.patience_seconds, self._settings.minute_seconds)
            if not loan.is_unheard(now, self._settings.lease_seconds):
                continue
            if loan.running:
                loan.give_back(loan.newest_first())
            elif not loan.unreported or loan.is_unheard(now, LOST_SECONDS):
                log.warning("%s does not answer: the loan ends", loan.borrower)
                loan.drop()

    def wake_at(self) -> float | None:
        """Returns when something is due that nothing else would bring about."""
        now = self._service.now()
        moments = [loan.until for loan in self.lender.loans.values() if loan.until > now]
        overdue = self.lender.overdue_at()
        if overdue is not None and overdue > now:
            moments.append(overdue)
        return min(moments, default=None)

    def forget_ended(self, now: float) -> None:
        """Has the own pool forget guests that ended a while ago: the audit tells of them."""
        if self._service.store_error:
            return
        due: list[int] = []
        while self._ended and now - self._ended[0][0] >= KEEP_SECONDS and len(due) < MOST_FORGOTTEN:
            due.append(self._ended.popleft()[1])
        if due:
            self._service.handle(ev.Expire(at=now, cause="flock", job_ids=due))

    # -- policy ------------------------------------------------------------------------------------

    def _limit(self, borrower: str) -> LoanLimit:
        policy = self._policy()
        verdict = policy.may_lend_to(borrower)
        if not verdict.allowed:
            return LoanLimit(why=verdict.why)
        rules = policy.room_by_rule("lend", borrower, self._running_cpus)
        return LoanLimit(
            max_cpus=None if rules is None else sum(rules.values()),
            rules=rules or {},
            lease_seconds=verdict.terms.lease_seconds,
        )

    def _judge(self, borrower: str, attempt: LocalAttempt) -> Terms | str:
        """Whether the policy lets an attempt run here, whatever its home has thought."""
        template = attempt.template
        asked = natural(attempt.claim.amounts)
        verdict = self._policy().judge_task(
            "lend",
            borrower,
            user=template.owner,
            group=template.group,
            about={"Owner": template.owner, "JobName": template.name}
            | amounts_ad(asked, "Request"),
            seconds=template.program.time_limit_seconds,
            cpus=asked.get("cpus", 0.0),
        )
        if verdict.allowed:
            return verdict.terms.isolation, verdict.terms.max_seconds
        self.counts.refused += 1
        return verdict.why

    # -- the audit ---------------------------------------------------------------------------------

    def _audit(self, borrower: str, spec: JobSpec, job_id: int, end: Completion | None) -> None:
        """Writes a line for each guest that begins, and one for each that ends; counts them."""
        guest = spec.guest
        if guest is None:
            return
        held = held_of(spec)
        task_id = held.template.task_id(held.index) if held is not None else 0
        what = f"task {task_id} of job {guest.job_id}"
        who = f"{guest.user} of {borrower}"
        if end is None:
            self.counts.begin(self._service.clock.wall())
            audit_log.info("guest job %d begins: %s of %s: %.200s", job_id, what, who,
                           " ".join(spec.program.argv))  # fmt: skip
            return
        self.counts.cpu_seconds += end.cpu_seconds
        if end.is_success(spec.program.success_exits):
            self.counts.done += 1
        elif end.exit_code is None and not end.signal:
            self.counts.given_back += 1
        else:
            self.counts.failed += 1
        how = end.reason or (f"signal {end.signal}" if end.signal else f"exit {end.exit_code}")
        audit_log.info("guest job %d ended after %.3f s, %s: %s of %s", job_id, end.wall_seconds,
                       how, what, who)  # fmt: skip

    # -- the manager's own life --------------------------------------------------------------------

    def restore(self, now: float) -> None:
        """Opens the loans anew that an earlier process of the manager has given."""
        left: dict[LentKey, list[tuple[int, JobSpec]]] = {key: [] for key in self._spools.kept()}
        for job in self._service.pool.jobs:
            if job.spec.guest is not None:
                key = (job.spec.guest.pool, job.spec.guest.loan)
                left.setdefault(key, []).append((job.id, job.spec))
        since = self._service.now() - LOST_SECONDS
        ended = self._service.store.jobs(ended_since=since, limit=10_000)
        last = max((record.ended_at or 0.0 for record in ended), default=0.0)
        for record in ended:
            guest = record.spec.guest
            if guest is None:
                continue
            self._ended.append((record.ended_at or now, record.job_id))
            if (record.ended_at or 0.0) < last - MISSED_SECONDS:
                continue
            whole = self._service.store.job(record.job_id)
            if whole is not None:
                left.setdefault((guest.pool, guest.loan), []).append((whole.job_id, whole.spec))
        for key, guests in left.items():
            running = [job_id for job_id, _ in guests if self._service.pool.job(job_id)]
            self.lender.adopt(*key, _together(guests, running), now)
            until = now + self._settings.lease_seconds
            grant = Grant(*key, _together(guests, [job_id for job_id, _ in guests]), until)
            self._open(key, self._machines.get(key[1]), grant, now, tuple(guests))

    def on_online(self) -> None:
        """Notes that the manager has a session with the server."""
        for loan in self.loans.values():
            loan.link.on_online()

    def on_offline(self) -> None:
        """Notes that the manager has no session."""
        for loan in self.loans.values():
            loan.link.on_offline("the manager's server is away")

    async def close(self) -> None:
        """Closes all loans, because the manager stops; guests go on."""
        loans = list(self.loans.values())
        self.loans.clear()  # they are not over: their spools stay
        for loan in loans:
            await loan.close()


def _together(guests: Sequence[tuple[int, JobSpec]], jobs: Collection[int]) -> dict[str, float]:
    """Adds up what some of the guests take, in natural units."""
    found: Counter[str] = Counter()
    for job_id, spec in guests:
        if job_id in jobs:
            found.update(spec.request)
    return dict(found)
