"""A file system of a few megabytes, to fill it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(at: Path, size: str, *options: str) -> Iterator[None]:
    """Has a file system in memory at a directory; skips a test where none can be mounted.

    Args:
        size: as mount(8) takes it: `4m`.
        options: further ones of tmpfs(5).
    """
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    words = ",".join((f"size={size}", "mode=0700", *options))
    mount = ["mount", "-t", "tmpfs", "-o", words, "small", str(at)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)
