"""Does the work of `submit`: from the values of options to a durable job, and on to its end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import Invocation
from kestrelctl.cli.redial import Redial
from kestrelctl.cli.show.command_output import Record
from kestrelctl.cli.task_command import check_command
from kestrelctl.client.directory import start_directory
from kestrelctl.client.upload import INLINE_BYTES, items_bytes, send_job
from kestrelctl.core.model.job.placeholders import IN_FILE_NAMES, Placeholders
from kestrelctl.core.model.job.shell_text import left_in
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import StoreFull, UsageError
from kestrelctl.grammar.described_job import checked_alone, checked_job, checked_key, job_of
from kestrelctl.grammar.id_ranges import LAST
from kestrelctl.protocol.job_answers import GraphSubmitted, Submitted

if TYPE_CHECKING:
    from kestrelctl.cli.job.output_files import OutputFiles
    from kestrelctl.cli.show.progress import Look
    from kestrelctl.cli.submit.job_file import GraphFile, JobFile
    from kestrelctl.client.graph import Draft
    from kestrelctl.client.inputs import JobFiles, SentFiles


class LastJob:
    """The latest job of the caller of the command, asked for once and before anything is made."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._job_id: int | None = None

    def refuse_key(self, key: str | None) -> None:
        """Raises UsageError if there is a key, and an option meant the latest job.

        The latest job would be another one when the submission is repeated.
        """
        if key is not None and self._job_id is not None:
            raise UsageError(
                "`last` and --key do not go together",
                cause="sent again with this key, the job would wait for itself",
                hint=f"name the job by its id, which is {self._job_id} now",
            )

    def __call__(self) -> int:
        """Returns the id of the job.

        Raises:
            NotFound: the caller has submitted none.
            KestrelError: the pool cannot be reached.
        """
        if self._job_id is None:
            self._invocation.talk(self._ask)
        assert self._job_id is not None
        return self._job_id

    async def _ask(self, connection: Connection) -> None:
        from kestrelctl.protocol.job_answers import Jobs
        from kestrelctl.protocol.job_requests import ListJobs

        answer = await ask(connection, ListJobs(jobs=LAST), Jobs)
        self._job_id = answer.jobs[-1].job_id


def submit_job(
    invocation: Invocation,
    words: tuple[str, ...],
    job_file: JobFile | None,
    options: Mapping[str, Any],
    last_job: LastJob,
    root: click.Group,
) -> None:
    """Submits one job, and waits for it if that is asked for.

    Args:
        words: the words of its command, if there is no job file with one.
        options: the values of options by `Option.dest`.
        root: all commands, to tell what a script says to another system.
    """
    key = checked_key(options["key"])
    last_job.refuse_key(key)
    spec = _with_surroundings(invocation, _job_of(words, job_file, options), options)
    files: JobFiles | None = None
    if options["input"] or options["stdin"] is not None:
        spec, files = _with_files(spec, options, last_job)
    checked_alone(spec)
    fetch_to = None if options["fetch"] is None else Path(options["fetch"])
    if fetch_to is not None and spec.program.output_to:
        raise UsageError(
            "--fetch and --output-to exclude each other",
            cause=f"the pool will have none of the files: they go to {spec.program.output_to}",
        )
    if fetch_to is not None and not spec.program.outputs:
        raise UsageError("there will be nothing to fetch", hint="--keep GLOB says what tasks leave")
    wrote = _files_of(_streams(options), spec, invocation)
    waits = _waits(options) or fetch_to is not None or bool(wrote)
    if spec.service and waits:
        raise UsageError(
            "a service does not end by itself, so there is nothing to wait for",
            hint="leave --wait, --progress and --on-end out",
        )
    if key is None:
        key = os.urandom(16).hex()
    _warn_of_placeholders(invocation, spec)
    if job_file is None and any(map(os.path.isfile, spec.program.argv[:2])):
        from kestrelctl.cli.other_systems import unread_directives

        unread = unread_directives(root, spec.program.argv)
        if unread is not None:
            invocation.screen.warn(unread.notes[0], hint=unread.hint or None)

    async def send_all(connection: Connection) -> Submitted:
        whole = spec
        if files is not None and files.all:
            sent = await _send(invocation, connection, files)
            whole = msgspec.structs.replace(spec, program=sent.of(spec.program))
        explain = not waits and not invocation.screen.quiet
        return await send_job(connection, whole, key, watch=waits, explain=explain)

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
                from kestrelctl.grammar.why_waiting import conclusion

                why, what_to_do = conclusion(answer.hopeless)
                invocation.screen.warn(f"job {job_id} waits: {why}", hint=what_to_do)
            return
        from kestrelctl.cli.job import wait
        from kestrelctl.cli.job.on_end import OnEnd

        invocation.screen.say(summary)
        ends = OnEnd(options["on_end"], invocation.screen, invocation.pool)
        [view] = await wait.until_ended(
            connection, str(job_id), invocation.screen, look=_look(options), on_ended=ends.begin
        )
        await ends.finish()
        await invocation.show(Record(str(job_id), view, [wait.sentence(view)]))
        for each in wrote:
            await each.write(connection, view)
            invocation.screen.say(each.sentence(job_id))
        fetched = None
        if fetch_to is not None:
            from kestrelctl.client.fetch import fetch_files

            fetched = await fetch_files(invocation.downloads(), connection, view, fetch_to)
            invocation.screen.say(fetched.sentence())
        await wait.check(connection, [view])
        if not wrote:
            which = "" if view.tasks == 1 else " --all"
            invocation.screen.say(f"next: kestrelctl job logs {job_id}{which}")
        for each in wrote:
            each.check()
        if fetched is not None:
            fetched.check()

    briefly = not waits and files is None and items_bytes(spec.items or ()) <= INLINE_BYTES
    invocation.talk_again(work, briefly=briefly)


def _with_files(
    spec: JobSpec, options: Mapping[str, Any], last_job: LastJob
) -> tuple[JobSpec, JobFiles]:
    """A job that waits for those whose files it wants, and the files that are to be sent ahead."""
    from kestrelctl.client.inputs import find_files
    from kestrelctl.grammar.parent_file_words import (
        of_this_machine,
        parse_parent_files,
        waiting_for,
    )

    files = find_files(of_this_machine(options["input"]), options["stdin"])
    left = parse_parent_files(options["input"], spec.after_each, last_job)
    program = msgspec.structs.replace(spec.program, parent_files=left)
    after = waiting_for(spec.after, left)
    return msgspec.structs.replace(spec, program=program, after=after), files


def _streams(options: Mapping[str, Any]) -> dict[str, str]:
    """The local files for the output of tasks, by the options that name them."""
    return {f"--{stream}": options[stream] or "" for stream in ("stdout", "stderr")}


def _waits(options: Mapping[str, Any]) -> bool:
    """Whether an option asks to wait for the end of a job."""
    return options["wait"] or options["progress"] or options["on_end"] is not None


def _look(options: Mapping[str, Any]) -> Look:
    from kestrelctl.cli.show.progress import Look

    return Look.ANYWHERE if options["progress"] else Look.TERMINAL


def _warn_of_placeholders(invocation: Invocation, spec: JobSpec, which: str = "") -> bool:
    """Warns of placeholders of a job that stay as they are, and says what would fill them.

    Args:
        which: names the job in the message, if there are several.
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


def _files_of(
    patterns: Mapping[str, str], spec: JobSpec, invocation: Invocation
) -> list[OutputFiles]:
    """Returns the files that are wanted for the output of tasks.

    Raises:
        UsageError: several tasks, or both streams, would share a file, or nothing is for it.
    """
    if patterns["--stderr"] and spec.program.join:
        raise UsageError(
            f"nothing would be in {patterns['--stderr']}: --join has stderr in stdout",
            hint="write --stdout instead of --stderr, or leave --join out",
        )
    if patterns["--stdout"] and patterns["--stdout"] == patterns["--stderr"]:
        raise UsageError(
            f"{patterns['--stdout']} would be the file of both streams",
            hint="--join has both come as one, in the order in which they are written",
        )
    if not any(patterns.values()):
        return []
    from kestrelctl.cli.job.output_files import OutputFiles, check_pattern

    for pattern in filter(None, patterns.values()):
        check_pattern(pattern, spec.count)
    reader = invocation.log_reader()
    return [
        OutputFiles(reader, option[2:], pattern) for option, pattern in patterns.items() if pattern
    ]


_FETCHED = "kestrelctl job fetch JOB, job logs JOB --to PATTERN"
#: Options that mean nothing to several jobs, and what there is instead.
_OF_ONE_JOB = {
    "name": "the name of a job stands in the file: [job.NAME]",
    "fetch": _FETCHED,
    "stdout": _FETCHED,
    "stderr": _FETCHED,
}


def _refuse_of_one_job(options: Mapping[str, object]) -> None:
    for name, instead in _OF_ONE_JOB.items():
        if options[name]:
            raise UsageError(f"--{name} is for one job", hint=instead)


def _with_surroundings(
    invocation: Invocation, spec: JobSpec, options: Mapping[str, Any]
) -> JobSpec:
    """Adds to a job what comes from the place of submission: directory and environment."""

    def has_own() -> bool:
        return invocation.find_context(invocation.pool).own_directories

    return msgspec.structs.replace(
        spec,
        program=msgspec.structs.replace(
            spec.program,
            workdir=start_directory(
                options["workdir"],
                has_inputs=bool(options["input"]),
                leaves_files=bool(spec.program.outputs or spec.program.checkpoints),
                has_own=has_own,
            ),
            env=_exported(invocation, options["export"]) | spec.program.env,
        ),
    )


async def _send(invocation: Invocation, connection: Connection, files: JobFiles) -> SentFiles:
    """Sends the files of a job that are not in the share yet."""
    from kestrelctl.client.inputs import send_files
    from kestrelctl.client.upload_record import upload_record

    context = invocation.find_context(invocation.pool)
    share = invocation.open_share(connection, context)
    record = upload_record(context, invocation.now)
    return await send_files(files, share, record, invocation.screen.say)


def submit_graph(
    invocation: Invocation,
    graph: GraphFile,
    options: Mapping[str, Any],
    parsed: Callable[[dict[str, Any]], dict[str, Any]],
    last_job: LastJob,
) -> None:
    """Submits the jobs of a file as one.

    Args:
        options: the options for all of them, by `Option.dest`.
        parsed: returns the values of all options, given those that a file sets for a job.
    """
    _refuse_of_one_job(options)
    given_key = checked_key(options["key"])
    waits = _waits(options)
    from kestrelctl.client.graph_sending import GraphFiles, Made, jobs_of, lines_of, send_graph

    files = GraphFiles()

    def make(job: Draft, given: dict[str, Any]) -> Made:
        options = parsed(given)
        spec = _job_of((), job, options)
        named = files.find(options["input"], options["stdin"])
        return Made(checked_job(_with_surroundings(invocation, spec, options)), named)

    async def send_all(connection: Connection) -> GraphSubmitted:
        async def send(wanted: JobFiles) -> SentFiles:
            return await _send(invocation, connection, wanted)

        whole = await files.sent_with(described, send) if files else None
        return await send_graph(connection, lines if whole is None else lines_of(whole), key)

    described = jobs_of(graph, make, last_job)
    jobs = [each.job for each in described]
    last_job.refuse_key(given_key)
    if waits and any(job.spec.service for job in jobs):
        raise UsageError("a service does not end by itself", hint="leave --wait and --on-end out")
    for job in jobs:
        which = f" of job {job.spec.name}"
        if _warn_of_placeholders(invocation, job.spec, which):
            break  # one warning stands for all jobs of the file
    lines = lines_of(jobs)
    key = given_key or os.urandom(16).hex()

    async def work(redial: Redial) -> None:
        again = f"the same command with --key {shlex.quote(key)} sends them again, once in all"
        answer = await redial.until_answered(send_all, again)
        last = answer.job_id + answer.jobs - 1
        ids = f"{answer.job_id}-{last}"
        if answer.repeated:
            invocation.screen.say(f"jobs {ids} are there already: a submission had come before")
        if not waits:
            record = Record(ids, _as_data(answer), [_summary(answer)])
            await invocation.show(record)
            invocation.screen.say(f"next: kestrelctl job graph {answer.job_id}")
            return
        from kestrelctl.cli.job import wait
        from kestrelctl.cli.job.on_end import OnEnd

        invocation.screen.say(_summary(answer))
        pieces = wait.pieces_of(answer.job_id, last)
        views = await wait.until_ended(
            redial.connection, ids, invocation.screen, look=_look(options), pieces=pieces
        )
        ends = OnEnd(options["on_end"], invocation.screen, invocation.pool)
        ends.begin_once(ids, views)
        await ends.finish()
        await invocation.show(Record(ids, views, [*wait.sentences(views)]))
        await wait.check(redial.connection, views)

    invocation.talk_again(work)


def _summary(answer: GraphSubmitted) -> str:
    """Says in a line what was submitted."""
    last = answer.job_id + answer.jobs - 1
    return (
        f"jobs {answer.job_id}-{last}: {plural(answer.jobs, 'job')}, {plural(answer.tasks, 'task')}"
    )


def _as_data(answer: GraphSubmitted) -> Mapping[str, object]:
    """Returns the same for programs."""
    return {
        "job_id": answer.job_id,
        "jobs": answer.jobs,
        "tasks": answer.tasks,
        "repeated": answer.repeated,
    }


def refuse_words(words: tuple[str, ...]) -> None:
    """Raises UsageError if words follow the name of a job file, which nobody would read."""
    if len(words) > 1:
        raise UsageError(
            "a job file takes no words of a command",
            cause=f"{words[0]} is a job file, and {shlex.join(words[1:])} follows it",
            hint="what its tasks are to get stands in the file, in `command`",
        )


def _job_of(words: tuple[str, ...], job_file: Draft | None, options: Mapping[str, Any]) -> JobSpec:
    """Returns the job that options and job file describe, without its directory, not checked yet.

    Raises:
        UsageError: they do not describe a job.
    """
    if job_file is None and not words:
        hint = "kestrelctl submit -- sleep 1"
        if options["each_line"] is not None:
            each = f"kestrelctl submit --each-line {shlex.quote(str(options['each_line']))}"
            hint = f"if its lines are commands: {each} -- sh -c 'eval \"$KESTREL_ITEM\"'"
        raise UsageError("there is no command", hint=hint)
    argv = job_file.argv if job_file is not None else words
    check_command(argv)
    given = [name for name in ("array", "each_line", "from_json") if options[name] is not None]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{names} exclude each other", hint="one of them makes the tasks")
    for glob in options["keep"]:
        if (other := IN_FILE_NAMES.search(glob)) is not None:
            raise UsageError(
                f"--keep {glob} names files that tasks leave, and {other[0]} stays as it is",
                hint="--stdout PATTERN is for what they print, with {n} for a task's number",
            )
    items = None
    if options["each_line"] is not None or options["from_json"] is not None:
        from kestrelctl.cli.submit.items import read_elements, read_lines

        if options["each_line"] is not None:
            items = read_lines(Path(options["each_line"]))
        else:
            items = read_elements(Path(options["from_json"]))
    return job_of(argv, options, items=items, paste_items=options["paste_items"])


def _exported(invocation: Invocation, given: tuple[str, ...]) -> dict[str, str]:
    """Returns the variables of `--export`, and warns of those that `ALL` leaves out.

    Raises:
        UsageError: a variable that is named is not set, or is no text.
    """
    if not given:
        return {}
    from kestrelctl.cli.submit.export import ALL, exported, names_text

    found = exported(given, os.environ)
    if found.kept_back:
        invocation.screen.warn(
            f"not exported, as it may be secret: {names_text(found.kept_back)}",
            hint=f"what tasks need of it: --export {ALL},NAME",
        )
    return found.variables
