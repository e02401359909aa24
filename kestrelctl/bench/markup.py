"""Pieces of HTML that report pages are made of; what goes in is escaped here, but for `body`s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from kestrelctl.bench.machine import BenchMachine
from kestrelctl.bench.style import CSS


def document(title: str, body: str) -> str:
    """A whole page that needs no network and no other file."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{CSS}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def over(machine: BenchMachine) -> str:
    """What stands over a title: what was measured, when and where."""
    return f"""<p class="over">Kestrel {escape(machine.kestrel)} · {escape(machine.date[:10])} ·
{machine.cores} cores, {escape(machine.cpu_model)}</p>"""


def facts(machine: BenchMachine, more: Mapping[str, str], command: str | None) -> str:
    """A machine, more facts, and the command that made a result."""
    listed = {
        "Processor": f"{machine.cpu_model}, {machine.cores} cores",
        "Memory": f"{machine.memory_mb:,} MB",
        "Kernel": machine.kernel,
        "Kestrel": machine.kestrel,
        **({"Prosody": machine.prosody} if machine.prosody else {}),
        "Python": machine.python,
        "Date": machine.date,
        **more,
    }
    rows = "".join(f"<dt>{fact}</dt><dd>{escape(text)}</dd>" for fact, text in listed.items())
    return f'<dl class="facts">{rows}</dl>' + (f"<pre>{escape(command)}</pre>" if command else "")


def tile(over: str, figure: str, unit: str, below: str) -> str:
    """A figure to be seen from afar, and what it is."""
    return (
        f'<div class="tile"><div class="soft">{escape(over)}</div>'
        f'<div class="big">{escape(figure)}</div>'
        f'<div>{escape(unit)}</div><div class="soft">{escape(below)}</div></div>'
    )


def keys(entries: Iterable[tuple[str, str]]) -> str:
    """A legend: (kind, text) of each entry.

    The kind makes a line of the square: `dash` one as of limits and of 2009, `curve` one that has
    the dashes of its curve.
    """
    listed = "".join(
        f'<span><i class="key {kind}"></i>{escape(text)}</span>' for kind, text in entries
    )
    return f'<div class="keys">{listed}</div>'


def bars(
    name: str,
    note: str,
    rows: Sequence[tuple[str, float, str]],
    limit: float,
    unit: str,
    full: float = 0.0,
) -> str:
    """Bars on one scale under a name, the content of an element of class `bars`.

    Args:
        rows: (label, value, kind) of each bar; the kind names its colour.
        limit: a line over all of them; 0 for none.
        unit: how a value is written, for `str.format`.
        full: the value that fills the width, if it is more than all that is shown.
    """
    full = max(full, limit, *(value for _, value, _ in rows))
    tick = f'<i class="tick" style="left:{limit / full:.2%}"></i>' if limit else ""
    parts = [f'<div class="name">{escape(name)} <span class="soft">{escape(note)}</span></div>']
    for label, value, kind in rows:
        parts.append(
            f'<span class="label">{escape(label)}</span><div class="track">'
            f'<div class="bar {kind}" style="width:{value / full:.2%}"></div>{tick}</div>'
            f'<span class="value">{unit.format(value)}</span>'
        )
    return "".join(parts)


def table(caption: str, columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose rows have a heading each; lost and duplicate tasks stand out."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{_cells(columns, line)}</tr>" for line in lines)
    return (
        f'<table aria-label="{escape(caption)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _cells(columns: Sequence[str], line: Sequence[str]) -> str:
    first, *rest = line
    cells = [f'<th scope="row" data-label="{escape(columns[0])}">{escape(first)}</th>']
    for column, cell in zip(columns[1:], rest, strict=True):
        wrong = column in ("lost", "duplicates") and cell != "0"
        text = f'<span class="wrong">{escape(cell)}</span>' if wrong else escape(cell)
        cells.append(f'<td data-label="{escape(column)}">{text}</td>')
    return "".join(cells)
