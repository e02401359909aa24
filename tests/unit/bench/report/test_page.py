"""The report page: what is on it, that it needs nothing else, and that its plots are right."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import matplotlib
import msgspec
import pytest
from benchkit import MACHINE, a_cell, a_result, a_run, a_sweep, a_sweep_of

from kestrelctl.bench.report import figures
from kestrelctl.bench.report.directory import write_page
from kestrelctl.bench.report.markup import CSS
from kestrelctl.bench.report.page import Named, page
from kestrelctl.bench.report.plot import DASHES, WIDTH
from kestrelctl.bench.result import BenchResult, LatencyMs, to_json
from kestrelctl.errors import UsageError

#: How a line is drawn: a curve, one of what was started, one at the earliest possible end.
CURVE = "stroke: var(--s0); stroke-width: 2.4"
BEGUN = "stroke: var(--s0); stroke-width: 1.1"
END = "stroke-dasharray: 3,3; stroke-dashoffset: 0; stroke: var(--ink); stroke-width: 1.2"
EMPTY = {"meta", "br", "link", "img"}  # elements without an end


class Page(HTMLParser):
    """What a reader or a screen reader meets in a page."""

    def __init__(self, *named: tuple[str, BenchResult]) -> None:
        super().__init__()
        self.source = page([Named(*each) for each in named])
        self.text = ""
        self.headings: list[str] = []
        self.figures: list[str] = []
        self.loads: list[str] = []
        self.unclosed: list[str] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag == "svg":
            assert found["role"] == "img"
            self.figures.append(found["aria-label"] or "")
        self.loads += [str(found[name]) for name in ("src", "srcset", "href") if name in found]
        if tag not in EMPTY:
            self.unclosed.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Lines and dots of a drawing; they hold nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.unclosed[-1:] != ["style"]:
            self.text += data
        if self.unclosed[-1:] in (["h1"], ["h2"]):
            self.headings.append(data)


def drawings(found: Page) -> list[str]:
    """The drawings of a page, in their order."""
    return [part.partition("</svg>")[0] for part in found.source.split("<svg")[1:]]


def paths(drawing: str, style: str) -> list[list[tuple[float, float]]]:
    """The corners, in pixels, of the lines and areas that are drawn so."""
    found = re.findall(rf'<path d="([^"]*)"[^>]* style="[^"]*{re.escape(style)}', drawing)
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", path)]
        for path in found
    ]


def labels(drawing: str) -> list[tuple[float, str]]:
    """Where the labels of the horizontal axis stand, in pixels, and what they say."""
    style = "text-anchor: middle; fill: var\\(--ink\\)"
    found = re.findall(rf'<text style="{style}" x="([\d.]+)"[^>]*>([^<]*)<', drawing)
    return [(float(x), text) for x, text in found]


PAGES = {
    "one": [("now", a_result(a_run("0"), a_run("1"), a_run("10")))],
    "several": [("now", a_result(a_run("1"))), ("then", a_result(a_run("1"), a_run("5")))],
    "sweep": [("now", a_sweep())],
    "all": [("a", a_result(a_run("0"))), ("b", a_sweep()), ("c", a_sweep())],
}


@cache
def shown(name: str) -> Page:
    """One of the pages; drawing it takes a while."""
    return Page(*PAGES[name])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_needs_no_network_and_no_script(name: str) -> None:
    found = shown(name)
    assert found.unclosed == []
    assert found.loads == []
    assert re.findall(r"https?://|@import|url\(|<script|<link|<iframe", found.source) == []


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_says_in_words_what_it_shows(name: str) -> None:
    found = shown(name)
    assert found.figures
    for words in found.figures:
        assert re.search(r"\d", words)
        assert len(words) > 60


@pytest.mark.parametrize("name", PAGES)
def test_no_number_of_a_plot_is_lost(name: str) -> None:
    assert not re.search(r"\b(nan|inf|None)\b", shown(name).source)


def test_figures_tell_workers_from_the_tasks_that_each_runs() -> None:
    found = Page(("now", a_result(a_run("1", workers=1024, sessions=2))))
    assert "2x512 workers" in found.source
    assert "1,024 workers" not in found.source


def test_the_sections_of_a_page() -> None:
    tail = ["Latency", "Every run, and what it cost", "Reading the numbers", "Method"]
    beside = ["Beside 2009", "The curves", "Latency and cost", *tail[1:]]
    assert shown("one").headings == ["500 short tasks", *beside]
    efficiency = "Efficiency against task length"
    assert shown("sweep").headings == ["How short may tasks be?", efficiency, *tail]
    assert shown("all").headings == [
        "500 short tasks", f"{efficiency}: b", f"{efficiency}: c", *beside,
    ]  # fmt: skip


def test_runs_of_other_lengths_than_in_2009_stand_beside_nothing() -> None:
    found = Page(("now", a_result(a_run("5"))))
    assert "Makespan and rate" in found.headings
    assert "cluster" not in found.text


def test_makespans_stand_beside_2009_only_with_as_many_tasks() -> None:
    run = a_run("0", tasks=50_000, makespan_seconds=40.0)
    assert "103.0 s" in Page(("now", a_result(run))).source
    assert "103.0 s" not in Page(("now", a_result(a_run("0")))).source


def test_several_results_are_drawn_over_each_other_in_one_figure() -> None:
    found = shown("several")
    for words in found.figures[:4]:
        assert "now: 5 tasks a second" in words
        assert "then: 5 tasks a second" in words
    assert len(drawings(found)) == 9
    for drawing in drawings(found)[:4]:
        assert "stroke: var(--s0)" in drawing
        assert "stroke: var(--s1)" in drawing


def test_results_of_other_numbers_of_workers_say_so() -> None:
    few = msgspec.structs.replace(a_run("1"), workers=3)
    found = Page(("now", a_result(a_run("1"))), ("few", a_result(few)))
    assert "now on 10: 500 tasks in 100.0 s" in found.text
    assert '<span class="label">few on 3</span>' in found.source
    assert "few on 3" not in Page(("few", a_result(few))).text


def test_a_run_beyond_the_measured_limit_has_no_share_of_it() -> None:
    found = Page(("now", a_result(a_run("0", makespan_seconds=0.2))))
    assert ">100% of bare process starts" in found.text
    assert "125%" not in found.text


def test_the_legend_says_how_many_tasks_2009_took_its_time_for() -> None:
    assert "2009, mean: 50,000 tasks in 103 s" in shown("one").text


def test_the_knee_is_marked_and_told() -> None:
    found = shown("sweep")
    assert "10 workers: knee 10 ms" in found.source
    assert "100 workers: knee 0.1 s" in found.source
    assert "half of the time at 32 ms" in found.figures[0]
    assert "as many tasks as 20 s allow" in found.text


def test_a_tile_promises_only_what_was_measured() -> None:
    found = shown("sweep")
    tiles = re.findall(r'<div class="tile">(.*?)</div></div>', found.source)
    words = [re.sub(r"<[^>]*>", " ", each).split() for each in tiles]
    assert [" ".join(each) for each in words] == [
        "10 workers 0.42 s tasks keep them 90% busy measured. Knee 10 ms: 25% busy",
        "100 workers 0.79 s tasks keep them 90% busy measured. Knee 0.1 s: 45% busy",
    ]


def test_the_curves_are_over_seconds_and_show_what_was_dispatched() -> None:
    result = a_result(a_run("1", started_at=[0.5] * 500, finished_at=[100.0] * 500))
    found = Page(("now", result))
    axes = re.findall(r">(tasks \w+(?: per second)?|share of workers busy)</text>", found.source)
    assert axes == [
        "tasks completed", "share of workers busy",
        "tasks dispatched per second", "tasks finished per second",
    ]  # fmt: skip
    assert found.source.count(">seconds since submission</text>") == 4
    assert found.source.count(">80</text>") >= 4, "seconds stand at the axis"
    assert "share of the makespan" not in found.source
    assert [len(paths(each, BEGUN)) for each in drawings(found)[:4]] == [1, 0, 0, 0]
    assert [len(paths(each, CURVE)) for each in drawings(found)[:4]] == [1, 1, 1, 1]


def test_a_legend_has_the_dashes_of_its_curve() -> None:
    found = shown("several")
    for number, dashes in enumerate(DASHES[:2]):
        assert f'class="key curve s{number}"' in found.source
        dashed = f"stroke-dasharray: {','.join(map(str, dashes))}; " if dashes else "fill: none; "
        curve = rf"{dashed}(stroke-dashoffset: 0; )?stroke: var\(--s{number}\); stroke-width: 2.4"
        assert re.search(curve, drawings(found)[0])
    for number, dashes in enumerate(DASHES):
        key = re.search(rf"\.key\.curve\.s{number} {{([^}}]*)}}", CSS)
        assert (key is not None) == bool(dashes), "only a dashed curve has a dashed legend"
        if key:
            assert f"var(--c) 0 {dashes[0]}px" in key[1]


def test_runs_of_one_sleep_time_do_not_lie_on_each_other() -> None:
    few, many, again = a_run("0", workers=3), a_run("0", workers=30), a_run("0", workers=30)
    found = Page(("now", a_result(few, many, again)), ("then", a_result(few)))
    names = re.findall(r"<h3>(sleep [^<]*)</h3>", found.source)
    assert names == [
        "sleep 0 on 3 workers", "sleep 0 on 30 workers, run 1", "sleep 0 on 30 workers, run 2",
    ]  # fmt: skip
    assert [words.count("on 30 workers") for words in found.figures[:12]] == [0] * 4 + [1] * 8
    assert "then: " in found.figures[0]


def test_a_result_that_ended_early_says_so_at_the_top() -> None:
    result = a_result(a_run("0"), ended_early="SIGTERM after 1 of 4 runs")
    assert "now: ended early by SIGTERM after 1 of 4 runs." in Page(("now", result)).text


def test_a_share_above_the_limit_is_explained_on_the_page() -> None:
    found = Page(("now", a_result(a_run("0", makespan_seconds=0.2))))
    assert "sleep 0: more tasks a second than the bare rate" in found.text


def test_the_spread_of_the_bare_rate_is_on_the_page() -> None:
    result = a_result(a_run("0"), spawn_rates_per_second=[2000.0, 500.0])
    assert "2,000 processes per second, bare (best of 2, the lowest 500)" in (
        Page(("now", result)).text
    )


def test_labels_of_an_axis_differ_however_small_its_steps_are() -> None:
    short = a_run("0", makespan_seconds=0.05, started_at=[0.01] * 500, finished_at=[0.04] * 500)
    found = labels(drawings(Page(("now", a_result(short))))[0])
    assert [text for _, text in found] == ["0", "0.05", "0.1", "0.15", "0.2", "0.25"]


def test_labels_of_an_axis_over_decades_are_of_one_unit_and_have_no_exponent() -> None:
    cells = [a_cell(sleep, 10, 0.5) for sleep in ("0.05", "1", "120")]
    found = Page(("now", a_sweep_of(a_run("0", makespan_seconds=0.001), *cells)))
    words = [text for _, text in labels(drawings(found)[0])]
    assert words == ["0.00001", "0.001", "0.1", "10", "1,000"]


def test_labels_of_an_axis_over_many_decades_do_not_touch() -> None:
    slow = a_run("0", latency_ms=LatencyMs(p50=0.02, p99=9_000.0))
    found = Page(("now", a_result(slow)))
    drawing = next(each for each in drawings(found) if "Latency of dispatch" in each)
    assert [text for _, text in labels(drawing)] == ["0.01", "1", "100", "10,000"]
    places = [x for x, _ in labels(drawing)]
    assert min(b - a for a, b in pairwise(places)) > 70


def test_a_run_whose_latency_is_not_known_has_a_page() -> None:
    unknown = a_run("0", latency_ms=LatencyMs(p50=0.0, p99=0.0))
    assert "Latency and cost" in Page(("now", a_result(unknown))).headings


def test_results_without_curves_make_a_page() -> None:
    result = msgspec.json.decode(to_json(a_result(a_run("0"))), type=BenchResult)
    assert "The curves" not in Page(("now", result)).headings


def test_a_pool_whose_processes_are_elsewhere_has_no_figure_of_cost() -> None:
    run = a_run(server_cpu_seconds=0.0, manager_cpu_seconds=0.0, worker_cpu_seconds=0.0)
    assert "CPU time per task" not in Page(("now", a_result(run))).text


def test_names_from_outside_cannot_become_markup() -> None:
    machine = msgspec.structs.replace(MACHINE, cpu_model="<script>x</script>")
    result = a_result(a_run(), machine=machine, command="sweep && <b>")
    found = Page(('<i>"a"', result), ("b", result))
    assert "<script>" not in found.source
    assert '<i>"a"' not in found.source
    assert "sweep && <b>" in found.text


def test_lost_tasks_are_not_hidden() -> None:
    assert "7 tasks lost" in Page(("now", a_result(a_run("0", lost=7)))).text


# -- a page of files -------------------------------------------------------------------------------


def test_a_page_of_several_files_names_them(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / f"{name}.json").write_bytes(to_json(a_result(a_run("0"))))
    write_page(tmp_path / "talk.html", [tmp_path / "new.json", tmp_path / "old.json"])
    text = (tmp_path / "talk.html").read_text()
    assert text.index(">new<") < text.index(">old<")


def test_more_results_than_can_be_told_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="7 results are too many"):
        write_page(tmp_path / "talk.html", [tmp_path] * 7)


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(to_json(a_result(a_run("0"))))
    with pytest.raises(UsageError, match="cannot be written"):
        write_page(tmp_path / "no" / "such" / "talk.html", [tmp_path / "a.json"])


# -- drawing ---------------------------------------------------------------------------------------


def test_a_plot_is_as_light_or_dark_as_its_page() -> None:
    drawn = drawings(shown("one")) + drawings(shown("sweep"))
    assert drawn
    for drawing in drawn:
        colours = set(re.findall(r"(?:fill|stroke): ?([^;\"]+)", drawing))
        assert colours <= {"none", *(f"var({name})" for name in re.findall(r"(--\w+):", CSS))}
        assert "font" not in drawing, "a page says how large text is, and how it looks"


def test_the_same_result_makes_the_same_page() -> None:
    assert Page(*PAGES["all"]).source == Page(*PAGES["all"]).source


def test_no_two_things_on_a_page_have_one_name() -> None:
    names = re.findall(r' id="([^"]*)"', shown("several").source)
    assert len(names) > 1
    assert len(names) == len(set(names))


def test_a_user_s_settings_of_matplotlib_change_no_page() -> None:
    usual = Page(*PAGES["one"]).source
    with matplotlib.rc_context({"axes.linewidth": 9.0, "axes.grid": True, "font.size": 3.0}):
        assert Page(*PAGES["one"]).source == usual


@pytest.mark.parametrize("most", [1, 7, 917, 50_000])
def test_an_axis_reaches_the_highest_value_with_few_ticks(most: int) -> None:
    run = a_run("0", tasks=most, started_at=[0.1] * most, finished_at=[0.2] * most)
    drawing = drawings(Page(("now", a_result(run))))[0]
    marks = re.findall(r'text-anchor: end; fill: var\(--ink\)"[^>]*>([\d,.]+)<', drawing)
    values = [float(mark.replace(",", "")) for mark in marks]
    assert values[0] == 0
    assert values[-1] >= most
    assert len(values) <= 7


def test_stairs_are_level_between_edges() -> None:
    result = a_result(a_run("1", started_at=[0.5] * 500, finished_at=[50.0] * 250 + [100.0] * 250))
    (curve,) = paths(drawings(Page(("now", result)))[0], CURVE)
    assert len(curve) > 4
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(curve))


def test_a_page_drops_no_curve_of_a_sweep() -> None:
    counts = [10 * (number + 1) for number in range(figures.MOST_SERIES + 1)]
    cells = [a_cell(sleep, workers, 0.5) for workers in counts for sleep in ("0.1", "1")]
    found = Page(("now", a_sweep_of(*cells)))
    drawn = [each for each in found.figures if each.startswith("Efficiency")]
    assert [re.findall(r"(\d+) workers:", each) for each in drawn] == [
        [str(count) for count in counts[: figures.MOST_SERIES]],
        [str(counts[-1])],
    ]


def test_a_curve_of_two_points_is_drawn_for_a_sweep_alone() -> None:
    cells = [a_cell(sleep, 10, 0.5) for sleep in ("0.1", "1")]
    heading = "Efficiency against task length"
    assert heading in Page(("now", a_sweep_of(*cells))).headings
    assert heading not in Page(("now", a_result(*cells))).headings


def test_a_legend_has_nothing_that_is_not_drawn() -> None:
    without_knee = [a_cell(sleep, 10, 0.9) for sleep in ("0.1", "1", "10")]
    found = Page(("now", a_sweep_of(*without_knee)))
    assert "Diamonds" not in found.text
    assert "Rings" not in found.text
    found = shown("sweep")
    assert "Diamonds" in found.text
    assert "Rings" in found.text
    limit = "limit of this machine and its workers"
    unlimited = a_run("0", executor="inline")
    assert limit not in Page(("now", a_result(unlimited))).text
    assert limit in shown("one").text


def test_the_earliest_possible_end_is_drawn_and_in_the_legend() -> None:
    run = a_run("1")
    found = Page(("now", a_result(run)))
    upright = [bool(paths(each, END)) for each in drawings(found)[:4]]
    assert upright == [True, True, False, False], "of tasks completed and of workers busy"
    assert "all workers busy: 10/s; the earliest possible end: 50.0 s" in found.text
    unlimited = Page(("now", a_result(a_run("0", executor="inline"))))
    assert "earliest possible end" not in unlimited.text
    assert not any(paths(each, END) for each in drawings(unlimited))


def test_an_end_beyond_the_run_is_still_inside_the_drawing() -> None:
    """A run can be faster than the limit that was measured."""
    found = Page(("now", a_result(a_run("0", makespan_seconds=0.2))))
    ((low, _),) = paths(drawings(found)[0], END)
    assert low[0] <= WIDTH


def test_the_rate_of_each_bin_is_behind_that_which_lasts() -> None:
    finished_at = [5.0] * 250 + [80.0] * 250
    found = Page(("now", a_result(a_run("1", started_at=[0.5] * 500, finished_at=finished_at))))
    drawing = drawings(found)[3]
    (area,) = paths(drawing, "fill: var(--s0); opacity: 0.16")
    (line,) = paths(drawing, CURVE)
    highest = [min(y for _, y in each) for each in (area, line)]
    assert highest[0] < highest[1], "a bin has more tasks a second than a lasting mean"


def test_a_curve_of_one_cell_has_its_knee_too() -> None:
    cells = [a_cell(sleep, 10, 0.5) for sleep in ("0", "0.1", "1", "10")]
    assert "10 workers: knee 10 ms" in Page(("now", a_result(*cells))).source
