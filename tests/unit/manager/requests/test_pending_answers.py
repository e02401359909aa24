"""What requests wait for comes from the core, and what never came to it is waited for by nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import PlayedManager

from kestrelctl.core import events as ev
from kestrelctl.errors import Unreachable


async def test_an_event_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    """What it is made of is read from the store, which may be away."""

    def away(token: str) -> ev.Event:
        raise Unreachable("the database does not answer")

    pending = PlayedManager(tmp_path).dispatcher.pending
    for _ in range(3):
        with pytest.raises(Unreachable):
            await pending.answer_to(away)
    assert pending._waiting == {}
