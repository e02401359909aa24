"""Small texts that a manager keeps beside its tables, each written as a whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from kestrelctl.errors import StoreFull, StoreUnusable

#: The accounts by which machines may join, those of environments, and triggers that are off.
INVITED = "invited"
ENVIRONMENT_ACCOUNTS = "environment-accounts"
TRIGGERS_DISABLED = "triggers-disabled"
ALL = (INVITED, ENVIRONMENT_ACCOUNTS, TRIGGERS_DISABLED)


class KeptText(Protocol):
    """One text, which outlasts the manager."""

    def read(self) -> str:
        """Returns what was written last; empty if nothing ever was.

        Raises:
            KestrelError: it cannot be read.
        """
        ...

    def write(self, text: str) -> None:
        """Replaces it durably.

        Raises:
            StoreFull: that cannot be done now, and the text is as it was.
            StoreUnusable: another manager has the store.
        """
        ...


class TextFile:
    """A `KeptText` in a file, which has the old text or the new one whenever the machine stops."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str:
        try:
            return self._path.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise StoreUnusable(f"{self._path} cannot be read", cause=error.strerror) from error

    def write(self, text: str) -> None:
        draft = self._path.with_name(f"{self._path.name}.new")
        try:
            with draft.open("w") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(self._path)
        except OSError as error:
            raise StoreFull(f"{self._path} cannot be written", cause=error.strerror) from error
