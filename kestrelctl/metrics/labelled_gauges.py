"""Gauges with a sample for each worker, written as text by hand.

The client library takes about eight microseconds from a value to its line, three times a worker,
and the event loop of the manager stands still meanwhile: it was nearly all of a scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class LabelledGauges(msgspec.Struct, frozen=True):
    """Gauges with labels.

    Attributes:
        documentation: what they are; one line without backslashes.
        names: those of the labels.
        labels: the labels' values of each gauge, each `quoted`, so that several families can share
            the work.
        values: one for each.
    """

    name: str
    documentation: str
    names: tuple[str, ...]
    labels: Sequence[tuple[str, ...]]
    values: Iterable[float]

    def write(self) -> str:
        """Its part of a page, in Prometheus's text format."""
        series = f"{self.name}{{{','.join(f'{name}=%s' for name in self.names)}}}"
        pairs = zip(self.labels, self.values, strict=True)
        lines = [f"{series % labels} {value}\n" for labels, value in pairs]
        head = f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} gauge\n"
        return head + "".join(lines)


def quoted(value: str) -> str:
    """A value of a label, as the text format has it."""
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'"{escaped}"'
