"""The style sheet of the report page: no web font, no script, light and dark, wide and narrow."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --paper: #f6f7f7; --card: #ffffff; --ink: #23282d; --soft: #5c666e; --line: #dfe3e6;
  --now: #1f6f8b; --then: #a9b3ba; --bound: #b5482a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --card: #1b2024; --ink: #d5dade; --soft: #97a2aa; --line: #353c42;
    --now: #5fb3cf; --then: #66727a; --bound: #ec8a67;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 Inter, "Segoe UI", "Helvetica Neue", Roboto, "Liberation Sans", Arial, sans-serif;
}
main { max-width: 68rem; margin: 0 auto; padding: 3.5rem 1.5rem 4rem; }
h1 { font-size: clamp(2rem, 5vw, 3rem); line-height: 1.1; margin: 0; letter-spacing: -.02em; }
h2 { font-size: 1.5rem; letter-spacing: -.01em; line-height: 1.2; margin: 4rem 0 .5rem; }
h3 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
p, dl { max-width: 44rem; }
p { margin: .5rem 0; }
.over { color: var(--soft); margin: 0 0 .5rem; }
.lead { font-size: 1.25rem; line-height: 1.5; margin: 1.25rem 0; }
.soft, figcaption, small { color: var(--soft); }
.wrong { color: var(--bound); font-weight: 650; }
code, pre { font: .88em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; padding: .8rem 1rem; }
pre, .card { background: var(--card); border: 1px solid var(--line); border-radius: 6px; }
.card { padding: 1.25rem 1.5rem; margin: 1.25rem 0; }

.bars { display: grid; grid-template-columns: auto auto 1fr 5.5rem; gap: .3rem 1rem; }
.bars > * { align-self: center; }
.bars .name { font-weight: 650; white-space: nowrap; }
.bars .value { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bars .gap { grid-column: 1 / -1; height: .7rem; }
.track { position: relative; height: 1.05rem; }
.bar { height: 100%; border-radius: 0 2px 2px 0; background: var(--then); min-width: 2px; }
.bar.now { background: var(--now); }
.tick { position: absolute; top: -.3rem; bottom: -1.65rem; border-left: 2px dashed var(--bound); }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .9rem;
  vertical-align: -.06rem; background: var(--then); }
.key:first-child { margin-left: 0; }
.key.now { background: var(--now); }
.key.bound { width: 0; background: none; border-left: 2px dashed var(--bound); }

table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { font-weight: 500; color: var(--soft); font-size: .85rem; }
th, td { text-align: right; padding: .45rem .35rem; white-space: nowrap; }
thead th { border-bottom: 1px solid var(--ink); }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody th { color: var(--ink); font-weight: 650; font-size: 1rem; }
th:first-child { text-align: left; padding-left: 0; }
td:last-child, thead th:last-child { padding-right: 0; }

.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem; margin: .75rem 0; }
figure { margin: 0; padding: .75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; }
img { display: block; width: 100%; height: auto; }
dt { font-weight: 650; margin-top: .9rem; }
dd { margin: 0; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.5rem; }
.facts dt { margin: 0; font-weight: 400; color: var(--soft); }
.facts dd { overflow-wrap: anywhere; }

@media (max-width: 56rem) {
  main { padding: 2rem 1rem 3rem; }
  .card { padding: 1rem; }
  figure { padding: .25rem; }
  .bars { grid-template-columns: auto 1fr 4.6rem; gap: .3rem .6rem; }
  .bars .name { grid-column: 1 / -1; }
  table, tbody, tr, th, td { display: block; }
  thead { display: none; }
  tbody tr + tr { border-top: 1px solid var(--line); margin-top: .75rem; padding-top: .75rem; }
  tbody tr + tr > * { border-top: 0; }
  tbody th::before { content: attr(data-label) " "; }
  td { display: flex; justify-content: space-between; padding: .1rem 0; }
  td::before { content: attr(data-label); color: var(--soft); }
}
@media print { h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""
