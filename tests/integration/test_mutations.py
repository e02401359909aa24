"""Whatever users and workers send, it is answered or refused, and the manager goes on.

Many more: `.venv/bin/python tests/bench/fuzz.py 200000`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mutations import Manager

MESSAGES = 3000
MOST_LINES = 1000


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_message_breaks_the_manager(tmp_path: Path, seed: int) -> None:
    manager = Manager(tmp_path, seed)
    await manager.tell(MESSAGES)
    await manager.close()
    assert manager.troubles == []
    assert manager.session.sent > MESSAGES / 3
    assert manager.lines < MOST_LINES
