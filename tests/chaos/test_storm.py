"""Every kind of fault in half a minute, over a pool under load, and an audit of what came of it.

`python tests/bench/chaos.py` does the same for ten minutes to a larger pool.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from blows import KINDS, schedule

CHAOS = Path(__file__).parents[1] / "bench" / "chaos.py"
SEED = 7
SECONDS = 25.0
EVERY_SECONDS = 0.8
PROCESSES = 4


def test_the_short_storm_has_every_kind_of_blow() -> None:
    blows = schedule(SEED, SECONDS, PROCESSES, 2, EVERY_SECONDS)
    assert {blow.kind for blow in blows} == set(KINDS)
    assert all(blow.at + blow.seconds <= SECONDS for blow in blows)
    assert {blow.target for blow in blows if "line" in blow.kind} <= set(range(PROCESSES))


@pytest.mark.timeout(240)  # when something is lost, it is waited for until nothing ends any more
async def test_every_promise_holds_in_a_storm(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(CHAOS), "--seed", str(SEED), "--seconds", str(SECONDS),
        "--every", str(EVERY_SECONDS), "--processes", str(PROCESSES),
        "--workers", "26", "--tasks", "600",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    told, _ = await program.communicate()
    print(told.decode())
    assert program.returncode == 0, "a promise was broken; the table above says which"
    assert b"all promises hold" in told
