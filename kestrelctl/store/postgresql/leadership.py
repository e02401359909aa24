"""A lease in a row, which says which of several managers has the store; its holder renews it.

The lease ends by PostgreSQL's clock. Its holder counts it from the moment before it asked, by a
clock of its own that goes on while the machine sleeps: it stops before another one can begin. A
process that has ended loses its session at once, and nobody waits for the lease then; whoever has
lost only the session does not lead until it has renewed the lease in a new one.

What makes two leaders harmless is not this, but the epoch that each commit is conditional on
(`commits`). The lease is what keeps them from handing out the same tasks in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import LiteralString

import psycopg

from kestrelctl import clock
from kestrelctl.checkout import own_version
from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.errors import AnotherLeads, KestrelError, StoreUnusable
from kestrelctl.store.postgresql.session import Link, explained, is_lost

log = logging.getLogger(__name__)

#: How long a lease is good for, unless it is renewed. A manager that hangs or is cut off is
#: replaced after that.
LEASE_SECONDS = 6.0
RENEW_SECONDS = 1.5
#: Pause between two looks of one that stands by, and between two tries to renew a lease anew.
LOOK_SECONDS = 0.2
#: How often one that stands by says so, and how long it is believed.
SAY_SECONDS = 1.0
BELIEVED_SECONDS = 5.0
#: A statement of these that takes longer is given up.
STATEMENT_SECONDS = 4

#: True if nobody leads. A session of an account that must not see when it began is taken for the
#: one that it was. Where PostgreSQL itself was started since, all sessions have ended: only the
#: lease counts then.
_IS_FREE: LiteralString = """
    until < clock_timestamp() OR (
        pg_postmaster_start_time() < started_at AND NOT EXISTS (
            SELECT FROM pg_stat_activity AS a
            WHERE a.pid = leader.pid AND coalesce(a.backend_start = leader.started_at, true)
        )
    )
"""
_SESSION: LiteralString = """
    SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""
_TAKE: LiteralString = """
    UPDATE leader SET epoch = %s, host = %s, pid = %s, started_at = %s,
        until = clock_timestamp() + make_interval(secs => %s)
"""
_RENEW: LiteralString = f"""
    UPDATE leader SET (pid, started_at) = ({_SESSION}),
        until = clock_timestamp() + make_interval(secs => %s)
    WHERE epoch = %s
"""
_RELEASE: LiteralString = "UPDATE leader SET until = '-infinity' WHERE epoch = %s"
_SAY: LiteralString = """
    INSERT INTO managers (pid, host, version, problem, seen_at)
    VALUES (pg_backend_pid(), %s, %s, %s, clock_timestamp())
    ON CONFLICT (pid) DO UPDATE SET host = excluded.host, version = excluded.version,
        problem = excluded.problem, seen_at = excluded.seen_at
"""
_FORGET: LiteralString = """
    DELETE FROM managers WHERE seen_at < clock_timestamp() - make_interval(secs => %s)
"""
_STANDING_BY: LiteralString = """
    SELECT host, version, problem, extract(epoch FROM clock_timestamp() - seen_at)::float8
    FROM managers WHERE pid <> pg_backend_pid()
        AND seen_at >= clock_timestamp() - make_interval(secs => %s)
    ORDER BY problem <> '', host, pid
"""


def must_be_free(link: Link, database: str, *, lock: bool) -> None:
    """Passes if no manager leads, or the tables are older than leases.

    Args:
        lock: whether nobody else may begin to lead until the transaction ends.

    Raises:
        AnotherLeads: one does.
        StoreUnusable: nobody can tell.
    """
    if not _has_tables(link):
        return
    row = link.execute(
        f"SELECT {_IS_FREE}, host FROM leader" + (" FOR UPDATE" if lock else "")
    ).fetchone()
    if row is None:
        raise StoreUnusable(
            "The manager's store is damaged",
            cause=f"{database}: the table `leader` is empty",
            hint="restore the database from a backup of PostgreSQL's own tools",
        )
    if not row[0]:
        raise AnotherLeads(
            f"the manager on {row[1]} leads this pool",
            cause=f"it renews its lease in {database}",
            hint="stop it, or run `kestrelctl manager handover`",
        )


def _has_tables(link: Link) -> bool:
    found = link.execute("SELECT to_regclass('leader') IS NOT NULL").fetchone()
    return found is not None and bool(found[0])


class PostgresqlLeadership:
    """The part of one manager in `store.port.Leadership`.

    Args:
        connect: makes a connection for the lease alone.
        check: raises if a database cannot be this manager's.
        database: what messages call it.
    """

    def __init__(
        self, connect: Callable[[], Link], check: Callable[[Link], object], database: str
    ) -> None:
        self._connect = connect
        self._check = check
        self._database = database
        self._host = socket.gethostname()
        self._version = own_version()
        self._link: Link | None = None
        self._link_lock = threading.Lock()
        self._epoch: int | None = None
        #: By `clock.awake_or_asleep`.
        self._ends_at = 0.0
        self._lost = False
        self._stop = threading.Event()
        self._renewing: threading.Thread | None = None
        self._standing_by: list[ManagerSeen] = []
        self._said_at = 0.0
        self._trouble = ""

    # -- standing by -------------------------------------------------------------------------------

    async def win(self, problem: Callable[[], str]) -> None:
        self._forget_lead()
        loop = asyncio.get_running_loop()
        told = ""
        with ThreadPoolExecutor(1, thread_name_prefix="standby") as thread:
            while (leads := await loop.run_in_executor(thread, self._look, problem())) is not None:
                if leads != told:
                    log.info("standing by: %s", leads)
                    told = leads
                await asyncio.sleep(LOOK_SECONDS)

    def _look(self, problem: str) -> str | None:
        """Says that this manager is there; returns why it must wait, or None."""
        is_first = self._link is None and not self._trouble
        try:
            link = self._linked()
            with explained(self._database):
                self._check(link)
                if _has_tables(link):
                    self._say(link, problem)
                    must_be_free(link, self._database, lock=False)
                return problem or None
        except AnotherLeads as error:
            self._trouble = ""
            return str(error)
        except KestrelError as error:
            if is_first:
                raise
            return self._in_trouble(error)

    def _say(self, link: Link, problem: str) -> None:
        if clock.awake_or_asleep() - self._said_at > SAY_SECONDS:
            link.execute(_SAY, (self._host, self._version, problem))
            link.execute(_FORGET, (BELIEVED_SECONDS,))
            self._said_at = clock.awake_or_asleep()

    def _forget_lead(self) -> None:
        self._stop_renewing()
        self._epoch = None
        self._ends_at = 0.0
        self._lost = False

    # -- leading -----------------------------------------------------------------------------------

    def take(self, link: Link, epoch: int) -> None:
        """Begins to lead, in the transaction that counts the epoch up: it has seen that nobody
        does.
        """
        asked_at = clock.awake_or_asleep()
        session = self._linked().execute(_SESSION).fetchone()
        assert session is not None
        link.execute(_TAKE, (epoch, self._host, *session, LEASE_SECONDS))
        self._epoch = epoch
        self._ends_at = asked_at + LEASE_SECONDS

    def keep(self) -> None:
        """Renews the lease from now on, in a thread: the event loop may be busy."""
        self._stop.clear()
        self._renewing = threading.Thread(target=self._renew_for_ever, name="lease", daemon=True)
        self._renewing.start()

    @property
    def is_held(self) -> bool:
        return clock.awake_or_asleep() < self._ends_at and not self._lost

    @property
    def is_lost(self) -> bool:
        return self._lost

    def managers(self) -> list[ManagerSeen]:
        own = ManagerSeen(host=self._host, version=self._version, leads=self.is_held)
        return [own, *self._standing_by]

    def _renew_for_ever(self) -> None:
        while not self._stop.wait(RENEW_SECONDS if self.is_held else LOOK_SECONDS):
            asked_at = clock.awake_or_asleep()
            try:
                with explained(self._database):
                    if not self._renew(self._linked()):
                        self._lost = True
                        return
            except (KestrelError, psycopg.Error) as error:
                self._in_trouble(error)
                if self._link is None:
                    self._ends_at = 0.0  # whoever looks sees that the session has ended
                continue
            except Exception:
                log.exception("the lease in %s is renewed no more", self._database)
                self._lost = True
                return
            self._trouble = ""
            self._ends_at = asked_at + LEASE_SECONDS

    def _renew(self, link: Link) -> bool:
        """Renews the lease, and sees who stands by; False if another manager has led since."""
        if link.execute(_RENEW, (LEASE_SECONDS, self._epoch)).rowcount == 0:
            return False
        rows = link.execute(_STANDING_BY, (BELIEVED_SECONDS,)).fetchall()
        self._standing_by = [
            ManagerSeen(host=host, version=version, leads=False, problem=why, seen_seconds=seconds)
            for host, version, why, seconds in rows
        ]
        return True

    def _stop_renewing(self) -> None:
        self._stop.set()
        if self._renewing is not None:
            self._renewing.join()
            self._renewing = None

    def let_go(self) -> None:
        """Ends the lease, if this manager has it, so that another one can lead at once."""
        self._stop_renewing()
        if self._link is not None and self._epoch is not None and not self._lost:
            with suppress(psycopg.Error):  # then the lease, or the session, ends by itself
                self._link.execute(_RELEASE, (self._epoch,))
        self._epoch = None
        self._ends_at = 0.0

    def close(self) -> None:
        self.let_go()
        self._drop_link()

    # -- the connection ----------------------------------------------------------------------------

    def _linked(self) -> Link:
        """The connection in which this manager leads or stands by; a new one if it was lost."""
        with self._link_lock:
            if self._link is None or is_lost(self._link):
                self._link = self._connect()
                with explained(self._database):
                    # A lease that a crash of PostgreSQL takes back ends sooner, which harms nobody;
                    # and it must not wait for a replica.
                    self._link.execute("SET synchronous_commit = off")
                    self._link.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
            return self._link

    def _in_trouble(self, error: Exception) -> str:
        """Logs what went wrong, once; a connection that is lost goes."""
        why = " ".join(str(getattr(error, "cause", "") or error).split())
        if not self._trouble:
            log.warning("the lease in %s: %s", self._database, why)
        self._trouble = why
        if self._link is not None and is_lost(self._link):
            self._drop_link()
        return why

    def _drop_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
