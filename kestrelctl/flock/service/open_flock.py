"""Puts the flock of a manager together."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.service.disk_spools import DiskSpools
from kestrelctl.flock.service.files_home import FilesHome
from kestrelctl.flock.service.flock_answering import FlockAnswering
from kestrelctl.flock.service.flock_numbers import flock_numbers
from kestrelctl.flock.service.flock_service import FlockService
from kestrelctl.flock.service.kept_flock import KeptFlock
from kestrelctl.flock.service.pool_in_flock import PoolInFlock
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.service import Service
from kestrelctl.metrics.flock_families import FlockNumbers
from kestrelctl.protocol.upload_slots import Slot
from kestrelctl.xmpp.slots import request_slot
from kestrelctl.xmpp.xmpp_session import XmppSession


class OpenFlock:
    """The flock of a manager that runs.

    Attributes:
        others: the flock, as the manager asks it.
    """

    def __init__(self, service: Service, others: FlockService, standing: PoolInFlock) -> None:
        self._service = service
        self.others = others
        self._standing = standing

    def numbers(self) -> FlockNumbers:
        """The numbers of the flock, for the metrics."""
        return flock_numbers(self._service, self.others)

    def begin(self) -> None:
        """Joins, if the pool is to be in a flock."""
        self._standing.begin()

    async def close(self) -> None:
        """Stops, because the manager does."""
        self._standing.close()
        await self.others.close()


def open_flock(
    service: Service,
    dispatcher: RequestDispatcher,
    options: ManagerOptions,
    connection: Callable[[], XmppSession],
) -> OpenFlock:
    """Makes the flock of a manager, in which it takes part when told to.

    Args:
        connection: the manager's; there is none yet.
    """
    random = Random()

    async def own_slot(size_bytes: int, filename: str) -> Slot:
        sender = f"pool@{options.domain}"
        return await request_slot(connection(), options.domain, size_bytes, filename, sender)

    kept = KeptFlock(service, dispatcher.pending, options.flock_isolation)
    flock = FlockService(
        service,
        dispatcher.outputs,
        FlockSettings(
            minute_seconds=options.flock_minute_seconds,
            reclaim_minutes=options.flock_reclaim_minutes,
            fixed=options.flock_fixed,
        ),
        DiskSpools(options.data_dir / "flock"),
        random,
        kept.policy,
        own_slots=own_slot,
        any_workdir=options.flock_any_workdir,
        carrier=lambda slots: FilesHome(
            options.data_dir / "guest-files",
            slots.ask,
            ca_file=options.ca_file,
            now=service.now,
            random=random.random,
        ),
    )
    standing = PoolInFlock(service, flock, kept, options.flock)
    dispatcher.serve_flock(FlockAnswering(standing).handlers(), flock.explain)
    return OpenFlock(service, flock, standing)
