"""A pool that is joined through no more, because its name was mistyped, or it is there no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from neighbourskit import Neighbourhood, PoolOfFlock, on_its_own_clock, pass_by

from kestrelctl.errors import NotFound, UsageError

WHILE = 1200.0


def tried(around: Neighbourhood, domain: str) -> int:
    """How often a pool was written to."""
    return sum(to == f"flock@{domain}" for _, to, _ in around.said)


async def mistyped(directory: Path) -> tuple[Neighbourhood, PoolOfFlock]:
    """A pool of a flock of two that was also told to join through one that there is not."""
    around = Neighbourhood(directory)
    around.open("b.test", cpus=0)
    pool = around.open("a.test", through="b.test")
    await pass_by(1)
    await pool.standing.join("bb.test", "root")
    await pass_by(WHILE)
    return around, pool


@on_its_own_clock
async def test_a_mistyped_pool_is_tried_until_it_is_forgotten_and_the_flock_stays(
    tmp_path: Path,
) -> None:
    around, pool = await mistyped(tmp_path)
    assert pool.standing.status().joined_through == ["b.test", "bb.test"]
    before = tried(around, "bb.test")
    assert before > 1
    await pool.standing.forget("bb.test", "root")
    assert pool.standing.status().joined_through == ["b.test"]
    await pass_by(WHILE)
    # One more message was on its way.
    assert tried(around, "bb.test") <= before + 1
    assert pool.flock.overlay.known() == ["b.test"]


@on_its_own_clock
async def test_the_next_manager_does_not_try_it_either(tmp_path: Path) -> None:
    around, pool = await mistyped(tmp_path)
    await pool.standing.forget("bb.test", "root")
    around.said.clear()
    pool = await around.reopen("a.test", alone=True)
    await pass_by(WHILE)
    assert tried(around, "bb.test") == 0
    assert pool.flock.overlay.known() == ["b.test"]


@on_its_own_clock
async def test_who_was_in_no_flock_before_is_in_none_again(tmp_path: Path) -> None:
    around = Neighbourhood(tmp_path)
    pool = around.pools["a.test"] = PoolOfFlock(around, "a.test", "")
    pool.begin()
    await pool.standing.join("bb.test", "root")
    await pass_by(1)
    assert pool.standing.status().member
    await pool.standing.forget("bb.test", "root")
    assert not pool.standing.status().member


@on_its_own_clock
async def test_a_pool_that_answers_stays_in_the_flock(tmp_path: Path) -> None:
    around = Neighbourhood(tmp_path)
    around.open("b.test", cpus=0)
    pool = around.pools["a.test"] = PoolOfFlock(around, "a.test", "")
    pool.begin()
    await pool.standing.join("b.test", "root")
    await pass_by(1)
    await pool.standing.forget("b.test", "root")
    await pass_by(WHILE)
    status = pool.standing.status()
    assert (status.member, status.known, status.joined_through) == (True, 1, [])


@on_its_own_clock
async def test_what_cannot_be_forgotten_is_named_with_the_reason(tmp_path: Path) -> None:
    _, pool = await mistyped(tmp_path)
    with pytest.raises(UsageError, match=r"was started to join through b\.test"):
        await pool.standing.forget("b.test", "root")
    with pytest.raises(NotFound, match=r"does not join through c\.test"):
        await pool.standing.forget("c.test", "root")
    assert pool.standing.status().joined_through == ["b.test", "bb.test"]
