"""The interface of a kind of settings: what it is called, what may be set, what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from kestrelctl.core.model.setting import Setting
from kestrelctl.core.state import State

S = TypeVar("S", bound=Setting)
W = TypeVar("W")


def _nothing(*_: object) -> None:
    pass


def _itself(_state: State, wanted: Any) -> Any:
    return wanted


class SettingKind(msgspec.Struct, Generic[S, W], frozen=True, kw_only=True):
    """A kind of settings. `{}` in its words stands for the name of one.

    Attributes:
        word: its name in the store, for ever.
        struct: the class of its settings.
        wanted: what an admin hands in: a setting, or a change of one.
        most: how many of them a pool may have.
        one, many: the words for one and for several of them.
        missing: the words for that there is none of a name.
        listed_by: the command that lists them.
        said: what the log says when one is set, before `by` and who did it; by default that `one`
            was set. `{0}` is the setting.
        must_make_sense: raises a `KestrelError` if what is wanted could be set in no pool.
        checked: makes the setting of what is wanted, by default itself; it raises a `KestrelError`
            if this pool cannot have it now.
        restore: takes in a setting of the store; it raises a `KestrelError` if it cannot hold.
        put: takes in a setting that is new, or replaces another, with what follows for jobs and
            workers. It gets whether it is new.
        must_stay: raises a `KestrelError` if a setting may not be removed now.
        removed: takes in that a setting is gone.
        workers: how many workers one concerns, for the answer.
        about: what has to be known of a setting even if the store cannot read it any more.
        instead: what holds instead of such a one, given its name and `about`; None for nothing.
    """

    word: str
    struct: type[S]
    wanted: type[W]
    most: int
    one: str
    many: str
    missing: str
    listed_by: str
    said: str = ""
    must_make_sense: Callable[[W], None]
    checked: Callable[[State, W], S] = _itself
    restore: Callable[[State, S], None] = _nothing
    put: Callable[[State, S, bool], None] = _nothing
    must_stay: Callable[[State, S], None] = _nothing
    removed: Callable[[State, S], None] = _nothing
    workers: Callable[[State, S], int] = lambda _state, _setting: 0
    about: Callable[[S], str] = lambda _setting: ""
    instead: Callable[[str, str], S | None] = lambda _name, _about: None

    def news(self, setting: S) -> str:
        """The words of the log for a setting that was set, before `by` and who did it."""
        return (
            self.said.format(setting) if self.said else f"{self.one.format(setting.name)} was set"
        )


#: A kind whose classes are found at run time.
AnyKind = SettingKind[Any, Any]
