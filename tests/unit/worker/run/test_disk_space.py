"""Whose fault it is that nothing can be written on a worker's disk, and what is wrong with it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kestrelctl.worker.run import attempt_run
from kestrelctl.worker.run.attempt_run import why_unwritable

REASONS = {
    errno.ENOSPC: "no-space: the worker's disk is full",
    errno.EDQUOT: "no-space: the worker's disk is full",
    errno.EROFS: "no-resources: the worker's disk is mounted read-only",
    errno.EACCES: "",
}


@pytest.mark.parametrize("call", ["open", "posix_fallocate"])
@pytest.mark.parametrize("number", REASONS)
def test_each_error_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    assert why_unwritable(directory) == ""
    with monkeypatch.context() as patched:
        patched.setattr(attempt_run.os, call, refuse)
        told = why_unwritable(directory)
    os.close(directory)
    assert told == REASONS[number]
