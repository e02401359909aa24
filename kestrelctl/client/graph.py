"""Several jobs of which some wait for others, submitted as one: all of them or none.

A program describes them by `Graph.add`, a job file by tables `[job.NAME]`.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.client.inputs import JobFiles, SentFiles, find_files
from kestrelctl.client.upload import items_bytes, pieces
from kestrelctl.core.model.job.after import After, problem_with_parents
from kestrelctl.core.model.job.placeholders import has_braces
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.plural import plural
from kestrelctl.errors import UsageError
from kestrelctl.grammar.after_words import split_ending
from kestrelctl.grammar.graph_order import Placed, arrange
from kestrelctl.grammar.parent_file_words import (
    of_this_machine,
    parents_named,
    parse_parent_files,
    waiting_for,
)
from kestrelctl.protocol.codec import MAX_ITEM_BYTES
from kestrelctl.protocol.job_answers import GraphJob, GraphSubmitted
from kestrelctl.protocol.job_requests import SubmitJobs, UploadItems

#: The most jobs that a pool takes as one.
MOST_JOBS = 20_000
_UPLOAD_SECONDS = 60.0
_ANSWER_SECONDS = 60.0

#: The words that say which files of this machine a job has.
FileWords: TypeAlias = tuple[str | None, ...]


class Draft(msgspec.Struct, frozen=True):
    """A job as its author describes it.

    Attributes:
        argv: the command.
        options: values by `Option.dest` of the options of `submit`.
        items: one for each task; None if options say which tasks it has.
    """

    argv: tuple[str, ...]
    options: dict[str, Any]
    items: tuple[str, ...] | None = None


class Graph:
    """Jobs by name, of which some wait for others.

    graph = Graph()
    prepare = graph.add("prepare", "seq 5 >numbers", keep=["numbers"])
    graph.add("fit", ["./fit", "{n}"], array="1-100", after=prepare)
    jobs = pool.submit_graph(graph)

    Attributes:
        jobs: each has the option `name`.
        after: for each job, the words that say what it waits for.
        after_each: for each job whose tasks each wait for one of another job, the word for that.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Draft] = {}
        self.after: dict[str, list[str]] = {}
        self.after_each: dict[str, str] = {}

    def add(
        self,
        name: str,
        command: str | Sequence[str],
        *,
        items: Iterable[object] | None = None,
        after: object = (),
        after_each: object = None,
        **options: Any,
    ) -> str:
        """Adds a job, in any order; returns its name, by which others wait for it.

        Args:
            command, items, options: as those of `AsyncClient.submit`; `input=["job:NAME"]` has what
                tasks of another job of the graph leave.
            after: what it waits for: the name of another job of the graph, a pattern for several,
                such as `fit-*`, a job of the pool or its number, each as text also with the end
                that it must come to, such as `fit:ended`; or a list of these.
            after_each: the job for whose tasks its tasks wait, one for one.

        Raises:
            UsageError: there is a job of that name, no command, or an item that JSON cannot say.
        """
        from kestrelctl.client.given import line_of, plain, words_of  # no job file needs it

        if name in self.jobs:
            raise UsageError(f"two jobs of the graph are called {name!r}")
        given = {key: plain(value) for key, value in options.items()} | {"name": name}
        if "input" in given:
            given["input"] = _texts(given["input"])
        lines = None if items is None else tuple(map(line_of, items))
        each = None if after_each is None else str(plain(after_each))
        self.put(name, Draft(words_of(command), given, lines), _texts(plain(after)), each)
        return name

    def put(self, name: str, job: Draft, after: list[str], after_each: str | None) -> None:
        """Adds a job, which also waits for the jobs whose files it wants."""
        parents = parents_named(job.options.get("input", ()))
        missing = [each for each in parents if each != after_each]
        self.jobs[name] = job
        self.after[name] = _with_parents(after, missing)
        if after_each is not None:
            self.after_each[name] = after_each


def _texts(given: Any) -> list[str]:
    """Returns the words of a value that is one, or several; None is no word."""
    if given is None:
        return []
    return list(map(str, given)) if isinstance(given, list | tuple | range) else [str(given)]


def _with_parents(words: list[str], parents: list[str]) -> list[str]:
    """Adds the jobs whose files a job wants to the words that say what it waits for."""
    named = [split_ending(word)[0] for word in words]
    missing = [each for each in parents if not any(fnmatchcase(each, glob) for glob in named)]
    return words + list(dict.fromkeys(missing))


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
