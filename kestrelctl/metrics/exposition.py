"""One process's page for Prometheus: its own families, and those that every process has."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kestrelctl.checkout import own_version
from kestrelctl.metrics.families import gauge, gauges, histogram
from kestrelctl.metrics.labelled_gauges import LabelledGauges
from kestrelctl.metrics.lag import LoopLag

Families = Callable[[], Iterable[Metric | LabelledGauges]]


class Exposition:
    """Collects at each scrape what there is at that moment.

    Args:
        prefix: that of the names: `kestrel_` or `kestrel_worker_`.
        families: what this kind of process has to tell.
        lag: that of its event loop.
    """

    def __init__(self, prefix: str, families: Families, lag: LoopLag) -> None:
        self._prefix = prefix
        self._families = families
        self._lag = lag
        self._started_at = time.time()
        self._scrape_seconds: float | None = None
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    def of_any_process(self) -> Iterable[Metric]:
        """The families that the client library has for every process."""
        return self._process.collect()

    def own(self) -> Iterator[Metric | LabelledGauges]:
        """The families of this kind of process."""
        prefix = self._prefix
        yield gauges(
            f"{prefix}build_info",
            "Always 1.",
            ("version", "python"),
            [((own_version(), platform.python_version()), 1)],
        )
        yield gauge(f"{prefix}start_time_seconds", "When the process started.", self._started_at)
        yield from self._families()
        yield histogram(
            f"{prefix}event_loop_lag_seconds",
            "How late a timer came that is set four times a second.",
            self._lag.seconds,
        )
        yield gauge(
            f"{prefix}event_loop_lag_max_seconds",
            "The largest lag of the last half minute to minute.",
            self._lag.max_seconds,
        )
        yield gauge(
            f"{prefix}scrape_seconds", "What the scrape before this one took.", self._scrape_seconds
        )

    def render(self) -> bytes:
        """The page, in the text format."""
        started = time.perf_counter()
        page = written(chain(self.own(), self.of_any_process()))
        self._scrape_seconds = time.perf_counter() - started
        return page


def written(families: Iterable[Metric | LabelledGauges]) -> bytes:
    """Families in the text format; labelled gauges come last."""
    metrics, written_by_hand = _Collected(), []
    for family in families:
        if isinstance(family, LabelledGauges):
            written_by_hand.append(family.write())
        else:
            metrics.append(family)
    return generate_latest(metrics) + "".join(written_by_hand).encode()


class _Collected(list[Metric], Collector):
    """Families as the client library takes them."""

    def collect(self) -> Iterable[Metric]:
        return self
