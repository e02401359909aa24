"""Requests that change the settings of a pool: what admins set and remove by name."""

from __future__ import annotations

from typing import ClassVar

from kestrelctl.core.model.setting import Setting
from kestrelctl.core.model.share_change import GroupChange
from kestrelctl.protocol.request import AdminRequest, Changed


class SetSetting(AdminRequest, frozen=True, kw_only=True):
    """Set something that the pool has by name. Answered by `changed`, once it is durable."""

    answered_by = (Changed,)
    only_admins_may = "change its settings"

    def wanted(self) -> Setting | GroupChange:
        """Makes what is to be set."""
        raise NotImplementedError


class RemoveSetting(AdminRequest, frozen=True, kw_only=True):
    """Remove something that was set by name. Answered by `changed`.

    Attributes:
        kind: the class of what it removes.
    """

    answered_by = (Changed,)
    only_admins_may = "change its settings"
    kind: ClassVar[type[Setting]]

    name: str
