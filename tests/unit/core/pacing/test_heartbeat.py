"""Signs of life: a worker is never silent for longer than the pool allows."""

from __future__ import annotations

import random

import pytest

from kestrelctl.core.model.config import Config
from kestrelctl.core.pacing.heartbeat import pause_seconds


def longest_silence(heartbeat_seconds: float, words_every: float, seed: int) -> float:
    """Of a worker that says something else now and then, over a thousand intervals."""
    dice = random.Random(seed)
    now = spoke_at = 1_000_000.3
    next_word = now + dice.expovariate(1 / words_every)
    longest = 0.0
    for _ in range(1_000):
        heartbeat_at = now + pause_seconds(spoke_at, now, heartbeat_seconds, dice.random())
        while next_word < heartbeat_at:
            longest, spoke_at = max(longest, next_word - spoke_at), next_word
            next_word += dice.expovariate(1 / words_every)
        now = heartbeat_at
        if pause_seconds(spoke_at, now, heartbeat_seconds, 0.0) == 0.0:
            longest, spoke_at = max(longest, now - spoke_at), now
    return longest


@pytest.mark.parametrize("workers", [1, 917, 2_000, 5_000])
@pytest.mark.parametrize("share", [0.3, 0.9, 1.1, 3.0])
def test_whatever_else_it_says_its_lease_never_runs_out(workers: int, share: float) -> None:
    heartbeat_seconds = Config().heartbeat_seconds(workers)
    silence = longest_silence(heartbeat_seconds, share * heartbeat_seconds, workers)
    assert silence <= heartbeat_seconds + 1e-6
    assert silence < Config().lease_seconds(heartbeat_seconds)


def test_it_falls_on_a_whole_second_if_there_is_one() -> None:
    assert 1000.25 + pause_seconds(1000.25, 1000.25, 9.0, 0.5) == 1008.0
    assert pause_seconds(1000.25, 1000.25, 0.5, 1.0) == pytest.approx(0.5)


def test_a_word_puts_it_off_and_counts_itself() -> None:
    assert pause_seconds(1005.0, 1008.0, 9.0, 1.0) == 6.0
    assert pause_seconds(1000.0, 1020.0, 9.0, 1.0) == 0.0


def test_a_clock_that_was_set_back_does_not_silence_it() -> None:
    assert pause_seconds(1_000_000.0, 900_000.0, 9.0, 1.0) == 9.0
