"""Writes dashboards of the server into files, and compares the two."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.grafana.board import Board, Json, difference, normalise, write
from kestrelctl.grafana.client import Grafana

#: What Grafana allows in a uid; nothing else becomes the name of a file.
_UID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def pull(
    grafana: Grafana, directory: Path, boards: Sequence[Board], uids: Sequence[str]
) -> list[tuple[Board, str]]:
    """Writes dashboards of the server into the directory.

    Args:
        boards: those that the directory has.
        uids: those to fetch.

    Returns:
        Each dashboard as it is now, with `created`, `updated` or `unchanged`; a file whose
        dashboard is the same is left alone.

    Raises:
        NotFound: the server has not got one of them.
        KestrelError: a file cannot be written.
    """
    here = {board.uid: board for board in boards}
    # All are fetched before the first is written.
    found = [(uid, normalise(grafana.read(uid).model)) for uid in uids]
    return [_place(directory, here.get(uid), uid, model) for uid, model in found]


def compare(grafana: Grafana, boards: Sequence[Board]) -> list[tuple[Board, str]]:
    """Each dashboard with what a push would change of it, as a diff; empty if nothing."""
    return [
        (board, difference(_on_server(grafana, board.uid), board.model, board.uid))
        for board in boards
    ]


def _place(directory: Path, board: Board | None, uid: str, model: Json) -> tuple[Board, str]:
    if board is not None:
        if board.model == model:
            return board, "unchanged"
        write(board.file, model, like=board.model)
        return Board(board.file, model), "updated"
    file = directory / f"{uid}.json"
    if not _UID.fullmatch(uid) or file.exists():
        raise KestrelError(
            f"the dashboard {uid!r} has no file here, and none can be made",
            cause=f"{file} is another dashboard" if file.exists() else "it is no uid of Grafana's",
        )
    write(file, model, like=None)
    return Board(file, model), "created"


def _on_server(grafana: Grafana, uid: str) -> Json | None:
    try:
        return grafana.read(uid).model
    except NotFound:
        return None
