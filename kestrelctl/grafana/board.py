"""A dashboard as JSON: which parts count, how two are compared, and the files they are kept in."""

from __future__ import annotations

import difflib
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kestrelctl.errors import KestrelError, NotFound, UsageError

Json = dict[str, Any]

#: Keys that a server writes into a dashboard for itself.
_OF_THE_SERVER = ("id", "version", "iteration")


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard in a file.

    Attributes:
        model: without what a server adds.
    """

    file: Path
    model: Json

    @property
    def uid(self) -> str:
        uid: str = self.model["uid"]
        return uid

    @property
    def title(self) -> str:
        return str(self.model.get("title", ""))


def normalise(model: Json) -> Json:
    """The dashboard without what differs from server to server."""
    return {key: value for key, value in model.items() if key not in _OF_THE_SERVER}


def fingerprint(model: Json) -> str:
    """16 hex digits that change when anything in the dashboard does."""
    text = json.dumps(normalise(model), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def difference(old: Json | None, new: Json, name: str) -> str:
    """A unified diff of two dashboards, keys sorted; empty if they are the same."""
    lines = difflib.unified_diff(
        _sorted_lines(old), _sorted_lines(new), f"grafana/{name}", f"here/{name}", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def usual_directory() -> Path:
    """`dashboards/` of the checkout, or `share/kestrel/dashboards` of the installation.

    Raises:
        UsageError: there is neither.
    """
    checkout = Path(__file__).parents[2]
    installed = Path(sys.prefix) / "share" / "kestrel" / "dashboards"
    for directory in (checkout / "dashboards", installed):
        if any(directory.glob("*.json")):
            return directory
    raise UsageError(
        "no dashboards are installed here",
        hint="a checkout of Kestrel has some: --directory CHECKOUT/dashboards",
    )


def read_boards(directory: Path) -> list[Board]:
    """The dashboards of a directory, by the names of their files.

    Raises:
        UsageError: it is no directory, or a file in it is no dashboard.
    """
    if not directory.is_dir():
        raise UsageError(f"there is no directory {directory}")
    boards = [_read(file) for file in sorted(directory.glob("*.json"))]
    by_uid: dict[str, Board] = {}
    for board in boards:
        twin = by_uid.setdefault(board.uid, board)
        if twin is not board:
            raise UsageError(
                f"two dashboards have the uid {board.uid}",
                cause=f"{twin.file.name} and {board.file.name} in {directory}",
            )
    return boards


def pick(boards: Sequence[Board], names: Iterable[str]) -> list[Board]:
    """Returns the dashboards that are named, by file or uid; all if no name is given.

    Raises:
        NotFound: no dashboard has one of the names.
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return list(boards)
    known = {**{board.file.stem: board for board in boards}, **{b.uid: b for b in boards}}
    for name in wanted:
        if name not in known:
            here = ", ".join(board.file.stem for board in boards)
            raise NotFound(
                f"there is no dashboard {name!r} here", cause=f"known: {here}" if here else None
            )
    return list({known[name].uid: known[name] for name in wanted}.values())


def write(file: Path, model: Json, like: Json | None) -> None:
    """Writes a dashboard, its keys in the order of the one it replaces.

    Raises:
        KestrelError: it cannot be written.
    """
    ordered = normalise(model) if like is None else _in_order_of(normalise(model), like)
    try:
        file.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise KestrelError(f"{file} cannot be written", cause=error.strerror) from None


def _read(file: Path) -> Board:
    try:
        model = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read", cause=error.strerror) from None
    except ValueError as error:
        raise UsageError(f"{file} is not JSON", cause=str(error)) from None
    if not isinstance(model, dict) or not isinstance(model.get("uid"), str) or not model["uid"]:
        raise UsageError(f"{file} is no dashboard", cause="it has no uid")
    return Board(file, normalise(model))


def _sorted_lines(model: Json | None) -> list[str]:
    if model is None:
        return []
    return json.dumps(normalise(model), indent=2, sort_keys=True, ensure_ascii=False).splitlines()


def _in_order_of(new: Any, old: Any) -> Any:
    """The new value, with the keys that the old one has, too, in its order and before others."""
    if isinstance(new, dict) and isinstance(old, dict):
        keys = [*(key for key in old if key in new), *(key for key in new if key not in old)]
        return {key: _in_order_of(new[key], old.get(key)) for key in keys}
    if isinstance(new, list) and isinstance(old, list):
        olds = [*old, *[None] * len(new)]
        return [_in_order_of(each, before) for each, before in zip(new, olds, strict=False)]
    return new
