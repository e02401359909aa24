"""The temporary accounts that may still be there, so that none outlives its time for long.

Not every server tells which accounts it has, so the manager keeps a list of those it made, over
restarts too. Nothing depends on it but tidiness: who may join, the accounts alone decide.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kestrelctl.core.enrollment import parse_invitation

log = logging.getLogger(__name__)


class Invited:
    """Addresses of temporary accounts, one on each line of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._jids = dict.fromkeys(file.read_text().split())
        except FileNotFoundError:
            self._jids = {}

    def add(self, jid: str) -> None:
        """An account that was made."""
        if jid not in self._jids:
            self._jids[jid] = None
            self._write()

    def discard(self, jid: str) -> None:
        """An account that is no more."""
        if jid in self._jids:
            del self._jids[jid]
            self._write()

    def expired(self, now: float) -> list[str]:
        """Those whose time is over."""
        return [jid for jid in self._jids if expires_at(jid) <= now]

    def next_at(self) -> float | None:
        """When the next one expires."""
        return min(map(expires_at, self._jids), default=None)

    def _write(self) -> None:
        draft = self._file.with_name(f"{self._file.name}.new")
        try:
            draft.write_text("".join(f"{jid}\n" for jid in self._jids))
            draft.replace(self._file)
        except OSError as error:
            log.warning("the list of temporary accounts is not written: %s", error)


def expires_at(jid: str) -> float:
    """When a temporary account expires, in seconds since the epoch."""
    found = parse_invitation(jid.partition("@")[0])
    return found.expires_at if found is not None else 0.0
