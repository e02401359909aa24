"""Messages counted by kind, on the way in and on the way out."""

from __future__ import annotations

from collections.abc import Iterator

from kestrelctl.protocol.message import Message

#: Kinds of stanzas without a message type: presence, a message that came back, one that cannot be
#: read, one from an account that may not send any, one too many of an account.
PRESENCE, BOUNCE, UNREADABLE, FORBIDDEN = "presence", "bounce", "unreadable", "forbidden"
BUSY = "busy"
#: An answer that was not sent, because its reader takes none.
DROPPED = "dropped"
#: What a person wrote in words, or was told in words.
CHAT = "chat"


class StanzaCounts:
    """Counts what one process has received and sent.

    Sizes are those of the JSON text, before XML quotes it; for presence and returned messages only
    the number is known.
    """

    def __init__(self) -> None:
        # Rare kinds start at zero: a series that begins at one hides its first event.
        self._in: dict[type[Message] | str, list[int]] = {
            kind: [0, 0] for kind in (BOUNCE, UNREADABLE, FORBIDDEN, BUSY)
        }
        self._out: dict[type[Message] | str, list[int]] = {DROPPED: [0, 0]}

    def received(self, kind: type[Message] | str, size_bytes: int = 0) -> None:
        """Counts a stanza that came in."""
        found = self._in.get(kind)
        if found is None:
            found = self._in[kind] = [0, 0]
        found[0] += 1
        found[1] += size_bytes

    def sent(self, kind: type[Message] | str, size_bytes: int = 0) -> None:
        """Counts a stanza that went out."""
        found = self._out.get(kind)
        if found is None:
            found = self._out[kind] = [0, 0]
        found[0] += 1
        found[1] += size_bytes

    def counted(self) -> Iterator[tuple[str, str, int, int]]:
        """(kind, direction, stanzas, bytes) of all that was seen, each pair of words once."""
        for direction, counts in (("in", self._in), ("out", self._out)):
            found: dict[str, list[int]] = {}
            for kind, (stanzas, size_bytes) in counts.items():
                word = kind if isinstance(kind, str) else str(kind.__struct_config__.tag)
                entry = found.setdefault(word, [0, 0])
                entry[0] += stanzas
                entry[1] += size_bytes
            for word, (stanzas, size_bytes) in sorted(found.items()):
                yield word, direction, stanzas, size_bytes

    def total(self, kind: type[Message]) -> tuple[int, int]:
        """(stanzas, bytes) of one kind that came in."""
        stanzas, size_bytes = self._in.get(kind, (0, 0))
        return stanzas, size_bytes
