"""The list of accounts that environments' workers have, so that none outlives its environment.

The server does not tell which accounts it has, and a manager may be killed together with the hosts
that know of its environments. So each name is written down before there can be an account.
"""

from __future__ import annotations

import logging
from typing import Protocol

from kestrelctl.errors import StoreFull
from kestrelctl.store.kept_text import KeptText

log = logging.getLogger(__name__)


class AccountList(Protocol):
    """The list that `EnvironmentAccounts` keeps."""

    names: set[str]

    def add(self, name: str) -> None: ...
    def discard(self, name: str) -> None: ...


class EnvironmentAccounts:
    """Names of workers, one on each line.

    Attributes:
        names: the workers whose account may exist.
    """

    def __init__(self, kept: KeptText) -> None:
        self._kept = kept
        self.names = set(kept.read().split())

    def add(self, name: str) -> None:
        """Notes an account that is to be made.

        Raises:
            StoreFull: it cannot be written.
        """
        self.names.add(name)
        try:
            self._write()
        except StoreFull as error:
            self.names.discard(name)
            raise StoreFull(
                "the manager cannot note the account of an environment", cause=error.cause
            ) from error

    def discard(self, name: str) -> None:
        """Notes that an account no longer exists."""
        self.names.discard(name)
        try:
            self._write()
        except StoreFull as error:
            log.warning("the list of environments' accounts is not written: %s", error.cause)

    def _write(self) -> None:
        self._kept.write("".join(f"{name}\n" for name in sorted(self.names)))
