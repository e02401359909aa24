"""Properties of hosts that workers tell, and users ask for. `docs/protocol.md` shows one of each.

A worker that was given no definitions of properties says nothing of this.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.model.numbers import Seconds
from kestrelctl.core.properties.definition import MOST_PROPERTIES, NAME_PATTERN
from kestrelctl.core.properties.reading import (
    LARGEST_FLOAT,
    LARGEST_INT,
    MOST_REASON_CHARACTERS,
    MOST_TEXT_BYTES,
    PropertyReading,
)
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.protocol.message import Message
from kestrelctl.protocol.request import Reply, UserRequest

#: The most readings in one message: all their texts together are smaller than a payload may be.
MOST_READINGS = 50

Name = Annotated[str, msgspec.Meta(pattern=rf"^{NAME_PATTERN}\Z")]
Value: TypeAlias = (
    bool
    | Annotated[int, msgspec.Meta(ge=-LARGEST_INT, le=LARGEST_INT)]
    | Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)]
    | Annotated[str, msgspec.Meta(max_length=MOST_TEXT_BYTES)]
    | None
)


class ToldReading(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One reading; on the wire `["ram_free",1764000000.5,812340]`.

    Attributes:
        at: by the worker's clock.
        value: None if it could not be read.
        missing: why it could not be read.
    """

    name: Name
    at: Seconds
    value: Value
    missing: Annotated[str, msgspec.Meta(max_length=MOST_REASON_CHARACTERS)] = ""

    def reading(self) -> PropertyReading:
        """The reading without its name."""
        return PropertyReading(self.at, self.value, self.missing)


class PropertiesHere(Message, frozen=True, kw_only=True, tag="properties"):
    """Readings of a worker's host that differ from those told before.

    Attributes:
        anew: earlier readings do not count any more; set in the first message after a welcome.
    """

    readings: Annotated[list[ToldReading], msgspec.Meta(max_length=MOST_READINGS)]
    anew: bool = False


class PropertyView(msgspec.Struct, frozen=True, kw_only=True):
    """One property of a group of workers."""

    name: str
    summary: PropertySummary


class PropertyList(Reply, frozen=True, kw_only=True, tag="properties"):
    """Properties, by name.

    Attributes:
        workers: how many are in the group.
    """

    properties: list[PropertyView]
    workers: int


class ListProperties(UserRequest, frozen=True, kw_only=True, tag="properties"):
    """Tell what the properties of workers add up to. Answered by `properties`.

    Attributes:
        group: the group of workers; empty for all that are online.
        names: the properties; empty for all.
    """

    answered_by = (PropertyList,)

    group: Annotated[str, msgspec.Meta(max_length=100)] = ""
    names: Annotated[list[Name], msgspec.Meta(max_length=MOST_PROPERTIES)] = []
