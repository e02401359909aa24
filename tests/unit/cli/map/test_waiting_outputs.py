"""Outputs that wait for their turn come whole, wherever they waited."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from kestrelctl.cli.map.output import WaitingOutputs
from kestrelctl.cli.map.replacement import MappedInput
from kestrelctl.cli.map.run import EndedInput
from kestrelctl.client.pool import EndedTask
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.protocol.answers import TaskView


def ended(number: int, stdout: bytes, stderr: bytes = b"") -> EndedInput:
    task = TaskView(index=number, task_id=number, state=TaskState.DONE)
    return EndedInput(MappedInput(number, ("a",)), EndedTask(task, stdout, stderr), 1)


@pytest.fixture
def waiting() -> Iterator[WaitingOutputs]:
    with WaitingOutputs(memory_bytes=10) as waiting:
        yield waiting


def test_each_output_comes_back_whole_and_by_its_own_number(waiting: WaitingOutputs) -> None:
    each = [
        ended(1, b"in memory"),
        ended(2, b"second\n", b"bad\n"),
        ended(3, b""),
        ended(4, b"4th"),
    ]
    for one in each:
        waiting.add(one)
    assert 2 in waiting
    assert waiting.take(2) == each[1]
    assert 2 not in waiting
    assert list(waiting.take_all()) == [each[0], each[2], each[3]]


def test_no_more_waits_in_memory_than_was_said(waiting: WaitingOutputs) -> None:
    for number in range(100):
        waiting.add(ended(number, b"six..."))
    assert waiting.in_memory_bytes == 6
    waiting.take(0)
    waiting.add(ended(100, b"ten......."))
    assert waiting.in_memory_bytes == 10, "what was taken makes room"


def test_where_no_file_can_be_made_it_waits_in_memory(
    waiting: WaitingOutputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: Any) -> NoReturn:
        raise OSError("no space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    waiting.add(ended(1, b"longer than ten"))
    assert waiting.take(1) == ended(1, b"longer than ten")
