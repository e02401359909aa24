"""Draws plots as SVG for the report page: axes, curves, marks. Colours are those of its style.

Coordinates of the callers are data; of the drawing, pixels of a view box that the page scales.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10

WIDTH = 560
#: Of a picture apart from a page.
SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b3558f", "#8a6d00", "#3aa0d8")
_LEFT, _RIGHT, _BOTTOM = 72, 26, 56


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps data from `low` to `high` to pixels from `start` to `end`, evenly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        return self.start + (self.end - self.start) * (value - low) / (high - low)


def ticks(high: float, most: int = 6) -> list[float]:
    """0 and multiples of 1, 2 or 5 times a power of ten: the fewest steps that reach `high`."""
    exact = max(high, 1e-9) / (most - 1)
    power = 10.0 ** floor(log10(exact))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= exact * (1 - 1e-9))
    return [step * index for index in range(ceil(high / step - 1e-9) + 1)]


def labelled(values: Sequence[float]) -> list[tuple[float, str]]:
    """Evenly spaced values, each with a label of as many decimals as the space between them has."""
    decimals = max(0, ceil(-log10(values[1] - values[0]) - 1e-9))
    return [(value, f"{value:,.{decimals}f}" if value else "0") for value in values]


def decades(low: float, high: float) -> list[float]:
    """The powers of ten from the last one at or below `low` to the first at or above `high`."""
    first, last = floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def written_out(power_of_ten: float) -> str:
    """Its label without an exponent: `0.001`, `1,000`."""
    decimals = max(0, -round(log10(power_of_ten)))
    return f"{power_of_ten:,.{decimals}f}"


@dataclass(slots=True)
class Plot:
    """One drawing. What is added later lies on top.

    Attributes:
        alt: what it shows, in words, for those who do not see it.
        height: of the view box, in pixels.
    """

    alt: str
    x: Scale
    y: Scale
    height: int
    _parts: list[str] = field(default_factory=list)

    @classmethod
    def with_axes(
        cls,
        alt: str,
        *,
        x_ticks: Sequence[tuple[float, str]],
        y_ticks: Sequence[tuple[float, str]],
        x_label: str,
        y_label: str,
        x_range: tuple[float, float],
        logarithmic: bool = False,
        top: int = 38,
        plot_height: int = 250,
    ) -> Plot:
        """A drawing with both axes, and lines across it at the ticks of the vertical one.

        Args:
            x_ticks: (where, label) of each; `y_ticks` likewise, and they are its range.
            logarithmic: of the horizontal axis.
            top: pixels kept free above the axes, in which `y_label` stands too.
        """
        bottom = top + plot_height
        x = Scale(*x_range, _LEFT, WIDTH - _RIGHT, logarithmic)
        y = Scale(y_ticks[0][0], y_ticks[-1][0], bottom, top)
        plot = cls(alt, x, y, bottom + _BOTTOM)
        for value, label in y_ticks:
            plot.across(value, "grid" if value else "axis")
            plot.text(_LEFT - 8, y(value) + 5, label, "end")
        for value, label in x_ticks:
            plot.text(x(value), bottom + 22, label, "middle")
        plot.text((x.start + x.end) / 2, bottom + 47, x_label, "middle soft")
        plot.text(0, top - 18, y_label, "soft")
        return plot

    def text(self, left: float, top: float, text: str, kind: str = "") -> None:
        """Words at a place in pixels. `kind` may hold `middle` or `end` and classes of the page."""
        self._parts.append(
            f'<text class="{kind}" x="{left:.1f}" y="{top:.1f}">{escape(text)}</text>'
        )

    def across(self, value: float, kind: str, end: float | None = None) -> None:
        """A horizontal line at a value, over all the width or up to `end`."""
        right = self.x.end if end is None else self.x(end)
        self._path(f"M{self.x.start:.1f} {self.y(value):.1f}H{right:.1f}", kind)

    def upright(self, value: float, low: float, high: float, kind: str) -> None:
        """A vertical line between two values; `high` may lie above the axes."""
        self._path(f"M{self.x(value):.1f} {self.y(low):.1f}V{self.y(high):.1f}", kind)

    def stairs(self, edges: Sequence[float], values: Sequence[float], kind: str) -> None:
        """A curve that is level between edges, of which there is one more than values."""
        self._path(f"M{self._stairs(edges, values)}", f"curve {kind}")

    def area(self, edges: Sequence[float], values: Sequence[float], kind: str) -> None:
        """What lies under such a curve."""
        floor_ = f"{self.y(0):.1f}"
        path = f"M{self.x(edges[0]):.1f} {floor_}L{self._stairs(edges, values)}V{floor_}Z"
        self._path(path, f"area {kind}")

    def polyline(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Straight lines from point to point."""
        path = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        self._path(f"M{path}", kind)

    def dot(self, x: float, y: float, kind: str, radius: float = 4.5) -> None:
        """A mark at a point: filled, or with `open` in its kind a ring."""
        self._parts.append(
            f'<circle class="dot {kind}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}"/>'
        )

    def diamond(self, x: float, y: float, kind: str) -> None:
        """A mark of another form."""
        left, top = self.x(x), self.y(y)
        self._path(f"M{left:.1f} {top - 7:.1f}l7 7l-7 7l-7 -7Z", f"dot {kind}")

    def markup(self) -> str:
        """The element, with the description for screen readers."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape(self.alt)}">'
            f"{''.join(self._parts)}</svg>"
        )

    def _stairs(self, edges: Sequence[float], values: Sequence[float]) -> str:
        steps = [f"{self.x(edges[0]):.1f} {self.y(values[0]):.1f}"]
        for value, edge in zip(values, edges[1:], strict=True):
            steps.append(f"V{self.y(value):.1f}H{self.x(edge):.1f}")
        return "".join(steps)

    def _path(self, path: str, kind: str) -> None:
        self._parts.append(f'<path class="{kind}" d="{path}"/>')


def picture(markup: str) -> str:
    """A plot as a file of its own, with the colours of a page on light ground.

    Args:
        markup: the element, as `Plot.markup` makes it.
    """
    colours = "".join(f".s{n}{{--c:{colour}}}" for n, colour in enumerate(SERIES_COLOURS))
    return markup.replace(
        ">",
        ' xmlns="http://www.w3.org/2000/svg" fill="none" font-size="16" font-family="sans-serif">'
        f"<style>text{{fill:#23282d}}.grid,.axis{{stroke:#dfe3e6}}.middle{{text-anchor:middle}}"
        f".end{{text-anchor:end}}{colours}.then{{--c:#98a2aa}}.bound{{--c:#1d2226}}"
        ".curve{stroke:var(--c);stroke-width:2.4}.dot{fill:var(--c)}"
        ".line{stroke:var(--c);stroke-width:2;stroke-dasharray:6 4}</style>",
        1,
    )
