"""`kestrelctl dashboards`: the dashboards of a running Grafana server, and those in files here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.cli.show.screen import BOLD, CYAN, GREEN, RED, Screen
from kestrelctl.core.model.wording import one_line, plural
from kestrelctl.grammar.click_types import FilePath
from kestrelctl.grammar.deadline_words import Since, parse_since
from kestrelctl.grammar.quantities import parse_duration

if TYPE_CHECKING:
    from kestrelctl.grafana.board import Board
    from kestrelctl.grafana.client import Grafana


_COLORS = {"---": BOLD, "+++": BOLD, "@@": CYAN, "-": RED, "+": GREEN}


class Difference(msgspec.Struct, frozen=True):
    """The difference between two versions of a dashboard; `diff` is empty if there is none."""

    uid: str
    differs: bool
    diff: str


class Differences(CommandOutput):
    """Several differences; only the dashboards that differ are named."""

    many = True

    def __init__(self, found: Sequence[Difference]) -> None:
        self._found = found

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        for each in self._found:
            yield each.uid, each

    async def name(self, screen: Screen) -> None:
        for each in self._found:
            if each.differs:
                screen.write(f"{each.uid}\n")

    async def tabulate(self, screen: Screen) -> None:
        for each in self._found:
            for line in each.diff.splitlines():
                screen.write(_painted(one_line(line), screen) + "\n")


def _painted(line: str, screen: Screen) -> str:
    for start, color in _COLORS.items():
        if line.startswith(start):
            return screen.paint(color, line)
    return line


#: The exit status of `diff` if something differs, as that of diff(1).
DIFFERENT = 1


@click.group("dashboards", cls=Noun)
def dashboards() -> None:
    """Copy dashboards to a Grafana server, and back."""


def _server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say which server, and how to log in."""
    for option in (
        click.option(
            "--timeout",
            "timeout",
            default="30",
            metavar="DURATION",
            help="Time to wait for each answer of the server.  [default: 30]",
        ),
        click.option(
            "--token-file",
            type=FilePath(),
            metavar="FILE",
            help="File whose first line is a token of a service account. [env: GRAFANA_TOKEN, the "
            "token]",
        ),
        click.option(
            "--url",
            envvar="GRAFANA_URL",
            default="",
            metavar="URL",
            help="Address of the Grafana server. [env: GRAFANA_URL]",
        ),
    ):
        command = option(command)
    return command


_directory_option = click.option(
    "--directory",
    type=FilePath(),
    metavar="DIR",
    help="Directory of the files.  [default: the dashboards that came with kestrelctl]",
)
_folder_option = click.option(
    "--folder", default="Kestrel", show_default=True, help="Folder of the server: its title or uid."
)
_names = click.argument("names", nargs=-1, metavar="[NAME]...")


@dashboards.command("push", cls=CliCommand, talks=False)
@_server_options
@_directory_option
@_folder_option
@click.option("--create-folder", is_flag=True, help="Make the folder if there is none.")
@click.option("--force", is_flag=True, help="Undo what was edited in Grafana, too.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@_names
@pass_invocation
def push(
    invocation: Invocation,
    /,
    directory: Path | None,
    folder: str,
    create_folder: bool,
    force: bool,
    dry_run: bool,
    names: tuple[str, ...],
    **server: Any,
) -> None:
    """Save dashboards in Grafana: all that are here, or those of the NAMES."""
    from kestrelctl.grafana import push as pushing
    from kestrelctl.grafana.board import pick

    boards = pick(_boards(directory), names)
    grafana = _connect(**server)
    uid = _folder(grafana, folder, missing_is_fine=create_folder)
    steps = pushing.plan(grafana, boards, uid)
    if not force:
        pushing.refuse(steps)
    if not dry_run:
        if uid is None:
            uid = grafana.create_folder(folder)
            invocation.screen.say(f"created the folder {folder}")
        pushing.carry_out(grafana, steps, uid, force=force)
    elif uid is None:
        invocation.screen.say(f"would create the folder {folder}")
    _show(invocation, _changes([(step.board, step.state) for step in steps]))
    if dry_run:
        invocation.screen.say("nothing was pushed: --dry-run")


@dashboards.command("pull", cls=CliCommand, talks=False)
@_server_options
@_directory_option
@_folder_option
@_names
@pass_invocation
def pull(
    invocation: Invocation,
    /,
    directory: Path | None,
    folder: str,
    names: tuple[str, ...],
    **server: Any,
) -> None:
    """Write dashboards of Grafana into files: all of the folder, or those of the NAMES."""
    from kestrelctl.grafana.board import read_boards, usual_directory
    from kestrelctl.grafana.pull import pull as fetch

    directory = directory or usual_directory()
    boards = read_boards(directory)
    grafana = _connect(**server)
    if names:
        uids = _uids(boards, names)
    else:
        uid = _folder(grafana, folder, missing_is_fine=False)
        uids = grafana.list_folder(uid or "")
    _show(invocation, _changes(fetch(grafana, directory, boards, uids)))


@dashboards.command("diff", cls=CliCommand, talks=False)
@_server_options
@_directory_option
@_names
@pass_invocation
def diff(
    invocation: Invocation, /, directory: Path | None, names: tuple[str, ...], **server: Any
) -> int:
    """Show what a push would change; status 1 if anything."""
    from kestrelctl.grafana.board import pick
    from kestrelctl.grafana.pull import compare

    boards = pick(_boards(directory), names)
    found = [
        Difference(board.uid, bool(text), text)
        for board, text in compare(_connect(**server), boards)
    ]
    _show(invocation, Differences(found))
    differing = sum(each.differs for each in found)
    if not differing:
        invocation.screen.say(f"{plural(len(found), 'dashboard')}, no difference")
    return DIFFERENT if differing else 0


@dashboards.command("snapshot", cls=CliCommand, talks=False)
@_server_options
@_directory_option
@click.option(
    "--since",
    type=parse_since,
    default="1h",
    show_default=True,
    metavar="TIME|DATE",
    help="Time until now that it shows, or the date from which it does: 6h, 2026-11-01.",
)
@click.option(
    "--expires",
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="Time after which Grafana deletes it.",
)
@click.option(
    "--datasource",
    default="",
    metavar="UID",
    help="Data source of Prometheus.  [default: Grafana's]",
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_invocation
def snapshot(
    invocation: Invocation,
    /,
    directory: Path | None,
    since: Since,
    expires: str,
    datasource: str,
    names: tuple[str, ...],
    **server: Any,
) -> None:
    """Keep dashboards of Grafana with the data they show now; whoever has the address sees it."""
    from kestrelctl.grafana.snapshot import with_data

    expires_seconds = round(parse_duration(expires))
    now = invocation.now()
    from_ms, to_ms = round(since.moment(now) * 1000), round(now * 1000)
    uids = _uids(_boards(directory), names)
    grafana = _connect(**server)
    datasource = datasource or grafana.prometheus()
    models = [grafana.read(uid).model for uid in uids]
    filled = [with_data(grafana, model, datasource, from_ms, to_ms) for model in models]
    made = [
        {
            "uid": model["uid"],
            "title": model["title"],
            **grafana.snapshot(model, model["title"], expires_seconds),
            "expires_seconds": expires_seconds,
        }
        for model in filled
    ]
    columns: list[Column[dict[str, Any]]] = [
        Column("DASHBOARD", lambda each: each["uid"]),
        Column("ADDRESS", lambda each: each["url"]),
        Column("TO DELETE IT", lambda each: each["delete_url"], wide=True),
    ]
    _show(invocation, Listing(made, columns, lambda each: each["url"], nothing=""))


def _connect(url: str, token_file: Path | None, timeout: str) -> Grafana:
    import os

    from kestrelctl.grafana.client import connect
    from kestrelctl.grafana.grafana_access import make_access, read_token

    token = read_token(token_file) if token_file else os.environ.get("GRAFANA_TOKEN", "").strip()
    return connect(make_access(url, token, parse_duration(timeout)))


def _boards(directory: Path | None) -> list[Board]:
    from kestrelctl.grafana.board import read_boards, usual_directory

    return read_boards(directory or usual_directory())


def _folder(grafana: Grafana, wanted: str, *, missing_is_fine: bool) -> str | None:
    from kestrelctl.errors import NotFound

    uid = grafana.find_folder(wanted)
    if uid is None and not missing_is_fine:
        raise NotFound(
            f"Grafana has no folder {wanted!r} that the token may see",
            hint="kestrelctl dashboards push --create-folder, or --folder TITLE",
        )
    return uid


def _uids(boards: Sequence[Board], names: Sequence[str]) -> list[str]:
    """Returns the uids of dashboards by the names of their files; other names are uids."""
    by_file = {board.file.stem: board.uid for board in boards}
    return list(dict.fromkeys(by_file.get(name, name) for name in names))


def _changes(changes: Sequence[tuple[Board, str]]) -> Listing[dict[str, str]]:
    rows = [
        {"uid": board.uid, "title": board.title, "state": state, "file": str(board.file)}
        for board, state in changes
    ]
    columns: list[Column[dict[str, str]]] = [
        Column("STATE", lambda row: row["state"]),
        Column("DASHBOARD", lambda row: row["uid"]),
        Column("TITLE", lambda row: row["title"]),
        Column("FILE", lambda row: row["file"], wide=True),
    ]
    return Listing(rows, columns, lambda row: row["uid"], nothing="no dashboards")


def _show(invocation: Invocation, output: CommandOutput) -> None:
    asyncio.run(invocation.show(output))
