"""Texts as PostgreSQL can hold them: it has no NUL in a text, and what users write may.

A NUL is written as two characters, of which the first is for private use, and so is that one
itself. Whoever looks into the tables sees all other texts as they are.
"""

from __future__ import annotations

from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.types.string import StrDumperUnknown

_ESCAPE = "\uf8f0"
_ESCAPE_BYTES = _ESCAPE.encode()


def storable(text: str) -> str:
    """The text as it is stored."""
    if _ESCAPE in text or "\0" in text:
        return text.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")
    return text


def restored(text: str) -> str:
    """The inverse of `storable`."""
    return text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)


class _ExactDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(storable(obj))


class _ExactLoader(Loader):
    def load(self, data: Buffer) -> str:
        raw = bytes(data)
        text = raw.decode()
        return restored(text) if _ESCAPE_BYTES in raw else text


class _NumberLoader(Loader):
    """Sums of whole numbers come as decimals."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdecimal() else float(text)


def register(adapters: AdaptersMap) -> None:
    """Has a connection write and read texts exactly, and sums as numbers of Python."""
    adapters.register_dumper(str, _ExactDumper)
    adapters.register_loader("text", _ExactLoader)
    adapters.register_loader("numeric", _NumberLoader)
