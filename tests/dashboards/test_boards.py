"""The dashboards: made as described, complete, valid, and asking only for what there is."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboardkit import (
    CHECKOUT,
    DASHBOARDS,
    boards,
    expressions,
    metric_names,
    panels,
    recordings,
    selectors,
    substituted,
    tool,
)
from grafana_definitions import problems

UIDS = sorted(boards())
EXPRESSIONS = [*expressions()]

#: The data source that is chosen at the top of a board.
CHOSEN = {"type": "prometheus", "uid": "${datasource}"}
#: Base units, as the metrics are in: number, seconds, per second, 0 to 1, IEC bytes, SI bytes/s.
UNITS = {"short", "s", "ops", "percentunit", "bytes", "Bps"}

#: What Prosody 0.12 serves that is used here, and what Prometheus makes itself.
FOREIGN = {
    "prosody_mod_c2s__connections": {"host", "type", "ip_family"},
    "prosody_stats_collection_seconds": set(),
    "up": set(),
    "scrape_duration_seconds": set(),
    "ALERTS": {"alertname", "alertstate"},
}


def exported() -> dict[str, tuple[str, set[str]]]:
    """Name -> (type, labels) of all that docs/metrics.md lists, of a manager or a worker."""
    found: dict[str, tuple[str, set[str]]] = {}
    for line in (CHECKOUT / "docs" / "metrics.md").read_text().splitlines():
        if line.startswith("| `") and line.count("|") >= 5:
            name, kind, labels = (cell.strip() for cell in line.strip("|").split("|")[:3])
            seen = found.get(name.strip("`"), (kind, set()))[1]
            found[name.strip("`")] = (kind, seen | set(re.findall(r"\w+", labels)))
    return found


EXPORTED = exported()


def labels_of(name: str) -> set[str] | None:
    """The labels that series of this name can have besides `job` and `instance`, if there are."""
    if name in recordings():
        return set()
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    if family != name and EXPORTED.get(family, ("",))[0] == "histogram":
        return EXPORTED[family][1] | ({"le"} if name.endswith("_bucket") else set())
    if name in EXPORTED:
        return EXPORTED[name][1]
    return FOREIGN.get(name, FOREIGN.get(family))


# -- the files -------------------------------------------------------------------------------------


def test_the_committed_files_are_what_the_descriptions_make(tmp_path: Path) -> None:
    command = [sys.executable, "-B", str(DASHBOARDS / "generate.py"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=30)
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    committed = {file.name: file.read_text() for file in DASHBOARDS.glob("*.json")}
    assert made == committed
    assert len(made) == 9


@pytest.mark.parametrize("uid", UIDS)
def test_a_board_says_only_what_grafana_knows(uid: str) -> None:
    assert problems(boards()[uid]) == []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("timeseries", ("options", "legend", "colour"), "green"),
        ("timeseries", ("options", "legend", "placement"), "left"),
        ("timeseries", ("options", "legend", "showLegend"), "yes"),
        ("timeseries", ("options", "graphMode"), "area"),  # a stat's
        ("timeseries", ("fieldConfig", "defaults", "custom", "lineWidth"), "1"),
        ("timeseries", ("fieldConfig", "defaults", "custom", "cellOptions"), {"type": "auto"}),
        ("timeseries", ("fieldConfig", "defaults", "color", "mode"), "rainbow"),
        ("timeseries", ("fieldConfig", "defaults", "unit"), "furlongs"),
        ("timeseries", ("fieldConfig", "defaults", "thresholds", "steps", 0, "value"), "0"),
        ("timeseries", ("gridPos", "w"), 7.5),
        ("timeseries", ("type",), "graph"),
        ("timeseries", ("targets", 0, "legend"), "{{worker}}"),
        ("timeseries", ("targets", 0, "format"), "timeseries"),
        ("timeseries", ("targets", 0, "instant"), 1),
        ("timeseries", ("datasource", "type"), "promotheus"),
        ("stat", ("options", "reduceOptions", "calcs"), "lastNotNull"),
        ("stat", ("fieldConfig", "defaults", "custom"), {"lineWidth": 1}),
        ("stat", ("links",), [{"title": "More", "href": "/d/kestrel-workers"}]),
        ("heatmap", ("options", "yAxis", "unit"), "furlongs"),
        ("heatmap", ("options", "color", "steps"), "many"),
        ("table", ("options", "cellHeight"), "tiny"),
        ("table", ("transformations", 0, "option"), {}),
        ("table", ("fieldConfig", "overrides", 0, "properties", 0, "id"), "units"),
        ("table", ("fieldConfig", "overrides", 0, "properties", 0, "value"), "furlongs"),
        ("bargauge", ("options", "valueMode"), "colour"),
        ("state-timeline", ("options", "alignValue"), "top"),
        ("row", ("folded",), True),
        ("", ("graphToolTip",), 1),
        ("", ("graphTooltip",), 3),
        ("", ("tags",), "kestrel"),
        ("", ("links", 0, "type"), "menu"),
        ("", ("templating", "list", 1, "refresh"), "always"),
        ("", ("templating", "list", 1, "type"), "label"),
        ("", ("annotations", "list", 0, "color"), "green"),
        ("", ("annotations", "list", 1, "target", "interval"), 60),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_what_grafana_does_not_know_is_found(kind: str, path: tuple[Any, ...], value: Any) -> None:
    place: Any = {**copy.deepcopy(boards()["kestrel-bench"]), "panels": []}
    board = place
    if kind:
        every = (panel for each in boards().values() for panel in each["panels"])
        place = copy.deepcopy(next(panel for panel in every if panel["type"] == kind))
        board["panels"] = [place]
    assert problems(board) == []
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert problems(board) != []


# -- our own conventions ---------------------------------------------------------------------------


@pytest.mark.parametrize("uid", UIDS)
def test_a_board_explains_itself_and_asks_the_chosen_data_source(uid: str) -> None:
    board = boards()[uid]
    assert re.fullmatch(r"kestrel-[a-z]+", uid)
    assert board["title"]
    assert board["description"]
    assert re.fullmatch(r"now-\d+[mhd]", board["time"]["from"])
    assert re.fullmatch(r"\d+[sm]", board["refresh"])
    built_in, *annotations = board["annotations"]["list"]
    assert built_in["builtIn"] == 1
    choice, *variables = board["templating"]["list"]
    assert (choice["type"], choice["name"], choice["query"]) == (*["datasource"] * 2, "prometheus")
    for asking in [*annotations, *variables]:
        assert asking["datasource"] == CHOSEN, asking["name"]


@pytest.mark.parametrize("uid", UIDS)
def test_a_panel_explains_itself_and_its_numbers(uid: str) -> None:
    assert panels(boards()[uid])
    for each in panels(boards()[uid]):
        assert each["title"]
        assert each["description"], each["title"]
        assert {each["fieldConfig"]["defaults"]["unit"]} <= UNITS, each["title"]
        # Without limits of its own Grafana would call everything from 80 on red.
        assert "thresholds" in each["fieldConfig"]["defaults"] or each["type"] == "heatmap"
        refs = [target["refId"] for target in each["targets"]]
        assert refs, each["title"]
        assert len(refs) == len(set(refs)), each["title"]
        for asking in [each, *each["targets"]]:
            assert asking["datasource"] == CHOSEN, each["title"]


def test_transformations_have_the_options_that_they_take() -> None:
    known = {"merge": set(), "organize": {"excludeByName", "indexByName", "renameByName"}}
    found = [
        (each["title"], transformation)
        for board in boards().values()
        for each in panels(board)
        for transformation in each.get("transformations", [])
    ]
    assert found
    for title, transformation in found:
        assert set(transformation["options"]) <= known[transformation["id"]], title


# -- how it is laid out ----------------------------------------------------------------------------


@pytest.mark.parametrize("uid", UIDS)
def test_numbers_and_titles_are_unique_and_nothing_overlaps(uid: str) -> None:
    board = boards()[uid]
    numbers = [each["id"] for each in board["panels"]]
    assert len(numbers) == len(set(numbers))
    taken: dict[tuple[int, int], str] = {}
    for each in board["panels"]:
        place = each["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        assert place["h"] > 0
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{each['title']} lies on {taken[x, y]}"
                taken[x, y] = each["title"]


@pytest.mark.parametrize("uid", UIDS)
def test_a_stat_says_in_colour_what_its_number_means(uid: str) -> None:
    assert panels(boards()[uid])
    for each in panels(boards()[uid]):
        steps = each["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        values = [step["value"] for step in steps]
        if steps:
            assert values[0] is None, each["title"]
            assert values[1:] == sorted(values[1:]), each["title"]
        if each["type"] == "stat" and "mappings" not in each["fieldConfig"]["defaults"]:
            assert {step["color"] for step in steps} <= {"green", "blue", "red", "yellow", "orange"}


def test_links_lead_to_boards_that_exist_and_every_board_can_be_reached() -> None:
    reached = set()
    for board in boards().values():
        assert [link["tags"] for link in board["links"]] == [["kestrel"]]
        assert board["tags"] == ["kestrel"]
        for each in panels(board):
            for link in each.get("links", []):
                uid = re.match(r"/d/([a-z-]+)\?", link["url"])
                assert uid, link
                assert uid[1] in boards()
                assert uid[1] != board["uid"], f"{each['title']} leads to where one is"
                reached.add(uid[1])
    assert reached | {"kestrel-overview", "kestrel-bench"} == set(UIDS)


# -- what it asks for ------------------------------------------------------------------------------


def test_every_expression_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"x:{number}", "expr": expression.substituted}
        for number, expression in enumerate(EXPRESSIONS)
    ]
    assert len(rules) > 150
    file = tmp_path / "expressions.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": rules}]}))
    done = subprocess.run(
        [tool("promtool"), "check", "rules", str(file)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_asks_for_what_there_is(expression: Any) -> None:
    names = metric_names(expression.text)
    assert names
    assert {name for name in names if labels_of(name) is None} == set(), "nothing exports these"
    for name, labels in selectors(expression.text):
        assert labels - {"job", "instance"} <= (labels_of(name) or set()), name


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_a_rate_fits_the_resolution_of_the_graph(expression: Any) -> None:
    assert set(re.findall(r"rate\([^\[]*\[([^\]]*)\]", expression.text)) <= {"$__rate_interval"}
    fixed = set(re.findall(r"\[([^\]]*)\]", expression.text)) - {"$__rate_interval", "$__range"}
    if fixed - {"$__range:"}:
        assert "last hour" in expression.title or expression.title in {"Jobs begin", "Jobs end"}


@pytest.mark.parametrize("uid", UIDS)
def test_variables_are_defined_and_used(uid: str) -> None:
    board = boards()[uid]
    defined = {variable["name"] for variable in board["templating"]["list"]}
    asked = " ".join(
        [*(e.text for e in EXPRESSIONS if e.board == uid)]
        + [v.get("definition", "") for v in board["templating"]["list"]]
    )
    used = set(re.findall(r"\$(\w+)", asked)) - {"__rate_interval", "__range"}
    assert used | {"datasource"} == defined
    for variable in board["templating"]["list"]:
        if "definition" in variable:
            text = substituted(variable["definition"])
            asked_for = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", text)
            assert asked_for, text
            known = labels_of(asked_for[1])
            assert known is not None, text
            assert asked_for[2] in known | {"instance"}, text


def test_names_are_found_in_expressions() -> None:
    text = (
        'topk(3, sum by (a_label) (rate(one_total{x="y{z}"}[5m] offset 1m))) '
        "/ on (b) group_left (c) (job:two:sum > bool 0) or vector(0) and 1e3 < time()"
    )
    assert metric_names(text) == {"one_total", "job:two:sum"}
