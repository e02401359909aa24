"""Turns the core's decision to run attempts into messages, none of them too large."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kestrelctl.core.model.job.checkpoint import MOST_STORED_BYTES
from kestrelctl.core.model.job.span import MOST_HOST_CHARACTERS
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.seal import Seals
from kestrelctl.protocol import codec, workers
from kestrelctl.protocol.codec import MAX_ITEM_BYTES, item_bytes

if TYPE_CHECKING:
    from kestrelctl.core.effects import Run, Span

#: Room for all else in a message that hands out one attempt, such as the address of the owner and
#: the ids of the parents.
_FRAME_BYTES = 8000
#: Bytes between two names of machines: quotes and a comma.
_QUOTES = 3
#: A character becomes so many bytes in a message at the most: an escape of JSON.
_MOST_BYTES = 6
#: The most that a span, a count, an acknowledgement, or a limit takes: six numbers of nineteen
#: digits.
_MOST_ENTRY_BYTES = 130


def problem_with_size(spec: JobSpec) -> str | None:
    """Explains why an attempt of a job would not fit into a message; None if each does."""
    items = spec.items or ()
    for index, item in enumerate(items):
        if len(item) * _MOST_BYTES > MAX_ITEM_BYTES and item_bytes(item) > MAX_ITEM_BYTES:
            return f"the item of task {index} takes more than {MAX_ITEM_BYTES:,} bytes"
    room = codec.MAX_PAYLOAD_BYTES - _FRAME_BYTES - (MAX_ITEM_BYTES if items else 0)
    if spec.program.checkpoints:
        room -= MOST_STORED_BYTES
    if spec.span > 1:
        room -= spec.span * (MOST_HOST_CHARACTERS + _QUOTES)
    needed = codec.text_bytes(msgspec.json.encode(Template.of(0, spec)).decode())
    if needed > room:
        parts = ["command", "environment"]
        parts += ["inputs"] if spec.program.inputs or spec.program.stdin else []
        parts += ["stages"] if spec.program.stages else []
        what = f"{', '.join(parts[:-1])} and {parts[-1]}"
        return f"{what} take {needed:,} bytes; {room:,} is the most"
    return None


def run_messages(
    effect: Run, ack: list[int], seals: Seals, unsent: Callable[[Span, str], None]
) -> list[workers.Run]:
    """The messages for a worker: spans, with the claims, templates and items that go with them.

    It is one message, unless templates or items are so large that they must travel apart.

    Args:
        ack: results of that worker that are safe.
        seals: those of the pool; each span gets one.
        unsent: called with each attempt that fits into no message, and why, in words for its user.
    """
    message = workers.Run(
        spans=[
            (number, job_id, index, n, claim, seals.mark(effect.worker, number, job_id, index, n))
            for number, job_id, index, n, claim in effect.spans
        ],
        claims=effect.claims,
        jobs=effect.templates,
        items=effect.items,
        forget=effect.forget,
        ack=ack,
        counts=effect.counts,
        limits=effect.limits,
        hosts=effect.hosts,
        checkpoints=effect.checkpoints,
    )
    if _is_small(message) or codec.fits(codec.encode(message)):
        return [message]
    if sum(n for _, _, _, n, _ in effect.spans) == 1:
        alone = msgspec.structs.replace(message, ack=[])
        text = codec.encode(alone)
        if codec.fits(text):
            return [workers.Run(spans=[], ack=ack), alone] if ack else [alone]
        # Such a job was refused when it came in, unless it has grown since, or came another way.
        size = codec.text_bytes(text)
        unsent(effect.spans[0], f"it takes {size:,} bytes; {codec.MAX_PAYLOAD_BYTES:,} is the most")
        return [workers.Run(spans=[], ack=ack, forget=effect.forget)]
    first, second = _halves(effect)
    return [*run_messages(first, ack, seals, unsent), *run_messages(second, [], seals, unsent)]


def _is_small(message: workers.Run) -> bool:
    """Whether a message fits at first sight, as nearly all do: looking is cheaper than encoding."""
    if message.jobs or message.hosts or message.checkpoints:
        return False
    entries = len(message.spans) + len(message.counts) + len(message.ack) + len(message.limits)
    characters = sum(map(len, message.items)) + len(message.items)
    needed = entries * _MOST_ENTRY_BYTES + characters * _MOST_BYTES
    return needed < codec.MAX_PAYLOAD_BYTES // 2


def _halves(effect: Run) -> tuple[Run, Run]:
    """Splits an effect into the first and the last attempts; a job is new where it comes first."""
    first: list[Span] = []
    second: list[Span] = []
    left = sum(n for _, _, _, n, _ in effect.spans) // 2
    items_left = 0
    with_items = effect.items_of
    for number, job_id, index, n, claim in effect.spans:
        early = min(n, left)
        left -= early
        if early:
            first.append((number, job_id, index, early, claim))
            items_left += early * (job_id in with_items)
        if early < n:
            second.append((number + early, job_id, index + early, n - early, claim))
    told = {job_id for _, job_id, _, _, _ in first}
    beyond = second[0][0]  # numbers rise
    return (
        msgspec.structs.replace(
            effect,
            spans=first,
            templates=[template for template in effect.templates if template.job_id in told],
            items=effect.items[:items_left],
            counts=[each for each in effect.counts if each[0] < beyond],
            checkpoints=[each for each in effect.checkpoints if each[0] < beyond],
        ),
        msgspec.structs.replace(
            effect,
            spans=second,
            templates=[template for template in effect.templates if template.job_id not in told],
            items=effect.items[items_left:],
            forget=[],
            counts=[each for each in effect.counts if each[0] >= beyond],
            checkpoints=[each for each in effect.checkpoints if each[0] >= beyond],
        ),
    )
