"""Items of jobs that are yet to be submitted, sent ahead in pieces that fit into a stanza."""

from __future__ import annotations

from kestrelctl.errors import UsageError

KEPT_SECONDS = 60.0
MAX_BYTES = 256 * 1024 * 1024


class Uploads:
    """Pieces by session and name, dropped when nothing was added for a minute."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], list[str]] = {}
        self._touched: dict[tuple[str, str], float] = {}
        self._bytes: dict[tuple[str, str], int] = {}

    def add(self, jid: str, name: str, lines: list[str], now: float) -> int:
        """Adds lines; returns how many there are now.

        Raises:
            UsageError: all uploads together are larger than the manager keeps.
        """
        for key, touched in list(self._touched.items()):
            if touched + KEPT_SECONDS < now:
                self._drop(key)
        key = (jid, name)
        size = sum(len(line) + 60 for line in lines)
        if sum(self._bytes.values()) + size > MAX_BYTES:
            self._drop(key)
            raise UsageError("the items of the job are too large together")
        self._lines.setdefault(key, []).extend(lines)
        self._touched[key] = now
        self._bytes[key] = self._bytes.get(key, 0) + size
        return len(self._lines[key])

    def take(self, jid: str, name: str) -> list[str]:
        """The lines of an upload, which is over now.

        Raises:
            UsageError: there is no such upload (any more).
        """
        key = (jid, name)
        lines = self._lines.get(key)
        if lines is None:
            raise UsageError("the job's items did not arrive", hint="submit it again")
        self._drop(key)
        return lines

    def _drop(self, key: tuple[str, str]) -> None:
        for table in (self._lines, self._touched, self._bytes):
            table.pop(key, None)
