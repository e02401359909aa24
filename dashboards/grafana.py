"""Grafana's JSON from short descriptions: queries, panels, rows, a board.

A board is written in the classic model, which Grafana 10 to 13 read. The data source is always the
variable `$datasource`; `%m` in an expression stands for the matcher of the chosen managers.

Model and options of panels: https://github.com/grafana/grafana-foundation-sdk. A test holds every
name and value here against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

SCHEMA_VERSION = 39
WIDTH = 24

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_MANAGERS = 'instance=~"$manager"'


@dataclass(frozen=True)
class Query:
    """One expression, and how its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel; its place and number come from its row and board."""

    kind: str
    title: str
    unit: str
    description: str
    queries: Sequence[Query]
    options: Json
    defaults: Json
    overrides: list[Json] = field(default_factory=list)
    transformations: list[Json] = field(default_factory=list)
    links_to: str = ""
    width: int = 8
    height: int = 8
    instant: bool = False
    query_format: str = "time_series"


@dataclass(frozen=True)
class Row:
    """Panels under a heading, from left to right, as many to a line as fit."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a board; its values are those of a label."""

    name: str
    label: str
    query: str


#: Which manager, and so which pool.
MANAGER = Variable("manager", "Manager", "label_values(kestrel_start_time_seconds, instance)")


@dataclass(frozen=True)
class Annotation:
    """Marks on the time axis where an expression has a value."""

    name: str
    expr: str
    title: str
    colour: str


@dataclass(frozen=True)
class Board:
    """A dashboard. `uid` is what links and alerts call it."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = (MANAGER,)
    annotations: Sequence[Annotation] = ()
    since: str = "now-1h"
    refresh: str = "30s"


def render(board: Board) -> Json:
    """The board as Grafana reads it."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": ["kestrel"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": board.since, "to": "now"},
        "refresh": board.refresh,
        "fiscalYearStartMonth": 0,
        "links": [_link_to_all()],
        "templating": {"list": [_datasource_variable(), *map(_variable, board.variables)]},
        "annotations": {"list": [_built_in(), *map(_annotation, board.annotations)]},
        "panels": list(_placed(board.rows)),
    }


def _placed(rows: Iterable[Row]) -> Iterable[Json]:
    number, y = 0, 0
    for row in rows:
        number += 1
        yield {
            "type": "row", "id": number, "title": row.title, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
        }  # fmt: skip
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            yield _panel(panel, number, place)
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest


def _panel(panel: Panel, number: int, place: Json) -> Json:
    found: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "gridPos": place,
        "datasource": _DATASOURCE,
        "targets": [_target(panel, index, query) for index, query in enumerate(panel.queries)],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **panel.defaults},
            "overrides": panel.overrides,
        },
        "options": panel.options,
    }
    if panel.transformations:
        found["transformations"] = panel.transformations
    if panel.links_to:
        found["links"] = [
            {
                "title": "More",
                "url": f"/d/{panel.links_to}?${{__url_time_range}}&${{__all_variables}}",
                "targetBlank": False,
            }
        ]
    return found


def _target(panel: Panel, index: int, query: Query) -> Json:
    return {
        "refId": chr(ord("A") + index),
        "datasource": _DATASOURCE,
        "editorMode": "code",
        "expr": query.expr.replace("%m", _MANAGERS),
        "legendFormat": query.legend or "__auto",
        "format": panel.query_format,
        "instant": panel.instant,
        "range": not panel.instant,
    }


def _link_to_all() -> Json:
    return {
        "type": "dashboards", "title": "Kestrel", "tags": ["kestrel"], "icon": "external link",
        "tooltip": "The other dashboards of the pool", "url": "", "asDropdown": True,
        "includeVars": True, "keepTime": True, "targetBlank": False,
    }  # fmt: skip


def _datasource_variable() -> Json:
    return {
        "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus",
        "hide": 0, "includeAll": False, "multi": False, "options": [], "refresh": 1, "regex": "",
        "skipUrlSync": False,
    }  # fmt: skip


def _variable(variable: Variable) -> Json:
    query = variable.query.replace("%m", _MANAGERS)
    return {
        "type": "query", "name": variable.name, "label": variable.label, "hide": 0,
        "datasource": _DATASOURCE, "definition": query,
        "query": {"qryType": 1, "query": query, "refId": f"variable-{variable.name}"},
        "includeAll": True, "allValue": ".+", "multi": True, "refresh": 2, "regex": "", "sort": 7,
        "skipUrlSync": False, "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }  # fmt: skip


def _built_in() -> Json:
    return {
        "name": "Annotations & Alerts", "type": "dashboard", "builtIn": 1, "enable": True,
        "hide": True, "iconColor": "rgba(0, 211, 255, 1)",
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    }  # fmt: skip


def _annotation(annotation: Annotation) -> Json:
    return {
        "name": annotation.name, "enable": True, "hide": False, "iconColor": annotation.colour,
        "datasource": _DATASOURCE, "titleFormat": annotation.title,
        "target": {"refId": "Anno", "expr": annotation.expr.replace("%m", _MANAGERS)},
    }  # fmt: skip
