"""The production manager with the production flock service, on simulated time."""

from __future__ import annotations

from functools import partial
from random import Random

from kestrel_worlds.flock_worlds.guest_audit import GuestAudit, PoolAudit
from kestrel_worlds.flock_worlds.memory_spools import MemorySpools
from kestrel_worlds.flock_worlds.streams import FlockServer
from kestrel_worlds.simulated_manager import SimulatedManager
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.store import SimulatedStore
from kestrelctl.core.events import Event, Submit
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.pool import Pool
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.policy import Policy
from kestrelctl.flock.service.flock_answering import FlockAnswering
from kestrelctl.flock.service.flock_service import FlockService
from kestrelctl.flock.service.kept_flock import KeptFlock
from kestrelctl.flock.service.loan_addresses import pool_and_loan
from kestrelctl.flock.service.pool_in_flock import PoolInFlock
from kestrelctl.manager.other_pools import OtherPools
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.service import Service
from kestrelctl.protocol import directions, workers

#: Guests are not isolated from anything in a world without processes.
ISOLATION = "plain"
#: The beginning of a report.
_REPORT = '{"type":"report"'


class FlockedManager(SimulatedManager):
    """The manager of a pool of a flock.

    Args:
        whole: the audit of all pools.
        flock_settings: how fast the flock lives.
        through: the pool through which it joins at each start; its own domain for the first of a
            flock; empty if it is told to join.

    Attributes:
        spools: the spools on its machine's disk.
        flock: the service of the living process; None if there is none.
    """

    def __init__(
        self,
        clock: SimulationClock,
        random: Random,
        server: FlockServer,
        store: SimulatedStore,
        audit: PoolAudit,
        config: Config,
        whole: GuestAudit,
        flock_settings: FlockSettings,
        through: str,
        *,
        check: bool,
    ) -> None:
        super().__init__(clock, random, server, store, audit, config, check=check)
        self.name = f"{server.domain}:manager"
        self.pool_name = f"{server.domain}:pool"
        self.spools = MemorySpools(partial(whole.dropped, server.domain))
        self.flock: FlockService | None = None
        self._whole = whole
        self._flock_settings = flock_settings
        self._through = through
        self._standing: PoolInFlock | None = None
        self._began_at = clock.now

    def open_others(self, service: Service, dispatcher: RequestDispatcher) -> OtherPools:
        """Opens the flock, as `flock.service.open_flock` does."""
        self._began_at = self.clock.now
        kept = KeptFlock(service, dispatcher.pending, ISOLATION)
        self.flock = FlockService(
            service,
            dispatcher.outputs,
            self._flock_settings,
            self.spools,
            self.random,
            kept.policy,
        )
        self._standing = PoolInFlock(service, self.flock, kept, self._through)
        dispatcher.serve_flock(FlockAnswering(self._standing).handlers(), self.flock.explain)
        return self.flock

    def begin_others(self) -> None:
        assert self._standing is not None
        self._standing.begin()

    async def close_others(self) -> None:
        assert self._standing is not None
        assert self.flock is not None
        self._standing.close()
        await self.flock.close()

    def on_ended(self) -> None:
        super().on_ended()
        self.flock = self._standing = None

    def on_event(self, pool: Pool, event: Event) -> None:
        if isinstance(event, Submit) and event.spec.guest is not None:
            audit = self._whole.pools[self.address]
            audit.handed_in(event.spec.guest.pool, Policy(pool.settings(FlockRule), ISOLATION))

    def on_refused(self, worker: str, message: workers.Refused) -> None:
        """Checks a refusal; of a loan it is wrong only if this manager forgot what it asked for."""
        lender, loan = pool_and_loan(worker)
        if not is_neighbour(worker):
            super().on_refused(worker, message)
        elif self.clock.now - self._began_at < self._flock_settings.lease_seconds:
            counted_on = self._whole.counted_on(self.address, lender, loan, self._began_at)
            text = f"a new manager refuses {worker}, which runs {counted_on}"
            self.audit.expect(not counted_on, text)

    def is_worker(self, address: str) -> bool:
        loan_of_another = is_neighbour(address) and "/" in address
        return loan_of_another or super().is_worker(address)

    def said(self, payload: str, to: str) -> None:
        domain, resource = pool_and_loan(to)
        if to == f"flock@{domain}":
            self.clock.tell(self.pool_name, "tells", to, payload)
            self._whole.told(self.address, domain)
        elif to == f"pool@{domain}" and not resource:
            self.clock.tell(self.pool_name, "says as a worker", to, payload)
            if payload.startswith(_REPORT):
                self._reports(domain, payload)
        else:
            super().said(payload, to)

    def _reports(self, home: str, payload: str) -> None:
        """Notes results that a loan reports to the pool that has borrowed."""
        report = directions.from_worker.decode(payload)
        assert isinstance(report, workers.Report)
        spooled = {n for (to, _), all in self.spools.written.items() if to == home for n in all}
        for result in report.results:
            self._whole.reported(home, result)
            self.audit.expect(
                result.number in spooled,
                f"{result.number} is reported to {home} before it is spooled",
            )
