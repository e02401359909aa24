"""Tokens of the overlay are told from those of pings that people ask for."""

from __future__ import annotations

from random import Random

from kestrelctl.flock.overlay.overlay import Overlay
from kestrelctl.flock.service import flock_service
from kestrelctl.protocol.pools import AskPools


def test_tokens_of_the_overlay_are_below_those_of_people() -> None:
    for seed in range(40):
        overlay = Overlay("alder", Random(seed))
        overlay.join("birch", now=0.0)
        [(_, asked)] = overlay.take_sends()
        assert isinstance(asked, AskPools)
        assert asked.token < flock_service._FIRST_TOKEN
