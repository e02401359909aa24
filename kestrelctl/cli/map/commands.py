"""`kestrelctl map`: the words of GNU parallel, and the options of a job."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.map.sources import STANDARD_INPUT, column_separator, split_line
from kestrelctl.errors import KestrelError, UsageError, why
from kestrelctl.grammar.click_options import click_options
from kestrelctl.grammar.click_types import WholeNumber
from kestrelctl.grammar.job_options import HOW_MUCH, OPTIONS, WHERE

if TYPE_CHECKING:
    from kestrelctl.cli.map.run import MapRun
    from kestrelctl.cli.show.screen import Screen

#: The options of `submit` that say how each task runs, by the headings of help; `--max-running` has
#: other names here, too.
_TAKEN = {
    "What to run": "env workdir paste-items name",
    HOW_MUCH.title: " ".join(
        option.name for option in HOW_MUCH.options if option.name != "max-running"
    ),
    WHERE.title: " ".join(option.name for option in WHERE.options),
    "When it runs and fails": "priority max-failures retry-on no-retry-on backoff max-backoff "
    "max-losses on-worker-lost stop-signal stop-grace keep-logs",
}
_NAMES = {name for names in _TAKEN.values() for name in names.split()}
_OPTIONS = tuple(option for option in OPTIONS if option.name in _NAMES)


class MapCommand(CliCommand):
    """Takes options before the command, and nothing after it."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS] COMMAND... [::: ARGUMENT...] [:::: FILE...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        return super().parse_args(ctx, args)


@click.command(
    "map",
    cls=MapCommand,
    examples=(
        "kestrelctl map echo hello ::: world moon",
        "seq 3 | kestrelctl map -k echo {#}: {}",
        "kestrelctl map --tag sh -c 'echo $(($1 * $2))' sh {1} {2} ::: 1 2 ::: 3 4",
    ),
    option_sections={
        "Inputs and output": "keep-order tag jobs halt joblog resume resume-failed colsep null",
        **_TAKEN,
    },
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("-k", "--keep-order", is_flag=True, help="Print in the order of the inputs.")
@click.option(
    "--halt",
    default="never",
    show_default=True,
    metavar="WHEN,WHY",
    help="Run no more when so many tasks have failed, succeeded or ended: soon,fail=1 lets those "
    "that run end, now,fail=10% ends them; success=1, done=1.",
)
@click.option("--joblog", metavar="FILE", help="Write a line about each task to a file.")
@click.option("--resume", is_flag=True, help="Leave out inputs that the --joblog has a line of.")
@click.option(
    "--resume-failed", is_flag=True, help="The same, but run those again that have failed."
)
@click.option("-C", "--colsep", metavar="REGEXP", help="Split each line into columns, {1}, {2}, ….")
@click.option("-0", "--null", is_flag=True, help="Let a null byte end a line, not a newline.")
@click.option("--tag", is_flag=True, help="Begin each line of output with the input.")
@click.option(
    "-j",
    "--jobs",
    "--max-running",
    "max_running",
    type=WholeNumber(1, None),
    metavar="N",
    help="Number of tasks that may run at once.  [default: as many as the workers take]",
)
@click_options(_OPTIONS)
@pass_invocation
def map_inputs(
    invocation: Invocation,
    /,
    words: tuple[str, ...],
    keep_order: bool,
    halt: str,
    joblog: str | None,
    resume: bool,
    resume_failed: bool,
    colsep: str | None,
    null: bool,
    tag: bool,
    **options: Any,
) -> int:
    """Run a command for each input, and print what it writes, in the manner of GNU parallel.

    Inputs follow :::, or are lines of files after ::::, or of standard input. Several sources give
    all combinations; :::+ and ::::+ go along with the source before.

    {} is the input, {.} without its extension, {/} its last part, {//} its directory, {/.} its last
    part without extension, {1} or {2/.} that of one source, {#} its number. A command without them
    ends with {}. No shell reads the command, so inputs are no code.

    The exit status is the number of tasks that failed; 101 for more than 100.
    """
    from kestrelctl.cli.map.halting import Halting
    from kestrelctl.cli.map.reading import inputs_of
    from kestrelctl.cli.map.replacement import MappedCommand, refuse_code
    from kestrelctl.cli.task_command import check_command

    command, sources = split_line(words)
    if not command:
        raise UsageError(
            "there is no command",
            hint="if inputs are commands: kestrelctl map --paste-items sh -c {} ::: 'echo a'",
        )
    refuse_code(command, paste_items=options["paste_items"])
    check_command(command)
    mapped = MappedCommand(command)
    separator = column_separator(colsep) if colsep is not None else None
    if (resume or resume_failed) and joblog is None:
        raise UsageError("--resume is by a log, and none is named", hint="--joblog FILE")
    halting = Halting(halt)
    inputs = inputs_of(sources, separator=separator, end=b"\0" if null else b"\n")
    make_job = _job_maker(invocation, options)
    with ExitStack() as stack:  # what is wrong with the line is said by now: a log begins anew
        done: Collection[int] = ()
        log = None
        if joblog is not None:
            log, done = _open_log(
                Path(joblog), resumes=resume or resume_failed, again=resume_failed
            )
            stack.enter_context(log)
        halting.ended = len(done)
        if any(source.file == STANDARD_INPUT for source in sources) and sys.stdin.isatty():
            invocation.screen.say("inputs are read here, one in each line; Ctrl-D ends them")
        if halting.needs_total:
            every = list(inputs)
            halting.total, inputs = len(every), iter(every)
        if done:
            inputs = (each for each in inputs if each.number not in done)
        invocation.screen.write_lines_at_once()
        from kestrelctl.cli.map.output import MapOutput
        from kestrelctl.cli.map.reading import InputFeed
        from kestrelctl.cli.map.run import MapRun
        from kestrelctl.cli.until_signal import SIGNAL_STATUS, until_a_signal
        from kestrelctl.client.pool import AsyncClient

        async def work() -> None:
            feed = InputFeed(inputs)
            client = AsyncClient(
                invocation.pool, opens=invocation.open_pool, finds=invocation.find_context
            )
            async with client:
                run = MapRun(
                    client, mapped, feed, make_job, one_by_one=options["max_running"] is not None
                )
                output = MapOutput(
                    run, mapped, halting, invocation.screen,
                    done=done, keeps_order=keep_order, has_tags=tag, log=log,
                )  # fmt: skip
                try:
                    await invocation.show(output)
                finally:
                    await _leave(run, invocation.screen)

        signal = asyncio.run(until_a_signal(work()))
    return halting.status if signal is None else SIGNAL_STATUS[signal]


async def _leave(run: MapRun, screen: Screen) -> None:
    """Cancels jobs that have not ended, and says which, or which go on."""
    done = True
    try:
        await run.abandon()
    except (KestrelError, TimeoutError):
        done = False
    if not run.job_ids:
        return
    ids = ", ".join(map(str, run.job_ids))
    if done:
        screen.say(f"cancelled: job {ids}")
    else:
        hint = f"kestrelctl job cancel {ids.replace(' ', '')}"
        screen.warn(f"not cancelled, and it goes on: job {ids}", hint=hint)


def _job_maker(invocation: Invocation, options: dict[str, Any]) -> Any:
    """Returns what describes a job of some words and items."""
    from kestrelctl.client.directory import start_directory
    from kestrelctl.core.model.job.spec import JobSpec
    from kestrelctl.grammar.described_job import checked_job, job_of
    from kestrelctl.grammar.option_values import option_values

    values = option_values({}, _no_last) | options
    values["name"] = options["name"] or f"map-{os.urandom(3).hex()}"
    directory = start_directory(
        options["workdir"],
        has_inputs=False,
        leaves_files=False,
        has_own=lambda: invocation.find_context(invocation.pool).own_directories,
    )

    def make_job(argv: tuple[str, ...], items: tuple[str, ...]) -> JobSpec:
        spec = job_of(argv, values, items=items, paste_items=options["paste_items"])
        program = msgspec.structs.replace(spec.program, workdir=directory)
        return checked_job(msgspec.structs.replace(spec, program=program))

    return make_job


def _no_last() -> int:
    raise UsageError("`last` means nothing to map")


def _open_log(file: Path, *, resumes: bool, again: bool) -> tuple[IO[str], set[int]]:
    """Opens a log for writing; returns it with the numbers of inputs that are left out.

    Args:
        resumes: whether it is read, and goes on; it begins anew otherwise.
        again: whether inputs are run again that have failed.

    Raises:
        UsageError: it cannot be used, or is no such log.
    """
    from kestrelctl.cli.map.joblog import HEADER, numbers_in

    done: set[int] = set()
    try:
        if resumes and file.exists():
            with file.open(encoding="utf-8", errors="surrogateescape", newline="\n") as old:
                lines = old.readlines()
            done = numbers_in(lines, only_done=again)
            log = file.open("r+", encoding="utf-8", errors="surrogateescape", newline="\n")
            whole = "".join(lines[:-1] if lines and not lines[-1].endswith("\n") else lines)
            log.truncate(len(whole.encode(errors="surrogateescape")))
            log.seek(0, 2)
            if whole:
                return log, done
        else:
            log = file.open("w", encoding="utf-8", errors="surrogateescape", newline="\n")
        log.write(HEADER)
        log.flush()
    except OSError as error:
        raise UsageError(f"{file} cannot be used as --joblog", cause=why(error)) from None
    return log, done
