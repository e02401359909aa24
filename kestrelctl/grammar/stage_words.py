"""The stages of a job, as options and job files describe them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from kestrelctl.core.model.job.stage import COMMANDED, IN, OUT, SETUP, Stage
from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import parse_duration

#: Stage -> the option that has its command, as click names it.
OPTION_OF = {SETUP: "setup", IN: "stage_in", OUT: "stage_out"}

T = TypeVar("T")


def parse_command(given: object) -> tuple[str, ...]:
    """The words of a command in one word, quoted as in a shell; those of a job file as they are.

    Raises:
        UsageError: a quote is not closed, it begins as an option, or there is no word in it.
    """
    if isinstance(given, tuple):
        return given
    if str(given).startswith("-"):
        raise UsageError(
            f"not a command: {str(given)!r}", hint="the option before it takes a command"
        )
    try:
        words = tuple(shlex.split(str(given)))
    except ValueError as error:
        raise UsageError(
            f"not a command: {str(given)!r}", cause=str(error), hint="quote as in a shell"
        ) from None
    if not words:
        raise UsageError(
            f"not a command: {str(given)!r}",
            cause="there is no word in it",
            hint="leave the option out if nothing is to run",
        )
    return words


def stages_of(options: Mapping[str, Any]) -> tuple[Stage, ...]:
    """The stages that parsed options describe, in their order.

    Raises:
        UsageError: something is said of a stage that has no command, or twice.
    """
    limits = _by_stage("--stage-limit", options["stage_limit"], parse_duration)
    tries = _by_stage("--stage-tries", options["stage_tries"], _whole)
    commands = {name: options[option] for name, option in OPTION_OF.items() if options[option]}
    for name in (limits | tries).keys() - commands.keys():
        option = f"--{OPTION_OF[name].replace('_', '-')}"
        raise UsageError(f"the stage {name} has no command", hint=f"{option} COMMAND")
    return tuple(
        Stage(
            name=name,
            argv=argv,
            time_limit_seconds=limits.get(name),
            tries=tries.get(name, 1),
        )
        for name, argv in commands.items()
    )


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"not a number of tries: {text!r}", hint="write 3")
    return int(text)


def _by_stage(option: str, given: Iterable[str], parse: Callable[[str], T]) -> dict[str, T]:
    """Reads `NAME=VALUE` words, by stage."""
    found: dict[str, T] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if name not in COMMANDED or not equals:
            raise UsageError(
                f"not of a stage: {option} {word}", hint=f"NAME=… with {', '.join(COMMANDED)}"
            )
        if name in found:
            raise UsageError(f"{option} {name} is given twice")
        found[name] = parse(value)
    return found
