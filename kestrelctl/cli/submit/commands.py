"""`kestrelctl submit`: from a command line or a job file to a durable job."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.job import wait
from kestrelctl.cli.job.fetch import fetch_files
from kestrelctl.cli.job.on_end import OnEnd, on_end_option
from kestrelctl.cli.job.output_files import NUMBER, OutputFiles, check_pattern
from kestrelctl.cli.job.stored_logs import StoredLogs
from kestrelctl.cli.redial import Redial
from kestrelctl.cli.show.command_output import Record
from kestrelctl.cli.show.progress import Look
from kestrelctl.cli.show.screen import Mode
from kestrelctl.cli.submit.export import ALL, exported, names_text
from kestrelctl.cli.submit.graph import (
    Described,
    FileWords,
    Made,
    as_data,
    jobs_of,
    lines_of,
    send_graph,
    summary,
)
from kestrelctl.cli.submit.inputs import JobFiles, find_files, send_inputs
from kestrelctl.cli.submit.items import read_elements, read_lines
from kestrelctl.cli.submit.job_file import (
    SCRATCH,
    GraphFile,
    JobFile,
    as_command,
    looks_like_job_file,
    read_job_file,
)
from kestrelctl.cli.submit.last_job import LastJob
from kestrelctl.cli.submit.upload import check_size, items_bytes, pieces
from kestrelctl.cli.submit.upload_record import upload_record
from kestrelctl.cli.task_command import check_command, refuse_queue
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.shell_text import left_in
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.plural import plural
from kestrelctl.errors import StoreFull, UsageError
from kestrelctl.grammar.file_patterns import IN_FILE_NAMES
from kestrelctl.grammar.job_options import LAST_JOB, array_option, checked_job, job_of, job_options
from kestrelctl.grammar.parent_file_words import (
    of_this_machine,
    parse_parent_files,
    waiting_for,
)
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol.answers import GraphJob, GraphSubmitted, Submitted
from kestrelctl.protocol.requests import SubmitJob, UploadItems

#: Above this, items travel ahead of the job, in pieces.
INLINE_BYTES = 100_000
UPLOAD_TIMEOUT_SECONDS = 60.0
#: How long a submission waits for its answer before it is sent again.
ANSWER_SECONDS = 30.0
#: The options by what they are about, the most used first, as help shows them.
OPTION_SECTIONS = {
    "What to run": "array each-line from-json paste-items name env export workdir service copies "
    "span setup stage-in stage-out cleanup stage-limit stage-tries",
    "How much and how many": "cpus memory gpus time-limit max-running disk asset retry-memory",
    "Where it runs": "requires requirements rank isolation environment no-flock time-request",
    "When it runs": "priority after after-each if-parent-fails hold deadline",
    "Files and output": "input output fetch stdin stdout stderr join keep-logs output-to "
    "checkpoint checkpoint-every checkpoint-exit",
    "When it fails": "max-failures retry-on no-retry-on success-exit backoff max-backoff "
    "max-losses on-worker-lost stop-after hold-after stop-signal stop-grace",
    "Waiting and being told": "wait progress notify on-end key",
}
_JOB_FILE = "kestrelctl.job_file"
_ARGS = "kestrelctl.args"


class _SubmitCommand(CliCommand):
    """Tells a job file from a command.

    What follows `--` is a command. Without `--` the first word decides: if it names a job file, its
    contents become the defaults of the options; otherwise it begins a command.
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
        if words and not after_dashes and looks_like_job_file(words[0]):
            hint = as_command(args[:start], words)
            job_file = read_job_file(Path(words[0]), hint)
            ctx.meta[_JOB_FILE] = job_file
            ctx.meta[_ARGS] = list(args)
            if isinstance(job_file, JobFile):
                ctx.default_map = _defaults(job_file.options)
            ctx.allow_interspersed_args = True
        return super().parse_args(ctx, args)

    def parsed(self, ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
        """The values of all options, for a job of a file that sets some; the line wins."""
        own = click.Context(self, info_name=ctx.info_name, parent=ctx.parent)
        own.default_map = _defaults(options)
        own.allow_interspersed_args = True
        own.meta[LAST_JOB] = ctx.meta[LAST_JOB]
        super().parse_args(own, list(ctx.meta[_ARGS]))
        return own.params


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in options.items()}


@click.command(
    cls=_SubmitCommand,
    examples=(
        "kestrelctl submit --wait -- hostname",
        "kestrelctl submit --array 1-100 --cpus 0.5 -- sh -c 'echo $((42 * {}))'",
        "seq 10 | kestrelctl submit --each-line - --max-failures 3 -- echo item {}",
        "kestrelctl job logs last --all",
    ),
    option_sections=OPTION_SECTIONS,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@array_option
@click.option(
    "--each-line",
    type=Path,
    metavar="FILE",
    help="Run one task for each line of a file; - is standard input.",
)
@click.option(
    "--from-json", type=Path, metavar="FILE", help="Run one task for each element of a JSON array."
)
@click.option(
    "--paste-items",
    is_flag=True,
    help="Let a line or element become part of the text of sh -c, which runs it as code.",
)
@job_options(Notify.NEVER)
@click.option(
    "--workdir",
    "--chdir",
    "workdir",
    metavar="DIR|scratch",
    help="Directory in which tasks start; `scratch` is an empty one for each.  [default: the "
    "current directory on a pool of `up`, else scratch]",
)
@click.option(
    "--export",
    multiple=True,
    metavar="NAME,…|ALL",
    help="Pass variables of your environment to the tasks: PATH,LANG; ALL is every one that "
    "seems no secret.  [default: none]",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FILE|ADDRESS[=NAME]",
    help="Put a file or directory into each task's scratch directory; also an address that "
    "workers read, or job:ID for the files that another job's tasks left; repeatable.",
)
@click.option(
    "--stdin",
    metavar="FILE|ADDRESS",
    help="File that each task reads as its standard input.  [default: empty]",
)
@click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Wait until the job has ended, on a terminal with a "
    "progress bar; exit with 0 if all is done, else 3.",
)
@click.option(
    "--progress",
    is_flag=True,
    help="Wait, and print the progress even if standard error is no terminal.",
)
@click.option(
    "--fetch",
    "fetch_to",
    type=Path,
    metavar="DIR",
    help="Wait, then copy the files of --output to DIR/TASK/ here.",
)
@click.option(
    "--stdout",
    default="",
    metavar="PATTERN",
    help="Wait, then write the standard output of tasks to files here: out-{n}.txt.",
)
@click.option(
    "--stderr",
    default="",
    metavar="PATTERN",
    help="Wait, then write the standard error of tasks to files here: err-{n}.txt.",
)
@on_end_option
@click.pass_context
@pass_invocation
def submit(
    invocation: Invocation,
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    key: str | None,
    waits: bool,
    progress: bool,
    fetch_to: Path | None,
    stdout: str,
    stderr: str,
    on_end: str | None,
    **options: Any,
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
    graph = ctx.meta.get(_JOB_FILE)
    files_to = {"--stdout": stdout, "--stderr": stderr}
    if isinstance(graph, GraphFile):
        _refuse_of_graph({"--fetch": fetch_to, **files_to})
        _submit_graph(
            invocation,
            ctx,
            graph,
            key,
            Look.ANYWHERE if progress else Look.TERMINAL,
            on_end,
            waits=waits or progress or on_end is not None,
        )
        return
    ctx.meta[LAST_JOB].refuse_key(key)
    spec = _job_of(words, ctx.meta.get(_JOB_FILE), options)
    files = find_files(of_this_machine(options["inputs"]), options["stdin"])
    spec = _with_surroundings(invocation, spec, options)
    left = parse_parent_files(options["inputs"], spec.after_each, ctx.meta[LAST_JOB])
    after = waiting_for(spec.after, left)
    spec = checked_job(
        msgspec.structs.replace(
            spec, program=msgspec.structs.replace(spec.program, parent_files=left), after=after
        )
    )
    if fetch_to is not None and spec.program.output_to:
        raise UsageError(
            "--fetch and --output-to exclude each other",
            cause=f"the pool will have none of the files: they go to {spec.program.output_to}",
        )
    if fetch_to is not None and not spec.program.outputs:
        raise UsageError(
            "there will be nothing to fetch", hint="--output GLOB says what tasks leave"
        )
    wrote = _files_of(files_to, spec.count, StoredLogs(invocation.downloads))
    waits = waits or progress or on_end is not None or fetch_to is not None or bool(wrote)
    if spec.service and waits:
        raise UsageError(
            "a service does not end by itself, so there is nothing to wait for",
            hint="leave --wait, --progress and --on-end out",
        )
    if key is None:
        key = secrets.token_hex(16)
    _warn_of_placeholders(invocation, spec)
    if ctx.meta.get(_JOB_FILE) is None and any(map(os.path.isfile, spec.program.argv[:2])):
        from kestrelctl.cli.other_systems import unread_directives

        root = ctx.find_root().command
        assert isinstance(root, click.Group)
        unread = unread_directives(root, spec.program.argv)
        if unread is not None:
            invocation.screen.warn(unread.notes[0], hint=unread.hint or None)
    look = Look.ANYWHERE if progress else Look.TERMINAL

    async def send_all(connection: Connection) -> Submitted:
        whole = spec
        if files.all:
            whole = await _with_files(invocation, connection, spec, files)
        explain = not waits and not invocation.screen.quiet
        return await send(connection, whole, key, watch=waits, explain=explain)

    async def work(redial: Redial) -> None:
        again = f"the same command with --key {shlex.quote(key)} sends it again, for one job in all"
        try:
            answer = await redial.until_answered(send_all, again)
        except StoreFull as error:  # the manager may have begun, and goes on when it can
            hint = f"free space there; {again}"
            raise StoreFull(error.message, cause=error.cause, hint=hint) from None
        connection = redial.connection
        job_id, summary = answer.job_id, f"job {answer.job_id}: {plural(answer.tasks, 'task')}"
        if answer.repeated:
            invocation.screen.say(f"job {job_id} is there already: a submission had come before")
        if not waits:
            data = {"job_id": job_id, "tasks": answer.tasks, "repeated": answer.repeated}
            await invocation.show(Record(str(job_id), data, [summary]))
            first = f"job scale {job_id} N" if spec.service else f"job wait {job_id}"
            if spec.held:
                first = f"job release {job_id}"
            invocation.screen.say(f"next: kestrelctl {first}, or kestrelctl job tasks {job_id}")
            if answer.hopeless is not None:
                why, what_to_do = conclusion(answer.hopeless)
                invocation.screen.warn(f"job {job_id} waits: {why}", hint=what_to_do)
            return
        invocation.screen.say(summary)
        ends = OnEnd(on_end, invocation.screen, invocation.pool)
        [view] = await wait.until_ended(
            connection, str(job_id), invocation.screen, look=look, on_ended=ends.begin
        )
        await ends.finish()
        await invocation.show(Record(str(job_id), view, [wait.sentence(view)]))
        for each in wrote:
            await each.write(connection, view)
            invocation.screen.say(each.sentence(job_id))
        fetched = None
        if fetch_to is not None:
            fetched = await fetch_files(invocation, connection, view, fetch_to)
            invocation.screen.say(fetched.sentence())
        await wait.check(connection, [view])
        if not wrote:
            which = "" if view.tasks == 1 else " --all"
            invocation.screen.say(f"next: kestrelctl job logs {job_id}{which}")
        if fetched is not None:
            fetched.check()

    invocation.talk_again(work)


def _warn_of_placeholders(invocation: Invocation, spec: JobSpec, which: str = "") -> bool:
    """Says which placeholders of a job stay as they are, and what would fill them, if any does.

    Args:
        which: of several jobs, for the message.
    """
    stay = left_in(spec, spec.items[0] if spec.items else None)
    if not stay:
        return False
    if spec.program.placeholders is Placeholders.NONE:
        hint = "--array fills {}, {n} and {i} with numbers, --each-line FILE fills {} with lines"
    elif spec.items is None:
        hint = "a field of a JSON item fills it (--from-json); {} and {n} are the task's number"
    else:
        hint = "the first item has no such field"
    verb = "stays as it is" if len(stay) == 1 else "stay as they are"
    invocation.screen.warn(f"{', '.join(stay)} in the command{which} {verb}", hint=hint)
    return True


def _files_of(patterns: Mapping[str, str], tasks: int, stored: StoredLogs) -> list[OutputFiles]:
    """The files that are wanted of what tasks write.

    Raises:
        UsageError: one file would be that of several tasks, or of both streams.
    """
    if patterns["--stdout"] and patterns["--stdout"] == patterns["--stderr"]:
        raise UsageError(
            f"{patterns['--stdout']} would be the file of both streams",
            hint="--join has both come as one, in the order in which they are written",
        )
    for pattern in filter(None, patterns.values()):
        check_pattern(pattern, tasks)
    return [
        OutputFiles(stored, option[2:], pattern) for option, pattern in patterns.items() if pattern
    ]


def _refuse_of_graph(options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value:
            raise UsageError(
                f"{option} is for one job",
                hint="kestrelctl job fetch JOB, job logs JOB --to PATTERN",
            )


def _with_surroundings(
    invocation: Invocation, spec: JobSpec, options: Mapping[str, Any]
) -> JobSpec:
    """The job with what comes from where it is submitted: its directory, and the environment."""
    workdir = options["workdir"]
    if options["inputs"] and workdir not in (None, SCRATCH):
        raise UsageError(
            "inputs are put into scratch directories, and --workdir has the tasks start elsewhere",
            hint="leave one of --input and --workdir out",
        )
    in_scratch = bool(options["inputs"] or spec.program.outputs or spec.program.checkpoints)
    return msgspec.structs.replace(
        spec,
        program=msgspec.structs.replace(
            spec.program,
            workdir=_directory(invocation, workdir, in_scratch),
            env=_exported(invocation, options["export"]) | spec.program.env,
        ),
    )


async def _with_files(
    invocation: Invocation, connection: Connection, spec: JobSpec, files: JobFiles
) -> JobSpec:
    """Sends what a job's tasks are to have, as far as it is not there yet; the job with that."""
    context = invocation.find_context(invocation.pool)
    share = invocation.open_share(connection, context)
    record = upload_record(context, invocation.now)
    sent = await send_inputs(files.all, share, record, invocation.screen)
    count = len(files.inputs)
    return msgspec.structs.replace(
        spec,
        program=msgspec.structs.replace(
            spec.program, inputs=sent[:count], stdin=sent[count] if files.stdin else None
        ),
    )


def _submit_graph(
    invocation: Invocation,
    ctx: click.Context,
    graph: GraphFile,
    given_key: str | None,
    look: Look,
    on_end: str | None,
    *,
    waits: bool,
) -> None:
    """Submits the jobs of a file as one."""
    command = ctx.command
    assert isinstance(command, _SubmitCommand)
    last_job = ctx.meta[LAST_JOB]

    files: dict[FileWords, JobFiles] = {}

    def make(job_file: JobFile, options: dict[str, Any]) -> Made:
        for name in (
            "key", "waits", "progress", "words", "fetch_to", "stdout", "stderr", "on_end",
        ):  # fmt: skip
            options.pop(name)
        spec = _job_of((), job_file, options)
        sources = of_this_machine(options["inputs"])
        named = (options["stdin"], *sources)
        if any(named) and named not in files:
            files[named] = find_files(sources, options["stdin"])
        return Made(checked_job(_with_surroundings(invocation, spec, options)), named)

    async def send_all(connection: Connection) -> GraphSubmitted:
        sent = {
            named: await _with_files(invocation, connection, jobs[0].spec, those)
            for named, those in files.items()
        }

        def whole(each: Described) -> GraphJob:
            have = sent.get(each.files)
            if have is None:
                return each.job
            program = msgspec.structs.replace(
                each.job.spec.program, inputs=have.program.inputs, stdin=have.program.stdin
            )
            spec = msgspec.structs.replace(each.job.spec, program=program)
            return msgspec.structs.replace(each.job, spec=spec)

        all_lines = lines_of([whole(each) for each in described]) if sent else lines
        return await send_graph(connection, all_lines, key)

    described = jobs_of(graph, lambda options: command.parsed(ctx, options), make, last_job)
    jobs = [each.job for each in described]
    last_job.refuse_key(given_key)
    if waits and any(job.spec.service for job in jobs):
        raise UsageError("a service does not end by itself", hint="leave --wait and --on-end out")
    for job in jobs:
        which = f" of job {job.spec.name}"
        if _warn_of_placeholders(invocation, job.spec, which):
            break  # the first stands for all of the file
    lines = lines_of(jobs)
    key = given_key or secrets.token_hex(16)

    async def work(redial: Redial) -> None:
        again = f"the same command with --key {shlex.quote(key)} sends them again, once in all"
        answer = await redial.until_answered(send_all, again)
        last = answer.job_id + answer.jobs - 1
        ids = f"{answer.job_id}-{last}"
        if answer.repeated:
            invocation.screen.say(f"jobs {ids} are there already: a submission had come before")
        if not waits:
            record = Record(ids, as_data(answer), [summary(answer)])
            await invocation.show(record)
            invocation.screen.say(f"next: kestrelctl job graph {answer.job_id}")
            return
        invocation.screen.say(summary(answer))
        pieces = wait.pieces_of(answer.job_id, last)
        views = await wait.until_ended(
            redial.connection, ids, invocation.screen, look=look, pieces=pieces
        )
        ends = OnEnd(on_end, invocation.screen, invocation.pool)
        ends.begin_once(ids, views)
        await ends.finish()
        await invocation.show(Record(ids, views, [*wait.sentences(views)]))
        await wait.check(redial.connection, views)

    invocation.talk_again(work)


def _job_of(words: tuple[str, ...], job_file: JobFile | None, options: dict[str, Any]) -> JobSpec:
    """The job that options and job file describe, without its directory; not checked yet.

    Raises:
        UsageError: they do not describe one.
    """
    if job_file is None and not words:
        hint = "kestrelctl submit -- sleep 1"
        if options["each_line"] is not None:
            each = f"kestrelctl submit --each-line {shlex.quote(str(options['each_line']))}"
            hint = f"if its lines are commands: {each} -- sh -c 'eval \"$KESTREL_ITEM\"'"
        raise UsageError("there is no command", hint=hint)
    if job_file is not None and len(words) > 1:
        raise UsageError(
            "a job file takes no words of a command",
            cause=f"{words[0]} is a job file, and {shlex.join(words[1:])} follows it",
            hint="what its tasks are to get stands in the file, in `command`",
        )
    argv = job_file.argv if job_file is not None else words
    check_command(argv)
    given = [name for name in ("array", "each_line", "from_json") if options[name] is not None]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{names} exclude each other", hint="one of them makes the tasks")
    for glob in options["outputs"]:
        if (other := IN_FILE_NAMES.search(glob)) is not None:
            raise UsageError(
                f"--output {glob} names files that tasks leave, and {other[0]} stays as it is",
                hint=f"--stdout PATTERN is for what they print, with {NUMBER} for a task's number",
            )
    for mode in options["outputs"]:
        if mode in list(Mode):  # as every other command understands --output
            raise UsageError(
                f"--output {mode} would bring home what tasks leave as {mode!r}",
                hint=f"-o {mode} says how the answer is printed; a file of that name is ./{mode}",
            )
    items = None
    if options["each_line"] is not None:
        items = read_lines(options["each_line"])
    elif options["from_json"] is not None:
        items = read_elements(options["from_json"])
    return job_of(argv, options, items=items, paste_items=options["paste_items"])


async def send(
    connection: Connection, spec: JobSpec, key: str, *, watch: bool, explain: bool
) -> Submitted:
    """Submits a job; many items go ahead of it. Nothing is sent if any part is too large.

    Called again with the same key, on this or another connection, it makes no second job.

    Args:
        watch, explain: see `SubmitJob`.

    Raises:
        UsageError: a part is too large for a message.
        KestrelError: the pool refused it, or cannot be reached.
    """
    upload = ""
    parts: list[list[str]] = []
    if spec.items is not None and items_bytes(spec.items) > INLINE_BYTES:
        upload = secrets.token_hex(8)
        parts = list(pieces(spec.items))
        spec = msgspec.structs.replace(spec, items=None)
    request = SubmitJob(spec=spec, upload=upload, watch=watch, explain=explain, key=key)
    check_size(request)
    for part in parts:
        await connection.ask(UploadItems(upload=upload, lines=part), UPLOAD_TIMEOUT_SECONDS)
    return await ask(connection, request, Submitted, ANSWER_SECONDS)


def _exported(invocation: Invocation, given: tuple[str, ...]) -> dict[str, str]:
    """The variables of `--export`; what all keeps back is told.

    Raises:
        UsageError: one that is named is not set, or is no text.
    """
    found = exported(given, os.environ)
    if found.kept_back:
        invocation.screen.warn(
            f"not exported, as it may be secret: {names_text(found.kept_back)}",
            hint=f"what tasks need of it: --export {ALL},NAME",
        )
    return found.variables


def _directory(invocation: Invocation, given: str | None, leaves_files: bool) -> str:
    """Where tasks start: an absolute path, or nothing for a scratch directory.

    Args:
        given: on the command line or in the job file.
        leaves_files: that is what tasks do in scratch directories only.

    Raises:
        UsageError: the current directory is gone, or its name cannot be said in JSON.
    """
    if given == SCRATCH or (given is None and leaves_files):
        return ""
    if given is None and not invocation.find_context(invocation.pool).own_directories:
        return ""
    try:
        directory = Path(given or ".").resolve(strict=given is None)
        str(directory).encode()
    except (OSError, UnicodeEncodeError) as error:
        raise UsageError(
            f"the {'current directory' if given is None else 'directory'} cannot be the job's",
            cause=error.strerror if isinstance(error, OSError) else "its name is not UTF-8",
            hint=f"--workdir DIR, or --workdir {SCRATCH}",
        ) from None
    scratch = os.environ.get("KESTREL_SCRATCH")  # this is a task; it is emptied when that ends
    if given is None and scratch and directory.is_relative_to(Path(scratch).resolve()):
        return ""
    return str(directory)
