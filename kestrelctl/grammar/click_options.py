"""Options as click parses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from kestrelctl.grammar.click_types import FileName, Number, WholeNumber
from kestrelctl.grammar.option import (
    Choice,
    Decimal,
    File,
    Flag,
    JobNames,
    Option,
    Parsed,
    Ranges,
    Value,
    Whole,
)

#: Key in the `meta` of a command's context of what tells the id of the job that `last` means.
LAST_JOB = "kestrelctl.last_job"

F = TypeVar("F", bound=Callable[..., Any])


class _ChoiceType(click.Choice[str]):
    def __init__(self, value: Choice) -> None:
        super().__init__(value.words)
        self._made = value.made

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._made(super().convert(value, param, ctx))


def click_options(options: Iterable[Option], **unset: object) -> Callable[[F], F]:
    """Gives a command options.

    Args:
        unset: by `Option.dest`, values of options that are not given, where the table has others.
    """

    def decorate(function: F) -> F:
        for option in reversed(list(options)):
            function = click_option(option, unset.get(option.dest, option.unset))(function)
        return function

    return decorate


def click_option(option: Option, unset: object = None) -> Callable[[F], F]:
    """Gives a command one option.

    Args:
        unset: its value if it is not given.
    """
    value = option.value
    names = [option.dest, *(f"--{name}" for name in (option.name, *option.also))]
    if isinstance(value, Flag):
        return click.option(*names, is_flag=True, help=option.text)
    if isinstance(value, JobNames):  # a value that was not written is read, too
        unset = () if option.repeats else None
    return click.option(
        *names,
        type=_type(value),
        metavar=value.metavar or None,
        multiple=option.repeats,
        default=unset,
        show_default=option.says_default,
        callback=_callback(value),
        help=option.text,
    )


def _type(value: Value) -> Any:
    match value:
        case Whole():
            return WholeNumber(value.least, value.most)
        case Decimal():
            return Number(min=value.least)
        case Choice():
            return _ChoiceType(value)
        case Parsed():
            return value.parse
        case File():
            return FileName()
    return str


def _callback(value: Value) -> Callable[[click.Context, click.Parameter, Any], Any] | None:
    if isinstance(value, Ranges):
        ranges = value
        return lambda _ctx, _param, given: ranges.parse(",".join(given)) if given else None
    if isinstance(value, JobNames):
        jobs = value
        return lambda ctx, _param, given: jobs.parse(given, lambda: ctx.meta[LAST_JOB]())
    return None
