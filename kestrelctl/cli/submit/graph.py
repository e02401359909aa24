"""Submits the jobs of one file as one: all of them or none."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.submit.job_file import GraphFile, JobFile
from kestrelctl.client.upload import items_bytes, pieces
from kestrelctl.core.model.job.after import After, problem_with_parents
from kestrelctl.core.model.job.placeholders import has_braces
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.plural import plural
from kestrelctl.errors import UsageError
from kestrelctl.grammar.graph_order import Placed, arrange
from kestrelctl.grammar.parent_file_words import parse_parent_files, waiting_for
from kestrelctl.protocol.answers import GraphJob, GraphSubmitted
from kestrelctl.protocol.handout import MAX_ITEM_BYTES
from kestrelctl.protocol.requests import SubmitJobs, UploadItems

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


Making: TypeAlias = Callable[[JobFile, dict[str, Any]], Made]


def jobs_of(
    graph: GraphFile,
    parsed: Callable[[dict[str, Any]], dict[str, Any]],
    make: Making,
    last: Callable[[], int],
) -> list[Described]:
    """Returns the jobs that a file describes, parents first.

    Jobs with the same options share one parsing of them: a file may have thousands of jobs.

    Args:
        parsed: returns the values of all options of `submit`, given those that a file sets.
        last: returns the id of the latest job of the submitter.

    Raises:
        UsageError: they are too many, wait for each other, or the pool would not take them.
    """
    if len(graph.jobs) > MOST_JOBS:
        raise UsageError(
            f"{plural(len(graph.jobs), 'job')} cannot be submitted as one",
            cause=f"{MOST_JOBS:,} is the most",
            hint="put tasks that differ by a number or a line into one job, as an array",
        )
    made: dict[bytes, Made] = {}
    order = arrange(graph.after, last, graph.after_each)
    places = {each.name: place for place, each in enumerate(order)}
    return [_job(each, graph, places, made, parsed, make, last) for each in order]


def _job(
    placed: Placed,
    graph: GraphFile,
    places: Mapping[str, int],
    made: dict[bytes, Made],
    parsed: Callable[[dict[str, Any]], dict[str, Any]],
    make: Making,
    last: Callable[[], int],
) -> Described:
    job = graph.jobs[placed.name]
    options = dict(job.options)
    name = options.pop("name")
    same = msgspec.json.encode((options, has_braces(job.argv)))
    found = made.get(same)
    if found is None:
        try:
            found = made[same] = make(job, parsed(options))
        except UsageError as error:
            raise UsageError(
                f"job {placed.name}: {error.message}", cause=error.cause, hint=error.hint
            ) from None
    spec = found.spec
    after = _both(spec.after, placed)
    outside = placed.outside_each or spec.after_each
    inputs = options.get("input", ())
    left = parse_parent_files(inputs, outside, last, places.get, placed.after_each)
    changed = msgspec.structs.replace(
        spec,
        program=msgspec.structs.replace(spec.program, argv=job.argv, parent_files=left),
        name=str(name),
        after=waiting_for(after, left),
        after_each=outside,
    )
    if placed.after_each is not None:
        changed = msgspec.structs.replace(changed, after_each=0)
    graph_job = GraphJob(spec=changed, after=placed.after, after_each=placed.after_each)
    return Described(graph_job, found.files)


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
        line = msgspec.json.encode(job).decode()
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


def summary(answer: GraphSubmitted) -> str:
    """Says in a line what was submitted."""
    last = answer.job_id + answer.jobs - 1
    return (
        f"jobs {answer.job_id}-{last}: {plural(answer.jobs, 'job')}, {plural(answer.tasks, 'task')}"
    )


def as_data(answer: GraphSubmitted) -> Mapping[str, object]:
    """Returns the same for programs."""
    return {
        "job_id": answer.job_id,
        "jobs": answer.jobs,
        "tasks": answer.tasks,
        "repeated": answer.repeated,
    }
