"""Files on the web, as fsspec reads them.

fsspec takes a file of the web for one that never changes: its `ukey` is made of the address alone,
and its `info` says of each error that the file is not there. So the identity is made of what `info`
tells, and errors are told by what they come from
(https://filesystem-spec.readthedocs.io/en/latest/_modules/fsspec/implementations/http.html).
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urljoin

import aiohttp
from fsspec.implementations.http import HTTPFileSystem

from kestrelctl.core.model.files.addresses import problem_with_address, shown
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, Unreachable, Untrusted
from kestrelctl.worker.addresses.addressed_files import PIECE_BYTES, AddressedFile

#: Without compression the size is that of the file.
_HEADERS = {"Accept-Encoding": "identity"}
_AGAIN = (408, 425, 429)


class _Elsewhere(Exception):
    """A server sends us where we do not go."""


class WebFile:
    """The file at one `https:` or `http:` address.

    Certificates are checked against the authorities that OpenSSL knows, which SSL_CERT_FILE names
    (SSL_CTX_load_verify_locations(3)). Proxies and passwords of the worker's user are not used.

    Args:
        address: as `core.model.files.addresses` takes them.
        known: the job says the hash of what is there.
        silence_seconds: the longest time in which nothing may come.
    """

    def __init__(self, address: str, *, known: bool, silence_seconds: float) -> None:
        self._address = address
        self._known = known
        self._silence_seconds = silence_seconds
        self._files: Any = None

    async def identity(self) -> str:
        """Returns the server's marks of this state of it; empty if it gives none."""
        with self._telling():
            info = await (await self._ready())._info(self._address)
        marks = [info.get(name) for name in ("ETag", "Content-MD5", "Digest", "Last-Modified")]
        return f"{marks} {info.get('size')}" if any(marks) else ""

    async def each(self) -> AsyncIterator[AddressedFile]:
        """The one file."""
        yield AddressedFile((), False, self._pieces())

    async def _pieces(self) -> AsyncIterator[bytes]:
        with self._telling():
            files = await self._ready()
            # With a size given, fsspec does not ask for it first: the server may not know it.
            file = await files.open_async(self._address, size=0, headers=_HEADERS)
            try:
                collected = bytearray()
                while some := await file.read(PIECE_BYTES):
                    collected += some
                    if len(collected) >= PIECE_BYTES:
                        yield bytes(collected)
                        collected.clear()
                yield bytes(collected)
            finally:
                await file.close()

    async def close(self) -> None:
        """Ends the connections."""
        if self._files is not None:
            session = await self._files.set_session()
            await session.close()

    async def _ready(self) -> Any:
        if self._files is None:
            tracing = aiohttp.TraceConfig()
            tracing.on_request_redirect.append(self._check_redirect)
            quiet = self._silence_seconds
            self._files = HTTPFileSystem(
                asynchronous=True,
                skip_instance_cache=True,
                encoded=True,
                get_client=self._client,
                client_kwargs={
                    "trace_configs": [tracing],
                    "timeout": aiohttp.ClientTimeout(None, quiet, quiet, quiet),
                },
            )
        return self._files

    @staticmethod
    async def _client(**options: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context())
        options.pop("loop", None)
        return aiohttp.ClientSession(connector=connector, **options)

    async def _check_redirect(self, _session: Any, _context: Any, request: Any) -> None:
        """Refuses to go where an address could not have led itself."""
        headers = request.response.headers
        there = urljoin(str(request.url), headers.get("Location") or headers.get("URI") or "")
        there = there.partition("#")[0]
        insecure = there.startswith("http:") and str(request.url).startswith("https:")
        web = there.startswith(("https:", "http:"))
        problem = problem_with_address(there, known=self._known)
        if problem or insecure or not web:
            raise _Elsewhere(f"the server leads to {shown(there)[:200]}")

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Turns errors into ours, by what they come from."""
        try:
            yield
        except (OSError, ValueError, aiohttp.ClientError, _Elsewhere) as error:
            cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
            raise self._told(cause or error) from None

    def _told(self, error: BaseException) -> KestrelError:
        place = shown(self._address)
        if isinstance(error, FileNotFoundError):
            return NotFound(f"{place} is not there")
        if isinstance(error, aiohttp.ClientResponseError):
            status = f"{error.status} {error.message}".strip()
            if error.status in (404, 410):
                return NotFound(f"{place} is not there", cause=status)
            if error.status in (401, 403, 407):
                return NotAllowed(f"{place} is not for everybody", cause=status)
            if error.status >= 500 or error.status in _AGAIN:
                return Unreachable(f"{place} cannot be had now", cause=status)
            return KestrelError(f"{place} cannot be had", cause=status)
        if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
            return Untrusted(f"{place} cannot prove what it is", cause=str(error))
        if isinstance(error, TimeoutError):
            return Unreachable(f"{place}: nothing came for {self._silence_seconds:g} s")
        if isinstance(error, _Elsewhere):
            return NotAllowed(f"{place} is somewhere else", cause=str(error))
        if isinstance(error, (aiohttp.InvalidURL, ValueError)):
            return KestrelError(f"{place} is no address")
        return Unreachable(f"{place} cannot be reached", cause=str(error) or repr(error))
