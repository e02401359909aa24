"""The list of temporary accounts that may still exist, so that none outlives its time or its use.

Not every server tells which accounts it has, so the manager keeps a list of those that it made, and
keeps it over restarts. An account is noted as used before the machine has its own: if the manager
dies before it has deleted the account, nobody else can join with it.
"""

from __future__ import annotations

import logging

from kestrelctl.core.members.enrollment import parse_invitation
from kestrelctl.errors import StoreFull
from kestrelctl.store.kept_text import KeptText

log = logging.getLogger(__name__)

_USED = "used"


class TemporaryAccounts:
    """Addresses of temporary accounts, one on each line; `used` follows those in use."""

    def __init__(self, kept: KeptText) -> None:
        self._kept = kept
        self._jids: dict[str, bool] = {}
        for line in kept.read().splitlines():
            jid, _, used = line.partition(" ")
            self._jids[jid] = used == _USED

    @property
    def used(self) -> list[str]:
        """The accounts that somebody joined with, or was about to when the manager died."""
        return [jid for jid, used in self._jids.items() if used]

    def add(self, jid: str) -> None:
        """Notes an account that was made."""
        if jid not in self._jids:
            self._jids[jid] = False
            self._try_to_write()

    def note_use(self, jid: str) -> None:
        """Notes that somebody is about to join with an account, so that nobody else can.

        Raises:
            StoreFull: it cannot be written.
        """
        self._jids[jid] = True
        try:
            self._write()
        except StoreFull as error:
            self._jids[jid] = False
            raise StoreFull(
                "the manager cannot note that the token is used", cause=error.cause
            ) from error

    def take_back_use(self, jid: str) -> None:
        """Takes the note back: nobody has joined with the account."""
        self._jids[jid] = False
        self._try_to_write()

    def discard(self, jid: str) -> None:
        """Notes that an account no longer exists."""
        if jid in self._jids:
            del self._jids[jid]
            self._try_to_write()

    def expired(self, now: float) -> list[str]:
        """Accounts whose time is over."""
        return [jid for jid in self._jids if expires_at(jid) <= now]

    def next_at(self) -> float | None:
        """Returns when the next account expires; None if there is none."""
        return min(map(expires_at, self._jids), default=None)

    def _try_to_write(self) -> None:
        try:
            self._write()
        except StoreFull as error:
            log.warning("the list of temporary accounts is not written: %s", error.cause)

    def _write(self) -> None:
        lines = (f"{jid} {_USED}\n" if used else f"{jid}\n" for jid, used in self._jids.items())
        self._kept.write("".join(lines))


def expires_at(jid: str) -> float:
    """Returns when a temporary account expires, in seconds since the epoch."""
    found = parse_invitation(jid.partition("@")[0])
    return found.expires_at if found is not None else 0.0
