"""A page of metrics as a test reads it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kestrelctl.metrics.labelled_gauges import LabelledGauges


class Page:
    """A page in Prometheus's text format, parsed by Prometheus's own library."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {}
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            assert family.name not in self.families, f"{family.name} is there twice"
            self.families[family.name] = family
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float:
        """One sample."""
        return self.samples[name, frozenset(labels.items())]

    def by(self, name: str, label: str) -> dict[str, float]:
        """The samples of a name by the value of one label."""
        return {
            dict(labels)[label]: value
            for (found, labels), value in self.samples.items()
            if found == name
        }

    def sum(self, name: str) -> float:
        """All samples of a name together."""
        return sum(value for (found, _), value in self.samples.items() if found == name)

    @property
    def counters(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """All that must never go down."""
        growing = [f for f in self.families.values() if f.type in ("counter", "histogram")]
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in growing
            for sample in family.samples
            if not sample.name.endswith("_created")
        }


def documented(page: str, heading: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name -> (type, labels) of the table under a heading of docs/metrics.md."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            name, kind, labels, _ = (cell.strip() for cell in line.strip("|").split("|"))
            assert name not in found, f"{name} is documented twice"
            found[name.strip("`")] = (kind, tuple(labels.replace("`", "").replace(",", "").split()))
    return found


def served(families: Iterable[Metric | LabelledGauges]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name -> (type, labels) of what a process serves, counters by their full name."""
    found = {}
    for family in families:
        if isinstance(family, LabelledGauges):
            found[family.name] = ("gauge", family.names)
            continue
        labels = getattr(family, "_labelnames", ())
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, tuple(labels))
    return found
