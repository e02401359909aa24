"""A worker's own attributes, as its operator writes them."""

from __future__ import annotations

import re

from kestrelctl.errors import UsageError

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


def parse_attribute(text: str) -> tuple[str, bool | int | float | str]:
    """A name and a value in `KEY=VALUE`: a number, `true` or `false`, or else a text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"not an attribute: {text[:40]!r}", hint=f"write {key or 'KEY'}=VALUE")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    if len(value) > 1 and value[0] == value[-1] == '"':
        return key, value[1:-1]
    if _WHOLE.fullmatch(value):
        return key, int(value)
    if _REAL.fullmatch(value):
        return key, float(value)
    return key, value


def plain_value(value: bool | int | float | str) -> str:
    """A value as `--attribute` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and parse_attribute(f"k={value}")[1] != value:
        return f'"{value}"'
    return str(value)
