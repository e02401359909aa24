"""Plans and carries out a push; an edit by hand is not lost by accident.

Grafana keeps a message with each version of a dashboard. The messages of a push name the version of
kestrelctl and the fingerprint of what it pushed. So the newest message tells whether somebody has
saved the dashboard since, whatever the server makes of the JSON that it stores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kestrelctl.checkout import own_version
from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.grafana.board import Board, fingerprint
from kestrelctl.grafana.client import Edit, Grafana, Saved

_MARK = re.compile(r"kestrelctl (\S+) dashboards push, content ([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class PushStep:
    """The part of a push that concerns one dashboard.

    Attributes:
        state: `created`, `updated` or `unchanged`.
        replaces: the version on the server; None if there is none.
        refusal: why it is not done unless forced; empty if nothing is in the way.
    """

    board: Board
    state: str
    replaces: int | None = None
    refusal: str = ""


def plan(grafana: Grafana, boards: Sequence[Board], folder: str | None) -> list[PushStep]:
    """Plans a push of the dashboards into the folder, which is None if it is yet to be made.

    Raises:
        KestrelError: the server reads one of the dashboards from a file of its own.
    """
    return [_step(grafana, board, folder) for board in boards]


def refuse(steps: Sequence[PushStep]) -> None:
    """Stops a push that would undo what somebody did.

    Raises:
        KestrelError: it would.
    """
    refused = [step for step in steps if step.refusal]
    if not refused:
        return
    noun = "dashboard is" if len(refused) == 1 else "dashboards are"
    raise KestrelError(
        f"{len(refused)} {noun} newer in Grafana than here; nothing was pushed",
        cause="; ".join(f"{step.board.uid}: {step.refusal}" for step in refused),
        hint="kestrelctl dashboards diff, then pull to keep it or push --force to lose it",
    )


def carry_out(grafana: Grafana, steps: Sequence[PushStep], folder: str, *, force: bool) -> None:
    """Saves what is new or has changed.

    Raises:
        KestrelError: the server did not take one; those before it are saved.
    """
    for step in steps:
        if step.state != "unchanged":
            grafana.save(
                step.board.model,
                folder=folder,
                replaces=step.replaces,
                message=_mark(step.board),
                overwrite=force,
            )


def _step(grafana: Grafana, board: Board, folder: str | None) -> PushStep:
    try:
        saved = grafana.read(board.uid)
    except NotFound:
        return PushStep(board, "created")
    same_place = saved.folder == folder
    content = fingerprint(board.model)
    if same_place and fingerprint(saved.model) == content:
        return PushStep(board, "unchanged", saved.version)
    if saved.provisioned:
        raise KestrelError(
            f"Grafana reads the dashboard {board.uid} from a file of its own",
            cause="what is provisioned cannot be pushed",
            hint="change that file, or leave the dashboard out",
        )
    edit = grafana.last_edit(board.uid)
    mark = _MARK.fullmatch(edit.message) if edit and edit.version == saved.version else None
    if mark is None:
        return PushStep(board, "updated", saved.version, _edited(saved, edit))
    if same_place and mark[2] == content:
        # The server has changed the form of the JSON, not its content.
        return PushStep(board, "unchanged", saved.version)
    if _order(mark[1]) > _order(own_version()):
        newer = f"pushed by kestrelctl {mark[1]}, and this is {own_version()}"
        return PushStep(board, "updated", saved.version, newer)
    return PushStep(board, "updated", saved.version)


def _mark(board: Board) -> str:
    return f"kestrelctl {own_version()} dashboards push, content {fingerprint(board.model)}"


def _edited(saved: Saved, edit: Edit | None) -> str:
    by = f" by {edit.author}" if edit and edit.author and edit.version == saved.version else ""
    return f"version {saved.version} was saved{by}, not by a push"


def _order(version: str) -> tuple[tuple[int, ...], float]:
    """Returns a sort key for versions: a development version comes before its release."""
    release, _, development = version.partition("+")[0].partition(".dev")
    return tuple(map(int, re.findall(r"\d+", release))), float(development or "inf")
