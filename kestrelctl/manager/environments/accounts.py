"""The list of accounts that environments' workers have, so that none outlives its environment.

The server does not tell which accounts it has, and a manager may be killed together with the hosts
that know of its environments. So each name is written down before there can be an account.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Protocol

from kestrelctl.errors import StoreFull

log = logging.getLogger(__name__)


class AccountList(Protocol):
    """The list that `EnvironmentAccounts` keeps."""

    names: set[str]

    def add(self, name: str) -> None: ...
    def discard(self, name: str) -> None: ...


class EnvironmentAccounts:
    """Names of workers, one on each line of a file.

    Attributes:
        names: the workers whose account may exist.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.names = set(file.read_text().split()) if file.exists() else set[str]()

    def add(self, name: str) -> None:
        """Notes an account that is to be made.

        Raises:
            StoreFull: it cannot be written.
        """
        self.names.add(name)
        try:
            self._write()
        except OSError as error:
            self.names.discard(name)
            raise StoreFull(
                "the manager cannot note the account of an environment", cause=error.strerror
            ) from error

    def discard(self, name: str) -> None:
        """Notes that an account no longer exists."""
        self.names.discard(name)
        try:
            self._write()
        except OSError as error:
            log.warning("the list of environments' accounts is not written: %s", error)

    def _write(self) -> None:
        draft = self._file.with_name(f"{self._file.name}.new")
        with draft.open("w") as stream:
            stream.writelines(f"{name}\n" for name in sorted(self.names))
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(self._file)
