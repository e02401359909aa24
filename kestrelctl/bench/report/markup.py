"""The pieces of HTML that report pages are made of; all input but a `body` is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from kestrelctl.bench.machine import BenchMachine

#: Those of the page and of its plots, in light and in dark.
COLOURS = """
:root {
  color-scheme: light dark;
  --paper: #f6f7f7; --card: #ffffff; --ink: #1d2226; --soft: #56606a; --line: #dfe3e6;
  --then: #98a2aa; --bound: #1d2226; --wrong: #b5320f;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #b3558f; --s4: #8a6d00; --s5: #3aa0d8;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --card: #1b2024; --ink: #dde2e5; --soft: #9fa9b1; --line: #343b41;
    --then: #78848d; --bound: #dde2e5; --wrong: #ff8e6b;
    --s0: #56b4e9; --s1: #f08a3c; --s2: #2fc79a; --s3: #e09ac4; --s4: #e0c341; --s5: #9ad4f5;
  }
}
"""
CSS = (
    COLOURS
    + """* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.55 Inter, "Segoe UI", "Helvetica Neue", Roboto, "Liberation Sans", Arial,
    sans-serif;
}
main { max-width: 78rem; margin: 0 auto; padding: 2.5rem 2rem 4rem; }
h1 { font-size: clamp(2.1rem, 5vw, 3.4rem); line-height: 1.08; margin: 0; letter-spacing: -.02em; }
h2 { font-size: 1.75rem; letter-spacing: -.01em; line-height: 1.2; margin: 3.5rem 0 .6rem; }
h3 { font-size: 1.25rem; line-height: 1.3; margin: 1.75rem 0 .25rem; }
.card h3, figure h3 { margin-top: 0; }
p, dl { max-width: 48rem; }
p { margin: .5rem 0; }
.over { color: var(--soft); margin: 0 0 .5rem; }
.lead { font-size: 1.3rem; line-height: 1.5; margin: 1rem 0; max-width: 56rem; }
.soft, small { color: var(--soft); }
.wrong { color: var(--wrong); font-weight: 650; }
code, pre { font: .88em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .75rem 0; padding: .8rem 1rem; }
pre, .card, figure, .tile {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px;
}
.card { padding: 1.25rem 1.5rem; margin: 1rem 0; min-width: 0; overflow-x: auto; }

.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 1rem;
  margin: 1.5rem 0 0; }
.tile { padding: 1rem 1.25rem; line-height: 1.35; }
.big { font-size: 2.6rem; font-weight: 700; letter-spacing: -.02em; line-height: 1.15;
  color: var(--s0); font-variant-numeric: tabular-nums; white-space: nowrap; }

.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); }
.s3 { --c: var(--s3); } .s4 { --c: var(--s4); } .s5 { --c: var(--s5); }
.then { --c: var(--then); } .bound { --c: var(--bound); }

.keys { display: flex; flex-wrap: wrap; gap: .1rem 1.5rem; max-width: none; }
.key { display: inline-block; width: 1.1rem; height: .8rem; margin-right: .45rem;
  vertical-align: -.05rem; background: var(--c); border-radius: 2px; }
.key.bound, .key.dash { background: none; border-radius: 0; }
.key.bound { width: 0; border-left: 2px dashed var(--c); }
.key.dash { width: 1.4rem; height: 0; border: 0; border-top: 2px dashed var(--c);
  vertical-align: .25rem; }
.key.dash.then { border-top: 3px dotted var(--c); }
.key.curve { width: 2.2rem; height: 3px; border-radius: 0; vertical-align: .25rem; }
.key.curve.s1 { background: repeating-linear-gradient(90deg, var(--c) 0 9px, #0000 9px 12px); }
.key.curve.s2 { background: repeating-linear-gradient(90deg, var(--c) 0 3px, #0000 3px 6px); }
.key.curve.s3 { background: repeating-linear-gradient(90deg, var(--c) 0 12px, #0000 12px 15px,
  var(--c) 15px 18px, #0000 18px 21px); }
.key.curve.s4 { background: repeating-linear-gradient(90deg, var(--c) 0 6px, #0000 6px 12px); }
.key.curve.s5 { background: repeating-linear-gradient(90deg, var(--c) 0 1px, #0000 1px 5px); }

.bars { display: grid; grid-template-columns: minmax(2.5rem, auto) 1fr minmax(4.75rem, auto);
  gap: .25rem .9rem; align-items: center; margin-top: .5rem; }
.bars .name { grid-column: 1 / -1; font-weight: 650; margin-top: .8rem; }
.bars .name .soft { font-weight: 400; }
.bars .label { max-width: 11rem; overflow-wrap: anywhere; line-height: 1.2; }
.bars .value { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.track { position: relative; height: 1.2rem; }
.bar { height: 100%; border-radius: 0 3px 3px 0; background: var(--c); min-width: 2px; }
.tick { position: absolute; top: -.15rem; bottom: -.15rem; border-left: 2px dashed var(--bound); }

table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { font-weight: 500; color: var(--soft); font-size: .85rem; }
th, td { text-align: right; padding: .45rem .35rem; }
td, th { white-space: nowrap; }
thead th { border-bottom: 1px solid var(--ink); vertical-align: bottom; line-height: 1.25; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody th { color: var(--ink); font-weight: 650; font-size: 1rem; }
th:first-child { text-align: left; padding-left: 0; }
td:last-child, thead th:last-child { padding-right: 0; }

.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem; margin: .75rem 0; }
.pair > .card { margin: 0; }
.pair > figure:only-child { max-width: 40rem; }
.wide { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
.wide > figure { flex: 7 1 min(100%, 34rem); max-width: 46rem; }
.wide > .card { margin: 0; flex: 5 1 max-content; }
.wide > .card p { width: 0; min-width: 100%; }  /* its table alone says how wide it wants to be */
figure { margin: 0; padding: 1.25rem 1.5rem; min-width: 0; }
figcaption { margin-top: .5rem; }
svg { display: block; width: 100%; height: auto; font-size: 16.5px; stroke-linejoin: round; }
svg text { font-variant-numeric: tabular-nums; }
dt { font-weight: 650; margin-top: .9rem; }
dd { margin: 0; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.5rem; }
.facts dt { margin: 0; font-weight: 400; color: var(--soft); }
.facts dd { overflow-wrap: anywhere; }

@media screen and (max-width: 60rem) {
  main { padding: 1.5rem 1rem 3rem; }
  .card { padding: 1rem; }
  .lead { font-size: 1.15rem; }
  figure { padding: .6rem .5rem; }
  .tiles { grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; }
  .tile { padding: .75rem .9rem; }
  .big { font-size: 2.1rem; }
  table, tbody, tr, th, td { display: block; }
  thead { display: none; }
  tbody tr + tr { border-top: 1px solid var(--line); margin-top: .75rem; padding-top: .75rem; }
  tbody tr + tr > * { border-top: 0; }
  tbody th::before { content: attr(data-label) " "; }
  td { display: flex; justify-content: space-between; padding: .1rem 0; }
  td::before { content: attr(data-label); color: var(--soft); }
}
@media screen and (max-width: 40rem) { svg { font-size: 19px; } }
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  :root { --paper: #ffffff; color-scheme: light; }
  body { font-size: 10.5pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { padding: 0; max-width: none; }
  h2, h3, .keys { break-after: avoid; }
  .block, figure, .card, .tile, tr { break-inside: avoid; }
  .card { overflow-x: visible; }
}
"""
)


def document(title: str, body: str) -> str:
    """Makes a whole page that needs no network and no other file."""
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
    """Makes the line over a title: what was measured, when and where."""
    return f"""<p class="over">Kestrel {escape(machine.kestrel)} · {escape(machine.date[:10])} ·
{machine.cores} cores, {escape(machine.cpu_model)}</p>"""


def facts(machine: BenchMachine, more: Mapping[str, str], command: str | None) -> str:
    """Lists the facts of a machine, more facts, and the command that made a result."""
    listed = {
        "Processor": f"{machine.cpu_model}, {machine.cores} cores",
        "Memory": f"{machine.memory_mb:,} MB",
        "Kernel": machine.kernel,
        "Kestrel": machine.kestrel,
        **({"Prosody": machine.prosody} if machine.prosody else {}),
        "Python": machine.python,
        **({"Launcher": machine.launcher} if machine.launcher else {}),
        "Date": machine.date,
        **more,
    }
    rows = "".join(f"<dt>{fact}</dt><dd>{escape(text)}</dd>" for fact, text in listed.items())
    return f'<dl class="facts">{rows}</dl>' + (f"<pre>{escape(command)}</pre>" if command else "")


def tile(over: str, figure: str, unit: str, below: str) -> str:
    """Shows a figure in large type, and what it is."""
    return (
        f'<div class="tile"><div class="soft">{escape(over)}</div>'
        f'<div class="big">{escape(figure)}</div>'
        f'<div>{escape(unit)}</div><div class="soft">{escape(below)}</div></div>'
    )


def keys(entries: Iterable[tuple[str, str]]) -> str:
    """Makes a legend: (kind, text) of each entry.

    The kind can turn the square into a line: `dash` into one like those of limits and of 2009,
    `curve` into one with the dashes of its curve.
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
        limit: the value of a line over all bars; 0 for none.
        unit: how a value is written, for `str.format`.
        full: the value that fills the width, if it is larger than all that are shown.
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
    """Makes a table in which each row has a heading; lost and duplicate tasks stand out."""
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
