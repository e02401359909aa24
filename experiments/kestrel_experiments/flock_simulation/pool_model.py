"""A pool as a queue and some machines, in as little time and memory as Python can.

It stands for what the core of a pool does with tasks of one kind that come one by one: the oldest
first, on machines of its own before those that others lend, on nearer ones before farther, and with
owners before guests. A test compares it with the core.

A task is a number: its place in the pool's trace. There are no objects for tasks: a flock has
millions of them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from heapq import heappop, heappush

from kestrel_experiments.flock_simulation.agenda import Agenda
from kestrel_experiments.flock_simulation.simulated_pool import Neighbourhood, SimulatedPool
from kestrelctl.protocol.pools import LentClass

#: The states of a task.
WAITS, RUNS, DONE = 0, 1, 2


class Borrowed:
    """A loan from another pool, as the borrower sees it.

    Attributes:
        lender: the number of the lender.
        far_seconds: how long a message to the lender takes.
        machines: how many machines are lent, by the lender's last word.
        running: how many tasks are there, or on their way.
        is_cut: whether the borrower has failed since; what still comes of the loan is not heard.
    """

    __slots__ = ("far_seconds", "is_cut", "lender", "machines", "running")

    def __init__(self, lender: int, far_seconds: float) -> None:
        self.lender = lender
        self.far_seconds = far_seconds
        self.machines = self.running = 0
        self.is_cut = False

    def __lt__(self, other: Borrowed) -> bool:
        return (self.far_seconds, self.lender) < (other.far_seconds, other.lender)


class GuestTask:
    """A task of another pool.

    Attributes:
        task: its number at home.
        home: the number of its home pool.
        loan: the loan, as its home knows it.
        is_here: whether it has neither ended nor been ended.
    """

    __slots__ = ("home", "is_here", "loan", "task")

    def __init__(self, home: int, task: int, loan: Borrowed) -> None:
        self.home = home
        self.task = task
        self.loan = loan
        self.is_here = True


class UnaccountedTask(Exception):
    """A task has ended twice, or a machine has run two at once: the model is wrong."""


class PoolModel(SimulatedPool):
    """One pool.

    Attributes:
        borrowed: the loans of others to it, by their numbers.
        guests: the tasks of other pools that are here, in the order in which they came.
        is_down: whether the pool is gone.
    """

    __slots__ = (
        "_again",
        "_agenda",
        "_arrived",
        "_arrives",
        "_beyond",
        "_ends",
        "_free",
        "_gone",
        "_guest_ends",
        "_head",
        "_nearest",
        "_pools",
        "_quiet_from",
        "_quiet_to",
        "_ran_away",
        "_reports",
        "_room",
        "_watched",
        "borrowed",
        "guests",
        "is_down",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        machines: int,
        at: Sequence[float],
        lengths: Sequence[float],
        agenda: Agenda,
    ) -> None:
        super().__init__(number, machines, at, lengths)
        self._free = machines
        self.borrowed: dict[int, Borrowed] = {}
        self.guests: dict[GuestTask, None] = {}
        self.is_down = False
        #: How many own tasks that are done ran in each other pool.
        self._ran_away: dict[int, int] = {}
        self._agenda = agenda
        self._pools: list[PoolModel] = []
        #: The waiting tasks: those from `_head` up to `_arrived`, and before them those that came
        #: back. While some wait, nothing happens when another one comes: `_come` counts it later.
        self._head = self._arrived = 0
        self._again: list[int] = []
        #: `around` is told when more than this many wait; the first task that may exceed it.
        self._beyond = 0.0
        self._watched = -1
        #: With idle machines between these numbers, `around` need not hear of each change.
        self._quiet_from, self._quiet_to = 1, 0
        #: Loans, the nearest first, and how many tasks could still go there.
        self._nearest: list[Borrowed] = []
        self._room = 0
        #: How often the pool has failed: what ran before does not end any more.
        self._gone = 0
        # The most called methods are looked up once: a bound method for each event takes memory.
        self._arrives, self._ends = self._arrive, self._end
        self._guest_ends, self._reports = self._guest_end, self._reported
        self._await()

    def meet(self, pools: Sequence[PoolModel], far: Sequence[float], around: Neighbourhood) -> None:
        """Becomes part of a flock."""
        self._pools, self._far, self.around = list(pools), far, around

    @property
    def free(self) -> int:
        """Idle machines that could be lent."""
        return self._free

    @property
    def waiting(self) -> int:
        """The number of own tasks that wait for a place."""
        self._come()
        return self._arrived - self._head + len(self._again)

    @property
    def oldest(self) -> float | None:
        """The time of submission of the task that has waited longest; None if none waits."""
        self._come()
        if self._again:
            return self._at[self._again[0]]
        return self._at[self._head] if self._head < self._arrived else None

    def waiting_since(self, moment: float) -> int:
        """Counts the waiting own tasks that were submitted by a moment."""
        self._come()
        at = self._at
        again = sum(at[task] <= moment for task in self._again)
        return again + bisect_right(at, moment, self._head, self._arrived) - self._head

    def quiet_for(self, fewest: int, most: int) -> None:
        """Spares `around` the changes between these numbers of idle machines."""
        self._quiet_from, self._quiet_to = fewest, most

    @property
    def ran_at(self) -> dict[int, int]:
        """The number of own tasks that have run in each pool, this one included."""
        return {self.number: self.done - sum(self._ran_away.values()), **self._ran_away}

    def tell_beyond(self, waiting: float) -> None:
        """Takes note that `around` wants to be told when more own tasks wait than that."""
        self._beyond = waiting
        self._watch()

    def fits(self, _pool: str, _cls: LentClass) -> bool:
        """Whether what waits could run on machines of another pool: all are alike."""
        return True

    # -- own tasks ---------------------------------------------------------------------------------

    def _await(self) -> None:
        """Plans to deal with the next task when it comes, for none waits."""
        if self._arrived < len(self._at):
            self._agenda.at(self._at[self._arrived], self._arrives, self._arrived, None)

    def _arrive(self, task: int, _b: None) -> None:
        """Takes a task that comes while none waits."""
        if task != self._arrived or self.waits_since is not None or self.is_down:
            return
        self._arrived = task + 1
        if self._free:
            self._head = self._arrived
            self._await()
            self._start(task)
            if not self._quiet_from <= self._free <= self._quiet_to:
                self.around.changed()
        elif self._room:
            self._head = self._arrived
            self._await()
            self._send(task)
        else:
            self.waits_since = self._agenda.now
            self.around.changed()
            self.around.waits()
            self._watch()

    def _come(self) -> None:
        """Counts the tasks that have come while others waited."""
        if self.waits_since is None:
            return
        arrived, at, now = self._arrived, self._at, self._agenda.now
        while arrived < len(at) and at[arrived] <= now:
            arrived += 1
        self._arrived = arrived

    def _watch(self) -> None:
        """Plans for the moment when more may wait than `around` knows of."""
        if self.waits_since is None:
            return
        self._come()
        task = max(self._arrived, self._head + int(self._beyond) - len(self._again))
        if task != self._watched and task < len(self._at):
            self._watched = task
            self._agenda.at(self._at[task], self._too_many, task, None)

    def _too_many(self, task: int, _b: None) -> None:
        if task != self._watched:
            return
        self._watched = -1
        if self.waits_since is None:
            return
        if self.waiting > self._beyond:
            self.around.waits()
        else:
            self._watch()

    def _next(self) -> int:
        """Takes the task that is to start next from those that wait."""
        if self._again:
            return heappop(self._again)
        self._head += 1
        return self._head - 1

    def _place(self) -> bool:
        """Starts waiting tasks wherever there is a place; returns whether some still wait."""
        self._come()
        while self._head < self._arrived or self._again:
            if self._free:
                self._start(self._next())
            elif self._room:
                self._send(self._next())
            else:
                return True
        self.waits_since = None
        self._await()
        return False

    def _start(self, task: int) -> None:
        """Starts a task on a machine of its own pool."""
        self._free -= 1
        if self._free < 0 or self.states[task] != WAITS:
            raise UnaccountedTask(f"task {task} of pool {self.number} starts with no right to")
        self.states[task] = RUNS
        self._agenda.at(self._agenda.now + self._lengths[task], self._ends, task, self._gone)

    def _end(self, task: int, gone: int) -> None:
        """Ends a task on a machine of its own pool."""
        if gone != self._gone:
            return
        self._free += 1
        self._count(task, self._agenda.now)
        if self.waits_since is None:
            if not self._quiet_from <= self._free <= self._quiet_to:
                self.around.changed()
        elif not self._place():  # else an own task has the machine, and nothing else has changed
            self.around.changed()

    def _freed(self) -> None:
        """Uses a machine that has become idle, or tells of it."""
        if self.waits_since is not None:
            self._place()
        elif self._quiet_from <= self._free <= self._quiet_to:
            return
        self.around.changed()

    def _count(self, task: int, ended: float) -> None:
        """Counts a task that has ended well."""
        if self.states[task] != RUNS:
            raise UnaccountedTask(f"task {task} of pool {self.number} ends, but does not run")
        self.states[task] = DONE
        self.done += 1
        wait = ended - self._lengths[task] - self._at[task]
        self.sum_wait += wait
        if wait > self.most_wait:
            self.most_wait = wait
        self.last_end = self._agenda.now

    # -- at lenders --------------------------------------------------------------------------------

    def offered(self, lender: int, machines: int) -> None:
        """Hears from a lender how many machines are lent now, including those in use."""
        if self.is_down:
            return
        loan = self.borrowed.get(lender)
        if loan is None:
            if not machines:
                return
            loan = self.borrowed[lender] = Borrowed(lender, self._far[lender])
            insort(self._nearest, loan)
        self._room -= max(0, loan.machines - loan.running)
        loan.machines = machines
        self._room += max(0, machines - loan.running)
        if not machines and not loan.running:
            del self.borrowed[lender]
            self._nearest.remove(loan)
        elif self.waits_since is not None:
            self._place()
            self.around.changed()

    def _send(self, task: int) -> None:
        """Sends a task to the nearest lender that has room."""
        for loan in self._nearest:
            if loan.machines > loan.running:
                break
        else:
            raise UnaccountedTask(f"pool {self.number} sends task {task} where no machine is lent")
        if self.states[task] != WAITS:
            raise UnaccountedTask(f"task {task} of pool {self.number} starts with no right to")
        self.states[task] = RUNS
        loan.running += 1
        self._room -= 1
        self.around.uses(loan.lender, loan.running)
        self._pools[loan.lender]._take(self.number, task, self._lengths[task], loan)

    def _reported(self, task: int, loan: Borrowed) -> None:
        """Hears that a task has ended at a lender."""
        if loan.is_cut:
            return
        self._count(task, self._agenda.now - loan.far_seconds)
        self._ran_away[loan.lender] = self._ran_away.get(loan.lender, 0) + 1
        self._has_left(loan)

    def _came_back(self, task: int, loan: Borrowed) -> None:
        """Takes back a task that a lender has given back."""
        if loan.is_cut:
            return
        self.states[task] = WAITS
        heappush(self._again, task)
        if self.waits_since is None:
            self.waits_since = self._agenda.now
        self._has_left(loan)
        if self.waiting:
            self.around.waits()
            self._watch()

    def _has_left(self, loan: Borrowed) -> None:
        loan.running -= 1
        if loan.machines > loan.running:
            self._room += 1
        elif not loan.machines and not loan.running:
            del self.borrowed[loan.lender]
            self._nearest.remove(loan)
        self.around.uses(loan.lender, loan.running)
        if self.waits_since is not None and not self._place():
            self.around.changed()

    # -- guests ------------------------------------------------------------------------------------

    def _take(self, home: int, task: int, seconds: float, loan: Borrowed) -> None:
        """Takes a task of another pool that is on its way here.

        It counts as a guest from now on. That it arrives some milliseconds later makes no visible
        difference, and needs no event of its own.
        """
        now, far = self._agenda.now, loan.far_seconds
        if self.is_down or not self._free:  # an owner was faster
            self._agenda.at(now + 2 * far, self._pools[home]._came_back, task, loan)
            return
        self._free -= 1
        guest = GuestTask(home, task, loan)
        self.guests[guest] = None
        running = self.guests_of[home] = self.guests_of.get(home, 0) + 1
        self.around.used(home, running)
        if self.waits_since is not None or not self._quiet_from <= self._free <= self._quiet_to:
            self.around.changed()  # it may be the machine of another loan: its borrower is told
        self._agenda.at(now + far + seconds, self._guest_ends, guest, None)

    def _guest_end(self, guest: GuestTask, _b: None) -> None:
        if not guest.is_here:  # it was killed
            return
        loan = guest.loan
        at = self._agenda.now + loan.far_seconds
        self._agenda.at(at, self._pools[guest.home]._reports, guest.task, loan)
        self._guest_left(guest)
        self._freed()

    def _guest_left(self, guest: GuestTask) -> None:
        del self.guests[guest]
        guest.is_here = False
        home = guest.home
        self._free += 1
        if self._free > self.machines:
            raise UnaccountedTask(f"pool {self.number} has more idle machines than machines")
        running = self.guests_of[home] = self.guests_of[home] - 1
        if not running:
            del self.guests_of[home]
        self.around.used(home, running)

    def reclaim(self, machines: int) -> None:
        """Ends this many guests at once, the latest first, because own tasks wait."""
        ended = list(reversed(self.guests))[:machines]
        for guest in ended:
            self._guest_left(guest)
        self.killed += len(ended)
        self._freed()  # what is lent is told first, so that they do not come here again
        for guest in ended:
            self._give_back(guest, self._agenda.now + guest.loan.far_seconds)

    def _give_back(self, guest: GuestTask, at: float) -> None:
        """Lets the home hear, at a moment, that a guest has not ended well."""
        self._agenda.at(at, self._pools[guest.home]._came_back, guest.task, guest.loan)

    # -- failures ----------------------------------------------------------------------------------

    def fail(self, notice_seconds: float) -> None:
        """Takes the pool down with all that ran there; its tasks are kept, and its users go on.

        Args:
            notice_seconds: time after which others have noticed.
        """
        noticed = self._agenda.now + notice_seconds
        self.is_down = True
        self._beyond = 0.0
        self._gone += 1
        self._free = 0
        for home in self._pools:
            if self.number in home.borrowed:
                self._agenda.at(noticed, home.offered, self.number, 0)
        for guest in self.guests:
            guest.is_here = False
            self._give_back(guest, noticed)
        self.guests.clear()
        self.guests_of.clear()
        for loan in self._nearest:
            loan.is_cut = True
            self._pools[loan.lender]._home_is_gone(self.number)
        self.borrowed.clear()
        self._nearest.clear()
        self._room = 0
        for task in range(len(self.states)):
            if self.states[task] == RUNS:
                self.states[task] = WAITS
                self._again.append(task)
        self._again.sort()
        self.waits_since = None

    def _home_is_gone(self, home: int) -> None:
        """Ends what ran here for a borrower that has failed."""
        for guest in [guest for guest in self.guests if guest.home == home]:
            self._guest_left(guest)
        self._freed()

    def recover(self) -> None:
        """Brings the pool back, with its machines idle and the tasks that it had."""
        self.is_down = False
        self._free = self.machines
        self.waits_since = self._agenda.now
        if not self.waiting:
            self.waits_since = None
            return
        still_waits = self._place()
        self.around.changed()
        if still_waits:
            self.around.waits()
            self._watch()
