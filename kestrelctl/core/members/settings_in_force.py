"""The settings of a pool. What follows from those of a kind is kept where it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from kestrelctl.core.model.setting import Setting

S = TypeVar("S", bound=Setting)


class SettingsInForce:
    """All settings of a pool, by kind and name."""

    def __init__(self) -> None:
        self._by_kind: dict[type[Setting], dict[str, Setting]] = {}

    def of(self, kind: type[S]) -> Mapping[str, S]:
        """Settings of a kind, by name: always the same mapping, in which later changes are seen."""
        return cast("dict[str, S]", self._by_kind.setdefault(kind, {}))

    def put(self, setting: Setting) -> None:
        """Adds a setting, or replaces the one of its kind and name."""
        self._by_kind.setdefault(type(setting), {})[setting.name] = setting

    def remove(self, setting: Setting) -> None:
        """Takes a setting out."""
        del self._by_kind[type(setting)][setting.name]
