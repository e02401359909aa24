"""Reads keys as they are pressed, and always puts the terminal back as it was."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

#: Names of keys that have no letter, by what terminals send (XTerm Control Sequences, "PC-Style
#: Keys").
_NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page-up",
    b"\x1b[6~": "page-down",
}
_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[^\x1b]")
_UNFINISHED = re.compile(rb"\x1b(?:[\[O][0-9;]*)?\Z")


def split_keys(data: bytes) -> tuple[list[str], bytes]:
    """Returns the keys in what a terminal sent, and the beginning of one that is not complete.

    Letters stand for themselves, other keys have names; keys without a name are left out.
    """
    rest = _UNFINISHED.search(data)
    whole = data[: rest.start()] if rest else data
    found = _KEY.findall(whole)
    keys = [_NAMES.get(key) or (chr(key[0]) if 32 <= key[0] < 127 else "") for key in found]
    return [key for key in keys if key], rest[0] if rest else b""


@contextmanager
def keys_pressed(fd: int, on_key: Callable[[str], None]) -> Iterator[None]:
    """Tells about every key for the time of a `with`, without an echo or waiting for a line.

    Ctrl-C still interrupts; Ctrl-Z and Ctrl-backslash do nothing, since they would leave the
    terminal as it is now. If the terminal goes away, the key `q` is told.

    Args:
        fd: the descriptor of a terminal; nothing is done to anything else.
    """
    if not os.isatty(fd):
        yield
        return
    import termios

    rest = b""
    loop = asyncio.get_running_loop()

    def read() -> None:
        nonlocal rest
        try:
            data = os.read(fd, 1024)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(fd)
            on_key("q")
            return
        keys, rest = split_keys(rest + data)
        for key in keys:
            on_key(key)

    before = termios.tcgetattr(fd)
    raw = termios.tcgetattr(fd)
    raw[3] &= ~(termios.ICANON | termios.ECHO)
    for name in (termios.VSUSP, termios.VQUIT):
        raw[6][name] = b"\x00"
    raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSADRAIN, raw)
    try:
        loop.add_reader(fd, read)
        yield
    finally:
        loop.remove_reader(fd)
        with suppress(termios.error):  # it may have gone away
            termios.tcsetattr(fd, termios.TCSAFLUSH, before)
