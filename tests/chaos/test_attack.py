"""Attacks of some seconds on a real pool; `tests/chaos/attack.py` goes on as long as one likes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from random import Random

import pytest
from nasty import Nasty, kinds

from kestrelctl.protocol import codec, directions
from kestrelctl.protocol import requests as rq

ATTACK = Path(__file__).with_name("attack.py")


def test_an_attack_is_the_same_each_time_and_comes_by_every_door() -> None:
    def messages(seed: int) -> list[str]:
        nasty = Nasty(Random(seed), {"argv": [["true"]]})
        return [nasty.message(kind) for kind in kinds(rq.AnyRequest) for _ in range(3)]

    assert messages(1) == messages(1) != messages(2)
    assert len(kinds(directions.FromAnyWorker)) > 10


def test_some_of_what_attackers_send_is_taken_and_some_is_not() -> None:
    nasty = Nasty(Random(1), {"argv": [["true"]]})
    taken = 0
    for _ in range(300):
        try:
            directions.requests.decode(nasty.message(rq.HoldJobs, known_as="1"))
            taken += 1
        except codec.BadMessage:
            pass
    assert 30 < taken < 270
    assert json.loads(nasty.text({"a": "b"})) == {"a": "b"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("role", ["user", "worker", "removed", "operator"])
async def test_nobody_notices_an_attack(role: str) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(ATTACK), role, "--seed", "5", "--seconds", "5",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    told, _ = await program.communicate()
    print(told.decode())
    assert program.returncode == 0, "something did not hold; what is printed above says what"
    assert b"it held" in told
