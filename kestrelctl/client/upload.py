"""Sends jobs to a pool; what does not fit into one message goes ahead, in pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec

from kestrelctl.access.connection import Connection, ask
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import size
from kestrelctl.protocol import codec
from kestrelctl.protocol.codec import MAX_ITEM_BYTES, item_bytes
from kestrelctl.protocol.job_answers import Submitted
from kestrelctl.protocol.job_requests import SubmitJob, UploadItems

#: Items that are larger than this are sent ahead of the job, in pieces.
INLINE_BYTES = 100_000
UPLOAD_TIMEOUT_SECONDS = 60.0
#: The time that a submission waits for its answer before it is sent again.
ANSWER_SECONDS = 30.0


def items_bytes(items: Sequence[str]) -> int:
    """Estimates the size of items in a message; never less than it is."""
    return sum(map(item_bytes, items))


def pieces(items: Sequence[str]) -> Iterator[list[str]]:
    """Yields items in order, in pieces that each fit into a message.

    Raises:
        UsageError: a single item is too large for a message.
    """
    piece: list[str] = []
    filled = 0
    for number, item in enumerate(items):
        needed = item_bytes(item)
        if needed > MAX_ITEM_BYTES:
            raise UsageError(
                f"the item of task {number} is too large ({size(len(item))})",
                hint="put it into a file that the tasks can read, and its name into the item",
            )
        if filled + needed > MAX_ITEM_BYTES:
            yield piece
            piece, filled = [], 0
        piece.append(item)
        filled += needed
    if piece:
        yield piece


def check_size(request: SubmitJob | UploadItems) -> None:
    """Refuses what the pool would refuse, before it is sent.

    Raises:
        UsageError: the request is too large or not UTF-8.
    """
    try:
        needed = codec.text_bytes(codec.encode(request))
    except (UnicodeEncodeError, msgspec.EncodeError):
        raise UsageError(
            "the command or its environment is not UTF-8", cause="a job is described in JSON"
        ) from None
    if needed > codec.MAX_PAYLOAD_BYTES:
        cause = f"{size(codec.MAX_PAYLOAD_BYTES)} is the most"
        hint = "put data into files, and use --each-line or --from-json for what differs"
        if isinstance(request, SubmitJob) and request.spec.program.env:
            of_env = codec.text_bytes(msgspec.json.encode(request.spec.program.env).decode())
            if 2 * of_env > needed:
                cause += f"; its environment alone takes {size(of_env)}"
                hint = "export by name what tasks need"
        raise UsageError(
            f"the job's description is too large ({size(needed)})", cause=cause, hint=hint
        )


async def send_job(
    connection: Connection, spec: JobSpec, key: str, *, watch: bool, explain: bool
) -> Submitted:
    """Submits a job; see `submission_of`.

    Called again with the same key, on this or another connection, it makes no second job.

    Raises:
        UsageError: a part is too large for a message.
        KestrelError: the pool refused it, or cannot be reached.
    """
    request = await submission_of(connection, spec, key, watch=watch, explain=explain)
    return await ask(connection, request, Submitted, ANSWER_SECONDS)


async def submission_of(
    connection: Connection, spec: JobSpec, key: str, *, watch: bool, explain: bool
) -> SubmitJob:
    """Returns the request that submits a job; many items are sent ahead of it. Nothing is sent if
    any part is too large.

    Args:
        watch, explain: see `SubmitJob`.

    Raises:
        UsageError: a part is too large for a message.
        KestrelError: the pool refused it, or cannot be reached.
    """
    upload = ""
    parts: list[list[str]] = []
    if spec.items is not None and items_bytes(spec.items) > INLINE_BYTES:
        upload = os.urandom(8).hex()
        parts = list(pieces(spec.items))
        spec = msgspec.structs.replace(spec, items=None)
    request = SubmitJob(spec=spec, upload=upload, watch=watch, explain=explain, key=key)
    check_size(request)
    for part in parts:
        await connection.ask(UploadItems(upload=upload, lines=part), UPLOAD_TIMEOUT_SECONDS)
    return request
