"""Removes directory trees of any size and depth without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from kestrelctl.worker.own_files import OwnDirectory, move, open_directory

log = logging.getLogger(__name__)

_PASSES = 2
"""How often a directory is emptied: somebody may still put something into it."""


class Trash:
    """A directory in which trees wait for a thread that removes them; what a crash left in it
    goes too.

    Args:
        directory: on the same file system as the trees; created if missing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = OwnDirectory(directory)
        self._loop = asyncio.get_running_loop()
        numbers = itertools.count(1)
        start = secrets.token_hex(4)
        self._new_name = lambda: f"{start}-{next(numbers)}"
        self._removals: set[asyncio.Future[None]] = set()
        for name in os.listdir(self._directory.fd):
            try:
                self.discard(name, self._directory.fd)
            except OSError as error:
                log.warning("%s is not removed: %s", directory / name, error)

    def discard(self, name: str, parent: int) -> None:
        """Lets the entry `name` of an open directory vanish from there now, from the disk soon.

        A missing one is no error. If the machine has no thread to spare, it stays on the disk
        until the next start.

        Raises:
            OSError: it cannot be moved: something is mounted there, or it is marked immutable.
        """
        target = self._new_name()
        try:
            move(name, parent, target, self._directory.fd)
        except FileNotFoundError:
            if not self._directory.renew():
                return
            with contextlib.suppress(FileNotFoundError):
                move(name, parent, target, self._directory.fd)
        self._remove(target)

    def _remove(self, name: str) -> None:
        try:
            removal = self._loop.run_in_executor(
                None, remove_tree, name, self._directory.fd, self._new_name
            )
        except RuntimeError as error:  # what Python raises if it cannot start a thread
            log.warning("%s is not removed yet: %s", name, error)
            return
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    async def wait(self, timeout_seconds: float) -> None:
        """Waits until what is there now is removed, but no longer than this."""
        if self._removals:
            await asyncio.wait(self._removals, timeout=timeout_seconds)

    async def close(self) -> None:
        """Waits until everything is removed, and gives the descriptor back."""
        while self._removals:
            await asyncio.wait(self._removals)
        self._directory.close()


def remove_tree(name: str, trash: int, new_name: Callable[[], str]) -> None:
    """Removes a tree, also through directories that may not be read; what still resists stays.

    A directory below another is first moved to the top, and entered there. So no depth is too
    great. And rename(2) moves neither what is mounted nor anything across a mount, so nothing is
    entered that is mounted there, whoever swaps directories meanwhile.

    Args:
        name: of the tree.
        trash: the open directory that it is in.
        new_name: gives names that are free there.
    """
    waiting = [name]
    while waiting:
        name = waiting.pop()
        try:
            directory = open_directory(name, trash)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=trash)
            continue
        try:
            for _ in range(_PASSES):
                for entry in os.listdir(directory):
                    try:
                        os.unlink(entry, dir_fd=directory)
                    except OSError:
                        target = new_name()
                        with contextlib.suppress(OSError):
                            move(entry, directory, target, trash)
                            waiting.append(target)
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=trash)
                    break
        except OSError as error:
            log.warning("%s is not removed: %s", name, error)
        finally:
            os.close(directory)
