"""Turns counts into the metric families that the Prometheus client library writes out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.counting.stored_totals import StoredTotals
from kestrelctl.metrics.stanzas import StanzaCounts


def gauge(name: str, text: str, value: float | None) -> Metric:
    """One number; without a sample if it is not known."""
    family = GaugeMetricFamily(name, text)
    if value is not None:
        family.add_metric((), value)
    return family


def gauges(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """One number for each combination of label values."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for words, value in values:
        family.add_metric(words, value)
    return family


def counter(name: str, text: str, value: float) -> Metric:
    """One number that never goes down while the process lives."""
    return CounterMetricFamily(name, text, value=value)


def counters(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """One such number for each combination of label values."""
    family = CounterMetricFamily(name, text, labels=labels)
    for words, value in values:
        family.add_metric(words, value)
    return family


def by(words: Mapping[str, float]) -> list[tuple[Sequence[str], float]]:
    """The values of a single label."""
    return [((word,), value) for word, value in words.items()]


def histogram(name: str, text: str, found: Histogram) -> Metric:
    """The counts between bounds."""
    return HistogramMetricFamily(name, text, buckets=_buckets(found), sum_value=found.sum)


def histograms(name: str, text: str, label: str, found: Mapping[str, Histogram]) -> Metric:
    """The counts between bounds for each value of a label."""
    family = HistogramMetricFamily(name, text, labels=(label,))
    for word, each in found.items():
        family.add_metric((word,), _buckets(each), each.sum)
    return family


def _buckets(found: Histogram) -> list[tuple[str, float]]:
    bounds = map(floatToGoString, (*found.bounds, math.inf))
    return list(zip(bounds, accumulate(found.counts), strict=True))


def stanza_families(prefix: str, stanzas: StanzaCounts) -> list[Metric]:
    """Messages and their size."""
    labels = ("kind", "direction")
    counted = list(stanzas.counted())
    return [
        counters(
            f"{prefix}stanzas",
            "Messages by type; presence and messages that came back have one too.",
            labels,
            [((kind, direction), number) for kind, direction, number, _ in counted],
        ),
        counters(
            f"{prefix}stanza_bytes",
            "Their JSON text, before XML quotes it.",
            labels,
            [((kind, direction), size) for kind, direction, _, size in counted if size],
        ),
    ]


def stored_families(prefix: str, stored: StoredTotals) -> list[Metric]:
    """The families about what workers have put into the file share."""
    return [
        counters(
            f"{prefix}stored_files",
            "Files that tasks left, and streams that they printed, in the file share.",
            ("kind",),
            by(stored.files),
        ),
        counters(
            f"{prefix}stored_bytes",
            "What of tasks was put into the file share.",
            ("kind",),
            by(stored.bytes),
        ),
        counters(
            f"{prefix}storing_failures",
            "Attempts of which something was not stored, by why.",
            ("reason",),
            by(stored.failures),
        ),
        histogram(
            f"{prefix}storing_seconds",
            "From the end of a task until what it left and printed was stored, or was not.",
            stored.seconds,
        ),
    ]


def certificate_family(found: tuple[str, float] | None) -> Metric:
    """The end of the XMPP server's certificate, as any connection with TLS sees it.

    Args:
        found: (host, seconds since the epoch), or None without TLS.
    """
    return gauges(
        "kestrel_certificate_expiry_timestamp_seconds",
        "When the XMPP server's certificate ends; only where the connection has TLS.",
        ("host",),
        [((found[0],), found[1])] if found else [],
    )
