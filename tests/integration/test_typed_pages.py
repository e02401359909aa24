"""What pages of the documents show of a terminal is what a terminal shows."""

from __future__ import annotations

import pytest
from page_desk import Desk, as_far_as_shown, typed_lines

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize(
    ("page", "lines"),
    [("events.md", 7), ("queue.md", 8), ("spanning.md", 5), ("files.md", 44), ("workflows.md", 20)],
)
def test_a_page_shows_what_happens(desk: Desk, page: str, lines: int) -> None:
    typed = 0
    for line, shown in typed_lines(page):
        seen, wanted = as_far_as_shown(desk.types(line), shown)
        assert seen == wanted, line
        typed += 1
    assert typed == lines
