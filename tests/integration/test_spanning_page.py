"""What docs/spanning.md shows of a terminal is what a terminal shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_desk import Desk, as_far_as_shown, typed_lines

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path)
    yield found
    found.types("kestrelctl down --delete --yes")


def test_the_page_shows_what_happens(desk: Desk) -> None:
    typed = 0
    for line, shown in typed_lines("spanning.md"):
        seen, wanted = as_far_as_shown(desk.types(line), shown)
        assert seen == wanted, line
        typed += 1
    assert typed == 5
