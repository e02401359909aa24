"""Answers polls with a given number of random bytes, to measure what polls cost a pool."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence

from kestrelctl import clock
from kestrelctl.core.properties.reading import PropertyReading, missing_reading

#: The bytes of one property; a reply has as many properties as it takes.
BYTES_EACH = 1_000
_LETTERS = string.ascii_letters + string.digits


class PollAnswers:
    """Stands in for what runs plugins: there are none, and each poll has new values.

    Args:
        put: takes a property and its value.
        reply_bytes: of all values together.
    """

    running = 0

    def __init__(self, put: Callable[[str, PropertyReading], None], reply_bytes: int) -> None:
        self._put = put
        self._properties = max(1, round(reply_bytes / BYTES_EACH))
        self.read_now(())

    async def run_program(
        self, words: Sequence[str], return_type: str, timeout_seconds: float
    ) -> PropertyReading:
        """Returns no value: there are no plugins."""
        return missing_reading(clock.wall(), "there are no plugins")

    def read_now(self, names: Sequence[str]) -> None:
        """Makes new values for all properties."""
        at = round(clock.wall(), 3)
        for number in range(self._properties):
            text = "".join(random.choices(_LETTERS, k=BYTES_EACH))
            self._put(f"p{number}", PropertyReading(at, text))
