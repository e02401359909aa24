"""Expressions and colours that several boards share."""

from __future__ import annotations

from grafana import Query
from panels import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, YELLOW

TASK_COLOURS = {"waiting": YELLOW, "queued": BLUE, "running": GREEN}
OUTCOME_COLOURS = {"done": GREEN, "failed": ORANGE, "lost": RED, "cancelled": GREY}
WORKER_COLOURS = {
    "busy": GREEN,
    "idle": BLUE,
    "draining": YELLOW,
    "quarantined": RED,
    "offline": GREY,
    "unheard": PURPLE,
}
#: 1 and 0 of a gauge that says whether something is as it should be.
UP = {1: ("up", GREEN), 0: ("DOWN", RED)}


#: Reasons that only another worker or another ad can make go away, as a regular expression.
UNMATCHABLE = "missing-tags|missing-asset|policy|too-small|requirements|start|undefined|error"


def per_second(counter: str, label: str = "", matchers: str = "%m") -> Query:
    """A counter's rate, by the values of a label or as one sum."""
    by = f"by ({label}) " if label else ""
    name = counter.removeprefix("kestrel_").removesuffix("_total").replace("_", " ")
    legend = f"{{{{{label}}}}}" if label else name
    return Query(f"sum {by}(rate({counter}{{{matchers}}}[$__rate_interval]))", legend)


def by(gauge: str, label: str, matchers: str = "%m") -> Query:
    """A gauge, summed by the values of a label."""
    return Query(f"sum by ({label}) ({gauge}{{{matchers}}})", f"{{{{{label}}}}}")


def quantiles(histogram: str, matchers: str = "%m") -> list[Query]:
    """Median, 95th and 99th percentile of a histogram."""
    rate = f"sum by (le) (rate({histogram}_bucket{{{matchers}}}[$__rate_interval]))"
    return [
        Query(f"histogram_quantile({share}, {rate})", f"p{share * 100:g}")
        for share in (0.5, 0.95, 0.99)
    ]
