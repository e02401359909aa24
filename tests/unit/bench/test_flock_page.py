"""What people are shown of an experiment with a flock: tables, a comparison, and a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from flockbenchkit import a_flock_result, a_run, waits

from kestrel_experiments.flock.audit import FlockAudit
from kestrel_experiments.flock.compare import comparison
from kestrel_experiments.flock.page import flock_page
from kestrel_experiments.flock.report import write_flock_report
from kestrel_experiments.flock.result import FlockResult, read_flock_result, to_json
from kestrel_experiments.flock.table import COLUMNS, GAIN_COLUMNS, gain_rows, rows, text
from kestrelctl.errors import UsageError

LOST = FlockAudit(tasks=4, lost=1, twice=0, breaches=["pool D: task D-7 has no accepted result"])


class Reader(HTMLParser):
    """What a reader or a screen reader meets in a page."""

    def __init__(self, result: FlockResult) -> None:
        super().__init__()
        self.source = flock_page(result)
        self.text = ""
        self.headings: list[str] = []
        self.figures: list[str] = []
        self.open: list[str] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "svg":
            self.figures.append(dict(attributes)["aria-label"] or "")
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Lines and dots of a drawing; they hold nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data
        if self.open[-1:] in (["h1"], ["h2"]):
            self.headings.append(data)


def cells(line: list[str]) -> dict[str, str]:
    return dict(zip(COLUMNS, line, strict=True))


def test_only_pools_alone_stand_beside_the_sources_table() -> None:
    found = [cells(line) for line in rows(a_flock_result())]
    alone = {row["pool"]: row for row in found if row["pools"] == "alone"}
    assert alone["A"]["source mean"] == "1.76"
    assert alone["D"]["source most"] == "557.55"
    assert alone["all"]["source mean"] == "131.20"
    flocked = [row for row in found if row["pools"] == "flock"]
    assert len(flocked) == 3
    assert {row["source mean"] for row in flocked} == {"-"}
    assert {row["ideal mean"] for row in flocked} == {"-"}


def test_every_row_has_a_cell_for_each_column() -> None:
    result = a_flock_result()
    assert {len(line) for line in rows(result)} == {len(COLUMNS)}
    assert {len(line) for line in gain_rows(result)} == {len(GAIN_COLUMNS)}


def test_what_flocking_is_worth_is_told_with_its_range() -> None:
    ((name, most, _, grown, elsewhere, idle, submitted),) = gain_rows(a_flock_result())
    assert (name, most) == ("flock", "10.0 (10.0-10.0)")
    assert (grown, elsewhere) == ("1.50 (1.50-1.50)", "25%")
    assert (idle, submitted) == ("40/90", "5/5")


def test_what_the_audit_finds_is_told() -> None:
    said = text(a_flock_result(a_run("with", 3, audit=LOST, faults=["the server of A killed"])))
    assert "4 tasks of 1 seed, 1 lost, 0 accepted twice" in said
    assert "seed 3: pool D: task D-7 has no accepted result" in said
    assert "seed 3: the server of A killed" in said


def test_a_part_of_the_traces_is_not_put_beside_the_source() -> None:
    assert "only the first 20 tasks of each pool" in text(a_flock_result(most_tasks=20))
    assert "only the first" not in text(a_flock_result())


def test_an_earlier_result_stands_beside_with_ratios_and_doubts() -> None:
    before = msgspec.structs.replace(a_flock_result(a_run("with", 2)), unit_seconds=0.1)
    said = comparison("old.json", before, a_flock_result(a_run("with", 1)))
    assert re.search(r"flock +D .* 50\.0 +100\.0 +0\.50", said)
    assert "a unit differs: 0.1 s and 0.05 s" in said
    assert "other seeds" in said


def test_nothing_in_common_is_no_comparison() -> None:
    said = comparison("old", a_flock_result(a_run("without")), a_flock_result(a_run("with")))
    assert said == "old has no run in common"


def test_the_sections_of_a_page() -> None:
    tail = ["In figures", "Where tasks ran that did not run at home", "Method"]
    assert Reader(a_flock_result()).headings == [
        "Pools that lend each other machines",
        "Queue times",
        "Who waits how long",
        "What flocking is worth, seed by seed",
        *tail,
    ]
    alone = Reader(a_flock_result(a_run("without"))).headings
    assert alone[0] == "Pools on their own"
    assert "What flocking is worth, seed by seed" not in alone


@pytest.mark.parametrize("modes", [("without",), ("with",), ("without", "with", "static")])
def test_a_page_needs_nothing_else_and_its_figures_speak(modes: tuple[str, ...]) -> None:
    runs = [a_run(mode, seed) for seed in (1, 2, 3) for mode in modes]  # type: ignore[arg-type]
    found = Reader(a_flock_result(*runs))
    assert found.open == []
    assert re.findall(r"https?://|@import|url\(|<script|<link|<iframe", found.source) == []
    assert not re.search(r"\b(nan|inf|None)\b", found.source)
    assert found.figures
    for words in found.figures:
        assert re.search(r"\d", words)


def test_a_legend_has_no_setting_that_its_figures_do_not_draw() -> None:
    source = flock_page(a_flock_result())
    before, gains = source.split("<h2>What flocking is worth, seed by seed</h2>")
    key = '<i class="key curve s0"></i>alone'
    assert key in before
    assert key not in gains
    assert '<i class="key curve s1"></i>flock' in gains


def test_ticks_of_a_distribution_are_written_out_however_long_somebody_waits() -> None:
    pools = [waits("A", 0.5, 1.5), waits("D", 100.0, 2_000_000.0)]
    source = flock_page(a_flock_result(a_run("without", 1, *pools)))
    labels = re.findall(r'<text style="text-anchor: middle[^>]*>([^<]*)<', source)
    assert "10,000,000" in labels
    assert not [each for each in labels if "e+" in each]


def test_a_page_says_at_its_head_that_something_was_lost() -> None:
    assert "1 tasks lost" in Reader(a_flock_result(a_run("with", audit=LOST))).text
    assert "No task was lost" in Reader(a_flock_result()).text


def test_a_report_can_be_read_again(tmp_path: Path) -> None:
    result = a_flock_result(command="kestrelctl bench flock")
    page, data, *plots = write_flock_report(tmp_path / "new", result)
    assert [plot.name for plot in plots] == ["flock-longest.svg", "flock-gains.svg"]
    for plot in plots:
        assert ElementTree.parse(plot).getroot().get("role") == "img"
        assert "prefers-color-scheme: dark" in plot.read_text(), "a reader's system may be dark"
    assert page.read_text().startswith("<!doctype html>")
    again = read_flock_result(tmp_path / "new")
    assert again.runs == result.runs
    assert read_flock_result(data) == again
    assert again.command == "kestrelctl bench flock"


def test_json_for_programs_has_a_summary_and_not_every_wait() -> None:
    found = msgspec.json.decode(to_json(a_flock_result()))
    assert "waits" not in found["runs"][0]["waits"][0]
    assert found["summary"][1]["gain"]["loaded_most"]["median"] == pytest.approx(10.0)


@pytest.mark.parametrize("data", [b"{}", b"no", b'{"schema": 99}'])
def test_what_is_no_result_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(UsageError):
        read_flock_result(tmp_path / "x.json")
    with pytest.raises(UsageError):
        read_flock_result(tmp_path / "missing.json")
