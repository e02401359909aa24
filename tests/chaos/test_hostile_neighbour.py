"""A pool that lends is attacked by who borrows, with real servers, processes and files.

For longer: `.venv/bin/python tests/chaos/hostile_neighbour.py 600`.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hostile_neighbour import (
    attack,
    attacked_pool,
    escapes,
    one_at_a_time,
    own_users_are_served,
)

from kestrelctl.core.model.result import Outcome

pytestmark = pytest.mark.timeout(240)
ATTACK_SECONDS = 3.0


async def test_a_neighbour_writes_nothing_outside_and_stops_nobody(tmp_path: Path) -> None:
    async with attacked_pool(tmp_path) as (state, neighbour):
        outside = tmp_path / "outside"
        for template in escapes(outside):
            end = await neighbour.result(neighbour.hand_over(template))
            assert end.outcome == Outcome.FAILED
            assert end.reason.startswith("cannot-start: ")
        assert not outside.is_symlink()
        assert await attack(neighbour, Random(1), ATTACK_SECONDS) > 20
        await one_at_a_time(neighbour, tmp_path / "witness")
        await own_users_are_served(state)
        assert not outside.is_symlink()
