"""HTTP to a file share: one connection at a time, which is kept while it works."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from kestrelctl.core.model.names import is_loopback
from kestrelctl.errors import FileDamaged, FileExpired, KestrelError, Unreachable, Untrusted
from kestrelctl.protocol.upload_slots import Slot
from kestrelctl.xmpp import tls as trust

#: The bytes that are read, hashed and written at once.
CHUNK_BYTES = 1024 * 1024
#: A connection without a byte for so long is given up.
SILENCE_SECONDS = 30.0
_GONE = (404, 410)
_SIZE_IS_WRONG = 413
#: The place is not taken any more, five minutes after it was given: 401 by Prosody 0.12, 403 by 13.
_PLACE_IS_OVER = (401, 403)
#: Statuses that another try, with another place, may not get.
_TRANSIENT = (408, 409, 429, 500, 502, 503, 504)
_MOST_ANSWER_BYTES = 64 * 1024


class LineCut(Exception):
    """The connection ended before all was through; trying again may help."""

    def __init__(self, url: str, why: object) -> None:
        super().__init__(str(why))
        self._url, self._why = urlsplit(url), why

    def explained(self) -> Unreachable:
        """Makes the error for when trying again did not help."""
        return Unreachable(
            f"the pool's file share at {self._url.netloc} cannot be used",
            cause=str(self._why) or type(self._why).__name__,
            hint="is its port open for this machine, and is there room on the server's disk?",
        )


class Line:
    """A connection that is made when it is needed, and again after it was cut.

    Args:
        ca_file: whom to trust; see `tls.context`.
    """

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._connection: http.client.HTTPConnection | None = None
        self._to = ("", "")
        self._is_cut = threading.Event()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def cut(self) -> None:
        """Ends what another thread is doing, and all that it would do."""
        self._is_cut.set()
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def pause(self, seconds: float) -> None:
        """Returns after the time, or when it is cut."""
        self._is_cut.wait(seconds)

    def put(self, slot: Slot, size_bytes: int, next_chunk: Callable[[], memoryview | None]) -> None:
        """Uploads what `next_chunk` gives until None.

        Raises:
            LineCut: it did not go through.
            Untrusted: nothing was sent: others could read or change it.
            KestrelError: the share refused it.
        """
        url, connection = self._open(slot.put_url)
        try:
            connection.putrequest("PUT", _path(url), skip_accept_encoding=True)
            for name, value in slot.headers.items():
                connection.putheader(name, value)
            connection.putheader("Content-Type", "application/octet-stream")
            connection.putheader("Content-Length", str(size_bytes))
            connection.endheaders()
            while (chunk := next_chunk()) is not None:
                connection.send(chunk)
            answer = connection.getresponse()
            answer.read(_MOST_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(slot.put_url, error) from None
        except KestrelError:
            self.close()
            raise
        if answer.status in (200, 201, 204):
            return
        self.close()
        if answer.status in (*_PLACE_IS_OVER, *_TRANSIENT):
            raise LineCut(slot.put_url, f"it answered {answer.status} {answer.reason}")
        # The size is what the place is for: Prosody says "too large" of what it could not write.
        full = answer.status == _SIZE_IS_WRONG
        raise KestrelError(
            "the pool's file share did not take a file",
            cause=f"it answered {answer.status} {answer.reason}",
            hint="is there room on the server's disk?" if full else None,
        )

    def get(
        self,
        address: str,
        from_bytes: int,
        to_bytes: int,
        add: Callable[[memoryview], None],
    ) -> None:
        """Downloads what follows the first bytes, up to the end.

        Args:
            from_bytes: how many are there already.
            to_bytes: how large the file is.
            add: called with what comes.

        Raises:
            LineCut: not all came.
            Untrusted: it could be somebody else who answers.
            FileExpired: it is not there any more.
            FileDamaged: it has another size.
            KestrelError: the share refused it.
        """
        url, connection = self._open(address)
        headers = {"Range": f"bytes={from_bytes}-"} if from_bytes else {}
        try:
            connection.request("GET", _path(url), headers=headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(address, error) from None
        if answer.status not in (200, 206):
            self.close()
            raise _refused(address, answer)
        if answer.status == 206:
            # Prosody 0.12 says one byte too many as the end: only the start is looked at.
            found = re.match(r"bytes (\d{1,18})-", answer.getheader("Content-Range", ""))
            if found is None or int(found[1]) != from_bytes:
                self.close()
                raise LineCut(address, "it sent another part than was asked for")
        # A server that knows no ranges sends all of it: what is there already is passed over.
        known_bytes = from_bytes if answer.status == 200 else 0
        left_bytes = to_bytes - from_bytes + known_bytes
        if answer.length is not None and answer.length != left_bytes:
            self.close()
            raise FileDamaged(
                "a file came damaged from the file share",
                cause=f"{answer.length:,} bytes are offered where {left_bytes:,} are missing",
            )
        buffer = memoryview(bytearray(min(CHUNK_BYTES, left_bytes)))
        while left_bytes:
            try:
                read_bytes = answer.readinto(buffer[:left_bytes])
            except (OSError, http.client.HTTPException) as error:
                raise self._failed(address, error) from None
            if not read_bytes:
                self.close()
                raise LineCut(address, "the connection was closed before the end")
            add(buffer[min(known_bytes, read_bytes) : read_bytes])
            known_bytes -= min(known_bytes, read_bytes)
            left_bytes -= read_bytes
        if not answer.isclosed() and answer.read(1):
            self.close()  # more than was promised; the hash decides about the rest

    def _open(self, address: str) -> tuple[SplitResult, http.client.HTTPConnection]:
        try:
            url = urlsplit(address)
            host, port = url.hostname or "", url.port
        except ValueError as error:
            raise KestrelError(
                "the file share has an impossible address", cause=str(error)
            ) from None
        if url.scheme == "http" and not is_loopback(host):
            raise Untrusted(
                f"the file would be exchanged with {host} in the clear",
                cause="the address begins with http://, and the server is not on this machine",
            )
        if url.scheme not in ("http", "https") or not host:
            raise KestrelError(
                "the file share has an impossible address", cause="it is neither http nor https"
            )
        if self._is_cut.is_set():
            raise KestrelError("the transfer was given up")
        if self._connection is None or self._to != (url.scheme, url.netloc):
            self.close()
            self._to = (url.scheme, url.netloc)
            self._connection = (
                http.client.HTTPConnection(host, port, timeout=SILENCE_SECONDS)
                if url.scheme == "http"
                else http.client.HTTPSConnection(
                    host, port, timeout=SILENCE_SECONDS, context=trust.context(self._ca_file)
                )
            )
        return url, self._connection

    def _failed(self, address: str, error: Exception) -> Exception:
        self.close()
        if isinstance(error, ssl.SSLError):
            host = urlsplit(address).hostname or ""
            explained = trust.explain(error, host, self._ca_file)
            if explained is not None:
                return explained
        return LineCut(address, error)


def _path(url: SplitResult) -> str:
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


def _refused(address: str, answer: http.client.HTTPResponse) -> Exception:
    words = f"it answered {answer.status} {answer.reason}"
    if answer.status in _GONE:
        return FileExpired(
            "the pool's file share does not have the file any more",
            cause=words,
            hint="files are kept for a time only: send it again",
        )
    if answer.status in _TRANSIENT:
        return LineCut(address, words)
    return KestrelError("the pool's file share does not give the file", cause=words)
