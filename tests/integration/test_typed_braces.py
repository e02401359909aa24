"""What is typed is what a task of a real pool runs: braces, items with quotes, long words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_desk import Desk

from kestrelctl.core.model.objection import MOST_ITEM_BYTES

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A user with a pool, which goes in the end."""
    found = Desk(tmp_path)
    found.types("kestrelctl up")
    yield found
    found.types("kestrelctl down --delete --yes")


def test_a_task_runs_what_was_typed(desk: Desk) -> None:
    desk.types("printf 'a\\nb\\n' >two.csv; printf '%s\\n' \"it's\" '$(touch pwned)' >items")
    desk.types("kestrelctl submit --wait -- find . -name two.csv -exec wc -l {} ';'")
    assert desk.types("kestrelctl job logs last") == ["2 ./two.csv"]

    desk.types("kestrelctl submit --array 7-8 --wait -- echo {} {{}} {{{i}}}")
    assert desk.types("kestrelctl job logs last 8") == ["8 {} {1}"]

    refused = desk.types("kestrelctl submit --each-line items -- sh -c 'echo {}' 2>&1; echo $?")
    assert refused[0] == "error: the pool would not take this job"
    assert refused[-1] == "2"
    assert any('write "$KESTREL_ITEM" there' in line for line in refused)
    desk.types("kestrelctl submit --each-line items --wait -- sh -c 'echo \"<$KESTREL_ITEM>\"'")
    assert desk.types("kestrelctl job logs last 0") == ["<it's>"]
    assert desk.types("kestrelctl job logs last 1") == ["<$(touch pwned)>"]
    assert desk.types("ls pwned 2>/dev/null") == []
    desk.types("kestrelctl submit --each-line items --paste-items --wait -- sh -c 'echo \"{}\"'")
    assert desk.types("ls pwned") == ["pwned"]


def test_the_longest_item_reaches_its_task_and_a_longer_one_is_refused(desk: Desk) -> None:
    desk.types(f"head -c {MOST_ITEM_BYTES} /dev/zero | tr '\\0' x >item")
    desk.types(
        "kestrelctl submit --each-line item --wait -- sh -c 'echo ${#KESTREL_ITEM} ${#0}' {}"
    )
    assert desk.types("kestrelctl job logs last") == [f"{MOST_ITEM_BYTES} {MOST_ITEM_BYTES}"]
    refused = desk.types("echo x | cat item - | kestrelctl submit --each-line - -- true 2>&1")
    assert f"the item of task 0 takes {MOST_ITEM_BYTES + 1:,} bytes" in " ".join(refused)
