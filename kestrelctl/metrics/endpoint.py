"""The HTTP side: `/metrics`, `/-/healthy` and `/-/ready`, and nothing else.

It runs on the event loop of the daemon itself: a page is rendered in one go, so that all its
numbers are of one moment and add up, and nothing has to be locked. A thread with a server of its
own would read the pool while it changes. The price is that the loop stands still for the time of
a scrape (`kestrel_scrape_seconds`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Callable

from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.metrics.readers import Readers

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 8192
#: How long a client may take to ask, and to read the answer.
PATIENCE_SECONDS = 5.0
#: With more clients than this, the oldest that has not asked yet is sent away. More than twice what
#: asyncio accepts in one turn of the loop: a client that asks at once is heard before those that
#: came after it can push it out.
MAX_CLIENTS = 256

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TEXT_TYPE = "text/plain; charset=utf-8"
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; an IPv6 address stands in brackets.

    Raises:
        UsageError: it is none.
    """
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in bare and bare == host) or not port.isdecimal():
        raise UsageError(f"{text!r} is not HOST:PORT", hint="for example 127.0.0.1:9437")
    if len(port) > 5 or int(port) > 65535:
        raise UsageError(f"{host}:{port[:20]} is no address", cause="the highest port is 65535")
    return bare, int(port)


def listen(text: str) -> socket.socket:
    """Takes an address at which metrics are served later; whoever connects before that waits.

    Args:
        text: HOST:PORT.

    Raises:
        UsageError: it is no address.
        KestrelError: it cannot be had.
    """
    host, port = parse_address(text)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        raise KestrelError(
            f"metrics cannot be served at {text}",
            cause=_why(error),
            hint="give --metrics another address, or '' for none",
        ) from None


def check_free(text: str) -> None:
    """Passes if metrics could be served there now.

    Args:
        text: HOST:PORT.

    Raises:
        UsageError: it is no address, or cannot be had.
    """
    try:
        listen(text).close()
    except UsageError:
        raise
    except KestrelError as error:
        raise UsageError(error.message, cause=error.cause, hint=error.hint) from None


class Endpoint:
    """Answers Prometheus, and health checks.

    Args:
        render: the page of metrics.
        why_not_ready: why the process cannot do its work now; empty if it can.
        readers: the clients that it answers; all others are refused.
    """

    def __init__(
        self,
        render: Callable[[], bytes],
        why_not_ready: Callable[[], str],
        readers: Readers,
    ) -> None:
        self._render = render
        self._why_not_ready = why_not_ready
        self._readers = readers
        self._server: asyncio.Server | None = None
        #: Clients in the order in which they came, and whether each has asked.
        self._clients: dict[asyncio.Task[None], bool] = {}

    async def start(self, listening: socket.socket) -> None:
        """Starts to serve; `stop` closes the socket.

        Args:
            listening: see `listen`.
        """
        self._server = await asyncio.start_server(
            self._accept, sock=listening, limit=MAX_REQUEST_BYTES
        )
        log.info("metrics at %s", self.url)

    @property
    def url(self) -> str:
        """The address of the page."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    async def stop(self) -> None:
        """Stops listening, and ends every connection."""
        if self._server is not None:
            self._server.close()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            self._send_one_away()
        client = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients[client] = False

        def gone(client: asyncio.Task[None]) -> None:
            self._clients.pop(client, None)
            writer.transport.abort()  # here, because a task may be cancelled before it begins

        client.add_done_callback(gone)

    def _send_one_away(self) -> None:
        """Ends the oldest connection of those that have not asked, or else the oldest."""
        silent = (client for client, asked in self._clients.items() if not asked)
        client = next(silent, None) or next(iter(self._clients))
        del self._clients[client]
        client.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                peer = writer.get_extra_info("peername")
                if peer is None:  # it has left
                    return
                answer = await self.answer(reader, peer[0])
                client = asyncio.current_task()
                if client in self._clients:
                    self._clients[client] = True
                writer.write(answer)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            log.debug("a client of the metrics left before it had the whole answer")

    async def answer(self, reader: asyncio.StreamReader, peer: str) -> bytes:
        """The whole answer to what a client at that address asks."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return _response(408, "the request did not come\n")
        except asyncio.LimitOverrunError:
            return _response(431, f"more than {MAX_REQUEST_BYTES} bytes\n")
        if not self._readers.admit(peer):
            return _response(403, f"{peer} may not read this; see --metrics-allow\n")
        asked = _REQUEST_LINE.fullmatch(head.partition(b"\r\n")[0])
        if asked is None:
            return _response(400, "this is no HTTP request\n")
        method, target = asked[1].decode(), asked[2].decode()
        if method not in ("GET", "HEAD"):
            return _response(405, "only GET and HEAD\n")
        status, page, kind = self._page(target.partition("?")[0])
        return _response(status, page, kind, head_only=method == "HEAD")

    def _page(self, path: str) -> tuple[int, bytes | str, str]:
        if path == "/metrics":
            try:
                return 200, self._render(), _METRICS_TYPE
            except Exception:
                log.exception("the metrics could not be collected")
                return 500, "the metrics could not be collected; the log says why\n", _TEXT_TYPE
        if path == "/-/healthy":
            return 200, "healthy\n", _TEXT_TYPE
        if path == "/-/ready":
            why_not = self._why_not_ready()
            return (503, f"{why_not}\n", _TEXT_TYPE) if why_not else (200, "ready\n", _TEXT_TYPE)
        return 404, "see /metrics, /-/healthy and /-/ready\n", _TEXT_TYPE


def _why(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _response(
    status: int, page: bytes | str, kind: str = _TEXT_TYPE, *, head_only: bool = False
) -> bytes:
    body = page.encode() if isinstance(page, str) else page
    head = [
        f"HTTP/1.1 {status} {_PHRASES[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if status == 405:
        head.append("Allow: GET, HEAD")
    return "\r\n".join([*head, "", ""]).encode() + (b"" if head_only else body)
