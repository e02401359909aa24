"""The bare process-start rate of this machine."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path
from threading import Barrier

import pytest

from kestrelctl.bench import spawn_rate
from kestrelctl.bench.spawn_rate import bare_rate, measure_spawn_rate
from kestrelctl.errors import KestrelError, MissingTool


def test_every_core_starts_processes() -> None:
    assert measure_spawn_rate(rounds=3, round_seconds=0.05) > 0


def test_a_core_s_rate_is_its_processes_over_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def posix_spawn(program: str, argv: list[str], environment: object) -> int:
        started.append(program)
        return real_spawn(program, argv, environment)  # type: ignore[arg-type]

    real_spawn = os.posix_spawn
    clock = count(step=0.25)
    monkeypatch.setattr(os, "posix_spawn", posix_spawn)
    monkeypatch.setattr(spawn_rate.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(spawn_rate, "_start", Barrier(1), raising=False)
    assert spawn_rate._spawn_loop("/bin/true", 2.0) == 4.0
    assert started == ["/bin/true"] * 8


def test_without_a_sleep_program_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingTool):
        measure_spawn_rate()


async def test_that_one_of_its_processes_is_killed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a kernel that is out of memory. The others would wait for it for ever."""
    sleep = tmp_path / "sleep"
    sleep.write_text("#!/bin/sh\nkill -9 $PPID\n")
    sleep.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KestrelError, match="could not be measured"):
        async with asyncio.timeout(60):
            await bare_rate()


async def test_what_lies_in_the_directory_of_the_caller_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('run')\n")
    monkeypatch.chdir(tmp_path)
    assert await bare_rate() > 0
