"""The same seed tells the same story, in this process and in any other."""

from __future__ import annotations

from hashseeds import printed_with_other_hashes

from kestrelctl import simulate


def test_the_same_seed_tells_the_same_story() -> None:
    first, again = simulate.run(17), simulate.run(17)
    assert first.story == again.story
    assert first.digest == again.digest


def test_what_ran_before_does_not_matter() -> None:
    first = simulate.run(23).digest
    for seed in range(40, 45):
        simulate.run(seed)
    assert simulate.run(23).digest == first


def test_another_seed_tells_another_story() -> None:
    assert simulate.run(17).digest != simulate.run(18).digest


def test_the_order_of_hashes_does_not_matter() -> None:
    program = "from kestrelctl import simulate; print(simulate.run(17).digest)"
    assert printed_with_other_hashes(program) == {simulate.run(17).digest}
