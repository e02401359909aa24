"""Submits jobs of which some wait for others as one: all of them or none."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.client.graph import Draft, Graph
from kestrelctl.client.graph_order import Placed, arrange
from kestrelctl.client.inputs import JobFiles, SentFiles, find_files
from kestrelctl.client.upload import items_bytes, pieces
from kestrelctl.core.model.job.after import After, problem_with_parents
from kestrelctl.core.model.job.placeholders import has_braces
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import UsageError
from kestrelctl.grammar.parent_file_words import of_this_machine, parse_parent_files, waiting_for
from kestrelctl.protocol.codec import MAX_ITEM_BYTES
from kestrelctl.protocol.job_answers import GraphJob, GraphSubmitted
from kestrelctl.protocol.job_requests import SubmitJobs, UploadItems

#: The most jobs that a pool takes as one.
MOST_JOBS = 20_000
_UPLOAD_SECONDS = 60.0
_ANSWER_SECONDS = 60.0

#: The words that say which files of this machine a job has.
FileWords: TypeAlias = tuple[str | None, ...]


class Made(NamedTuple):
    """A checked job that options describe, still without its files, and the words for the files."""

    spec: JobSpec
    files: FileWords


class Described(NamedTuple):
    """One of several jobs, still without its files, and the words for the files."""

    job: GraphJob
    files: FileWords


#: Makes a job of its draft and of those of its options that are not for a job of a graph alone.
Making: TypeAlias = Callable[[Draft, dict[str, Any]], Made]


class GraphFiles:
    """The files of this machine that jobs of a graph want: the same ones are sent once."""

    def __init__(self) -> None:
        self._found: dict[FileWords, JobFiles] = {}

    def __len__(self) -> int:
        return len(self._found)

    def find(self, inputs: Iterable[str], stdin: str | None) -> FileWords:
        """Finds files by the words for them; returns the words for those of this machine.

        Raises:
            UsageError: there is no such file, or it cannot be sent like this.
        """
        sources = of_this_machine(inputs)
        named = (stdin, *sources)
        if any(named) and named not in self._found:
            self._found[named] = find_files(sources, stdin)
        return named

    async def sent_with(
        self, described: list[Described], send: Callable[[JobFiles], Awaitable[SentFiles]]
    ) -> list[GraphJob]:
        """Sends all files; returns the jobs with theirs."""
        sent = {named: await send(files) for named, files in self._found.items()}

        def whole(each: Described) -> GraphJob:
            have = sent.get(each.files)
            if have is None:
                return each.job
            spec = replace(each.job.spec, program=have.of(each.job.spec.program))
            return replace(each.job, spec=spec)

        return [whole(each) for each in described]


def jobs_of(graph: Graph, make: Making, last: Callable[[], int]) -> list[Described]:
    """Returns the jobs of a graph, parents first.

    Jobs with the same options share one parsing of them: a graph may have thousands of jobs.

    Args:
        last: returns the id of the latest job of the submitter.

    Raises:
        UsageError: there are none or too many, they wait for each other, or the pool would not
            take them.
    """
    if not graph.jobs:
        raise UsageError("the graph has no job", hint='graph.add("prepare", ["./prepare"])')
    if len(graph.jobs) > MOST_JOBS:
        raise UsageError(
            f"{plural(len(graph.jobs), 'job')} cannot be submitted as one",
            cause=f"{MOST_JOBS:,} is the most",
            hint="put tasks that differ by a number or a line into one job, as an array",
        )
    made: dict[bytes, Made] = {}
    order = arrange(graph.after, last, graph.after_each)
    places = {each.name: place for place, each in enumerate(order)}
    return [_job(each, graph, places, made, make, last) for each in order]


def _job(
    placed: Placed,
    graph: Graph,
    places: Mapping[str, int],
    made: dict[bytes, Made],
    make: Making,
    last: Callable[[], int],
) -> Described:
    job = graph.jobs[placed.name]
    options = dict(job.options)
    name = options.pop("name")
    same = _encoded((options, has_braces(job.argv), job.items), placed.name)
    found = made.get(same)
    if found is None:
        try:
            found = made[same] = make(job, options)
        except UsageError as error:
            raise UsageError(
                f"job {placed.name}: {error.message}", cause=error.cause, hint=error.hint
            ) from None
    spec = found.spec
    after = _both(spec.after, placed)
    outside = placed.outside_each or spec.after_each
    inputs = options.get("input", ())
    left = parse_parent_files(inputs, outside, last, places.get, placed.after_each)
    changed = replace(
        spec,
        program=replace(spec.program, argv=job.argv, parent_files=left),
        name=str(name),
        after=waiting_for(after, left),
        after_each=outside,
    )
    if placed.after_each is not None:
        changed = replace(changed, after_each=0)
    graph_job = GraphJob(spec=changed, after=placed.after, after_each=placed.after_each)
    return Described(graph_job, found.files)


def _encoded(value: object, name: str) -> bytes:
    """Encodes a job, or what tells it from others.

    Raises:
        UsageError: a text of it is not UTF-8.
    """
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        raise UsageError(
            f"a text of job {name} is not UTF-8", cause="jobs are described in JSON"
        ) from None


def _both(given: tuple[After, ...], placed: Placed) -> tuple[After, ...]:
    """Merges the existing jobs that a job waits for: those of its options and those of its file."""
    if not given or not placed.outside:
        return given or placed.outside
    both = tuple(sorted({*given, *placed.outside}, key=lambda each: each.first))
    problem = problem_with_parents(both)
    if problem is not None:
        raise UsageError(f"job {placed.name} cannot wait for these", cause=problem)
    return both


def lines_of(jobs: list[GraphJob]) -> list[str]:
    """Returns a line of JSON to send for each job.

    Raises:
        UsageError: one is too large for a message.
    """
    lines = []
    for job in jobs:
        line = _encoded(job, job.spec.name).decode()
        if 2 * len(line) > MAX_ITEM_BYTES and items_bytes([line]) > MAX_ITEM_BYTES:
            raise UsageError(
                f"job {job.spec.name} is too large to be one of several",
                cause=f"its description and items take {len(line):,} characters",
                hint="submit it by itself first, and name its id in the file",
            )
        lines.append(line)
    return lines


async def send_graph(connection: Connection, lines: list[str], key: str) -> GraphSubmitted:
    """Submits jobs; called again with the same key it makes no second ones.

    Raises:
        KestrelError: the pool refused them, or cannot be reached.
    """
    upload = secrets.token_hex(8)
    for part in pieces(lines):
        await connection.ask(UploadItems(upload=upload, lines=part), _UPLOAD_SECONDS)
    request = SubmitJobs(upload=upload, key=key)
    return await ask(connection, request, GraphSubmitted, _ANSWER_SECONDS)
