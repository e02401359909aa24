"""The report page in a real browser: it needs nothing, and no text is cut or lies on another."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from simulated_bench import simulated_bench, simulated_grid

from kestrelctl.bench.report.markup import document, table
from kestrelctl.bench.report.page import Named, page

#: Runs in the page when it is laid out and all it asked for has come or failed, and leaves what
#: it found where --dump-dom shows it.
PROBE = """
<script>
addEventListener("load", () => {
const box = (element) => element.getBoundingClientRect();
const figures = [...document.querySelectorAll("svg, .bars")];
const cut = [], covered = [];
for (const figure of document.querySelectorAll("svg")) {
  const frame = box(figure), texts = [...figure.querySelectorAll("text")];
  texts.forEach((text, index) => {
    const a = box(text);
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.bottom > frame.bottom + 1)
      cut.push(text.textContent);
    for (const other of texts.slice(index + 1)) {
      const b = box(other);
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        covered.push(text.textContent + " | " + other.textContent);
    }
  });
}
for (const element of document.querySelectorAll("td, th, .value, .label, .name, .key, .tile"))
  if (box(element).right > innerWidth) cut.push(element.textContent);
for (const cell of document.querySelectorAll(".card td, .card th"))
  if (box(cell).right > box(cell.closest(".card")).right) cut.push(cell.textContent);
for (const number of document.querySelectorAll(".big"))
  if (number.scrollWidth > number.clientWidth || number.clientHeight > 60)
    cut.push(number.textContent);
const found = document.createElement("pre");
found.id = "found";
found.textContent = JSON.stringify({
  width: innerWidth,
  overflow: document.documentElement.scrollWidth - innerWidth,
  sizes: figures.map((figure) => [box(figure).width, box(figure).height]),
  resources: performance.getEntriesByType("resource").map((entry) => entry.name),
  colours: getComputedStyle(document.body).backgroundColor,
  cut, covered,
});
top.document.body.append(found);
console.log("probe done");
});
</script>
"""


def look(directory: Path, text: str, width: int, *options: str) -> dict[str, Any]:
    """What the probe finds in a page, in a frame of a width, and what the console says.

    A frame, because the browser makes no window that is narrower than 500 pixels.
    """
    file = directory / "page.html"
    framed = escape(text.replace("</body>", PROBE + "</body>"))
    file.write_text(
        f'<body><iframe srcdoc="{framed}" style="border:0;width:{width}px;height:720px"></iframe>',
        encoding="utf-8",
    )
    command = [
        chromium(),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
    ]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"]
    command += [f"--user-data-dir={directory / 'profile'}", "--window-size=1400,800"]
    done = subprocess.run(
        [*command, *options, "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stderr
    found: dict[str, Any] = json.loads(unescape(match[1]))
    found["console"] = re.findall(r'CONSOLE.*?"(.*)", source', done.stderr)
    return found


@cache
def a_page(name: str) -> str:
    bench, grid = simulated_bench(5000, 400), simulated_grid()
    return {
        "bench": lambda: page([Named("now", bench)]),
        "sweep": lambda: page([Named("now", grid)]),
        "talk": lambda: page(
            [
                Named("today", bench),
                Named("last spring", simulated_bench(3000, 100)),
                Named("grid", grid),
            ]
        ),
    }[name]()


@pytest.mark.parametrize("width", [1280, 1024, 910, 500, 390])
@pytest.mark.parametrize("name", ["bench", "sweep", "talk"])
def test_a_page_can_be_read_in_a_wide_and_in_a_narrow_window(
    tmp_path: Path, name: str, width: int
) -> None:
    found = look(tmp_path, a_page(name), width)
    assert found["width"] == width
    assert found["overflow"] <= 0
    assert found["cut"] == []
    assert found["covered"] == []
    assert len(found["sizes"]) >= 2
    assert min(side for size in found["sizes"] for side in size) > 60
    assert found["resources"] == []
    assert found["console"] == ["probe done"]


def test_a_table_wider_than_its_card_scrolls_there_and_not_the_page(tmp_path: Path) -> None:
    columns = ["run", *(f"minutes of waiting {n}" for n in range(40))]
    text = document("t", f'<div class="card">{table("t", columns, [["1"] * 41])}</div>')
    assert look(tmp_path, text, 1280)["overflow"] <= 0


def test_a_page_follows_the_colours_of_the_system(tmp_path: Path) -> None:
    text = a_page("bench")
    colours = {
        look(tmp_path, text, 1280, f"--blink-settings=preferredColorScheme={scheme}")["colours"]
        for scheme in (0, 1)
    }
    assert colours == {"rgb(246, 247, 247)", "rgb(20, 24, 27)"}


def test_what_a_page_should_not_have_would_be_seen(tmp_path: Path) -> None:
    wrong = (
        '<svg viewBox="0 0 100 20"><text x="0" y="15">one</text><text x="3" y="15">two</text>'
        '<text x="90" y="15">outside</text></svg><img src="https://example.org/x.png" alt="">'
        "<script>nothing.at.all</script><div style='width:9999px'>wide</div>"
    )
    found = look(tmp_path, f"<!doctype html><body>{wrong}</body>", 1280)
    assert found["overflow"] > 0
    assert found["cut"] == ["outside"]
    assert found["covered"] == ["one | two"]
    assert found["resources"] == ["https://example.org/x.png"]
    assert any("nothing is not defined" in line for line in found["console"])
