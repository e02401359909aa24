"""A worker's spool that outlives its process: a `worker.process.Spool`."""

from __future__ import annotations

from collections.abc import Iterable


class SimulatedSpool:
    """Results on a machine's disk; what was appended stays, whichever process dies.

    Attributes:
        records: results that are not acknowledged yet, by attempt number.
        written: the numbers of all that were ever appended.
    """

    def __init__(self) -> None:
        self.degraded: str | None = None
        self.records: dict[int, bytes] = {}
        self.written: set[int] = set()

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.records.values()))

    def load(self) -> list[tuple[int, bytes]]:
        return list(self.records.items())

    def append(self, records: Iterable[tuple[int, bytes]]) -> None:
        added = dict(records)
        self.records.update(added)
        self.written.update(added)

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.records.pop(number, None)

    def close(self) -> None:
        pass
