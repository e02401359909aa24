"""From the core's decision to run attempts to the messages that say so, none of them too large."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kestrelctl.core.effects import Run
from kestrelctl.core.job import Job
from kestrelctl.core.model import JobSpec
from kestrelctl.core.template import Template
from kestrelctl.protocol import codec, work

#: The most that one item of a job may take in a message.
MAX_ITEM_BYTES = 200_000
#: What else there is in a message that hands out one attempt.
_FRAME_BYTES = 1000
#: A character becomes so many bytes in a message at the most: an escape of JSON.
_MOST_BYTES = 6


def item_bytes(item: str) -> int:
    """The size of an item in a message: between quotes, with escapes, and a comma."""
    return codec.text_bytes(msgspec.json.encode(item).decode()) + 1


def problem_with_size(spec: JobSpec) -> str | None:
    """Why an attempt of a job would not fit into a message; None if each does."""
    items = spec.items or ()
    for index, item in enumerate(items):
        if len(item) * _MOST_BYTES > MAX_ITEM_BYTES and item_bytes(item) > MAX_ITEM_BYTES:
            return f"the item of task {index} takes more than {MAX_ITEM_BYTES:,} bytes"
    room = codec.MAX_PAYLOAD_BYTES - _FRAME_BYTES - (MAX_ITEM_BYTES if items else 0)
    needed = codec.text_bytes(msgspec.json.encode(Template.of(0, spec)).decode())
    if needed > room:
        return f"command and environment take {needed:,} bytes; {room:,} is the most"
    return None


def run_messages(effect: Run, jobs: Mapping[int, Job], ack: list[int]) -> list[work.Run]:
    """The messages for a worker: spans, with the templates and items that go with them.

    One, unless jobs or items are so large that they must travel apart.

    Args:
        jobs: the active jobs, by id.
        ack: results of that worker that are safe.
    """
    message = _message(effect, jobs, ack)
    one = len(effect.spans) == 1 and effect.spans[0][3] == 1
    if one or _is_small(message) or codec.fits(codec.encode(message)):
        return [message]
    first, second = _halves(effect)
    return [*run_messages(first, jobs, ack), *run_messages(second, jobs, [])]


def _message(effect: Run, jobs: Mapping[int, Job], ack: list[int]) -> work.Run:
    items: list[str] = []
    for _, job_id, index, n in effect.spans:
        lines = jobs[job_id].spec.items
        if lines is not None:
            items.extend(lines[index : index + n])
    return work.Run(
        spans=effect.spans,
        jobs=[Template.of(job_id, jobs[job_id].spec) for job_id in effect.new_jobs],
        items=items,
        forget=effect.ended_jobs,
        ack=ack,
    )


def _is_small(message: work.Run) -> bool:
    """Whether it fits at first sight, as nearly all do: a look costs less than encoding twice."""
    characters = sum(map(len, message.items))
    return not message.jobs and characters * _MOST_BYTES < codec.MAX_PAYLOAD_BYTES // 2


def _halves(effect: Run) -> tuple[Run, Run]:
    """The same in two parts: the first and the last attempts, each job new where it comes first."""
    spans: tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int, int]]] = ([], [])
    left = sum(n for *_, n in effect.spans) // 2
    for number, job_id, index, n in effect.spans:
        early = min(n, left)
        left -= early
        if early:
            spans[0].append((number, job_id, index, early))
        if early < n:
            spans[1].append((number + early, job_id, index + early, n - early))
    told = {job_id for _, job_id, _, _ in spans[0]}
    new = [job_id for job_id in effect.new_jobs if job_id in told]
    later = [job_id for job_id in effect.new_jobs if job_id not in told]
    return (
        msgspec.structs.replace(effect, spans=spans[0], new_jobs=new),
        msgspec.structs.replace(effect, spans=spans[1], new_jobs=later, ended_jobs=[]),
    )
