"""One value of a property, of the type that its definition promises, or why there is none."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from kestrelctl.core.ini_sections import SWITCHES

PropertyValue = int | float | str | bool

RETURN_TYPES = ("int", "float", "str", "bool")
#: The longest text that is a value.
MOST_TEXT_BYTES = 1_024
#: Larger numbers could not be added up.
LARGEST_FLOAT = 1e300
LARGEST_INT = 2**63 - 1
MOST_REASON_CHARACTERS = 200
_INT = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


@dataclass(frozen=True, slots=True)
class PropertyReading:
    """A reading of a property, and its time.

    Attributes:
        at: seconds since the epoch, by the worker's clock.
        value: None if it could not be read.
        missing: why it could not be read; empty if it was.
    """

    at: float
    value: PropertyValue | None
    missing: str = ""

    def says_the_same_as(self, other: PropertyReading) -> bool:
        """Whether nothing but the time differs. True, 1 and 1.0 are three values."""
        return (
            type(self.value) is type(other.value)
            and self.value == other.value
            and self.missing == other.missing
        )


def missing_reading(at: float, reason: str) -> PropertyReading:
    """A reading that gave no value; one short printable line of the reason is kept."""
    line = " ".join("".join(c if c.isprintable() else " " for c in reason).split())
    return PropertyReading(at, None, line[:MOST_REASON_CHARACTERS] or "no reason was given")


def read_printed(printed: bytes, return_type: str, at: float) -> PropertyReading:
    """Reads what a plugin printed as a value of the type; anything else is a missing value."""
    try:
        text = printed.decode().strip()
    except UnicodeDecodeError:
        return missing_reading(at, "what was printed is not UTF-8")
    if not text:
        return missing_reading(at, "nothing was printed")
    value = _value(text, return_type)
    if value is None:
        return missing_reading(at, f"not a value of type {return_type}: {text[:40]}")
    return PropertyReading(at, value)


def _value(text: str, return_type: str) -> PropertyValue | None:
    if return_type == "int":
        number = int(text) if _INT.fullmatch(text) else None
        return number if number is not None and abs(number) <= LARGEST_INT else None
    if return_type == "float":
        # A text that is longer than a value may be is not even looked through.
        fits = len(text) <= MOST_TEXT_BYTES and _FLOAT.fullmatch(text)
        amount = float(text) if fits else math.inf
        return amount if abs(amount) <= LARGEST_FLOAT else None
    if return_type == "bool":
        return SWITCHES.get(text.lower())
    return text if text.isprintable() and len(text.encode()) <= MOST_TEXT_BYTES else None
