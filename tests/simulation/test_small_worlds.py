"""A thousand small pools in four commits, each on a day when everything goes wrong.

The first of each kind are among those of which it is recorded what they decide.

A failing seed tells its story; `kestrel_worlds.run(seed)` tells it again.
"""

from __future__ import annotations

import pytest
from golden_traces import KINDS
from seeds import due

import kestrel_worlds
from kestrel_worlds.settings import licensed


@pytest.mark.parametrize("seed", due(1000, parts=4, first=KINDS["small"][0]))
def test_all_promises_are_kept(seed: int) -> None:
    kestrel_worlds.run(seed).raise_problems()


@pytest.mark.parametrize("seed", due(200, parts=4, first=KINDS["licensed"][0]))
def test_no_token_is_given_twice_when_tokens_and_managers_go_and_come(seed: int) -> None:
    kestrel_worlds.run(seed, licensed(seed)).raise_problems()


@pytest.mark.parametrize("seed", [31_000_839, 31_002_508])
def test_worlds_in_which_a_promise_was_broken_once(seed: int) -> None:
    kestrel_worlds.run(seed).raise_problems()
