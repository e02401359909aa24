"""Plots, drawn by matplotlib: in the colours of a page as part of it, and as files of their own.

Sizes are pixels of a page. A plot looks the same each time that it is drawn of the same data.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from io import BytesIO
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Literal

from kestrelctl.bench.machine import BenchMachine
from kestrelctl.bench.report.markup import COLOURS
from kestrelctl.missing_package import missing_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 560
_ROW = 28
_FONT, _SLIDE_FONT = 16.5, 13
#: The pixels of a slide's PNG; it is 16:9.
_SLIDE_WIDTH = 1920
#: Room on a slide, beside that on a page: for a title, the line at its foot, a row of its legend.
_SLIDE_TITLE, _SLIDE_FOOT, _SLIDE_ROW, _SLIDE_EDGE = 28, 22, 20, 14
#: Keys in one row of a slide's legend.
_KEYS = 3
_PIXELS_PER_INCH = 72
#: The distance at which the labels of an axis do not touch each other, even in a narrow window.
_LABEL_WIDTH = 78
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"

SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b3558f", "#8a6d00", "#3aa0d8")
#: Lengths of dashes and gaps, so that curves differ without colours, too.
DASHES = ((), (9, 3), (3, 3), (12, 3, 3, 3), (6, 6), (1, 4))
INK, SOFT, FAINT, PAPER, THEN = "#1d2226", "#56606a", "#dfe3e6", "#ffffff", "#98a2aa"
#: The variable of a page for each colour: it has a value for a light page and one for a dark one.
_VARIABLES = {
    **{colour: f"var(--s{number})" for number, colour in enumerate(SERIES_COLOURS)},
    INK: "var(--ink)", SOFT: "var(--soft)", FAINT: "var(--line)", PAPER: "var(--card)",
    THEN: "var(--then)",
}  # fmt: skip

#: The metadata that are left out of each format, so that the same data give the same file.
_FORMATS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}

#: Lines across a plot: what bounds the curves, what was measured in 2009, and an end.
BOUND: dict[str, Any] = {"color": INK, "lw": 2, "ls": (0, (6, 4)), "clip_on": False}
OF_2009: dict[str, Any] = {"color": THEN, "lw": 3, "ls": (0, (2, 4)), "clip_on": False}
END: dict[str, Any] = {"color": INK, "lw": 1.2, "ls": (0, (3, 3)), "clip_on": False}
HALF_LINE: dict[str, Any] = {"color": SOFT, "lw": 1, "ls": (0, (2, 3)), "clip_on": False}


def require() -> Any:
    """Imports and returns matplotlib.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise missing_package(
            "matplotlib is not installed, so no curve can be drawn", "matplotlib", cause=str(error)
        ) from error
    return mpl


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Sets matplotlib up for plots; what draws one does all of it within this.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    mpl = require()
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever a user's own file says
        mpl.rcParams.update(
            {
                "svg.hashsalt": "kestrel",
                "font.size": _FONT,
                "text.color": INK,
                "text.parse_math": False,
                "lines.scale_dashes": False,
                "axes.autolimit_mode": "round_numbers",
                "axes.xmargin": 0,
                "axes.ymargin": 0,
                "axes.axisbelow": True,
                "axes.edgecolor": SOFT,
                "axes.labelcolor": SOFT,
                "axes.labelpad": 5,
                "axes.spines.left": False,
                "axes.spines.right": False,
                "axes.spines.top": False,
                "grid.color": FAINT,
                "grid.linewidth": 1,
                "legend.frameon": False,
                "xtick.color": INK,
                "xtick.major.size": 0,
                "xtick.major.pad": 11,
                "xtick.minor.size": 0,
                "ytick.color": INK,
                "ytick.major.size": 0,
                "ytick.major.pad": 8,
            }
        )
        yield


class Plot:
    """One drawing: axes, in which whoever makes it draws, and what it shows in words.

    Args:
        alt: says what it shows, for people who cannot see it.
        plot_height: the height of the axes, in pixels.
        top, left, right, bottom: pixels around the axes.

    Attributes:
        axes: matplotlib's.
    """

    def __init__(
        self,
        alt: str,
        *,
        x_label: str = "",
        y_label: str = "",
        plot_height: float = 250,
        top: float = 38,
        left: float = 72,
        right: float = 34,
        bottom: float = 56,
    ) -> None:
        from matplotlib.figure import Figure

        self.alt = alt
        self.height = top + plot_height + bottom
        self._margins = (left, right, top, bottom)
        self._figure = Figure((WIDTH / _PIXELS_PER_INCH, self.height / _PIXELS_PER_INCH), dpi=72)
        self._figure.patch.set_visible(False)
        self.axes: Axes = self._figure.add_axes((0, 0, 1, 1))
        self.axes.patch.set_visible(False)
        self._place()
        self.axes.set_xlabel(x_label)
        self.axes.annotate(
            y_label, (0, 1), xycoords="axes fraction", xytext=(-left, top - 20),
            textcoords="offset points", color=SOFT,
        )  # fmt: skip
        self._grid("y")

    @classmethod
    def of_rows(cls, alt: str, count: int, *, left: float, right: float, x_label: str = "") -> Plot:
        """Makes a drawing with a row for each of several things, the first on top.

        A row is 1 high, and its middle at 0.5, 1.5 and so on.
        """
        plot = cls(
            alt,
            x_label=x_label,
            plot_height=_ROW * count,
            top=8,
            left=left,
            right=right,
            bottom=52 if x_label else 30,
        )
        plot._grid("x")
        plot.axes.set_ylim(count, 0)
        plot.axes.yaxis.set_visible(False)
        plot.axes.spines.bottom.set_visible(False)
        return plot

    def _place(self, *, above: float = 0, below: float = 0, beside: float = 0) -> None:
        """Puts the axes between the margins, and more room around these."""
        left, right, top, bottom = self._margins
        width, height = (inches * _PIXELS_PER_INCH for inches in self._figure.get_size_inches())
        size = (width - left - right - 2 * beside, height - top - bottom - above - below)
        self.axes.set_position(
            (
                (left + beside) / width,
                (bottom + below) / height,
                size[0] / width,
                size[1] / height,
            )
        )

    def _grid(self, axis: Literal["x", "y"]) -> None:
        """Draws lines at the ticks of one axis, and at no ticks of the other."""
        self.axes.grid(visible=False)
        self.axes.grid(axis=axis, clip_on=False)

    def numbers(self, axis: Literal["x", "y"], high: float | None = None) -> None:
        """Makes an axis of even numbers from 0.

        Args:
            high: where it ends; by default at the first tick that no value is above.
        """
        from matplotlib.ticker import MaxNLocator

        found = self.axes.xaxis if axis == "x" else self.axes.yaxis
        found.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        found.set_major_formatter(lambda value, _: written_out(value))
        if high is None:
            _, high = found.get_data_interval()
            high = found.get_major_locator().view_limits(0.0, high or 1.0)[1]
        (self.axes.set_xlim if axis == "x" else self.axes.set_ylim)(0, high)

    def percents(self, axis: Literal["x", "y"]) -> None:
        """Makes an axis of shares: from 0 to 100 %."""
        from matplotlib.ticker import MultipleLocator, PercentFormatter

        found = self.axes.xaxis if axis == "x" else self.axes.yaxis
        found.set_major_locator(MultipleLocator(0.2))
        found.set_major_formatter(PercentFormatter(1.0, decimals=0))
        (self.axes.set_xlim if axis == "x" else self.axes.set_ylim)(0, 1)

    def decades(self, low: float, high: float) -> None:
        """Makes the horizontal axis logarithmic, from a power of ten to another."""
        first = floor(log10(low) + 1e-9)
        last = max(ceil(log10(high) - 1e-9), first + 1)
        left, right, *_ = self._margins
        every = ceil(_LABEL_WIDTH / ((WIDTH - left - right) / (last - first)))
        ticks = [10.0**power for power in range(first, last + 1, every)]
        self.axes.set_xscale("log")
        self.axes.set_xlim(10.0**first, 10.0**last)
        self.axes.set_xticks(ticks, map(written_out, ticks))
        self.axes.minorticks_off()  # their labels would be powers of ten

    # -- what is drawn -----------------------------------------------------------------------------

    def curve(self, points: Iterable[tuple[float, float]], series: int, *, label: str = "") -> None:
        """Draws straight lines from point to point."""
        x, y = zip(*points, strict=True)
        self.axes.plot(x, y, label=label, clip_on=False, **_curve(series))

    def stairs(
        self,
        edges: Sequence[float],
        values: Sequence[float],
        series: int,
        *,
        thin: bool = False,
        label: str = "",
    ) -> None:
        """Draws a curve that is level between edges; there is one more edge than values."""
        style = {**_curve(series), **({"lw": 1.1, "ls": "-"} if thin else {})}
        self.axes.stairs(values, edges, baseline=None, label=label, clip_on=False, **style)

    def area(
        self, edges: Sequence[float], values: Sequence[float], series: int, *, label: str = ""
    ) -> None:
        """Fills the area under a curve of `stairs`."""
        colour = SERIES_COLOURS[series]
        self.axes.stairs(
            values, edges, fill=True, color=colour, alpha=0.16, lw=0, label=label, clip_on=False
        )

    def span(self, low: float, high: float, y: float, series: int) -> None:
        """Draws a wide level line."""
        colour = SERIES_COLOURS[series]
        self.axes.plot([low, high], [y, y], color=colour, lw=4, alpha=0.45, clip_on=False)

    def dots(self, points: Iterable[tuple[float, float]], series: int, size: float = 9) -> None:
        """Draws a filled mark at each point."""
        self._mark(points, SERIES_COLOURS[series], "o", size)

    def ring(self, x: float, y: float, series: int, size: float = 11) -> None:
        """Draws an open mark at a point."""
        colour = SERIES_COLOURS[series]
        self._mark([(x, y)], PAPER, "o", size, mec=colour, mew=2.4, zorder=4)

    def diamond(self, x: float, y: float, colour: str) -> None:
        """Draws a diamond at a point, which may lie above the axes."""
        self._mark([(x, y)], colour, "D", 10)

    def _mark(
        self, points: Iterable[tuple[float, float]], fill: str, mark: str, size: float, **more: Any
    ) -> None:
        x, y = zip(*points, strict=True)
        style = {"mec": PAPER, "mew": 1, "zorder": 3, **more}
        self.axes.plot(x, y, mark, ms=size, mfc=fill, clip_on=False, **style)

    def beside(self, y: float, text: str, *, right: bool = False) -> None:
        """Writes at the left or right edge of the drawing, at the height of a value."""
        self.axes.annotate(
            text, (1 if right else 0, y), xycoords=("figure fraction", "data"), va="center",
            ha="right" if right else "left", annotation_clip=False,
        )  # fmt: skip

    def legend(self) -> None:
        """Says inside the axes what the curves are, for a picture that has no page around it."""
        shown = {"frameon": True, "facecolor": PAPER, "edgecolor": "none", "framealpha": 0.85}
        self.axes.legend(loc="upper left", fontsize=_FONT - 2, fancybox=False, **shown)

    # -- what becomes of it ------------------------------------------------------------------------

    def markup(self) -> str:
        """Returns an element for a page, in its colours and fonts."""
        return self._element("", "")

    def picture(self) -> bytes:
        """Returns a file that looks as on a page, light or dark as the reader's system is."""
        style = f"<style>{COLOURS}text{{font:{_FONT}px sans-serif}}</style>"
        return self._element(f' xmlns="{_SVG}" xmlns:xlink="{_XLINK}"', style).encode()

    def images(self, title: str, machine: BenchMachine) -> Mapping[str, bytes]:
        """Returns slides by their endings: with a title, a legend, and where it was measured.

        The plot is good for nothing else then.
        """
        from matplotlib.text import Text

        figure = self._figure
        handles, labels = self.axes.get_legend_handles_labels()
        rows = ceil(len(labels) / _KEYS)
        # The axes are as high as on a page, and as much wider as a slide is.
        wanted = self.height + _SLIDE_TITLE + _SLIDE_FOOT + _SLIDE_ROW * rows
        width, height = (pixels * ceil(wanted / 9) for pixels in (16, 9))
        figure.set_size_inches(width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH)
        below = height - self.height - _SLIDE_TITLE
        self._place(above=_SLIDE_TITLE, below=below, beside=_SLIDE_EDGE)
        for text in figure.findobj(Text):
            text.set_fontsize(_SLIDE_FONT)
        found = {}
        with drawing():
            figure.legend(
                handles, labels, loc="lower center", ncols=_KEYS, fontsize=_SLIDE_FONT - 1,
                bbox_to_anchor=(0.5, (_SLIDE_FOOT - 4) / height),
            )  # fmt: skip
            figure.text(
                _SLIDE_EDGE / width,
                1 - 12 / height,
                title,
                weight="bold",
                size=_SLIDE_FONT + 2,
                va="top",
            )
            figure.text(
                1 - 8 / width,
                7 / height,
                f"Kestrel {machine.kestrel}, {machine.date[:10]}, {machine.cores} cores "
                f"({machine.cpu_model})",
                size=_SLIDE_FONT - 4,
                ha="right",
                color=SOFT,
            )
            for ending, metadata in _FORMATS.items():
                data = BytesIO()
                dots = _SLIDE_WIDTH * _PIXELS_PER_INCH / width
                figure.savefig(
                    data,
                    format=ending,
                    dpi=dots * (1 + 1e-9),  # no pixel is lost by rounding
                    metadata=metadata,
                    facecolor=PAPER,
                )
                found[ending] = data.getvalue()
        return found

    def _element(self, attributes: str, style: str) -> str:
        """Makes an element of what matplotlib writes, with text as text; it is lighter than that.

        Names that nothing refers to would be there again in the next plot.
        """
        data = BytesIO()
        with drawing(), require().rc_context({"svg.fonttype": "none", "svg.hashsalt": self.alt}):
            self._figure.savefig(data, format="svg", dpi=_PIXELS_PER_INCH)
        svg = data.getvalue().decode()
        body = svg[svg.index('<g id="figure_1">') : svg.rindex("</svg>")]
        body = re.sub(r' id="[\w.]+_\d+"| transform="rotate\(-0 [^"]*"', "", body)
        body = re.sub(r'style="[^"]*"', _in_colours_of_page, body)
        body = re.sub(r' (d|x|y)="[^"]*"', _in_tenths, body)
        body = re.sub(r"\s*\n\s*|<g/>", "", body)
        return (
            f'<svg{attributes} viewBox="0 0 {WIDTH} {self.height:g}" role="img" '
            f'aria-label="{escape(self.alt)}">{style}{body}</svg>'
        )


def written_out(value: float) -> str:
    """Writes a value at an axis without an exponent: `0.001`, `1,000`."""
    return f"{value:,.9f}".rstrip("0").rstrip(".")


def _curve(series: int) -> dict[str, Any]:
    dashes = DASHES[series]
    return {
        "color": SERIES_COLOURS[series], "lw": 2.4, "ls": (0, dashes) if dashes else "-",
    }  # fmt: skip


def _in_colours_of_page(style: re.Match[str]) -> str:
    without_font = re.sub(r"font-(size|family|weight):[^;\"]*;? ?", "", style[0])
    return re.sub(r"#[0-9a-f]{6}", lambda colour: _VARIABLES[colour[0]], without_font)


def _in_tenths(places: re.Match[str]) -> str:
    return re.sub(r"\d+\.\d\d+", lambda number: f"{float(number[0]):.1f}", places[0])
