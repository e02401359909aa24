"""A dashboard that holds the data of a span of time, and is shown without the data source.

The HTTP API stores what it is given and fetches no data: a dashboard alone would query the data
source again for whoever looks. So each panel's queries are run here, by the server, and their
answers put where Grafana's pages put them (grafana/grafana, transformSceneToSaveModel.ts:
a query of the kind `snapshot`, and everything that could query anew taken out).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from kestrelctl.errors import KestrelError
from kestrelctl.grafana.board import Json
from kestrelctl.grafana.client import Grafana
from kestrelctl.grafana.frames import as_drawn

_EMBEDDED = {"type": "grafana", "uid": "grafana"}
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
#: About as many points as a panel has pixels.
_POINTS = 600


def with_data(grafana: Grafana, model: Json, datasource: str, from_ms: int, to_ms: int) -> Json:
    """The dashboard, each panel with the data that it shows of that time.

    Args:
        datasource: uid of the Prometheus data source.
        from_ms: milliseconds since 1970, as is `to_ms`.

    Raises:
        KestrelError: a panel's query fails.
    """
    result = copy.deepcopy(model)
    values = {each["name"]: _value(each) for each in _variables(result)}
    for panel in _panels(result):
        if panel.get("targets"):
            panel["targets"] = [
                {
                    "refId": "A",
                    "datasource": _EMBEDDED,
                    "queryType": "snapshot",
                    "snapshot": _data(grafana, panel, values, datasource, from_ms, to_ms),
                }
            ]
            panel["datasource"] = _EMBEDDED
        panel["links"] = []
    _freeze(result, from_ms, to_ms)
    return result


def _data(
    grafana: Grafana, panel: Json, values: dict[str, str], datasource: str, from_ms: int, to_ms: int
) -> list[Json]:
    targets = [target for target in panel["targets"] if not target.get("hide")]
    if not all("expr" in target for target in targets):
        raise KestrelError(
            f"the panel {panel.get('title', '')!r} asks something else than Prometheus",
            cause="a snapshot holds only what Prometheus answers",
        )
    queries = [
        {
            **target,
            "datasource": {"type": "prometheus", "uid": datasource},
            "expr": _filled_in(target["expr"], values),
            "maxDataPoints": _POINTS,
            "intervalMs": max((to_ms - from_ms) // _POINTS, 1000),
        }
        for target in targets
    ]
    if not queries:
        return []
    results = grafana.query(queries, from_ms, to_ms)
    tables = sum(target.get("format") == "table" for target in targets)
    frames: list[Json] = []
    for target in targets:
        ref = target["refId"]
        result = results.get(ref, {})
        if result.get("error"):
            raise KestrelError(
                f"the panel {panel.get('title', '')!r} cannot be queried", cause=result["error"]
            )
        name = "Value" if tables < 2 else f"Value #{ref}"
        frames += as_drawn(result.get("frames") or [], target.get("format", "time_series"), name)
    return frames


def _panels(model: Json) -> Iterator[Json]:
    """Every panel, those of folded rows included."""
    for panel in model.get("panels", []):
        yield panel
        yield from panel.get("panels") or []


def _variables(model: Json) -> list[Json]:
    found: list[Json] = model.get("templating", {}).get("list", [])
    return found


def _value(variable: Json) -> str:
    """The text for a variable in an expression: a regular expression if it has several values."""
    value: Any = (variable.get("current") or {}).get("value", "")
    chosen = [str(each) for each in (value if isinstance(value, list) else [value])]
    if "$__all" in chosen:
        return str(variable.get("allValue") or ".*")
    return chosen[0] if len(chosen) == 1 else f"({'|'.join(map(re.escape, chosen))})"


def _filled_in(expr: str, values: dict[str, str]) -> str:
    """The expression with its variables; those of the server's own, as $__range, stay."""
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), expr)


def _freeze(model: Json, from_ms: int, to_ms: int) -> None:
    """Removes what would query the data source again, and links to where that happens."""
    model |= {
        "id": None,
        "time": {"from": _iso(from_ms), "to": _iso(to_ms)},
        "refresh": "",
        "links": [],
        "snapshot": {"timestamp": _iso(to_ms)},
    }
    kept = ("name", "enable", "iconColor", "type", "builtIn", "hide")
    annotations = model.get("annotations", {}).get("list", [])
    model["annotations"] = {
        "list": [
            {**{key: each[key] for key in kept if key in each}, "snapshotData": []}
            for each in annotations
            if each.get("enable")
        ]
    }
    for variable in _variables(model):
        current = variable.get("current")
        variable |= {"query": "", "refresh": 0, "options": [current] if current else []}
        variable.pop("definition", None)


def _iso(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
