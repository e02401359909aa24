"""The same seed tells the same story, in this process and in any other."""

from __future__ import annotations

from hashseeds import printed_with_other_hashes

import kestrel_worlds


def test_the_same_seed_tells_the_same_story() -> None:
    first, again = kestrel_worlds.run(17), kestrel_worlds.run(17)
    assert first.story == again.story
    assert first.digest == again.digest


def test_what_ran_before_does_not_matter() -> None:
    first = kestrel_worlds.run(23).digest
    for seed in range(40, 45):
        kestrel_worlds.run(seed)
    assert kestrel_worlds.run(23).digest == first


def test_another_seed_tells_another_story() -> None:
    assert kestrel_worlds.run(17).digest != kestrel_worlds.run(18).digest


def test_the_order_of_hashes_does_not_matter() -> None:
    program = "import kestrel_worlds; print(kestrel_worlds.run(17).digest)"
    assert printed_with_other_hashes(program) == {kestrel_worlds.run(17).digest}
