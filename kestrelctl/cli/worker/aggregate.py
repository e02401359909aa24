"""The options of `worker run` and `worker join` that say what a worker offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kestrelctl.core.classad.rules import shown
from kestrelctl.core.model.worker import isolation
from kestrelctl.core.model.worker.matching_ads import problem_with_attributes
from kestrelctl.core.model.worker.own_tags import first_own
from kestrelctl.core.model.worker.significance import problem_with_expression
from kestrelctl.errors import UsageError
from kestrelctl.grammar.asset_words import offered_assets
from kestrelctl.grammar.attributes import parse_attribute
from kestrelctl.grammar.click_types import FilePath, Number, WholeNumber
from kestrelctl.grammar.quantities import parse_capacity, split_words

F = TypeVar("F", bound=Callable[..., Any])


def _tags(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the tags, one by one. Raises UsageError if the operator may not give one."""
    tags = split_words(given)
    own = first_own(tags)
    if own is not None:
        raise UsageError(
            f"the tag {own.name} cannot be given",
            cause=f"by it, workers say themselves that they {own.does}",
        )
    for tag in filter(isolation.is_reserved, tags):
        raise UsageError(
            f"the tag {tag} cannot be given",
            cause=f"with {isolation.TAG_PREFIX}… a worker says itself how it isolates tasks",
            hint="--isolation is what decides about that",
        )
    return tags


def _attributes(
    _ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, bool | int | float | str]:
    """Returns the attributes. Raises UsageError if no expression could use one."""
    pairs = [parse_attribute(each) for each in given]
    found = dict(pairs)
    problem = problem_with_attributes(found)
    if len(found) < len(pairs):
        problem = "one is given twice"
    if problem:
        raise UsageError("these attributes cannot be given", cause=problem)
    return found


def _start(_ctx: click.Context, _option: click.Parameter, given: str) -> str:
    """Returns the expression. Raises UsageError if the pool would not take it."""
    text = given.strip()
    mistake = problem_with_expression(text)
    if mistake is not None:
        raise UsageError("the pool would not take --start", cause=shown(text, mistake))
    return text


def _assets(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> object:
    """Returns the words, which can all be read. Raises UsageError if one has its own option."""
    offered = offered_assets(given)
    for name in ("cpus", "memory"):
        kinds = (offered.amounts, offered.units, offered.shared, offered.unknown)
        if any(name in kind for kind in kinds):
            raise UsageError(
                f"{name} has an option of its own", hint=f"--{name} instead of --asset"
            )
    return given


_OPTIONS = (
    click.option(
        "--sessions",
        type=WholeNumber(1),
        default=1,
        show_default=True,
        help="Number of workers in this one process.",
    ),
    click.option(
        "--cpus",
        type=Number(0.001),
        help="Processors that each worker offers.  [default: those of the machine, shared out]",
    ),
    click.option(
        "--memory",
        "memory_bytes",
        type=parse_capacity,
        metavar="SIZE",
        help="Memory that each worker offers: 8G.  [default: that of the machine, shared out]",
    ),
    click.option(
        "--asset",
        "assets",
        multiple=True,
        metavar="NAME=…",
        callback=_assets,
        help="Other asset that each worker offers: fpga=2, gpus=0,1 (units), seats=shared:4, db=?; "
        "repeatable.",
    ),
    click.option(
        "--tags",
        multiple=True,
        metavar="TAG",
        callback=_tags,
        help="Tag that jobs can require: GPU,R; comma or repeated.",
    ),
    click.option(
        "--attribute",
        "attributes",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_attributes,
        help='Attribute for the expressions of jobs: rack=7, fast=true, site="north"; repeatable.',
    ),
    click.option(
        "--start",
        default="",
        metavar="EXPR",
        callback=_start,
        help="Take only jobs for which this expression is true: 'RequestMemory <= 2048'.  "
        "[default: all]",
    ),
    click.option(
        "--isolation",
        type=click.Choice(["auto", *isolation.RUNGS]),
        default="auto",
        show_default=True,
        help="Isolation between tasks; auto is the best that works here.",
    ),
    click.option(
        "--share",
        "shares",
        multiple=True,
        type=FilePath(),
        metavar="DIR",
        help="Directory or device that tasks may write in spite of the isolation bubblewrap or "
        "systemd; repeatable.",
    ),
    click.option(
        "--pull",
        "pulls",
        is_flag=True,
        help="Ask for tasks: at most two for each processor wait here.  [default: take what the "
        "pool sends]",
    ),
)


def aggregate_options(command: F) -> F:
    """Adds the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
