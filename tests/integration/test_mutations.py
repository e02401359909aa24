"""Whatever users, workers and neighbours send, it is answered or refused, and the manager goes on.

Many more: `.venv/bin/python tests/bench/fuzz.py 200000`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mutations import Lender, Manager
from neighbourskit import on_its_own_clock

MESSAGES = 3000
MOST_LINES = 1000
#: So many of those that a neighbour sends become jobs, at the least.
FEWEST_GUESTS = 30


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_message_breaks_the_manager(tmp_path: Path, seed: int) -> None:
    manager = Manager(tmp_path, seed)
    await manager.tell(MESSAGES)
    await manager.close()
    assert manager.troubles == []
    assert manager.session.sent > MESSAGES / 3
    assert manager.lines < MOST_LINES


@pytest.mark.parametrize("seed", [1, 2])
@on_its_own_clock
async def test_no_message_of_a_neighbour_breaks_the_lender(tmp_path: Path, seed: int) -> None:
    """Most are templates, which say all that one may say: these become jobs of the lender."""
    lender = Lender(tmp_path, seed)
    await lender.tell(MESSAGES)
    assert lender.troubles == []
    assert len(lender.guests) > FEWEST_GUESTS
    assert await lender.works()
