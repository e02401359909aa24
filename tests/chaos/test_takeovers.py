"""Half a minute of blows against managers that share a store, their database and their server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

TAKEOVERS = Path(__file__).with_name("takeovers.py")
SECONDS, SEED = 30, 3


@pytest.mark.timeout(240)  # what is left at the end is waited for
async def test_each_task_runs_once_whatever_its_pool_stands_on_is_struck(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(TAKEOVERS), str(SECONDS), str(SEED),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    told, _ = await program.communicate()
    print(told.decode())
    assert program.returncode == 0
    assert b"all promises hold" in told
