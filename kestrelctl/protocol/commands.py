"""Commands that workers offer and admins run. `docs/protocol.md` shows one of each.

A worker that was given no definitions of commands says nothing of this, and is told nothing.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.properties.command_definition import (
    LONGEST_SECONDS,
    MOST_COMMANDS,
    MOST_PARAMETERS,
    NAME_PATTERN,
    Parameters,
)
from kestrelctl.protocol.message import Message
from kestrelctl.protocol.properties import Value
from kestrelctl.protocol.request import AdminRequest, Reply, UserRequest

#: The most workers that one request has run a command.
MOST_WORKERS = 1_000
MOST_ERROR_CHARACTERS = 300

CommandName = Annotated[str, msgspec.Meta(pattern=rf"^{NAME_PATTERN}\Z")]
Number = Annotated[str, msgspec.Meta(max_length=64)]
_Word = Annotated[str, msgspec.Meta(max_length=32)]


class OfferedCommand(msgspec.Struct, frozen=True, array_like=True):
    """A command that may be run at a worker: its name, what it takes, how long it may last."""

    name: CommandName
    parameters: Annotated[tuple[tuple[_Word, _Word], ...], msgspec.Meta(max_length=MOST_PARAMETERS)]
    timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_SECONDS)]


class CommandsHere(Message, frozen=True, kw_only=True, tag="commands"):
    """The commands that may be run at a worker; sent after each welcome."""

    commands: Annotated[list[OfferedCommand], msgspec.Meta(max_length=MOST_COMMANDS)]


class CommandDone(Message, frozen=True, kw_only=True, tag="command_done"):
    """The result of `run_command`.

    Attributes:
        value: what it printed, of the type that its definition promises; None for nothing.
        error: why it was not done, or failed; empty if it went well.
    """

    request: Number
    value: Value = None
    error: Annotated[str, msgspec.Meta(max_length=MOST_ERROR_CHARACTERS)] = ""


class RunCommand(Message, frozen=True, kw_only=True, tag="run_command"):
    """Run one of the commands that the worker offers; answered by `command_done`.

    Attributes:
        values: those of its parameters, by name.
    """

    request: Number
    name: CommandName
    values: dict[str, Value] = {}


class ReadProperties(Message, frozen=True, kw_only=True, tag="read_properties"):
    """Read properties now; their values come as always, in `properties`.

    Attributes:
        names: those of which the worker has a definition; empty for all.
    """

    names: list[str] = []


class CommandView(msgspec.Struct, frozen=True, kw_only=True):
    """A command that workers offer with the same parameters.

    Attributes:
        workers: how many.
        timeout_seconds: the longest that it may last at any of them.
    """

    name: str
    parameters: Parameters
    workers: int
    timeout_seconds: float


class CommandList(Reply, frozen=True, kw_only=True, tag="commands"):
    """All commands that workers offer, by name."""

    commands: list[CommandView]


class CommandResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a command at one worker, as in `command_done`."""

    worker: str
    seconds: float
    value: bool | int | float | str | None = None
    error: str = ""


class CommandResults(Reply, frozen=True, kw_only=True, tag="command_results"):
    """The results of a command, by worker."""

    results: list[CommandResult]


class ListCommands(UserRequest, frozen=True, kw_only=True, tag="commands"):
    """List the commands that may be run at workers. Answered by `commands`."""

    answered_by = (CommandList,)


class RunAtWorkers(AdminRequest, frozen=True, kw_only=True, tag="run_command"):
    """Run a command at workers (admins only). Answered by `command_results` when all have.

    Attributes:
        values: those of its parameters, by name, as texts.
        workers: names of workers; empty for all.
        group: only workers that are in it; empty for any.
    """

    answered_by = (CommandResults,)
    only_admins_may = "run commands at workers"

    name: CommandName
    values: dict[str, Annotated[str, msgspec.Meta(max_length=1_024)]] = {}
    workers: Annotated[list[str], msgspec.Meta(max_length=MOST_WORKERS)] = []
    group: Annotated[str, msgspec.Meta(max_length=100)] = ""


CommandRequest: TypeAlias = ListCommands | RunAtWorkers
CommandAnswer: TypeAlias = CommandList | CommandResults
