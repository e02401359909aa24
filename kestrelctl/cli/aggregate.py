"""The options that say what a worker offers; for `worker run` and `worker join`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kestrelctl.cli.quantities import parse_size

F = TypeVar("F", bound=Callable[..., Any])

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
        "--tags", multiple=True, metavar="TAG", help="What it provides; comma or repeated."
    ),
)


def aggregate_options(command: F) -> F:
    """Adds the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
