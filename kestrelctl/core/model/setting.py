"""Settings: what admins set, list and remove by name. `core.settings.table` has their kinds."""

from __future__ import annotations

import msgspec


class Setting(msgspec.Struct, frozen=True):
    """A setting of some kind: its class says of which.

    Attributes:
        name: no two of a kind have the same.
    """

    name: str


class SettingGone(msgspec.Struct, frozen=True):
    """A setting that is no longer there.

    Attributes:
        kind: the class that it had.
    """

    kind: type[Setting]
    name: str
