"""The kinds of panels that the boards use, and the colours that mean something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafana import WIDTH, Json, Panel, Query

#: Colours that mean something: healthy, under-used, act; and those between.
GREEN, BLUE, RED = "green", "blue", "red"
YELLOW, ORANGE, PURPLE, GREY = "yellow", "orange", "purple", "#8e8e8e"

Steps = Sequence[tuple[float | None, str]]
#: Nothing to worry about at any value.
CALM: Steps = ((None, GREEN),)


def timeseries(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    colours: dict[str, str] | None = None,
    bands: Steps | None = None,
    stack: bool = False,
    maximum: float | None = None,
    logarithmic: bool = False,
    links_to: str = "",
    width: int = 8,
) -> Panel:
    """Curves over time.

    Args:
        colours: of series, by name.
        bands: limits that are drawn as coloured areas.
        stack: the series are parts of a whole.
    """
    custom: Json = {"lineWidth": 1, "fillOpacity": 60 if stack else 8, "showPoints": "never"}
    if stack:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    if logarithmic:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    custom["thresholdsStyle"] = {"mode": "dashed+area" if bands else "off"}
    defaults: Json = {"color": {"mode": "palette-classic"}, "custom": custom}
    if not logarithmic:
        defaults["min"] = 0
    if maximum is not None:
        defaults["max"] = maximum
    defaults["thresholds"] = _thresholds(bands or CALM)
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel(
        "timeseries", title, unit, description, queries, options, defaults,
        overrides=[_coloured(name, colour) for name, colour in (colours or {}).items()],
        links_to=links_to, width=width,
    )  # fmt: skip


def stat(
    title: str,
    unit: str,
    description: str,
    expr: str,
    steps: Steps = CALM,
    *,
    words: dict[int, tuple[str, str]] | None = None,
    no_value: str = "",
    links_to: str = "",
    width: int = 3,
) -> Panel:
    """One number whose colour says how it is.

    Args:
        steps: (from this value on, colour), the first from None.
        words: value -> (text, colour), instead of the number.
        no_value: what stands there if there is none.
    """
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "auto",
        "textMode": "value",
        "colorMode": "background",
        "graphMode": "none" if words else "area",
        "justifyMode": "center",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    defaults: Json = {"color": {"mode": "thresholds"}, "thresholds": _thresholds(steps)}
    if words:
        defaults["mappings"] = _mappings(words)
    if no_value:
        defaults["noValue"] = no_value
    return Panel(
        "stat", title, unit, description, [Query(expr)], options, defaults,
        links_to=links_to, width=width, height=4,
    )  # fmt: skip


def latency(title: str, description: str, histogram: str, *, width: int = 8) -> Panel:
    """A histogram of the manager's as a heat map: each column shows how a time was spread."""
    query = Query(f"sum by (le) (increase({histogram}_bucket{{%m}}[$__rate_interval]))", "{{le}}")
    return _heatmap(title, "short", description, query, axis="s", format_="heatmap", width=width)


def heat_rows(
    title: str, unit: str, description: str, query: Query, *, maximum: float, width: int = WIDTH
) -> Panel:
    """One row of colour for each series, from 0 to `maximum`."""
    return _heatmap(title, unit, description, query, maximum=maximum, width=width)


def _heatmap(
    title: str,
    unit: str,
    description: str,
    query: Query,
    *,
    axis: str = "short",
    format_: str = "time_series",
    maximum: float | None = None,
    width: int,
) -> Panel:
    colour: Json = {
        "mode": "scheme", "scheme": "Turbo", "fill": GREEN, "scale": "exponential",
        "exponent": 0.5, "steps": 64, "reverse": False,
    }  # fmt: skip
    if maximum is not None:
        colour |= {"min": 0, "max": maximum, "scale": "linear", "scheme": "Greens"}
    options: Json = {
        "calculate": False,
        "color": colour,
        "showValue": "never",
        "cellGap": 1,
        "cellValues": {"unit": unit},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": axis},
        "rowsFrame": {"layout": "auto"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9 if maximum is None else -1},
    }
    defaults: Json = {
        "custom": {
            "hideFrom": {"legend": False, "tooltip": False, "viz": False},
            "scaleDistribution": {"type": "linear"},
        }
    }
    return Panel(
        "heatmap", title, unit, description, [query], options, defaults,
        width=width, query_format=format_,
    )  # fmt: skip


def state_timeline(
    title: str,
    description: str,
    query: Query,
    words: dict[int, tuple[str, str]],
    *,
    width: int = WIDTH,
    height: int = 10,
) -> Panel:
    """One line for each series, coloured by the state that its value stands for."""
    options = {
        "showValue": "never",
        "rowHeight": 0.9,
        "mergeValues": True,
        "alignValue": "left",
        "perPage": 30,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    defaults: Json = {
        "color": {"mode": "thresholds"},
        "custom": {"lineWidth": 0, "fillOpacity": 80},
        "mappings": _mappings(words),
        "thresholds": _thresholds(((None, GREY),)),
    }
    return Panel(
        "state-timeline", title, "short", description, [query], options, defaults,
        width=width, height=height,
    )  # fmt: skip


def bars(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    steps: Steps = CALM,
    maximum: float | None = None,
    links_to: str = "",
    width: int = 8,
) -> Panel:
    """The present value of each series as a bar."""
    options = {
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "auto",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 300,
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    defaults: Json = {"color": {"mode": "thresholds"}, "thresholds": _thresholds(steps), "min": 0}
    if maximum is not None:
        defaults["max"] = maximum
    return Panel(
        "bargauge", title, unit, description, queries, options, defaults,
        links_to=links_to, width=width, instant=True,
    )  # fmt: skip


def table(
    title: str,
    description: str,
    key: str,
    columns: Sequence[tuple[str, str, str]],
    *,
    sort_by: str,
    links_to: str = "",
    width: int = 12,
) -> Panel:
    """Rows by the value of a label, a column for each expression.

    Args:
        key: the label.
        columns: (heading, expression, unit); the expressions have no other label than `key`.
        sort_by: the heading by which the rows are sorted, largest first.
    """
    queries = [Query(expr) for _, expr, _ in columns]
    refs = [chr(ord("A") + number) for number in range(len(columns))]
    names = {f"Value #{ref}": heading for ref, (heading, _, _) in zip(refs, columns, strict=True)}
    if len(columns) == 1:
        names = {"Value": columns[0][0]}
    return Panel(
        "table", title, columns[0][2], description, queries,
        {
            "showHeader": True,
            "cellHeight": "sm",
            "frameIndex": 0,
            "sortBy": [{"displayName": sort_by, "desc": True}],
        },
        {
            "custom": {"align": "auto", "inspect": False, "cellOptions": {"type": "auto"}},
            "thresholds": _thresholds(CALM),
        },
        overrides=[_override(heading, "unit", unit) for heading, _, unit in columns],
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "indexByName": {},
                    "renameByName": {key: key.capitalize(), **names},
                },
            },
        ],
        links_to=links_to, width=width, instant=True, query_format="table",
    )  # fmt: skip


def _thresholds(steps: Steps) -> Json:
    return {
        "mode": "absolute",
        "steps": [{"value": value, "color": colour} for value, colour in steps],
    }


def _mappings(words: dict[int, tuple[str, str]]) -> list[Json]:
    return [
        {
            "type": "value",
            "options": {
                str(value): {"text": text, "color": colour, "index": index}
                for index, (value, (text, colour)) in enumerate(words.items())
            },
        }
    ]


def _coloured(name: str, colour: str) -> Json:
    return _override(name, "color", {"mode": "fixed", "fixedColor": colour})


def _override(name: str, property_: str, value: Any) -> Json:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": property_, "value": value}],
    }
