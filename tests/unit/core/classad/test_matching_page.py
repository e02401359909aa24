"""docs/matching.md says what the code says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kestrelctl.core.classad.rules import FUNCTIONS
from kestrelctl.core.classad.syntax import MAX_CHARACTERS
from kestrelctl.core.handlers.submission import MOST_EXPRESSIONS
from kestrelctl.core.model.worker.matching_ads import (
    ALWAYS,
    IDENTITIES,
    JOB_ATTRIBUTES,
    MAX_ATTRIBUTES,
    WORKER_ATTRIBUTES,
)
from kestrelctl.core.model.worker.significance import interests
from kestrelctl.manager.requests.where import LISTED_JOB, LISTED_WORKER

PAGE = (Path(__file__).parents[4] / "docs" / "matching.md").read_text()
TABLES = re.findall(r"^\| of a (worker|job) \| \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)


def rows(table: str) -> dict[str, str]:
    found = {}
    for line in table.splitlines():
        names, what = line.strip("| ").split(" | ", 1)
        found[names.strip("`")] = what
    return found


@pytest.mark.parametrize(
    ("place", "known"),
    [*enumerate([WORKER_ATTRIBUTES, JOB_ATTRIBUTES, LISTED_WORKER, LISTED_JOB])],
)
def test_each_attribute_is_in_its_table(place: int, known: dict[str, str]) -> None:
    said = rows(TABLES[place][1])
    assert {name: said.get(name) for name in known} == known
    rest = [name for name in said if name not in known and "Asset" not in name]
    prefix = "Request" if place == 1 else ""
    always = "`, `".join(prefix + name.capitalize() for name in ALWAYS)
    assert rest == ([always] if place < 2 else [])


def test_its_lists_and_bounds_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"can be called: {', '.join(f'`{name}`' for name in FUNCTIONS)}." in text
    assert f"up to {MAX_CHARACTERS:,} characters" in text
    assert f"up to {MOST_EXPRESSIONS} different pairs" in text
    assert f"A worker has up to {MAX_ATTRIBUTES}." in text
    named = re.search(r"`(\w+)`, `(\w+)`, `(\w+)` and `(\w+)` can only be compared", text)
    assert named is not None
    assert {name.lower() for name in named.groups()} == IDENTITIES


def test_its_expressions_are_taken() -> None:
    given = [
        words[words.index(option) + 1]
        for line in re.findall(r"^(?:\$ )?(kestrelctl .*)$", PAGE, re.MULTILINE)
        if "> >" not in line
        for words in [shlex.split(line)]
        for option in ("--requirements", "--rank", "--start")
        if option in words
    ]
    assert len(given) >= 3
    for text in given:
        interests(text)
