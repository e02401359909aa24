"""What a dashboard must look like for Grafana, as JSON Schema: the parts that ours use.

Written after grafana/grafana, kinds/dashboard/dashboard_kind.cue (the classic model) and
grafana/grafana-foundation-sdk, jsonschema/{dashboard,prometheus}.jsonschema.json and those of the
panels. Grafana itself takes more than this, and silently ignores what it does not know; here that
is an error, so that a misspelt option is found.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
TEXT: Schema = {"type": "string", "minLength": 1}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


def many(items: Schema, at_least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": at_least}


def thing(required: Schema, optional: Schema | None = None) -> Schema:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


PROMETHEUS = thing({"type": one_of("prometheus"), "uid": one_of("${datasource}")})
GRAFANA = thing({"type": one_of("grafana"), "uid": one_of("-- Grafana --")})

#: Units by their ids (grafana-foundation-sdk, units): number, seconds, per second, 0 to 1, IEC, SI.
UNIT = one_of("short", "s", "ops", "percentunit", "bytes", "Bps")

GRID = thing(
    {
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "h": {"type": "integer", "minimum": 1},
    }
)

TARGET = thing(
    {
        "refId": {"type": "string", "pattern": "^[A-Z]$"},
        "datasource": PROMETHEUS,
        "expr": TEXT,
        "legendFormat": TEXT,
        "format": one_of("time_series", "table", "heatmap"),
        "instant": BOOLEAN,
        "range": BOOLEAN,
        "editorMode": one_of("code", "builder"),
    }
)

COLOUR = thing({"mode": one_of("thresholds", "palette-classic", "fixed")}, {"fixedColor": TEXT})

THRESHOLDS = thing(
    {
        "mode": one_of("absolute"),
        "steps": many(thing({"value": {"type": ["number", "null"]}, "color": TEXT}), 1),
    }
)

MAPPING = thing(
    {
        "type": one_of("value"),
        "options": {
            "type": "object",
            "additionalProperties": thing(
                {"text": TEXT, "color": TEXT, "index": {"type": "integer"}}
            ),
        },
    }
)

SCALE = thing({"type": one_of("linear", "log", "symlog")}, {"log": one_of(2, 10)})
LEGEND = thing(
    {
        "displayMode": one_of("list", "table", "hidden"),
        "placement": one_of("bottom", "right"),
        "showLegend": BOOLEAN,
        "calcs": many(STRING),
    }
)
TOOLTIP = thing({"mode": one_of("single", "multi", "none"), "sort": one_of("asc", "desc", "none")})
REDUCE = thing({"calcs": many(TEXT, 1)}, {"fields": STRING, "values": BOOLEAN})
ORIENTATION = one_of("auto", "vertical", "horizontal")
HIDE_FROM = thing({"legend": BOOLEAN, "tooltip": BOOLEAN, "viz": BOOLEAN})

#: Kind of panel -> (options, fieldConfig.defaults.custom).
KINDS: dict[str, tuple[Schema, Schema | None]] = {
    "timeseries": (
        thing({"legend": LEGEND, "tooltip": TOOLTIP}),
        thing(
            {
                "lineWidth": NUMBER,
                "fillOpacity": {"type": "number", "minimum": 0, "maximum": 100},
                "showPoints": one_of("auto", "never", "always"),
                "thresholdsStyle": thing(
                    {"mode": one_of("off", "line", "dashed", "area", "line+area", "dashed+area")}
                ),
            },
            {
                "stacking": thing({"mode": one_of("none", "normal", "percent"), "group": TEXT}),
                "scaleDistribution": SCALE,
            },
        ),
    ),
    "stat": (
        thing(
            {
                "reduceOptions": REDUCE,
                "orientation": ORIENTATION,
                "textMode": one_of("auto", "value", "value_and_name", "name", "none"),
                "colorMode": one_of("value", "background", "background_solid", "none"),
                "graphMode": one_of("none", "line", "area"),
                "justifyMode": one_of("auto", "center"),
                "wideLayout": BOOLEAN,
                "showPercentChange": BOOLEAN,
                "percentChangeColorMode": one_of("standard", "inverted", "same_as_value"),
            }
        ),
        None,
    ),
    "bargauge": (
        thing(
            {
                "displayMode": one_of("basic", "lcd", "gradient"),
                "valueMode": one_of("color", "text", "hidden"),
                "namePlacement": one_of("auto", "top", "left"),
                "showUnfilled": BOOLEAN,
                "sizing": one_of("auto", "manual"),
                "minVizWidth": NUMBER,
                "minVizHeight": NUMBER,
                "maxVizHeight": NUMBER,
                "orientation": ORIENTATION,
                "reduceOptions": REDUCE,
            }
        ),
        None,
    ),
    "heatmap": (
        thing(
            {
                "calculate": BOOLEAN,
                "color": thing(
                    {
                        "mode": one_of("opacity", "scheme"),
                        "scheme": TEXT,
                        "fill": TEXT,
                        "scale": one_of("linear", "exponential"),
                        "exponent": NUMBER,
                        "steps": {"type": "integer", "minimum": 2, "maximum": 128},
                        "reverse": BOOLEAN,
                    },
                    {"min": NUMBER, "max": NUMBER},
                ),
                "showValue": one_of("auto", "never", "always"),
                "cellGap": {"type": "integer", "minimum": 0, "maximum": 25},
                "cellValues": thing({"unit": UNIT}),
                "yAxis": thing(
                    {"axisPlacement": one_of("left", "right"), "reverse": BOOLEAN, "unit": UNIT}
                ),
                "rowsFrame": thing({"layout": one_of("le", "ge", "unknown", "auto")}),
                "legend": thing({"show": BOOLEAN}),
                "tooltip": thing(
                    {
                        "mode": one_of("single", "multi", "none"),
                        "showColorScale": BOOLEAN,
                        "yHistogram": BOOLEAN,
                    }
                ),
                "exemplars": thing({"color": TEXT}),
                "filterValues": thing({"le": NUMBER}),
            }
        ),
        thing({"hideFrom": HIDE_FROM, "scaleDistribution": SCALE}),
    ),
    "state-timeline": (
        thing(
            {
                "showValue": one_of("auto", "never", "always"),
                "rowHeight": {"type": "number", "maximum": 1},
                "mergeValues": BOOLEAN,
                "alignValue": one_of("center", "left", "right"),
                "perPage": {"type": "integer", "minimum": 1},
                "legend": LEGEND,
                "tooltip": TOOLTIP,
            }
        ),
        thing({"lineWidth": NUMBER, "fillOpacity": NUMBER}),
    ),
    "table": (
        thing(
            {
                "showHeader": BOOLEAN,
                "cellHeight": one_of("sm", "md", "lg", "auto"),
                "frameIndex": NUMBER,
                "sortBy": many(thing({"displayName": TEXT, "desc": BOOLEAN})),
                "footer": thing({"show": BOOLEAN, "reducer": many(STRING), "countRows": BOOLEAN}),
            }
        ),
        thing(
            {
                "align": one_of("auto", "left", "right", "center"),
                "inspect": BOOLEAN,
                "cellOptions": thing({"type": one_of("auto")}),
            }
        ),
    ),
}


def panel(kind: str) -> Schema:
    """A panel of one kind."""
    options, custom = KINDS[kind]
    field = thing(
        {"unit": UNIT, "thresholds": THRESHOLDS},
        {
            "color": COLOUR,
            "min": NUMBER,
            "max": NUMBER,
            "mappings": many(MAPPING, 1),
            "noValue": TEXT,
            **({"custom": custom} if custom else {}),
        },
    )
    if kind == "heatmap":  # coloured by its own options
        field["required"].remove("thresholds")
    override = thing(
        {
            "matcher": thing({"id": one_of("byName"), "options": TEXT}),
            "properties": many(thing({"id": one_of("color", "unit"), "value": {}}), 1),
        }
    )
    organize = thing(
        {
            "excludeByName": {"type": "object", "additionalProperties": BOOLEAN},
            "indexByName": {"type": "object", "additionalProperties": NUMBER},
            "renameByName": {"type": "object", "additionalProperties": TEXT},
        }
    )
    return thing(
        {
            "id": {"type": "integer", "minimum": 1},
            "type": one_of(kind),
            "title": TEXT,
            "description": TEXT,
            "gridPos": GRID,
            "datasource": PROMETHEUS,
            "targets": many(TARGET, 1),
            "fieldConfig": thing({"defaults": field, "overrides": many(override)}),
            "options": options,
        },
        {
            "links": many(thing({"title": TEXT, "url": TEXT, "targetBlank": BOOLEAN})),
            "transformations": many(
                {
                    "anyOf": [
                        thing({"id": one_of("merge"), "options": thing({})}),
                        thing({"id": one_of("organize"), "options": organize}),
                    ]
                }
            ),
        },
    )


ROW = thing(
    {
        "id": {"type": "integer", "minimum": 1},
        "type": one_of("row"),
        "title": TEXT,
        "collapsed": BOOLEAN,
        "panels": many({}),
        "gridPos": GRID,
    }
)

DATASOURCE_VARIABLE = thing(
    {
        "type": one_of("datasource"),
        "name": one_of("datasource"),
        "label": TEXT,
        "query": one_of("prometheus"),
        "refresh": one_of(0, 1, 2),
        "hide": one_of(0, 1, 2),
        "includeAll": BOOLEAN,
        "multi": BOOLEAN,
        "options": many({}),
        "regex": STRING,
        "skipUrlSync": BOOLEAN,
        "current": thing({}),
    }
)

QUERY_VARIABLE = thing(
    {
        "type": one_of("query"),
        "name": TEXT,
        "label": TEXT,
        "datasource": PROMETHEUS,
        "definition": TEXT,
        "query": thing({"qryType": {"type": "integer"}, "query": TEXT, "refId": TEXT}),
        "refresh": one_of(0, 1, 2),
        "hide": one_of(0, 1, 2),
        "includeAll": BOOLEAN,
        "allValue": TEXT,
        "multi": BOOLEAN,
        "options": many({}),
        "regex": STRING,
        "sort": {"type": "integer", "minimum": 0, "maximum": 8},
        "skipUrlSync": BOOLEAN,
        "current": thing({"selected": BOOLEAN, "text": many(TEXT, 1), "value": many(TEXT, 1)}),
    }
)

_MARKS: Schema = {"name": TEXT, "enable": BOOLEAN, "hide": BOOLEAN, "iconColor": TEXT}
BUILT_IN = thing(
    {**_MARKS, "datasource": GRAFANA, "type": one_of("dashboard"), "builtIn": one_of(1)}
)
MARKS = thing(
    {
        **_MARKS,
        "datasource": PROMETHEUS,
        "expr": TEXT,
        "titleFormat": TEXT,
        "step": STRING,
        "tagKeys": STRING,
        "useValueForTime": BOOLEAN,
    }
)

BOARD = thing(
    {
        "uid": {"type": "string", "pattern": "^kestrel-[a-z]+$", "maxLength": 40},
        "title": TEXT,
        "description": TEXT,
        "tags": many(TEXT, 1),
        "schemaVersion": one_of(39),
        "version": {"type": "integer"},
        "editable": BOOLEAN,
        "graphTooltip": one_of(0, 1, 2),
        "timezone": one_of("browser", "utc"),
        "time": thing({"from": {"type": "string", "pattern": "^now-"}, "to": one_of("now")}),
        "refresh": {"type": "string", "pattern": "^[0-9]+[smh]$"},
        "fiscalYearStartMonth": one_of(0),
        "links": many(
            thing(
                {
                    "type": one_of("dashboards", "link"),
                    "title": TEXT,
                    "tags": many(TEXT),
                    "icon": TEXT,
                    "tooltip": STRING,
                    "url": STRING,
                    "asDropdown": BOOLEAN,
                    "includeVars": BOOLEAN,
                    "keepTime": BOOLEAN,
                    "targetBlank": BOOLEAN,
                }
            ),
            1,
        ),
        "templating": thing(
            {"list": many({"anyOf": [DATASOURCE_VARIABLE, QUERY_VARIABLE]}, at_least=2)}
        ),
        "annotations": thing({"list": many({"anyOf": [BUILT_IN, MARKS]}, at_least=1)}),
        "panels": many({}, at_least=1),
    }
)
