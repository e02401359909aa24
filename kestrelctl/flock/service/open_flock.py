"""Puts the flock of a manager together, with what it keeps on its disk."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.lending import LentKey
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
from kestrelctl.worker.process import Spool
from kestrelctl.worker.spool import DiskSpool
from kestrelctl.xmpp.slots import request_slot
from kestrelctl.xmpp.xmpp_session import XmppSession


class DiskSpools:
    """The spools of one manager.

    Args:
        root: the directory in which they are; made when it is needed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, borrower: str, loan: str) -> Spool:
        """The spool of a loan."""
        path = self._path(borrower, loan)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return DiskSpool(path)

    def kept(self) -> list[LentKey]:
        """The loans of which an earlier process has left results."""
        return sorted((path.parent.name, path.name) for path in self._root.glob("*/*"))

    def remove(self, borrower: str, loan: str) -> None:
        """Removes the spool of a loan, which is not needed any more."""
        path = self._path(borrower, loan)
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()

    def _path(self, borrower: str, loan: str) -> Path:
        # A domain that the server lets through has no `/`; what has one never gets here.
        return self._root / borrower.replace("/", "_") / loan


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
