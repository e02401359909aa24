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
from grafana_schema import BOARD, KINDS, ROW, panel
from jsonschema import Draft202012Validator

UIDS = sorted(boards())
EXPRESSIONS = [*expressions()]

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
    assert len(made) == 7


@pytest.mark.parametrize("uid", UIDS)
def test_a_board_has_the_form_that_grafana_reads(uid: str) -> None:
    board = boards()[uid]
    found = problems(BOARD, board)
    for each in board["panels"]:
        assert each["type"] in {*KINDS, "row"}, "not a panel of Grafana's own"
        schema = ROW if each["type"] == "row" else panel(each["type"])
        found += [f"{each['title']}: {problem}" for problem in problems(schema, each)]
    assert not found, "\n".join(found)


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    return [
        f"{error.json_path}: {error.message[:200]}"
        for error in Draft202012Validator(schema).iter_errors(value)
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("options", "legend", "placement"), "left"),
        (("options", "colour"), "green"),
        (("fieldConfig", "defaults", "unit"), "furlongs"),
        (("datasource", "uid"), "kestrel-prometheus"),
        (("gridPos", "w"), 25),
        (("description",), ""),
        (("targets",), []),
    ],
    ids=lambda value: str(value),
)
def test_the_schema_finds_what_is_wrong(path: tuple[str, ...], value: Any) -> None:
    board = boards()["kestrel-overview"]
    broken = copy.deepcopy(next(p for p in panels(board) if p["type"] == "timeseries"))
    assert not problems(panel("timeseries"), broken)
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert problems(panel("timeseries"), broken)


# -- how it is laid out ----------------------------------------------------------------------------


@pytest.mark.parametrize("uid", UIDS)
def test_numbers_and_titles_are_unique_and_nothing_overlaps(uid: str) -> None:
    board = boards()[uid]
    numbers = [each["id"] for each in board["panels"]]
    assert len(numbers) == len(set(numbers))
    taken: dict[tuple[int, int], str] = {}
    for each in board["panels"]:
        place = each["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{each['title']} lies on {taken[x, y]}"
                taken[x, y] = each["title"]


@pytest.mark.parametrize("uid", UIDS)
def test_a_stat_says_in_colour_what_its_number_means(uid: str) -> None:
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
