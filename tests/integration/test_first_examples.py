"""The first example of every page works when it is pasted, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from console_blocks import Typed, expects_failure, lines_missing, typed
from page_desk import DOCS, Desk

pytestmark = pytest.mark.timeout(180)

#: All of these pages is typed, by test_typed_pages.py and test_aggregates_page.py.
TYPED_WHOLLY = ("aggregates.md", "events.md", "files.md", "queue.md", "spanning.md", "workflows.md")
#: What the others' first examples need.
NOT_HERE = {
    "chat.md": "a person at a chat client: test_chat_in_terminal.py",
    "dashboards.md": "a Grafana server",
    "environments-experiment.md": "hours",
    "environments.md": "numpy from a package index",
    "flock-experiment.md": "hours",
    "flock-simulation.md": "minutes to hours",
    "operations.md": "a host with systemd: tests/walk/walk.py",
    "performance.md": "many minutes",
    "protocol.md": "an account on a server: test_simple_worker.py",
}


def first_example(page: Path) -> list[Typed]:
    """The commands of a page's first block that is typed."""
    text = page.read_text()
    block = re.search(r"^```console\n.*?^```$", text, re.MULTILINE | re.DOTALL)
    return list(typed(block[0] + "\n")) if block else []


PAGES = [
    page.name
    for page in sorted(DOCS.glob("*.md"))
    if first_example(page) and page.name not in {*TYPED_WHOLLY, *NOT_HERE}
]


@pytest.mark.parametrize("page", PAGES)
def test_the_first_example_works_when_pasted(desk: Desk, page: str) -> None:
    steps = first_example(DOCS / page)
    assert steps
    try:
        for step in steps:
            status, seen = desk.pastes(step.command)
            assert (status != 0) == expects_failure(step.shown), seen
            assert lines_missing(step.shown, seen) == [], seen
    finally:
        for step in steps:
            for name in re.findall(r" up --name (\w+)", step.command):
                desk.types(f"kestrelctl down --name {name} --delete --yes")


def test_no_page_is_excused_that_has_no_example() -> None:
    excused = [*TYPED_WHOLLY, *NOT_HERE]
    assert [name for name in excused if not first_example(DOCS / name)] == []
