"""A screen that keeps what is printed, and a standard error that takes nothing."""

from __future__ import annotations

import errno
import io
import os

from kestrelctl.cli.show.screen import Screen


class Paper(Screen):
    """Keeps the data that a command prints.

    Attributes:
        text: all of them.
    """

    def __init__(self, *, terminal: bool, color: bool = False) -> None:
        super().__init__(color=color)
        self.text = ""
        self.terminal = terminal

    def write(self, text: str) -> None:
        self.text += text

    def write_bytes(self, data: bytes) -> None:
        self.text += data.decode()

    @property
    def is_terminal(self) -> bool:
        return self.terminal


class Full(io.StringIO):
    """Standard error on a disk without room."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @property
    def buffer(self) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
