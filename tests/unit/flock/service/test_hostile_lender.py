"""What a lender may say that means no good, and what comes of it at who borrows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from neighbourskit import Neighbourhood, on_its_own_clock, pass_by

from kestrelctl.flock.service.flock_service import MOST_UNREACHABLE
from kestrelctl.flock.service.loan_addresses import loan_of

#: All that workers of a pool's own may say beside what a loan needs to.
NOT_FOR_LOANS: list[dict[str, Any]] = [
    {"type": "profile", "os": "Linux", "ram": 4096, "cores": 400, "provides": []},
    {"type": "finish", "id": "x"},
    {"type": "environments", "kinds": ["venv"]},
    {"type": "properties", "readings": [["wind", 1764000000.5, 7, ""]], "anew": True},
    {"type": "commands", "commands": []},
    {"type": "command_done", "request": "1"},
    {"type": "checkpoint", "number": 1},
    {"type": "find_files", "number": 1, "parent": 1},
    {"type": "want", "attempts": 400},
]


@pytest.mark.parametrize("said", NOT_FOR_LOANS, ids=lambda said: str(said["type"]))
@on_its_own_clock
async def test_of_a_loan_only_what_it_needs_to_say_is_heard(
    tmp_path: Path, said: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    around = Neighbourhood(tmp_path)
    lender = around.open("b.test", cpus=4)
    home = around.open("a.test", through="b.test", cpus=0)
    await pass_by(5)
    job = home.submit()
    await pass_by(1)
    [(_, loan)] = lender.flock.keeper.loans
    before = len(around.said)
    lender._send(json.dumps(said), "pool@a.test", loan_of("b.test", loan))
    await pass_by(0.01)
    await asyncio.sleep(0)
    refusals = [text for _, to, text in around.said[before:] if to == loan_of("b.test", loan)]
    assert len(refusals) == 1
    assert '"refused"' in refusals[0]
    assert list(home.service.profiles) == []
    lender.hands.end()
    await pass_by(5)
    assert [str(record.state) for record in home.ended(job)] == ["done"]


@on_its_own_clock
async def test_messages_of_pools_that_come_back_unsent_are_not_all_remembered(
    tmp_path: Path,
) -> None:
    """Who has a domain has any number below it, and says that messages to each came back."""
    home = Neighbourhood(tmp_path).open("a.test")
    for number in range(2 * MOST_UNREACHABLE):
        home.listener.on_bounce(f"flock@x{number}.evil.test/y", "remote-server-not-found")
    assert len(home.flock.unreachable) == MOST_UNREACHABLE
    assert f"x{2 * MOST_UNREACHABLE - 1}.evil.test" in home.flock.unreachable
