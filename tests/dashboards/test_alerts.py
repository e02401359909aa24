"""The alerts: right by promtool, each tried both ways, each with a panel and a page behind it."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from typing import Any

import pytest
import yaml
from dashboardkit import (
    ALERT_TESTS,
    CHECKOUT,
    RULES,
    alerts,
    boards,
    panels,
    raw_names,
    recordings,
    rules,
    tool,
)

#: Always fires, so that its absence is noticed; the field's own name for it.
WATCHDOG = "Watchdog"
NAMES = sorted(alerts().keys() - {WATCHDOG})
CASES = [case for file in ALERT_TESTS for case in yaml.safe_load(file.read_text())["tests"]]


def promtool(*words: str) -> str:
    done = subprocess.run(
        [tool("promtool"), *words], capture_output=True, text=True, timeout=60, cwd=CHECKOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    said = promtool("check", "rules", *map(str, RULES))
    found = sum(int(number) for number in re.findall(r"(\d+) rules found", said))
    assert found == len(rules()) > 10


def test_promtool_sees_alerts_come_and_stay_away_as_the_cases_say() -> None:
    said = promtool("test", "rules", *map(str, ALERT_TESTS))
    assert said.count("SUCCESS") == len(ALERT_TESTS)


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_case_before_one_that_fires_and_one_that_does_not(name: str) -> None:
    seen: Counter[str] = Counter()
    for case in CASES:
        answers = [
            bool(check["exp_alerts"])
            for check in case.get("alert_rule_test", [])
            if check["alertname"] == name
        ]
        if True in answers:
            assert answers[0] is False, "the first look is from before `for` has passed"
            seen["fires"] += 1
        elif answers:
            seen["stays away"] += 1
    assert seen["fires"] >= 1
    assert seen["stays away"] >= 1


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_says_what_is_wrong_and_how_bad_it_is(name: str) -> None:
    alert = alerts()[name]
    assert re.fullmatch(r"Kestrel[A-Z][A-Za-z]+", name)
    assert alert["labels"] == {"severity": alert["labels"]["severity"]}
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert set(alert["annotations"]) == {"summary", "description", "dashboard_url", "runbook"}
    assert "{{ $labels." in alert["annotations"]["summary"]
    assert re.fullmatch(r"\d+[mh]", alert["for"])


def test_one_alert_fires_always_and_asks_for_no_series() -> None:
    watchdog = alerts()[WATCHDOG]
    assert (watchdog["expr"], "for" in watchdog) == ("vector(1)", False)
    assert watchdog["labels"] == {"severity": "none"}, "it must reach nobody by its severity"
    looks = [
        bool(check["exp_alerts"])
        for case in CASES
        for check in case.get("alert_rule_test", [])
        if check["alertname"] == WATCHDOG
    ]
    assert looks == [True, True]


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_leads_to_a_panel_that_shows_what_it_is_about(name: str) -> None:
    url = alerts()[name]["annotations"]["dashboard_url"]
    place = re.search(r"/d/([a-z-]+)\?viewPanel=(\d+)(?:&var-(manager|host)=)?", url)
    assert place, url
    expr = alerts()[name]["expr"]
    whose = None if "by (host)" in expr else "host" if "kestrel-worker" in expr else "manager"
    assert place[3] == whose, "of which host?"
    found = [p for p in panels(boards()[place[1]]) if p["id"] == int(place[2])]
    assert len(found) == 1, f"{place[1]} has no panel {place[2]}"
    shown = set().union(*(raw_names(target["expr"]) for target in found[0]["targets"]))
    assert shown & raw_names(alerts()[name]["expr"]), f"{found[0]['title']} shows {shown}"


def test_every_alert_has_its_paragraph_and_no_other_has() -> None:
    page = (CHECKOUT / "docs" / "alerts.md").read_text()
    headings = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert sorted(headings) == sorted(alerts())
    for name in alerts():
        assert alerts()[name]["annotations"]["runbook"] == f"docs/alerts.md#{name.lower()}"
        paragraph = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert len(paragraph.split()) > 30, f"{name}: too short to help"


def level_and_metric(name: str) -> Any:
    return re.fullmatch(r"instance:kestrel_\w+:\w+", name)


def test_recorded_names_are_level_metric_operation_and_are_used() -> None:
    asked = " ".join(
        [rule["expr"] for rule in alerts().values()]
        + [t["expr"] for b in boards().values() for p in panels(b) for t in p["targets"]]
    )
    assert recordings()
    for name in recordings():
        assert level_and_metric(name), name
        assert name in asked, f"nobody asks for {name}"
