"""Numbers as they travel: with bounds that every store holds, and moments by the pool's clock.

A manager's steady clock begins with the machine's and never jumps. If somebody sets the machine's
clock while the manager runs, the two differ, and what is shown follows the machine's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import msgspec

#: A count that every store can hold; more is refused when it is decoded.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
#: The place after which a page of what is counted from 0 begins; -1 for the beginning.
Place = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 63) - 1)]

#: A time or a duration in seconds; wide enough for any clock, and many of them have a finite sum.
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]

#: A past moment: seconds since the epoch, by the pool's steady clock until somebody is told it.
PoolMoment: TypeAlias = Annotated[float, "by the pool's clock, past"]
#: The same for a moment to come.
PoolMomentToCome: TypeAlias = Annotated[float, "by the pool's clock, to come"]


def told(value: Any, of_past: Callable[[float], float], to_come: Callable[[float], float]) -> Any:
    """Replaces the moments in a message, or in a part of one; the same object if none changes.

    Args:
        of_past: returns what is told in place of a moment that was.
        to_come: the same for one that is to come.
    """
    if isinstance(value, msgspec.Struct):
        moments = _moments_of(type(value))
        changes: dict[str, Any] = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            kind = moments.get(name)
            if kind is None:
                after = told(before, of_past, to_come)
            elif before is None:
                continue
            else:
                after = of_past(before) if kind is PoolMoment else to_come(before)
            if after is not before:
                changes[name] = after
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, list):
        return [told(each, of_past, to_come) for each in value]
    if isinstance(value, tuple):
        return tuple(told(each, of_past, to_come) for each in value)
    if isinstance(value, dict):
        return {key: told(each, of_past, to_come) for key, each in value.items()}
    return value


@cache
def _moments_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Finds the fields of a struct that are moments of the pool, each with its kind."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for kind_of_moment in (PoolMoment, PoolMomentToCome):
            if kind_of_moment in (hint, *get_args(hint)):
                found[name] = kind_of_moment
    return found
