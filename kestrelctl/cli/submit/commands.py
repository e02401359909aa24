"""`kestrelctl submit`: the options of a job, on a line or in a job file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.screen import Mode
from kestrelctl.cli.submit.submission import LastJob
from kestrelctl.cli.task_command import refuse_queue
from kestrelctl.core.model.job.placeholders import IN_FILE_NAMES
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_options import LAST_JOB, click_options
from kestrelctl.grammar.job_options import FORMER_KEEP, OPTIONS, SECTIONS

#: Keys in the `meta` of the command's context: the job file, the words of the line, and whether
#: an old name of an option was replaced.
_JOB_FILE = "kestrelctl.job_file"
_ARGS = "kestrelctl.args"
_RENAMED = "kestrelctl.renamed"


class SubmitCommand(CliCommand):
    """Tells a job file from a command.

    The words after `--` are a command. Without `--` the first word decides: if it names a job file,
    its contents become the defaults of the options; otherwise it begins a command.
    """

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS] -- COMMAND...  |  [OPTIONS] JOBFILE"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[LAST_JOB] = LastJob(ctx.ensure_object(Invocation))
        ctx.allow_interspersed_args = False
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        words = found["words"] if isinstance(found["words"], tuple) else ()
        start = len(args) - len(words)
        after_dashes = start > 0 and args[start - 1] == "--"
        if start > 0 and args[start - 1] == "-q":
            refuse_queue(words)
        own = start
        if words and not after_dashes and self._read_job_file(ctx, words, args):
            ctx.allow_interspersed_args = True
            own = len(args)
        renamed = _with_keep(args[:own])
        ctx.meta[_RENAMED] = renamed != args[:own]
        return super().parse_args(ctx, renamed + args[own:])

    def _read_job_file(self, ctx: click.Context, words: Sequence[str], args: Sequence[str]) -> bool:
        """Reads the job file that the first of the words names; False if it begins a command.

        What the file says of its only job becomes the default of the options.

        Args:
            args: the whole line, which ends with the words.
        """
        from kestrelctl.cli.submit.job_file import (
            JobFile,
            as_command,
            looks_like_job_file,
            read_job_file,
        )

        if not looks_like_job_file(words[0]):
            return False
        options = list(args[: len(args) - len(words)])
        hint = as_command(options, words)
        try:
            job_file = read_job_file(Path(words[0]), hint)
        except UsageError:
            self._check_options(ctx, options)  # the hint repeats them
            raise
        ctx.meta[_JOB_FILE] = job_file
        ctx.meta[_ARGS] = list(args)
        ctx.default_map = job_file.options if isinstance(job_file, JobFile) else None
        return True

    def _check_options(self, ctx: click.Context, options: list[str]) -> None:
        own = click.Context(self, info_name=ctx.info_name, parent=ctx.parent)
        own.meta[LAST_JOB] = ctx.meta[LAST_JOB]
        super().parse_args(own, [*_with_keep(options), "--", "true"])

    def parsed(self, ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the values of all options for a job of a file that sets some; the line wins."""
        own = click.Context(self, info_name=ctx.info_name, parent=ctx.parent)
        own.default_map = options
        own.allow_interspersed_args = True
        own.meta[LAST_JOB] = ctx.meta[LAST_JOB]
        super().parse_args(own, _with_keep(ctx.meta[_ARGS]))
        return own.params


def _with_keep(args: Sequence[str]) -> list[str]:
    """Replaces `--output GLOB`, the former name, by `--keep GLOB` in a line.

    `--output json` is a mode, as for all commands.
    """
    former = f"--{FORMER_KEEP}"
    found: list[str] = []
    for place, word in enumerate(args):
        name, equals, value = word.partition("=")
        following = value if equals else "".join(args[place + 1 : place + 2])
        is_mode = not following or following in list(Mode)
        is_former = name == former and not (is_mode or IN_FILE_NAMES.search(following))
        found.append(f"--keep{equals}{value}" if is_former else word)
    return found


@click.command(
    cls=SubmitCommand,
    examples=(
        "kestrelctl submit --wait -- hostname",
        "kestrelctl submit --array 1-100 --cpus 0.5 -- sh -c 'echo $((42 * {}))'",
        "seq 10 | kestrelctl submit --each-line - --max-failures 3 -- echo item {}",
        "kestrelctl job logs last --all",
    ),
    option_sections={
        section.title: " ".join(option.name for option in section.options) for section in SECTIONS
    },
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click_options(OPTIONS)
@click.pass_context
@pass_invocation
def submit(
    invocation: Invocation, ctx: click.Context, /, words: tuple[str, ...], **options: Any
) -> None:
    """Run a command as a job of one or many tasks.

    With --array, --each-line or --from-json, {} in the command is the task's item (or its number
    without items), {n} its number, {i} its index from 0, and {key} a field of its JSON item; {{}}
    is {}. Without them the command stays as it is.

    A TIME is 90 (seconds), 15m, 1h30m or 2d; a SIZE is 512M, 1.5GiB (powers of 1024) or bytes.

    A JOBFILE is TOML with the names of these options and `command`, or an INI file with a section
    [job]; options on the command line win over it. One with tables [job.NAME] is several jobs,
    submitted as one.
    """
    from kestrelctl.cli.submit.submission import refuse_words, submit_graph, submit_job

    job_file, last_job = ctx.meta.get(_JOB_FILE), ctx.meta[LAST_JOB]
    if ctx.meta[_RENAMED]:
        invocation.screen.warn(
            f"--{FORMER_KEEP} is called --keep now", hint=f"--{FORMER_KEEP} is the long name of -o"
        )
    if job_file is not None:
        from kestrelctl.cli.submit.job_file import GraphFile

        for warning in job_file.warnings:
            invocation.screen.warn(warning)
        refuse_words(words)
        if isinstance(job_file, GraphFile):
            command = ctx.command
            assert isinstance(command, SubmitCommand)
            submit_graph(invocation, job_file, options, partial(command.parsed, ctx), last_job)
            return
    root = ctx.find_root().command
    assert isinstance(root, click.Group)
    submit_job(invocation, words, job_file, options, last_job, root)
