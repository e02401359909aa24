"""Draws a dashboard from its JSON and what Prometheus answers, in the places of its panels.

Grafana itself draws it finer; here are the same queries, numbers, units, colours and places.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

#: A panel's target and its unit in; series out, as the HTTP API gives them for a range.
Ask = Callable[[Mapping[str, Any]], Awaitable[Sequence[Mapping[str, Any]]]]

#: Pixels at the width of a page; a point of a font is 4/3 of them.
_WIDTH, _ROW, _MARGIN, _FOOT = 800, 27, 8, 22
_PAGE, _CARD, _EDGE, _INK, _SOFT, _GRID = (
    "#f1f3f5", "#ffffff", "#d5dade", "#23282d", "#56606a", "#e6e9ec",
)  # fmt: skip
_COLOURS = {
    "green": "#2e8b3d", "yellow": "#d9a400", "red": "#c4273a", "blue": "#2f6fce",
    "orange": "#e0701a", "purple": "#8a4fc0", "transparent": "#ffffff",
}  # fmt: skip
_PALETTE = [_COLOURS[name] for name in ("green", "yellow", "blue", "orange", "red", "purple")]


async def draw_board(board: Mapping[str, Any], ask: Ask, seconds: float, foot: str) -> bytes:
    """The dashboard as SVG.

    Args:
        ask: gives the series of a target, with moments in seconds since the range began.
        seconds: length of the range.
        foot: a line below.
    """
    style: dict[Any, Any]  # matplotlib lists all of its words, and takes them as such alone
    style = {"svg.hashsalt": "kestrel", "font.size": 7.5, "text.color": _INK, "font.weight": 400}
    with rc_context(style):
        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
        height = 2 * _MARGIN + 2 * _FOOT + _ROW * rows
        figure = Figure(figsize=(_WIDTH / 96, height / 96), facecolor=_PAGE)
        figure.text(
            _MARGIN / _WIDTH, 1 - 17 / height, board["title"], fontsize=10, fontweight="bold"
        )
        figure.text(1 - _MARGIN / _WIDTH, 8 / height, foot, ha="right", color=_SOFT)
        for panel in board["panels"]:
            place = _pixels(panel["gridPos"])
            if panel["type"] == "row":
                left, top = place[0], place[1]
                figure.text(
                    left / _WIDTH, 1 - (top + 18) / height, panel["title"], fontweight="bold"
                )
                continue
            series = [
                (_legend(panel, target, each["metric"]), each["values"])
                for target in panel["targets"]
                for each in await ask(target)
            ]
            _DRAWN[panel["type"]](figure, place, height, panel, series, seconds)
        data = BytesIO()
        figure.savefig(data, format="svg", metadata={"Date": None, "Creator": None})
        return data.getvalue()


def _pixels(grid: Mapping[str, int]) -> tuple[float, float, float, float]:
    """Left, top, width and height of a panel."""
    column = (_WIDTH - 2 * _MARGIN) / 24
    top = _MARGIN + _FOOT + _ROW * grid["y"]
    left = _MARGIN + column * grid["x"]
    return left + 2, top + 2, column * grid["w"] - 4, _ROW * grid["h"] - 4


Place = tuple[float, float, float, float]
Drawn = list[tuple[str, Sequence[tuple[float, str]]]]


def _axes(figure: Figure, place: Place, height: float, inner: Place | None = None) -> Axes:
    """Axes over pixels of the picture; `inner` are distances from its left, top, right, bottom."""
    left, top, wide, high = place
    if inner:
        left, top = left + inner[0], top + inner[1]
        wide, high = wide - inner[0] - inner[2], high - inner[1] - inner[3]
    box = (left / _WIDTH, 1 - (top + high) / height, wide / _WIDTH, high / height)
    axes = figure.add_axes(box)
    axes.set_facecolor(_CARD)
    return axes


def _card(figure: Figure, place: Place, height: float, title: str, *, wrap: int = 60) -> None:
    axes = _axes(figure, place, height)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color(_EDGE)
    said = "\n".join(textwrap.wrap(title, wrap))
    axes.annotate(
        said, (0, 1), (6, -5), "axes fraction", "offset points", va="top", fontweight="bold",
        fontsize=7,
    )  # fmt: skip


def _stat(
    figure: Figure, place: Place, height: float, panel: Any, series: Drawn, seconds: float
) -> None:
    _card(figure, place, height, panel["title"], wrap=14)
    fields = panel["fieldConfig"]["defaults"]
    text, colour = fields.get("noValue", "no data"), _SOFT
    if series:
        value = float(series[0][1][-1][1])
        text = _written(fields["unit"], 0)(value)
        colour = _threshold(fields, value)
        for mapping in fields.get("mappings", []):
            found = mapping["options"].get(f"{value:g}")
            if found:
                text, colour = found["text"], _named(found["color"])
    axes = _axes(figure, place, height)
    axes.set_axis_off()
    axes.text(0.5, 0.3, text, ha="center", va="center", fontsize=12, color=colour)


def _curves(
    figure: Figure, place: Place, height: float, panel: Any, series: Drawn, seconds: float
) -> None:
    _card(figure, place, height, panel["title"])
    fields = panel["fieldConfig"]["defaults"]
    axes = _axes(figure, place, height, (44, 26, 14, 50))
    spans = [
        ([at for at, _ in points], [float(value) for _, value in points]) for _, points in series
    ]
    colours = [_colour(panel, name, number) for number, (name, _) in enumerate(series)]
    names = [name for name, _ in series]
    custom = fields["custom"]
    drawn: Sequence[Artist]
    if custom.get("stacking", {}).get("mode") == "normal":
        moments = sorted({each for span, _ in spans for each in span})
        rows = [
            [dict(zip(*span, strict=True)).get(each, 0.0) for each in moments] for span in spans
        ]
        drawn = axes.stackplot(moments, rows, colors=colours, alpha=custom["fillOpacity"] / 100)
    else:
        drawn = [
            axes.plot(*span, color=colour, lw=1.2)[0]
            for span, colour in zip(spans, colours, strict=True)
        ]
    if custom["thresholdsStyle"]["mode"] != "off":
        for step in fields["thresholds"]["steps"][1:]:
            axes.axhline(step["value"], color=_named(step["color"]), lw=0.9, ls="--")
    axes.set_ylim(bottom=0)
    if axes.get_ylim()[1] < 0.01 or not any(value for _, values in spans for value in values):
        axes.set_ylim(0, 1)
    axes.set_xlim(0, seconds)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1.5, 3, 6, 10]))
    axes.xaxis.set_major_formatter(lambda at, _: f"{int(at) // 60}:{int(at) % 60:02}")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
    top = axes.get_ylim()[1]
    axes.yaxis.set_major_formatter(FuncFormatter(_ticks(fields["unit"], top)))
    axes.tick_params(length=0, labelsize=6.8, labelcolor=_SOFT)
    axes.grid(axis="y", color=_GRID, lw=0.7)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.legend(
        drawn, names, loc="upper left", bbox_to_anchor=(-0.2, -0.12), ncols=3, frameon=False,
        fontsize=6.8, handlelength=1.0, columnspacing=1.0, handletextpad=0.4, borderaxespad=0.2,
        labelspacing=0.25,
    )  # fmt: skip


def _bars(
    figure: Figure, place: Place, height: float, panel: Any, series: Drawn, seconds: float
) -> None:
    _card(figure, place, height, panel["title"])
    fields = panel["fieldConfig"]["defaults"]
    axes = _axes(figure, place, height, (62, 28, 44, 12))
    shown = sorted(((name, float(points[-1][1])) for name, points in series), reverse=True)
    values = [value for _, value in shown]
    whole = fields.get("max") or max(values)
    axes.barh(range(len(shown)), [whole] * len(shown), height=0.55, color=_GRID)
    colours = [_threshold(fields, value) for value in values]
    axes.barh(range(len(shown)), values, height=0.55, color=colours)
    axes.set_xlim(0, whole)
    axes.set_ylim(-0.6, max(2.6, len(shown) - 0.4))
    axes.set_yticks(range(len(shown)), [name for name, _ in shown])
    axes.set_xticks([])
    axes.tick_params(length=0, labelsize=7)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for number, value in enumerate(values):
        axes.text(whole * 1.03, number, _written(fields["unit"], 0)(value), va="center")


_DRAWN = {"stat": _stat, "timeseries": _curves, "bargauge": _bars}


def _legend(panel: Mapping[str, Any], target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    pattern = target["legendFormat"]
    if pattern == "__auto":
        return ", ".join(labels.values()) or str(panel["title"])
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), pattern)


def _colour(panel: Mapping[str, Any], name: str, number: int) -> str:
    for override in panel["fieldConfig"].get("overrides", []):
        if override["matcher"]["options"] == name:
            for each in override["properties"]:
                if each["id"] == "color":
                    return _named(each["value"]["fixedColor"])
    return _PALETTE[number % len(_PALETTE)]


def _named(colour: str) -> str:
    """What one of Grafana's colours is here; one that is given by its numbers stays."""
    return colour if colour.startswith("#") else _COLOURS[colour]


def _threshold(fields: Mapping[str, Any], value: float) -> str:
    reached = [
        step["color"]
        for step in fields["thresholds"]["steps"]
        if step["value"] is None or value >= step["value"]
    ]
    return _named(reached[-1])


def _written(unit: str, decimals: int) -> Callable[[float], str]:
    """Writes a value with its unit."""
    if unit == "percentunit":
        return lambda value: f"{100 * value:,.{decimals}f}%"
    ending = {"short": "", "ops": "/s"}[unit]
    return lambda value: f"{value:,.{decimals}f}{ending}"


def _ticks(unit: str, top: float) -> Callable[[float, int], str]:
    """Writes the ticks of an axis that ends at `top`, all with as many decimals."""
    reach = 100 * top if unit == "percentunit" else top
    write = _written(unit, 0 if reach >= 4 else 1)
    return lambda value, _: write(value)
