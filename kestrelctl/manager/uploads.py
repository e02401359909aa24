"""Items of jobs that are yet to be submitted, sent ahead in pieces that fit into a stanza.

Kept as JSON text, which takes a fifth of the room that the lines take as strings. Room is shared:
nobody holds more than his part, and when all is taken, whoever holds most gives way to a newcomer.
"""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.plural import plural
from kestrelctl.errors import Busy, UsageError

#: An upload to which nothing was added for so long is dropped.
KEPT_SECONDS = 60.0
#: One that is not submitted after so long is dropped, whatever is added to it.
LONGEST_SECONDS = 600.0
#: Of one account, as JSON text.
MOST_BYTES = 48 * 1024 * 1024
MOST_UPLOADS = 16
#: Of all accounts.
MOST_BYTES_TOGETHER = 128 * 1024 * 1024


class _Upload:
    """Pieces of one job's items."""

    def __init__(self, now: float) -> None:
        self.began_at = self.touched_at = now
        self.bytes = 0
        self.count = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes, count: int, now: float) -> None:
        self._pieces.append(piece)
        self.bytes += len(piece)
        self.count += count
        self.touched_at = now

    def lines(self) -> list[str]:
        decode = _decoder.decode
        return [line for piece in self._pieces for line in decode(piece)]


_decoder = msgspec.json.Decoder(list[str])


class Uploads:
    """Uploads by session and name."""

    def __init__(self) -> None:
        self._uploads: dict[tuple[str, str], _Upload] = {}

    @property
    def bytes(self) -> int:
        """What is held of all accounts."""
        return sum(upload.bytes for upload in self._uploads.values())

    def add(self, jid: str, name: str, lines: list[str], now: float) -> int:
        """Adds lines; returns how many there are now.

        Raises:
            Busy: other uploads of the account take the room.
            UsageError: this one alone takes more than an account may.
        """
        self.drop_old(now)
        key = (jid, name)
        piece = msgspec.json.encode(lines)
        upload = self._uploads.get(key)
        own = [each for each in self._uploads if _account(each) == _account(key)]
        held = sum(self._uploads[each].bytes for each in own)
        if (upload.bytes if upload else 0) + len(piece) > MOST_BYTES:
            self._drop(key)
            raise UsageError(
                "the items of the job are too large together",
                cause=f"the manager keeps {MOST_BYTES:,} bytes of them for one account",
                hint="submit them as several jobs",
            )
        if held + len(piece) > MOST_BYTES or (upload is None and len(own) >= MOST_UPLOADS):
            raise Busy(
                "no more items can be sent ahead by this account now",
                cause=f"{plural(len(own), 'upload')} of {held:,} bytes were not submitted yet",
                hint=f"submit them; what is not used is dropped after {KEPT_SECONDS:g} s",
            )
        self._make_room(len(piece), held, key)
        if upload is None:
            upload = self._uploads[key] = _Upload(now)
        upload.add(piece, len(lines), now)
        return upload.count

    def take(self, jid: str, name: str) -> list[str]:
        """The lines of an upload, which is over now.

        Raises:
            UsageError: there is no such upload (any more).
        """
        key = (jid, name)
        upload = self._uploads.get(key)
        if upload is None:
            raise UsageError("the job's items did not arrive", hint="submit it again")
        self._drop(key)
        return upload.lines()

    def drop_old(self, now: float) -> None:
        """Drops what was not added to for a minute, or is not submitted after ten."""
        for key, upload in list(self._uploads.items()):
            if upload.touched_at + KEPT_SECONDS < now:
                self._drop(key)
            if upload.began_at + LONGEST_SECONDS < now:
                self._drop(key)

    def _make_room(self, size: int, held: int, key: tuple[str, str]) -> None:
        """Drops the oldest of whoever holds most, unless that is the one who wants room."""
        while self.bytes + size > MOST_BYTES_TOGETHER:
            by_account: dict[str, int] = {}
            for each, upload in self._uploads.items():
                by_account[_account(each)] = by_account.get(_account(each), 0) + upload.bytes
            most = max(by_account, key=by_account.__getitem__)
            if by_account[most] <= held + size:
                raise Busy(
                    "the manager holds as many items of jobs to come as it can",
                    cause=f"{len(by_account)} accounts have sent {self.bytes:,} bytes ahead",
                    hint="try again in a minute",
                )
            theirs = [each for each in self._uploads if _account(each) == most]
            self._drop(min(theirs, key=lambda each: self._uploads[each].touched_at))

    def _drop(self, key: tuple[str, str]) -> None:
        self._uploads.pop(key, None)


def _account(key: tuple[str, str]) -> str:
    return key[0].partition("/")[0]
