"""The options that say what a worker offers; for `worker run` and `worker join`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kestrelctl.cli.quantities import parse_size, split_words
from kestrelctl.core.model import isolation
from kestrelctl.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def _tags(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The tags, one by one. UsageError if one is not the operator's to give."""
    tags = split_words(given)
    for tag in filter(isolation.is_reserved, tags):
        raise UsageError(
            f"the tag {tag} cannot be given",
            cause=f"with {isolation.TAG_PREFIX}… a worker says itself how it isolates tasks",
            hint="--isolation is what decides about that",
        )
    return tags


_OPTIONS = (
    click.option(
        "--sessions",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Workers in this one process.",
    ),
    click.option(
        "--cpus", type=click.FloatRange(0.001), help="Of each.  [default: what the machine has]"
    ),
    click.option(
        "--memory",
        "memory_bytes",
        type=parse_size,
        metavar="SIZE",
        help="Of each.  [default: an equal share of what the machine has]",
    ),
    click.option(
        "--tags",
        multiple=True,
        metavar="TAG",
        callback=_tags,
        help="What it provides; comma or repeated.",
    ),
    click.option(
        "--isolation",
        type=click.Choice(["auto", *isolation.RUNGS]),
        default="auto",
        show_default=True,
        help="What stands between tasks; auto is the best that works here.",
    ),
    click.option(
        "--share",
        "shares",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="A directory that tasks may write, from isolation bubblewrap up; repeatable.",
    ),
)


def aggregate_options(command: F) -> F:
    """Adds the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
