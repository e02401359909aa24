"""The usage so far of an attempt that runs, as its worker sees it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kestrelctl.core.model.numbers import Count
from kestrelctl.core.model.result import MOST_BYTES, possible_cpu_seconds, possible_seconds

#: A duration that is not negative.
Duration = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Use(msgspec.Struct, frozen=True, array_like=True):
    """The usage of an attempt; an array, because many travel together.

    Attributes:
        wall_seconds: since its start.
        cpu_seconds: user and system time, with that of children that have ended.
        memory_bytes: of all its processes now, without the page cache.
    """

    number: Count
    wall_seconds: Duration
    cpu_seconds: Duration
    memory_bytes: Count


def possible_use(use: Use, longest_seconds: float) -> Use:
    """Limits a usage to what is possible.

    Args:
        longest_seconds: the attempt cannot have run for longer.
    """
    wall_seconds = possible_seconds(use.wall_seconds, longest_seconds)
    return Use(
        use.number,
        wall_seconds,
        possible_cpu_seconds(use.cpu_seconds, wall_seconds),
        min(use.memory_bytes, MOST_BYTES),
    )
