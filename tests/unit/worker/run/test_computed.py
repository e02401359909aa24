"""Tests of what an earlier process of a worker has computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.worker.run.computed_attempts import ComputedAttempts


@pytest.mark.parametrize("text", [b"", b"{", b'{"sandbox": "\xff"}', b'{"sandbox": 1}'])
def test_what_cannot_be_read_is_removed_and_runs_again(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "7").write_bytes(text)
    computed = ComputedAttempts(tmp_path)
    assert computed.left == {}
    assert list(tmp_path.iterdir()) == []
    computed.close()
