"""What fits into one message to the pool, and how items that do not are cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kestrelctl.cli.quantities import size
from kestrelctl.errors import UsageError
from kestrelctl.protocol import codec
from kestrelctl.protocol.requests import Submit, UploadItems

#: Enough for a few thousand short lines; leaves room for escaping and for other users.
PIECE_BYTES = 200_000


def text_bytes(text: str) -> int:
    """The size of a text inside an XML stanza: UTF-8, with `&`, `<` and `>` escaped."""
    return len(text.encode()) + 4 * text.count("&") + 3 * (text.count("<") + text.count(">"))


def item_bytes(items: Sequence[str]) -> int:
    """About the size of items in a message; never less."""
    return sum(map(_line_bytes, items))


def pieces(items: Sequence[str]) -> Iterator[list[str]]:
    """Items in order, in pieces that fit into a message each.

    Raises:
        UsageError: one alone is too large for a message.
    """
    piece: list[str] = []
    filled = 0
    for number, item in enumerate(items):
        needed = _line_bytes(item)
        if needed > PIECE_BYTES:
            raise UsageError(
                f"the item of task {number} is too large ({size(len(item))})",
                hint="put it into a file that the tasks can read, and its name into the item",
            )
        if filled + needed > PIECE_BYTES:
            yield piece
            piece, filled = [], 0
        piece.append(item)
        filled += needed
    if piece:
        yield piece


def check_size(request: Submit | UploadItems) -> None:
    """Refuses what the pool would refuse, before it is sent.

    Raises:
        UsageError: the request is too large or not UTF-8.
    """
    try:
        needed = text_bytes(codec.encode(request))
    except (UnicodeEncodeError, msgspec.EncodeError):
        raise UsageError(
            "the command or its environment is not UTF-8", cause="a job is described in JSON"
        ) from None
    if needed > codec.MAX_PAYLOAD_BYTES:
        raise UsageError(
            f"the job's description is too large ({size(needed)})",
            cause=f"{size(codec.MAX_PAYLOAD_BYTES)} is the most",
            hint="put data into files, and use --each-line or --from-json for what differs",
        )


def _line_bytes(item: str) -> int:
    """A line in JSON: between quotes, control characters and quotes escaped, and a comma."""
    return text_bytes(msgspec.json.encode(item).decode()) + 1
