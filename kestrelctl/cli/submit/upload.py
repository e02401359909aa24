"""What fits into one message to the pool, and how items that do not are cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import size
from kestrelctl.protocol import codec
from kestrelctl.protocol.handout import MAX_ITEM_BYTES, item_bytes
from kestrelctl.protocol.requests import SubmitJob, UploadItems


def items_bytes(items: Sequence[str]) -> int:
    """About the size of items in a message; never less."""
    return sum(map(item_bytes, items))


def pieces(items: Sequence[str]) -> Iterator[list[str]]:
    """Items in order, in pieces that fit into a message each.

    Raises:
        UsageError: one alone is too large for a message.
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
