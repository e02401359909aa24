"""A pool of a simulated flock whose queue and machines are those of production: a `core.pool.Pool`.

It takes the place of `PoolModel`. It only does what a manager's shell does for a core, on simulated
time: it hands events in, lets the pool schedule after each burst of them, and carries out the
effects. Nothing is stored: what waits for a commit is done at once. Workers need no time to
answer, and a loan is a worker of its borrower's pool whose tasks are guests in the lender's.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kestrel_experiments.flock_simulation.agenda import Agenda
from kestrel_experiments.flock_simulation.member import CLASS, MACHINE, domain_of
from kestrel_experiments.flock_simulation.pool_model import DONE, RUNS, WAITS, UnaccountedTask
from kestrel_experiments.flock_simulation.simulated_pool import Neighbourhood, SimulatedPool
from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.guest import TAG, GuestOf
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.neighbour import FLOCK
from kestrelctl.core.model.records import Snapshot, TaskRecord
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import SECRET_BYTES
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool
from kestrelctl.core.scheduling.unmet import Unmet
from kestrelctl.protocol.pools import LentClass

#: How far the core's clock is ahead of the flock's, which is below 0 while the pools join.
CLOCK_AHEAD_SECONDS = 100_000.0
#: The fewest processors of a worker: also a loan of which nothing is left has some.
_LEAST_CPUS = 0.001
_CPUS = {"cpus": 1.0}
#: The ad with which a machine says hello to its own pool.
_OWN = msgspec.structs.replace(MACHINE, tags=(TAG,))
_SPEC = JobSpec(program=Program(argv=("true",)), request=_CPUS)
#: The user who hands in tasks at home, and in whose name guests come.
_USER = "ada"


class CoreLoan:
    """A loan from another pool, which is a worker of this pool.

    Attributes:
        lender: the number of the lender; `jid`: the loan's address as a worker.
        far_seconds: how long a message to the lender takes.
        machines: how many machines are lent, by the lender's last word.
        running: how many tasks are there, or on their way.
    """

    __slots__ = ("far_seconds", "jid", "lender", "machines", "running")

    def __init__(self, lender: int, jid: str, far_seconds: float) -> None:
        self.lender = lender
        self.jid = jid
        self.far_seconds = far_seconds
        self.machines = self.running = 0

    @property
    def ad(self) -> WorkerAd:
        """The ad of the loan as a worker, with what it offers now."""
        return msgspec.structs.replace(
            MACHINE,
            assets={"cpus": max(_LEAST_CPUS, float(self.machines))},
            distance_seconds=2 * self.far_seconds,
        )


class GuestHere:
    """An attempt of another pool.

    Attributes:
        home, job_id, number: its home pool, its job and its number there.
        seconds: how long it runs.
        ends: when it ends if nobody ends it sooner.
        loan: the loan, as its home knows it.
    """

    __slots__ = ("ends", "home", "job_id", "loan", "number", "seconds")

    def __init__(self, home: int, job_id: int, number: int, seconds: float, loan: CoreLoan) -> None:
        self.home = home
        self.job_id = job_id
        self.number = number
        self.seconds = seconds
        self.ends = 0.0
        self.loan = loan


class CorePool(SimulatedPool):
    """One pool.

    Attributes:
        core: the pool of production.
        guests: job of this pool -> the attempt of another pool that it runs.
    """

    def __init__(
        self,
        number: int,
        machines: int,
        at: Sequence[float],
        lengths: Sequence[float],
        agenda: Agenda,
    ) -> None:
        super().__init__(number, machines, at, lengths)
        self.guests: dict[int, GuestHere] = {}
        self.borrowed: dict[int, CoreLoan] = {}
        self._ran_at: dict[int, int] = {}
        self._agenda = agenda
        self._pools: Sequence[CorePool] = ()
        self._arrived = 0
        #: Own tasks that wait, and own jobs that have not ended.
        self._waits: dict[int, None] = {}
        self._task_of: dict[int, int] = {}
        #: The attempts on own machines: number -> (worker, job).
        self._running: dict[int, tuple[str, int]] = {}
        self._busy: set[str] = set()
        self._beyond = 0.0
        self._loan_of: dict[str, CoreLoan] = {}
        self._loans = 0
        #: Counts from the pool's core; None if something has happened to it since.
        self._free: int | None = None
        self._unmet: list[Unmet] | None = None
        secret = number.to_bytes(SECRET_BYTES, "big")
        self.core = Pool(Snapshot(epoch=1, secret=secret, next_job_id=1, jobs=[], workers=[]))
        now = self._now
        self._handle(ev.Reconnected(at=now))
        for place in range(machines):
            worker = f"machine{place}@{domain_of(number)}/one"
            self._handle(ev.Joined(at=now, worker=worker, incarnation="", ad=_OWN, holds=[]))
        self._schedule()
        if at:
            agenda.at(at[0], self._arrive, None, None)

    def meet(self, pools: Sequence[CorePool], far: Sequence[float], around: Neighbourhood) -> None:
        """Becomes part of a flock."""
        self._pools, self._far, self.around = pools, far, around

    # -- what is asked -----------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Idle machines that could be lent."""
        if self._waits:
            return 0
        if self._free is None:
            found = self.core.lendable(self._now)
            self._free = round(sum(each.free.get("cpus", 0.0) for each in found))
        return self._free

    @property
    def waiting(self) -> int:
        """The number of own tasks that wait for a place."""
        return sum(each.tasks for each in self._counted())

    def _counted(self) -> list[Unmet]:
        if self._unmet is None:
            self._unmet = self.core.unmet(self._now) if self._waits else []
        return self._unmet

    @property
    def oldest(self) -> float | None:
        """The time of submission of the task that has waited longest; None if none waits."""
        return self._at[min(self._waits)] if self._waits else None

    @property
    def ran_at(self) -> dict[int, int]:
        """The number of own tasks that have run in each pool, this one included."""
        return self._ran_at

    def waiting_since(self, moment: float) -> int:
        """Counts the waiting own tasks that were submitted by a moment."""
        return sum(self._at[task] <= moment for task in self._waits)

    def quiet_for(self, fewest: int, most: int) -> None:
        """Does nothing: `around` is told of every change anyway."""

    def tell_beyond(self, waiting: float) -> None:
        """Takes note that `around` wants to be told when more own tasks wait than that."""
        self._beyond = waiting

    def fits(self, pool: str, cls: LentClass) -> bool:
        """Whether all that waits could run on machines of a class of another pool."""
        jid = f"{FLOCK}@{pool}/{cls.id}"
        would_fit = self.core.would_fit
        return all(would_fit(each.shape, cls.ad, jid) is None for each in self._counted())

    # -- the core ----------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self._agenda.now + CLOCK_AHEAD_SECONDS

    def _handle(self, event: ev.Event) -> None:
        self._carry_out(self.core.handle(event))

    def _schedule(self) -> None:
        self._free = self._unmet = None
        self._carry_out(self.core.schedule(self._now))

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        """Carries out effects at once, including those that wait for a commit."""
        for effect in effects:
            if isinstance(effect, fx.Run):
                self._run(effect)
            elif isinstance(effect, fx.Feed):
                self._handle(effect.event)
            elif isinstance(effect, fx.TasksEnded):
                for record in effect.records:
                    self._has_ended(record)

    def _submit(self, spec: JobSpec, owner: str) -> int:
        """Hands a job of one task in; returns its id."""
        job_id = self.core.next_job_id
        self._handle(ev.Submit(at=self._now, request=str(job_id), owner=owner, spec=spec))
        return job_id

    def _report(self, worker: str, number: int, job_id: int, outcome: int, seconds: float) -> None:
        """Reports, as a worker, how an attempt has ended."""
        now = self._now
        result = Result(number, job_id, 0, outcome, now - seconds, seconds)
        self._handle(ev.Reported(at=now, worker=worker, results=[result]))

    def _run(self, run: fx.Run) -> None:
        """Begins attempts at a worker."""
        loan = self._loan_of.get(run.worker)
        for number, job_id, _, _, _ in run.spans:
            if loan is not None:
                self._send(number, job_id, loan)
                continue
            if run.worker in self._busy:
                raise UnaccountedTask(f"{run.worker} is to run two tasks at once")
            self._busy.add(run.worker)
            self._running[number] = run.worker, job_id
            guest = self.guests.get(job_id)
            if guest is None:
                self._begins(self._task_of[job_id])
                ends = self._agenda.now + self._lengths[self._task_of[job_id]]
            else:
                ends = guest.ends
            self._agenda.at(ends, self._ends, number, None)

    def _settled(self, *, waits: bool = False) -> None:
        """Tells `around` of the changes, after the core has dealt with what happened.

        Args:
            waits: whether an own task may wait that did not before.
        """
        if not self._waits:
            self.waits_since = None
        elif self.waits_since is None:
            self.waits_since = self._agenda.now
        self.around.changed()
        if waits and len(self._waits) > self._beyond:
            self.around.waits()

    # -- own tasks ---------------------------------------------------------------------------------

    def _arrive(self, _a: None, _b: None) -> None:
        task = self._arrived
        self._arrived = task + 1
        if self._arrived < len(self._at):
            self._agenda.at(self._at[self._arrived], self._arrive, None, None)
        self._waits[task] = None
        self._task_of[self.core.next_job_id] = task
        self._submit(_SPEC, _USER)
        self._schedule()
        self._settled(waits=True)

    def _begins(self, task: int) -> None:
        if self.states[task] != WAITS:
            raise UnaccountedTask(f"task {task} of pool {self.number} starts with no right to")
        self.states[task] = RUNS
        del self._waits[task]

    def _ends(self, number: int, _b: None) -> None:
        """Ends an attempt on an own machine whose time is over."""
        if number not in self._running:  # it was killed
            return
        job_id = self._running[number][1]
        guest = self.guests.get(job_id)
        if guest is None:
            self._count(self._task_of[job_id], self._agenda.now, self.number)
        else:
            at = self._agenda.now + guest.loan.far_seconds
            self._agenda.at(at, self._pools[guest.home]._reported, guest, None)
        self._leaves(number, Outcome.DONE)
        self._schedule()
        self._settled()

    def _leaves(self, number: int, outcome: int) -> None:
        """Takes an attempt off an own machine."""
        worker, job_id = self._running.pop(number)
        self._busy.remove(worker)
        guest = self.guests.get(job_id)
        seconds = self._lengths[self._task_of[job_id]] if guest is None else guest.seconds
        self._report(worker, number, job_id, outcome, seconds)
        if guest is not None:
            self._guest_left(job_id)

    def _count(self, task: int, ended: float, pool: int) -> None:
        """Counts a task that has ended well; the core has still to say so too."""
        if self.states[task] != RUNS:
            raise UnaccountedTask(f"task {task} of pool {self.number} ends, but does not run")
        self.states[task] = DONE
        self._ran_at[pool] = self._ran_at.get(pool, 0) + 1
        wait = ended - self._lengths[task] - self._at[task]
        self.sum_wait += wait
        self.most_wait = max(self.most_wait, wait)
        self.last_end = self._agenda.now

    def _has_ended(self, record: TaskRecord) -> None:
        """Hears from the core that a task is over."""
        task = self._task_of.pop(record.job_id, None)
        if task is None:
            return
        if record.state is not TaskState.DONE or self.states[task] != DONE:
            raise UnaccountedTask(f"task {task} of pool {self.number} is over, but has not run")
        self.done += 1

    # -- at lenders --------------------------------------------------------------------------------

    def offered(self, lender: int, machines: int) -> None:
        """Hears from a lender how many machines are lent now, including those in use."""
        loan = self.borrowed.get(lender)
        now = self._now
        if loan is None:
            if not machines:
                return
            jid = f"{FLOCK}@{domain_of(lender)}/{CLASS}"
            loan = self.borrowed[lender] = CoreLoan(lender, jid, self._far[lender])
            self._loan_of[jid] = loan
            loan.machines = machines
            self._loans += 1
            loan_id = str(self._loans)
            self._handle(ev.Joined(at=now, worker=jid, incarnation=loan_id, ad=loan.ad, holds=[]))
        else:
            loan.machines = machines
            self._handle(ev.Resized(at=now, worker=loan.jid, ad=loan.ad))
            self._drop_if_over(loan)
        self._schedule()
        self._settled()

    def _drop_if_over(self, loan: CoreLoan) -> None:
        """Removes the worker of a loan of which nothing is left."""
        if not loan.machines and not loan.running:
            del self.borrowed[loan.lender], self._loan_of[loan.jid]
            self._handle(ev.Leaving(at=self._now, worker=loan.jid))
            self._handle(ev.Lost(at=self._now, worker=loan.jid, cause="unavailable"))

    def _send(self, number: int, job_id: int, loan: CoreLoan) -> None:
        """Sends a task to a lender."""
        task = self._task_of[job_id]
        self._begins(task)
        loan.running += 1
        self.around.uses(loan.lender, loan.running)
        guest = GuestHere(self.number, job_id, number, self._lengths[task], loan)
        self._pools[loan.lender]._take(guest)

    def _reported(self, guest: GuestHere, _b: None) -> None:
        """Hears that a task has ended at a lender."""
        loan = guest.loan
        self._count(self._task_of[guest.job_id], self._agenda.now - loan.far_seconds, loan.lender)
        self._has_left(guest, Outcome.DONE)
        self._settled()

    def _came_back(self, guest: GuestHere, _b: None) -> None:
        """Takes back a task that a lender has given back."""
        task = self._task_of[guest.job_id]
        if self.states[task] != RUNS:
            raise UnaccountedTask(f"task {task} of pool {self.number} comes back from nowhere")
        self.states[task] = WAITS
        self._waits[task] = None
        self._has_left(guest, Outcome.KILLED)
        self._settled(waits=True)

    def _has_left(self, guest: GuestHere, outcome: int) -> None:
        loan = guest.loan
        loan.running -= 1
        self.around.uses(loan.lender, loan.running)
        self._report(loan.jid, guest.number, guest.job_id, outcome, guest.seconds)
        self._drop_if_over(loan)
        self._schedule()

    # -- guests ------------------------------------------------------------------------------------

    def _take(self, guest: GuestHere) -> None:
        """Takes a task of another pool that is on its way here.

        It counts as a guest from now on, as in the model. If there is no machine for it any more,
        it is not kept waiting, but given back.
        """
        home = domain_of(guest.home)
        guest.ends = self._agenda.now + guest.loan.far_seconds + guest.seconds
        of = GuestOf(pool=home, job_id=guest.job_id, user=f"{_USER}@{home}", loan=CLASS)
        job_id = self.core.next_job_id
        self.guests[job_id] = guest
        running = self.guests_of[guest.home] = self.guests_of.get(guest.home, 0) + 1
        self.around.used(guest.home, running)
        spec = msgspec.structs.replace(_SPEC, max_failures=1, guest=of)
        self._submit(spec, f"{_USER}@{home}")
        self._schedule()
        job = self.core.job(job_id)
        if job is not None and not job.running:  # an owner was faster
            self._cancel(job_id)
            self._guest_left(job_id)
            self._settled()  # a pool that was promised a machine hears first that it is not there
            at = self._agenda.now + 2 * guest.loan.far_seconds
            self._agenda.at(at, self._pools[guest.home]._came_back, guest, None)

    def _cancel(self, job_id: int) -> None:
        self._handle(ev.Cancel(at=self._now, request="", job_id=job_id))

    def _guest_left(self, job_id: int) -> None:
        home = self.guests.pop(job_id).home
        running = self.guests_of[home] = self.guests_of[home] - 1
        if not running:
            del self.guests_of[home]
        self._free = None
        self.around.used(home, running)

    def reclaim(self, machines: int) -> None:
        """Ends this many guests at once, the latest first, because own tasks wait."""
        number_of = {job_id: number for number, (_, job_id) in self._running.items()}
        ended = [(job_id, self.guests[job_id]) for job_id in list(reversed(self.guests))[:machines]]
        for job_id, _ in ended:
            self._cancel(job_id)
            self._leaves(number_of[job_id], Outcome.KILLED)
        self.killed += len(ended)
        self._schedule()
        self._settled()  # what is lent is told first, so that they do not come here again
        for _, guest in ended:
            at = self._agenda.now + guest.loan.far_seconds
            self._agenda.at(at, self._pools[guest.home]._came_back, guest, None)
