"""Looks twice a second for what may be between pools for a moment, but must not last."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from kestrel_worlds.audit import Execution
from kestrel_worlds.flock_worlds.flock_nodes import FlockedPool
from kestrel_worlds.flock_worlds.guest_audit import Guest, GuestAudit
from kestrel_worlds.flock_worlds.hostile_neighbours import MADE_UP_NUMBERS
from kestrelctl.core.model.neighbour import LEAST_CPUS
from kestrelctl.core.pool import Pool
from kestrelctl.core.scheduling.own_waiting import own_waiting
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.worker.connection.session import LONGEST_NOBODY_SECONDS

#: How long a loan may take to be heard again by a home that has come back: the longest pause before
#: a hello, its jitter, and the ways there and back.
HEARD_SECONDS = 1.5 * LONGEST_NOBODY_SECONDS + 10.0
#: Time from the moment at which a guest must go to its end: a look of the flock, and a kill.
GOES_SECONDS = 3.0


class FlockVigil:
    """Watches what pools have of each other."""

    def __init__(
        self, pools: list[FlockedPool], whole: GuestAudit, settings: FlockSettings
    ) -> None:
        self._pools = {pool.domain: pool for pool in pools}
        self._whole = whole
        self._settings = settings
        self._clock = pools[0].nodes.clock
        #: problem -> since when it has lasted.
        self._since: dict[Hashable, float] = {}
        #: (lender, borrower, loan) -> the most processors that it was lent at a look.
        self._most_lent: dict[tuple[str, str, str], float] = {}
        #: (lender, worker) -> since when something of the lender's own waits that it could run.
        self._wanted_since: dict[tuple[str, str], float] = {}
        self._complained: set[Hashable] = set()

    def look(self) -> None:
        """Notes how things are, and whatever has lasted too long."""
        wrong = dict(self._all_wrong())
        now = self._clock.now
        self._since = {what: self._since.get(what, now) for what in wrong}
        for what, (pool, seconds, text) in wrong.items():
            if self._since[what] + seconds <= now and what not in self._complained:
                self._complained.add(what)
                pool.audit.expect(False, text)

    def _all_wrong(self) -> Iterator[tuple[Hashable, tuple[FlockedPool, float, str]]]:
        """Yields all that is wrong: by a key, the pool, how long it may last, and a text."""
        yield from self._wrong_guests()
        yield from self._wrong_holds()
        yield from self._late_for_owners()
        yield from self._wrong_loans()

    # -- loans -------------------------------------------------------------------------------------

    def _wrong_loans(self) -> Iterator[tuple[Hashable, tuple[FlockedPool, float, str]]]:
        """Yields loans that are larger than was lent, or hold what nobody has handed them."""
        for pool in self._pools.values():
            flock = pool.manager.flock
            if flock is None:
                continue
            for (borrower, loan_id), loan in flock.keeper.loans.items():
                state = flock.keeper.lender.loans.get((borrower, loan_id))
                lent = 0.0 if state is None else state.amounts.get("cpus", 0.0)
                offered = loan.session.ad.assets.get("cpus", 0.0)
                what = f"the loan {loan_id} of {borrower}"
                key = (pool.domain, borrower, loan_id)
                most = max(lent, LEAST_CPUS, self._most_lent.get(key, 0.0))
                self._most_lent[key] = most
                if offered > max(lent, LEAST_CPUS):
                    # It may be late to become smaller; it was never lent more.
                    seconds = GOES_SECONDS if offered <= most else 0.0
                    text = f"{what} offers {offered} cpus and not {lent}"
                    yield ("large", *key, offered > most), (pool, seconds, text)
                for number in loan.session.agent.running:
                    if number >= MADE_UP_NUMBERS:
                        text = f"{what} runs attempt {number}, which is made up"
                        yield ("made up", pool.domain, number), (pool, GOES_SECONDS, text)

    # -- guests ------------------------------------------------------------------------------------

    def _wrong_guests(self) -> Iterator[tuple[Hashable, tuple[FlockedPool, float, str]]]:
        for (lender, job_id), guest in self._whole.guests.items():
            home, host = self._pools[guest.home], self._pools[lender]
            running = guest.running
            if not self._is_steady(guest, running):
                continue
            held = home.audit.holds(guest)
            what = f"attempt {guest.number} of {guest.home}, which is job {job_id} here,"
            if running and not held:
                yield ("runs", lender, job_id), (host, HEARD_SECONDS, f"{what} runs for nobody")
            elif guest.over_at is not None and held:
                yield ("over", lender, job_id), (host, HEARD_SECONDS, f"{what} is not reported")
            killed_at = home.audit.killed_at.get(guest.number)
            if running and killed_at is not None:
                yield ("killed", lender, job_id), (host, HEARD_SECONDS, f"{what} runs on")

    def _is_steady(self, guest: Guest, running: list[Execution]) -> bool:
        """Whether both pools and what is between them are as they should be, and have been."""
        home, host = self._pools[guest.home], self._pools[guest.lender]
        there, back = home.server.streams[host.domain], host.server.streams[home.domain]
        if not (there.in_order and back.in_order):
            return False
        quiet_at = self._clock.now - HEARD_SECONDS
        if max(there.disturbed_at, back.disturbed_at) > quiet_at:
            return False
        at = {execution.worker for execution in running}
        if any(
            not host.vigil.steady(worker, HEARD_SECONDS)
            for worker in host.nodes.workers
            if worker.address in at
        ):
            return False
        return all(
            pool.vigil.steady(pool.manager, HEARD_SECONDS) and pool.manager.pool is not None
            for pool in (home, host)
        )

    def _wrong_holds(self) -> Iterator[tuple[Hashable, tuple[FlockedPool, float, str]]]:
        """Yields attempts that a home thinks that a loan has, and that it does not have."""
        for home in self._pools.values():
            pool = home.manager.pool
            if pool is None or not home.vigil.steady(home.manager, HEARD_SECONDS):
                continue
            for host in self._pools.values():
                flock = host.manager.flock
                if host is home or flock is None:
                    continue
                if not host.vigil.steady(host.manager, HEARD_SECONDS):
                    continue
                streams = (home.server.streams[host.domain], host.server.streams[home.domain])
                quiet_at = self._clock.now - HEARD_SECONDS
                if any(s.disturbed_at > quiet_at or not s.in_order for s in streams):
                    continue
                for jid, worker in pool.state.workers.items():
                    if not jid.startswith(f"flock@{host.domain}/") or not worker.held:
                        continue
                    loan = flock.keeper.loans.get((home.domain, jid.partition("/")[2]))
                    known: set[int] = set()
                    if loan is not None:
                        agent = loan.session.agent
                        known |= {attempt.number for attempt in agent.queue}
                        known |= agent.running.keys() | agent.unacknowledged.keys()
                    for number in sorted(worker.held.keys() - known):
                        text = f"waits for attempt {number}, which {jid} does not have"
                        yield ("held", home.domain, number), (home, HEARD_SECONDS, text)

    # -- owners first ------------------------------------------------------------------------------

    def scheduled(self, domain: str, pool: Pool) -> None:
        """Notes, after a pool has handed out work, which workers could run own tasks that wait."""
        state, now = pool.state, self._clock.now
        bits = 0
        for each in own_waiting(state.demand):
            bits |= each.shape.bit
        for known in [key for key in self._wanted_since if key[0] == domain]:
            if known[1] not in state.workers:
                del self._wanted_since[known]
        for jid, worker in state.workers.items():
            if jid.startswith("flock@"):
                continue
            supply = state.supply.of(worker)
            is_open = jid in supply.hungry or jid in supply.parked
            if bits and is_open and supply.usable(state.demand.shapes, bits):
                self._wanted_since.setdefault((domain, jid), now)
            else:
                self._wanted_since.pop((domain, jid), None)

    def _late_for_owners(self) -> Iterator[tuple[Hashable, tuple[FlockedPool, float, str]]]:
        """Yields guests that run where own tasks have waited for their place for too long."""
        now = self._clock.now
        most = self._settings.reclaim_seconds + GOES_SECONDS
        running = [
            (guest, execution)
            for guest in self._whole.guests.values()
            for execution in guest.running
        ]
        for guest, execution in running:
            lender, job_id = guest.lender, guest.guest_job
            host = self._pools[lender]
            since = self._wanted_since.get((lender, execution.worker))
            [worker] = [w for w in host.nodes.workers if w.address == execution.worker]
            steady = host.vigil.steady(host.manager, most) and host.vigil.steady(worker, most)
            if since is None or not steady:
                continue
            own = host.manager.pool
            if since + most < now and own and _waits_for(own, execution.worker, now - most):
                text = f"job {job_id}, a guest of {guest.home}, keeps own tasks from {worker.name}"
                yield ("owners", lender, job_id), (host, 0.0, text)


def _waits_for(pool: Pool, jid: str, since: float) -> bool:
    """Whether own tasks that could run on a worker have waited since then."""
    state = pool.state
    bits = 0
    for each in own_waiting(state.demand, since):
        if each.old:
            bits |= each.shape.bit
    worker = state.workers.get(jid)
    if not bits or worker is None:
        return False
    return bool(state.supply.of(worker).usable(state.demand.shapes, bits))
