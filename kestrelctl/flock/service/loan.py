"""A loan: a worker of the borrower's pool whose tasks run as jobs of the lender's."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

from kestrelctl.clock_and_session import Session
from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.model.end_reason import CANCELLED, EndKind, ReasonText
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import natural
from kestrelctl.flock.service.files_home import Carrier
from kestrelctl.flock.service.guest_executor import ONLY, GuestExecutor
from kestrelctl.flock.service.guest_jobs import guest_spec, why_refused
from kestrelctl.flock.service.lent_ad import resting_ad
from kestrelctl.flock.service.lent_session import LentSession
from kestrelctl.flock.service.loan_addresses import loan_of
from kestrelctl.manager.service import Service
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.worker.connection.session import WorkerSession
from kestrelctl.worker.process import Spool, WorkerProcess
from kestrelctl.worker.run.executor import CommandSpec, Completion

log = logging.getLogger(__name__)

#: The reason why nothing begins.
_UNSEEN = EndKind.NO_RESOURCES.text(
    "the lender has started anew, and none of the machines that it lends has greeted it yet"
)
#: The most attempts of a loan at a time, in all; a borrower that sends more means no good.
MOST_ATTEMPTS = 100_000
#: (least isolation, longest time of an attempt or None), or why none may run.
Terms = tuple[str, float | None]


class Loan:
    """The workers of one class that are lent to one pool.

    Args:
        service: of the own pool.
        borrower: the domain of the other pool.
        loan: the id of the class.
        machine: one worker of that class (`lent_ad.lent_machine`); None as long as none was seen
            since the manager has started: then nothing new begins.
        ad: what the borrower is offered at first.
        spool: keeps results until the borrower has them.
        incarnation: a word that no other process of this loan has.
        judge: tells whether the policy lets an attempt run, and how; a text says why not.
        audit: called with a line on each guest that begins and ends.
        carrier: brings what guests have left home.
        on_ran: called with the number of an attempt that has ended, the worker that ran it here,
            and its number there.
        left: guests that an earlier process of the manager has begun: (job id, job).
        holders: takes whom to tell of the end of each guest's job.
        on_over: called once when nothing of the loan is left.
    """

    def __init__(
        self,
        service: Service,
        borrower: str,
        loan: str,
        machine: WorkerAd | None,
        ad: WorkerAd,
        spool: Spool,
        incarnation: str,
        random: Random,
        judge: Callable[[str, LocalAttempt], Terms | str],
        audit: Callable[[str, JobSpec, int, Completion | None], None],
        carrier: Carrier,
        on_ran: Callable[[int, str, int], None],
        left: Iterable[tuple[int, JobSpec]],
        holders: dict[int, GuestExecutor],
        on_over: Callable[[Loan], None],
    ) -> None:
        self.borrower = borrower
        self.loan = loan
        self.machine = machine
        self.address = loan_of(service.domain, loan)
        self.over = False
        self._unheard_since: float | None = None
        self._agreed_at = self._oldest_since = service.now()
        self._oldest: int | None = None  # the result that waits longest to be acknowledged
        self._given_back: set[int] = set()
        self._waits_since: dict[int, float] = {}
        self._service = service
        self._judge = judge

        def executor(on_completion: Callable[[Completion], None]) -> GuestExecutor:
            made = GuestExecutor(
                service,
                f"flock:{borrower}",
                on_completion,
                self._guest_spec,
                lambda spec, job_id: audit(borrower, spec, job_id, None),
                lambda spec, job_id, end: audit(borrower, spec, job_id, end),
                on_ran,
                lambda end: carrier.carry(borrower, end),
                holders,
            )
            for job_id, spec in left:
                made.remember(job_id, spec)
            self.executor = made
            return made

        self._process = WorkerProcess(incarnation, spool, executor, service.clock, random)
        self._process.add_session(borrower, ad, self.address, self._connect)
        self.session: WorkerSession = self._process.sessions[0]
        self.session.hears = directions.to_loan
        self.session.most_attempts = MOST_ATTEMPTS
        self._runner = asyncio.get_running_loop().create_task(self._run())
        self._runner.add_done_callback(lambda _: on_over(self))

    def _connect(self, worker: WorkerSession) -> Session:
        self.link = LentSession(self.address, self._service.session, worker)
        return self.link

    async def _run(self) -> None:
        try:
            await self._process.run()
            if self._process.refused:  # nobody waits for what runs
                self.give_back(list(self.session.agent.running))
        finally:
            self.over = True
            await self.link.stop()
            await self._process.close()
        if self._process.refused:
            log.warning("%s refuses the loan: %.300s", self.borrower, self._process.refused)

    # -- what the borrower says --------------------------------------------------------------------

    def on_payload(self, sender: str, payload: str) -> None:
        """Takes in a message of the borrower's pool to its worker."""
        self.session.on_payload(sender, self.address, payload)

    def _say_hello(self) -> None:
        """Acts as if it were asked who it is: both sides agree anew on what it has."""
        who = codec.encode(workers.Who())
        self.session.on_payload(f"pool@{self.borrower}", self.address, who)

    def agree(self, now: float, patience_seconds: float, often_seconds: float) -> None:
        """Finds out what was lost on the way: when servers lose their link, nobody is told.

        Args:
            patience_seconds: a result that is not acknowledged for so long is reported again.
            often_seconds: both sides agree so often on what was handed over and called off.
        """
        agent = self.session.agent
        oldest = next(iter(agent.unacknowledged), None)
        if oldest != self._oldest:
            self._oldest, self._oldest_since = oldest, now
        if not agent.welcomed:
            self._agreed_at = self._oldest_since = now
            return
        waits = oldest is not None and now - self._oldest_since >= patience_seconds
        if waits or now - self._agreed_at >= often_seconds:
            self._agreed_at = self._oldest_since = now
            self._say_hello()

    def place_of(self, number: int) -> tuple[str, int] | None:
        """The worker that runs an attempt here, and its number there; None if none does."""
        job = self.executor.job(number)
        task = job.live.get(ONLY) if job is not None else None
        attempt = task.attempt if task is not None else None
        return (attempt.worker, attempt.number) if attempt is not None else None

    def on_bounce(self, condition: str) -> None:
        """Notes that the borrower's pool could not be reached."""
        self.session.on_bounce(f"pool@{self.borrower}", condition)

    # -- what is lent ------------------------------------------------------------------------------

    def resize(self, ad: WorkerAd) -> None:
        """Offers more or less from now on; what runs goes on."""
        if ad != self.session.ad and not self.over:
            self.session.resize(ad)

    def rest(self) -> None:
        """Offers nothing any more; what runs goes on."""
        ad = self.session.ad
        self.resize(resting_ad({}, ad.host, ad.ends_at or 0.0))

    @property
    def used(self) -> dict[str, float]:
        """The amounts that its attempts take here, running or waiting, in natural units.

        Attempts that are to end here do not count: what they leave is not the borrower's any more.
        """
        agent = self.session.agent
        capacity = agent.capacity  # which lacks what the loan has none of any more
        taken = {name: capacity.get(name, 0) - free for name, free in agent.free.items()}
        self._given_back &= agent.running.keys()
        for number in self._given_back:
            for name, amount in agent.running[number].claim.amounts.items():
                taken[name] = taken.get(name, 0) - amount
        return {name: amount for name, amount in natural(taken).items() if amount > 0}

    @property
    def running(self) -> int:
        """The number of attempts that it has begun."""
        return len(self.session.agent.running)

    @property
    def unreported(self) -> bool:
        """Whether its borrower has yet to say that it has a result."""
        return bool(self.session.agent.unacknowledged)

    def waiting(self) -> list[int]:
        """Attempts that it has begun and for which the own pool has no worker (any more)."""
        agent = self.session.agent
        return [number for number in agent.running if self.executor.is_waiting(number)]

    def stranded(self, now: float, seconds: float) -> list[int]:
        """The attempts that were waiting at each look for so long: their machine has gone."""
        self._waits_since = {n: self._waits_since.get(n, now) for n in self.waiting()}
        return [n for n, since in self._waits_since.items() if now - since >= seconds]

    def begun(self) -> Counter[str]:
        """The amounts that waiting attempts take together, in natural units."""
        running = self.session.agent.running
        found: Counter[str] = Counter()
        for number in self.waiting():
            found.update(natural(running[number].claim.amounts))
        return found

    def newest_first(self) -> list[int]:
        """Its attempts, those that have run the least first."""
        running = self.session.agent.running
        return sorted(running, key=lambda n: -(running[n].arrived_at + running[n].waited_seconds))

    def give_back(self, numbers: Iterable[int]) -> None:
        """Ends attempts that the borrower did not ask to end: it has them run again.

        Each is asked once: who is asked a second time has no grace any more.
        """
        for number in numbers:
            if number not in self._given_back:
                self._given_back.add(number)
                self.executor.kill(number, CANCELLED)

    def end(self) -> None:
        """Takes nothing new, and is over when nothing runs any more."""
        self._process.drain()

    def drop(self) -> None:
        """Ends all that runs, and is over at once: the borrower cannot be reached."""
        self.give_back(list(self.session.agent.running))
        self._process.stop()

    def is_unheard(self, now: float, seconds: float) -> bool:
        """Whether the borrower has not welcomed this worker for so long, though it said hello."""
        if self.session.agent.welcomed:
            self._unheard_since = None
            return False
        if self._unheard_since is None:
            self._unheard_since = now
        return now - self._unheard_since >= seconds

    async def close(self) -> None:
        """Closes the loan with the manager: guests go on, and the next process reports them.

        The borrower is told nothing: it waits for that process as long as a lease holds.
        """
        self.link.online = False
        self._process.done.set()
        await asyncio.gather(self._runner, return_exceptions=True)

    # -- guests ------------------------------------------------------------------------------------

    def _guest_spec(self, command: CommandSpec) -> JobSpec | ReasonText:
        """Makes the job that runs an attempt; a text says why none does, as its end's reason."""
        if self.machine is None:  # it was on its way when the manager started anew
            return _UNSEEN
        attempt = self.session.agent.running[command.number]
        terms = self._judge(self.borrower, attempt)
        if isinstance(terms, str):
            return EndKind.NO_RESOURCES.text(f"the lender's rules: {terms}")
        rung, max_seconds = terms
        spec = guest_spec(
            command,
            attempt,
            self.machine,
            home=self.borrower,
            account=self.address.partition("/")[0],
            loan=self.loan,
            rung=rung,
            max_seconds=max_seconds,
        )
        return why_refused(spec, self.borrower) or spec
