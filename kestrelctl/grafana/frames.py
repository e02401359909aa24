"""Data frames of the Prometheus data source, in the form that panels draw.

The server answers with a frame for each series. Grafana's pages make one table of them, or the rows
of a heat map, before a panel sees the data. A snapshot holds what a panel sees, so it is done here,
too (grafana/grafana, packages/grafana-prometheus, result_transformer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kestrelctl.grafana.board import Json


def as_drawn(frames: Sequence[Json], query_format: str, value_name: str) -> list[Json]:
    """The frames of one query as a panel takes them.

    Args:
        query_format: the format of the query: `time_series`, `table` or `heatmap`.
        value_name: title of a table's column of values.
    """
    series = [frame for frame in frames if len(frame["schema"]["fields"]) == 2]
    if query_format == "table" and series:
        return [_table(series, value_name)]
    if query_format == "heatmap" and series:
        return [_heatmap(series)]
    return list(frames)


def _table(series: Sequence[Json], value_name: str) -> Json:
    """One row for each point; a column for the time, each label and the value."""
    labels = list(dict.fromkeys(name for frame in series for name in sorted(_labels(frame))))
    rows: list[list[Any]] = []
    for frame in series:
        own = [_labels(frame).get(name, "") for name in labels]
        rows += [[time, *own, value] for time, value in zip(*frame["data"]["values"], strict=True)]
    first, value = series[0]["schema"]["fields"]
    fields = [
        first,
        *({"name": name, "type": "string", "config": {"filterable": True}} for name in labels),
        {"name": value_name, "type": value["type"], "config": value.get("config", {})},
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in fields]
    return {"schema": {**series[0]["schema"], "fields": fields}, "data": {"values": columns}}


def _heatmap(series: Sequence[Json]) -> Json:
    """One row for each bucket of a histogram, with what is in it and in no smaller one."""
    buckets = sorted(series, key=lambda frame: float(_labels(frame).get("le", "inf")))
    points = [dict(zip(*frame["data"]["values"], strict=True)) for frame in buckets]
    times = sorted({time for bucket in points for time in bucket})
    columns: list[list[float]] = []
    below = [0.0] * len(times)
    for bucket in points:
        counts = [bucket.get(time) or 0.0 for time in times]
        columns.append([max(n - m, 0.0) for n, m in zip(counts, below, strict=True)])
        below = counts
    schema = buckets[0]["schema"]
    fields = [{**frame["schema"]["fields"][1], "name": _bucket_name(frame)} for frame in buckets]
    meta = {**schema.get("meta", {}), "type": "heatmap-rows"}
    return {
        "schema": {**schema, "meta": meta, "fields": [schema["fields"][0], *fields]},
        "data": {"values": [times, *columns]},
    }


def _labels(frame: Json) -> dict[str, str]:
    labels: dict[str, str] = frame["schema"]["fields"][1].get("labels") or {}
    return labels


def _bucket_name(frame: Json) -> str:
    config = frame["schema"]["fields"][1].get("config") or {}
    return str(config.get("displayNameFromDS") or _labels(frame).get("le", "+Inf"))
