"""`submit` in a chat: the grammar of the command line, less what only makes sense there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import click

from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.shell_text import left_in
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.errors import UsageError
from kestrelctl.grammar.job_options import (
    JOB_FILE_SUFFIXES,
    LAST_JOB,
    array_option,
    checked_job,
    job_of,
    job_options,
)
from kestrelctl.grammar.nearest import did_you_mean
from kestrelctl.protocol.requests import SubmitJob

_FILES = "The pool cannot see your files: use the command line, or --array 1-100"
_TELLS = "I answer at once, and tell you when the job ends"
_TERMINAL = "it is about a terminal, and this is a chat"
#: Options of the command line that are refused: their names, whether a value follows, and why.
_REFUSED: tuple[tuple[tuple[str, ...], bool, str], ...] = (
    (("--each-line",), True, _FILES),
    (("--from-json",), True, _FILES),
    (("--paste-items",), False, _FILES),
    (("--wait",), False, _TELLS),
    (("--progress",), False, _TELLS),
    (("--on-end",), True, _TELLS),
    (("--fetch",), True, _FILES),
    (("--stdout",), True, _FILES),
    (("--stderr",), True, _FILES),
    (("-o",), True, _TERMINAL),
    (("--no-color",), False, _TERMINAL),
    (("-q", "--quiet"), False, _TERMINAL),
    (("-v", "--verbose"), False, _TERMINAL),
    (("--stdin",), True, "the pool cannot see your files: use the command line"),
    (("--input",), True, "the pool cannot see your files: use the command line"),
    (("--workdir", "--chdir"), True, "what is submitted in a chat starts in scratch directories"),
    (("--export",), True, "the pool cannot see your environment: use the command line, or --env"),
    (("--pool",), True, "this chat is with one pool"),
)


def _refuse(name: str, why: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(_ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        if value:
            raise UsageError(f"{name} does not work in a chat", hint=why)

    return callback


def _refused(function: Callable[..., Any]) -> Callable[..., Any]:
    for names, takes_value, why in _REFUSED:
        function = click.option(
            *names,
            is_flag=not takes_value,
            expose_value=False,
            is_eager=True,
            hidden=True,
            callback=_refuse(names[-1], why),
        )(function)
    return function


@click.command("submit", add_help_option=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@array_option
@job_options(Notify.ALWAYS)
@_refused
def _submit() -> None:
    """Only its parameters are used."""


class LastIsMeant(Exception):
    """Words mean the latest job of whoever wrote them, whose id is to be found first."""


def read(words: Sequence[str], last_job: int | None = None) -> SubmitJob:
    """The request that the words after `submit` make.

    Args:
        last_job: the id of the latest job of whoever wrote them; None if nobody knows yet.

    Raises:
        UsageError, click.ClickException: they make none.
        LastIsMeant: they need that id.
    """

    def last() -> int:
        if last_job is None:
            raise LastIsMeant
        return last_job

    context = click.Context(_submit, info_name="submit")
    context.meta[LAST_JOB] = last
    context.allow_interspersed_args = False
    rest = list(words)
    try:
        _submit.parse_args(context, rest)
    except click.NoSuchOption as error:
        meant = did_you_mean(error.option_name, [option.split()[0] for option, _ in options()])
        raise UsageError(
            f"there is no option {error.option_name[:40]}" + (f"; {meant}" if meant else ""),
            hint="write: help submit",
        ) from None
    given = dict(context.params)
    argv: tuple[str, ...] = given.pop("words")
    key: str | None = given.pop("key")
    if not argv:
        raise UsageError("there is no command", hint="write for example: submit -- sleep 1")
    if "--" not in words and PurePath(argv[0]).suffix in JOB_FILE_SUFFIXES:
        raise UsageError(
            f"the pool cannot see your files, and {argv[0]} looks like a job file",
            hint=f"if it is a command, write: submit -- {argv[0]}",
        )
    return SubmitJob(spec=checked_job(job_of(argv, given)), explain=True, key=key or "")


def unfilled_in(spec: JobSpec) -> str:
    """A line on placeholders that nothing fills; empty if there are none."""
    left = ", ".join(left_in(spec, None))
    if not left:
        return ""
    filled = "only {}, {n} and {i} are filled"
    if spec.program.placeholders is Placeholders.NONE:
        filled = "only --array fills it"
    return f"\n{left} stays as it is: {filled}"


def options() -> list[tuple[str, str]]:
    """Each option with its value, and what it does."""
    found = []
    for param in _submit.params:
        if not isinstance(param, click.Option) or param.hidden:
            continue
        if isinstance(param.type, click.Choice):
            value = "|".join(param.type.choices)
        elif param.is_flag:
            value = ""
        else:
            value = param.metavar or ("N" if param.type.name.endswith("number") else "TEXT")
        default = param.default if param.show_default else None
        text = (param.help or "").partition("  [")[0]
        found.append(
            (f"{param.opts[0]} {value}".rstrip(), text + (f" [{default}]" if default else ""))
        )
    return found
