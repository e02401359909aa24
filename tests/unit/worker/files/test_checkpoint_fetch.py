"""What a worker unpacks of a checkpoint takes no more of its disk than tasks may."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.files.archive import pack
from kestrelctl.worker.files import checkpoint_fetch
from kestrelctl.worker.files.checkpoint_fetch import CheckpointFetch, CheckpointRefused

STORED = StoredFile(sha256="0" * 64, size_bytes=0, pieces=())


async def test_a_checkpoint_larger_than_what_tasks_may_take_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").touch()
    os.truncate(tmp_path / "state", 1 << 30)

    async def get(stored: StoredFile, target: Path) -> None:
        pack({"state": tmp_path / "state"}, target)

    fetch = CheckpointFetch(
        tmp_path / "checkpoints", get, is_online=lambda: True, now=time.monotonic
    )
    for free_bytes, fits in ((1 << 30, False), (1 << 31, True)):
        monkeypatch.setattr(checkpoint_fetch, "disk_for_tasks_bytes", lambda _, n=free_bytes: n)
        if fits:
            place = await fetch.fetch(8, STORED)
            assert (place / "state").stat().st_blocks * 512 < 1 << 20
        else:
            with pytest.raises(CheckpointRefused, match="no-space"):
                await fetch.fetch(7, STORED)
            assert os.listdir(tmp_path / "checkpoints" / "7") == []
    await fetch.close()


async def test_a_checkpoint_is_fetched_though_somebody_has_removed_where_they_come(
    tmp_path: Path,
) -> None:
    (tmp_path / "state").write_text("half")

    async def get(stored: StoredFile, target: Path) -> None:
        pack({"state": tmp_path / "state"}, target)

    async def sleep(seconds: float) -> None:
        pytest.fail("it cannot be written")

    fetch = CheckpointFetch(
        tmp_path / "checkpoints", get, is_online=lambda: True, now=time.monotonic, sleep=sleep
    )
    shutil.rmtree(tmp_path / "checkpoints")
    assert ((await fetch.fetch(7, STORED)) / "state").read_text() == "half"
    await fetch.close()
