"""Dashboards, rules and alerts as the tests read them: the committed files, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[2]
DASHBOARDS = CHECKOUT / "dashboards"
RULES = sorted((DASHBOARDS / "rules").glob("*.yml"))
ALERT_TESTS = sorted((CHECKOUT / "tests" / "alerts").glob("*.yml"))

#: What Grafana puts in for variables when nothing is chosen, and for its own at a short range.
SUBSTITUTES = {
    "$__rate_interval": "15s",
    "$__range": "60s",
    "$manager": ".+",
    "$worker": ".+",
    "$host": ".+",
    "$server": ".+",
}

_KEYWORDS = set(["and", "or", "unless", "bool", "offset", "inf", "nan"])
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"(?<![\w:.$])[a-zA-Z_:][\w:]*(?![\w:]|\s*\()")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")


@dataclass(frozen=True)
class Expression:
    """A query of a panel or of an annotation."""

    board: str
    title: str
    text: str
    legend: str
    instant: bool

    @property
    def substituted(self) -> str:
        """With values for its variables."""
        return substituted(self.text)

    def __str__(self) -> str:
        return f"{self.board} / {self.title}: {self.text}"


@cache
def boards() -> dict[str, dict[str, Any]]:
    """The committed dashboards by uid."""
    found = [json.loads(file.read_text()) for file in sorted(DASHBOARDS.glob("*.json"))]
    return {board["uid"]: board for board in found}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Its panels, without the rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions() -> list[Expression]:
    """Every query of every panel and annotation."""
    found = []
    for uid, board in boards().items():
        for panel in panels(board):
            for target in panel["targets"]:
                legend = "" if target["legendFormat"] == "__auto" else target["legendFormat"]
                found.append(
                    Expression(uid, panel["title"], target["expr"], legend, target["instant"])
                )
        for annotation in board["annotations"]["list"]:
            if "target" in annotation:
                text, legend = annotation["target"]["expr"], annotation["titleFormat"]
                found.append(Expression(uid, annotation["name"], text, legend, False))
    return found


def substituted(text: str, **others: str) -> str:
    """An expression with values for Grafana's variables; others than usual by their names."""
    values = SUBSTITUTES | {f"${name}": value for name, value in others.items()}
    for name, value in values.items():
        text = text.replace(name, value)
    assert "$" not in text, f"an unknown variable in {text}"
    return text


def rules() -> list[dict[str, Any]]:
    """All rules of all groups."""
    documents = [yaml.safe_load(file.read_text()) for file in RULES]
    return [
        rule for document in documents for group in document["groups"] for rule in group["rules"]
    ]


def alerts() -> dict[str, dict[str, Any]]:
    """Alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recordings() -> dict[str, str]:
    """Recorded names and their expressions."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def metric_names(text: str) -> set[str]:
    """The names of the series that an expression asks for."""
    bare = re.sub(r'"[^"]*"', '""', text)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    return set(_NAME.findall(_GROUPING.sub(" ", bare))) - _KEYWORDS


def raw_names(text: str) -> set[str]:
    """The same, with recorded names replaced by those that they are made from."""
    known = recordings()
    found: set[str] = set()
    for name in metric_names(text):
        found |= raw_names(known[name]) if name in known else {name}
    return found


def selectors(text: str) -> list[tuple[str, set[str]]]:
    """Each `name{...}` and the labels in its braces."""
    return [
        (name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", body)))
        for name, body in _SELECTOR.findall(text)
    ]


def tool(name: str) -> str:
    """The path of a program of the package prometheus."""
    found = shutil.which(name)
    assert found, f"{name} is not installed: apt-get install --no-install-recommends prometheus"
    return found
