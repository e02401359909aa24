"""Attempts whose command has ended well while more is to be done: they survive a `kill -9`.

What such an attempt has computed is in its scratch directory, which is kept with it. So the next
process of the worker does the rest, and nothing is computed again.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from kestrelctl.worker.own_files import OwnDirectory, make_file, open_file
from kestrelctl.worker.run.executor import CommandSpec, Completion

log = logging.getLogger(__name__)

_NEW = "new"


class ComputedAttempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt that has computed what it was to compute.

    Args:
        command: with how its worker holds it again.
        completion: so far; a reason says that a stage after the command has failed.
        sandbox: the name of the directory that it has.
        inode: of its scratch directory.
        cleaned: whether its cleanup is over, if it has one.
    """

    command: CommandSpec
    completion: Completion
    sandbox: str
    inode: int
    cleaned: bool


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ComputedAttempt).decode


class ComputedAttempts:
    """A directory with a file for each of them, named by its number.

    As in the spool of results, nothing is flushed to the disk: what was written outlives the
    worker, and an attempt that is lost together with the machine's power runs again.

    Args:
        directory: created if missing.

    Attributes:
        left: those of an earlier process, by number, until they are taken or dropped.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = OwnDirectory(directory)
        self._kept: set[int] = set()
        self.left: dict[int, ComputedAttempt] = {}
        for name in os.listdir(self._directory.fd):
            found = self._read(name)
            if found is None:
                self._remove(name)
            else:
                self._kept.add(found.command.number)
                self.left[found.command.number] = found

    def _read(self, name: str) -> ComputedAttempt | None:
        try:
            with open(open_file(name, os.O_RDONLY, self._directory.fd), "rb") as file:
                found = _decode(file.read())
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            if name != _NEW:
                log.warning("what attempt %s has computed cannot be used: %s", name, error)
            return None
        return found if name == str(found.command.number) else None

    def keep(self, attempt: ComputedAttempt) -> None:
        """Lets an attempt survive this process, as it is now. One that cannot be written does not
        survive it: it would run again.
        """
        number = attempt.command.number
        try:
            data = _encode(attempt)
            self._directory.renew()
            with open(make_file(_NEW, os.O_WRONLY | os.O_TRUNC, self._directory.fd), "wb") as file:
                file.write(data)
            fd = self._directory.fd
            os.rename(_NEW, str(number), src_dir_fd=fd, dst_dir_fd=fd)
        except (OSError, UnicodeEncodeError) as error:  # an environment may hold any bytes
            log.warning("attempt %d would be lost together with this process: %s", number, error)
            return
        self._kept.add(number)

    def forget(self, number: int) -> None:
        """Forgets an attempt that is over, or is given up. Unknown numbers are no error."""
        if number in self._kept:
            self._kept.discard(number)
            self.left.pop(number, None)
            self._remove(str(number))

    def __contains__(self, number: int) -> bool:
        return number in self._kept

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._directory.fd)

    def close(self) -> None:
        """Gives the descriptor back."""
        self._directory.close()
