"""Removes directory trees of any size without keeping the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from pathlib import Path

log = logging.getLogger(__name__)


class Trash:
    """A directory in which trees wait for a thread that removes them; what a crash left in it
    goes too.

    Args:
        directory: on the same file system as the trees; created if missing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._moved = 0
        self._removals: set[asyncio.Future[None]] = set()
        directory.mkdir(parents=True, exist_ok=True)
        for tree in directory.iterdir():
            self._remove(tree)

    def discard(self, tree: Path) -> None:
        """Let a tree vanish from its place now, from the disk soon. A missing one is no error.

        If the machine has no thread to spare, it stays on the disk until the next start.
        """
        self._moved += 1
        target = self._directory / f"{os.getpid()}-{self._loop.time()}-{self._moved}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(tree, target)
            self._remove(target)

    def _remove(self, tree: Path) -> None:
        try:
            removal = self._loop.run_in_executor(None, remove_tree, tree)
        except RuntimeError as error:  # what Python raises if it cannot start a thread
            log.warning("%s is not removed yet: %s", tree, error)
            return
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    async def wait(self) -> None:
        """Until everything is removed."""
        while self._removals:
            await asyncio.wait(self._removals)


def remove_tree(tree: Path) -> None:
    """Remove a tree, also through directories that may not be read; what still resists stays."""
    shutil.rmtree(tree, ignore_errors=True)
    if not tree.exists():
        return
    with contextlib.suppress(OSError):
        tree.chmod(0o700)
    for top, directories, _ in os.walk(tree):
        for path in (os.path.join(top, name) for name in directories):
            with contextlib.suppress(OSError):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(tree, ignore_errors=True)
    if tree.is_file():
        tree.unlink()
