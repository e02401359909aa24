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
from kestrelctl.grammar.click_options import LAST_JOB, click_options
from kestrelctl.grammar.described_job import checked_alone, checked_key, job_of
from kestrelctl.grammar.job_options import FORMER_KEEP, JOB_FILE_SUFFIXES, OPTIONS
from kestrelctl.grammar.nearest import did_you_mean
from kestrelctl.grammar.option import Choice, Decimal, Flag, Option, Whole
from kestrelctl.protocol.job_requests import SubmitJob

_TERMINAL = "it is about a terminal, and this is a chat"
#: What options have in a chat if they are not given, and mean something else elsewhere.
_UNSET = {"notify": Notify.ALWAYS.value}
#: The options of `submit` that chats understand.
_UNDERSTOOD = [option for option in OPTIONS if not option.not_in_chat]
#: Options that are refused: their names, whether a value follows, and why.
_REFUSED: tuple[tuple[tuple[str, ...], bool, str], ...] = (
    *(
        (
            tuple(f"--{name}" for name in (option.name, *option.also)),
            not isinstance(option.value, Flag),
            option.not_in_chat,
        )
        for option in OPTIONS
        if option.not_in_chat
    ),
    (("-o",), True, _TERMINAL),
    (("--no-color",), False, _TERMINAL),
    (("-q", "--quiet"), False, _TERMINAL),
    (("-v", "--verbose"), False, _TERMINAL),
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
@click_options(_UNDERSTOOD, **_UNSET)
@click.option(f"--{FORMER_KEEP}", FORMER_KEEP, multiple=True, hidden=True)
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
    key = checked_key(given.pop("key"))
    given["keep"] += given.pop(FORMER_KEEP)
    if not argv:
        raise UsageError("there is no command", hint="write for example: submit -- sleep 1")
    if "--" not in words and PurePath(argv[0]).suffix in JOB_FILE_SUFFIXES:
        raise UsageError(
            f"the pool cannot see your files, and {argv[0]} looks like a job file",
            hint=f"if it is a command, write: submit -- {argv[0]}",
        )
    return SubmitJob(spec=checked_alone(job_of(argv, given)), explain=True, key=key or "")


def remarks(words: Sequence[str], spec: JobSpec) -> str:
    """Lines on what was written otherwise than it may have been meant; empty if nothing was.

    Args:
        words: those after `submit`.
        spec: the job that they make.
    """
    before = words[: words.index("--")] if "--" in words else words
    former = [word for word in before if word.partition("=")[0] == f"--{FORMER_KEEP}"]
    renamed = f"\n--{FORMER_KEEP} is called --keep now" if former else ""
    left = ", ".join(left_in(spec, None))
    if not left:
        return renamed
    filled = "only {}, {n} and {i} are filled"
    if spec.program.placeholders is Placeholders.NONE:
        filled = "only --array fills it"
    return f"{renamed}\n{left} stays as it is: {filled}"


def options() -> list[tuple[str, str]]:
    """Each option with its value, and what it does."""
    return [(f"--{option.name} {_value(option)}".rstrip(), _what(option)) for option in _UNDERSTOOD]


def _value(option: Option) -> str:
    value = option.value
    if isinstance(value, Choice):
        return "|".join(value.words)
    if isinstance(value, Flag):
        return ""
    return value.metavar or ("N" if isinstance(value, Whole | Decimal) else "TEXT")


def _what(option: Option) -> str:
    default = _UNSET.get(option.dest, option.unset)
    return option.text.partition("  [")[0] + (f" [{default}]" if option.says_default else "")
