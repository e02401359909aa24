"""On a machine that has no thread to spare, a property has no value for the time, and no more."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from kestrelctl.worker.plugins import plugin_run
from kestrelctl.worker.plugins.plugin_run import BuiltInRun, run_program


def refuse(*given: object) -> None:
    """What Python does at the limit of threads."""
    raise RuntimeError("can't start new thread")


async def test_what_is_built_in_says_so_and_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = BuiltInRun(lambda words: 5).run
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        told = await run((), "int", 60.0, at=7.0)
    assert (told.value, told.missing) == (None, "it cannot be read: can't start new thread")
    assert (await run((), "int", 60.0, at=8.0)).value == 5


async def test_a_program_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python waits for each program in a thread."""

    @asynccontextmanager
    async def child_program(words: Sequence[str], own: Mapping[str, str]) -> AsyncIterator[None]:
        refuse()
        yield

    monkeypatch.setattr(plugin_run, "child_program", child_program)
    told = await run_program(["uptime"], "int", 60.0, at=7.0)
    assert told.missing == "uptime cannot be run: can't start new thread"
