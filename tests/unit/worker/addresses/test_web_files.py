"""Inputs at `https:` and `http:` addresses, from real servers on loopback that are good and bad."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.files.inputs import Input
from kestrelctl.errors import (
    FileChanged,
    FileDamaged,
    KestrelError,
    NotAllowed,
    NotFound,
    Unreachable,
    Untrusted,
)
from kestrelctl.worker.addresses.address_reader import MOST_TRIES, AddressReader
from kestrelctl.worker.addresses.address_state import AddressState


class Request(NamedTuple):
    """What a server was asked."""

    method: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


Answer = Callable[[Request], Awaitable[None]]


def answers(
    body: bytes = b"", *headers: str, status: str = "200 OK", length: int | None = None
) -> Answer:
    """Says this, and ends."""
    size = len(body) if length is None else length

    async def answer(request: Request) -> None:
        lines = (f"HTTP/1.1 {status}", f"Content-Length: {size}", "Connection: close", *headers)
        request.writer.write("\r\n".join((*lines, "", "")).encode())
        request.writer.write(b"" if request.method == "HEAD" else body)

    return answer


async def says_nothing(request: Request) -> None:
    await request.reader.read()  # until who asked has gone


async def stops_in_the_middle(request: Request) -> None:
    request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
    await request.reader.read()  # until who asked has gone


class Site:
    """A server of files.

    Attributes:
        pages: what it answers, by path.
        asked: the request lines, in order.
        heads: the requests with their headers.
        address: how it begins.
    """

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.address = ""
        self._server: asyncio.Server | None = None

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"{'https' if context else 'http'}://localhost:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split(" ", 2)
            self.asked.append(f"{method} {path}")
            self.heads.append(head)
            missing = answers(b"no", status="404 Not Found")
            await self.pages.get(f"{method} {path}", self.pages.get(path, missing))(
                Request(method, reader, writer)
            )
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    found = Site()
    await found.start()
    yield found
    await found.close()


class Desk:
    """A worker that reads at addresses."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.pauses: list[float] = []
        self.reader = AddressReader(silence_seconds=0.2, sleep=self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def get(self, address: str, *, sha256: str = "", identity: str = "") -> bytes:
        wanted = Input(name="in", address=address, sha256=sha256)
        state = AddressState(wanted, {}, identity, "x")
        await self.reader.get(state, self.target, lambda _: None)
        return self.target.read_bytes()

    async def identity(self, address: str) -> str:
        return await self.reader.identity(Input(name="in", address=address), {})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "target")


async def test_a_file_is_read_with_a_query_as_it_is_written(site: Site, desk: Desk) -> None:
    text = bytes(range(256)) * 10_000
    site.pages["/a%2Fb%7E?sig=x%2By%7E"] = answers(text)
    assert await desk.get(f"{site.address}/a%2Fb%7E?sig=x%2By%7E") == text
    assert "Authorization" not in site.heads[0]


async def test_it_is_known_by_what_the_server_calls_it(site: Site, desk: Desk) -> None:
    place = f"{site.address}/x"
    found = []
    for header in ('ETag: "1"', 'ETag: "2"', "Last-Modified: Mon, 23 Nov 2026 14:00:00 GMT"):
        site.pages["/x"] = answers(b"same", header)
        found.append(await desk.identity(place))
        assert found[-1] == await desk.identity(place)
    assert len(set(found)) == 3
    assert all(found)
    assert {asked.split()[0] for asked in site.asked} == {"HEAD"}


async def test_a_size_alone_does_not_tell_a_file_from_its_next_state(
    site: Site, desk: Desk
) -> None:
    site.pages["/x"] = answers(b"same")
    assert await desk.identity(f"{site.address}/x") == ""


async def test_where_nobody_may_ask_for_its_head_it_is_asked_for_itself(
    site: Site, desk: Desk
) -> None:
    site.pages["HEAD /x"] = answers(status="403 Forbidden")
    site.pages["GET /x"] = answers(b"x", 'ETag: "1"')
    assert '"1"' in await desk.identity(f"{site.address}/x")


async def test_one_that_changes_meanwhile_is_not_taken(site: Site, desk: Desk) -> None:
    site.pages["/x"] = answers(b"x", 'ETag: "1"')
    before = await desk.identity(f"{site.address}/x")
    assert await desk.get(f"{site.address}/x", identity=before) == b"x"
    site.pages["/x"] = answers(b"y", 'ETag: "2"')
    with pytest.raises(FileChanged):
        await desk.get(f"{site.address}/x", identity=before)


async def test_what_comes_must_have_the_hash(site: Site, desk: Desk) -> None:
    site.pages["/x"] = answers(b"x")
    assert await desk.get(f"{site.address}/x", sha256=hashlib.sha256(b"x").hexdigest()) == b"x"
    with pytest.raises(FileDamaged):
        await desk.get(f"{site.address}/x", sha256="ab" * 32)


async def test_a_reason_tells_what_a_server_says_though_that_is_no_text(
    site: Site, desk: Desk
) -> None:
    async def answer(request: Request) -> None:
        request.writer.write(b"HTTP/1.1 400 \xff\r\nContent-Length: 0\r\n\r\n")

    site.pages["/x"] = answer
    with pytest.raises(KestrelError) as refused:
        await desk.get(f"{site.address}/x")
    assert EndKind.NO_INPUT.text(refused.value.cause or "").encode() == b"no-input: 400 \\udcff"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("404 Not Found", NotFound),
        ("410 Gone", NotFound),
        ("401 Unauthorized", NotAllowed),
        ("403 Forbidden", NotAllowed),
        ("400 Bad Request", KestrelError),
        ("500 Internal Server Error", Unreachable),
        ("503 Service Unavailable", Unreachable),
        ("429 Too Many Requests", Unreachable),
    ],
)
async def test_a_server_that_has_it_not_is_told_as_what_it_said(
    site: Site, desk: Desk, status: str, error: type[KestrelError]
) -> None:
    site.pages["/x?sig=secret"] = answers(b"why", status=status)
    for work in (desk.get, desk.identity):
        desk.pauses.clear()
        with pytest.raises(error) as told:
            await work(f"{site.address}/x?sig=secret")
        assert type(told.value) is error
        assert (told.value.cause or status).startswith(status[:3])
        assert "secret" not in told.value.message
        assert len(desk.pauses) == (MOST_TRIES - 1 if error is Unreachable else 0)


async def test_what_is_cut_off_or_silent_is_tried_again_from_its_beginning(
    site: Site, desk: Desk
) -> None:
    bad = [answers(b"some", length=9), says_nothing]

    async def better(request: Request) -> None:
        await (bad.pop() if bad else answers(b"whole"))(request)

    site.pages["/x"] = better
    assert await desk.get(f"{site.address}/x") == b"whole"
    assert len(site.asked) == 3
    for page in (says_nothing, stops_in_the_middle):
        site.pages["/x"] = page
        with pytest.raises(Unreachable, match=r"nothing came for 0\.2 s"):
            await desk.get(f"{site.address}/x")
    site.pages["/x"] = answers(b"some", length=9)
    with pytest.raises(Unreachable, match="cannot be reached"):
        await desk.get(f"{site.address}/x")


async def test_nobody_at_the_address_is_told(desk: Desk, site: Site) -> None:
    await site.close()
    with pytest.raises(Unreachable, match="cannot be reached"):
        await desk.get(f"{site.address}/x")


async def test_a_server_may_lead_to_another_address_that_a_job_could_have_named(
    site: Site, desk: Desk
) -> None:
    site.pages["/x"] = answers(b"", "Location: /y", status="302 Found")
    site.pages["/y"] = answers(b"y", 'ETag: "7"')
    assert await desk.get(f"{site.address}/x") == b"y"
    assert '"7"' in await desk.identity(f"{site.address}/x")


@pytest.mark.parametrize(
    "there",
    [
        "file:///etc/passwd",
        "http://192.0.2.1/x",
        "ftp://localhost/x",
        "http://me:secret@localhost/x",
        "s3://bucket/x",
    ],
)
async def test_no_server_leads_to_where_a_job_could_not(site: Site, desk: Desk, there: str) -> None:
    site.pages["/x"] = answers(b"", f"Location: {there}", status="302 Found")
    for work in (desk.get, desk.identity):
        with pytest.raises(NotAllowed, match="somewhere else"):
            await work(f"{site.address}/x")


class Authority:
    """Signs the certificate of a server that is called localhost."""

    def __init__(self, directory: Path) -> None:
        key, self.file = directory / "key", directory / "crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", key, "-out", self.file, "-days", "1", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost"],
            check=True,
            capture_output=True,
        )  # fmt: skip
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.file, key)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def test_a_server_whose_authority_the_machine_knows_is_read_and_no_other(
    authority: Authority, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    site.pages["/x"] = answers(b"x", 'ETag: "1"')
    await site.start(authority.context)
    try:
        for work in (desk.get, desk.identity):
            with pytest.raises(Untrusted):
                await work(f"{site.address}/x")
        assert site.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert await desk.get(f"{site.address}/x") == b"x"
        with pytest.raises(Untrusted):  # the certificate is for another name
            await desk.get(f"{site.address}/x".replace("localhost", "127.0.0.1"))
    finally:
        await site.close()


async def test_no_server_leads_from_a_safe_line_to_an_open_one(
    authority: Authority, site: Site, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    safe = Site()
    site.pages["/y"] = answers(b"y")
    safe.pages["/x"] = answers(b"", f"Location: {site.address}/y", status="301 Moved")
    await safe.start(authority.context)
    try:
        with pytest.raises(NotAllowed, match="somewhere else"):
            await desk.get(f"{safe.address}/x")
        assert site.asked == []
    finally:
        await safe.close()


async def test_what_the_worker_s_user_has_set_for_himself_is_not_sent(
    site: Site, desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine localhost login me password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    from fsspec.config import conf

    monkeypatch.setitem(conf, "http", {"headers": {"X-Key": "secret"}})
    site.pages["/x"] = answers(b"x")
    assert await desk.get(f"{site.address}/x") == b"x"
    await desk.identity(f"{site.address}/x")
    assert not any("secret" in head or "Authorization" in head for head in site.heads)


async def test_a_cancel_ends_it(site: Site, desk: Desk) -> None:
    began = asyncio.Event()

    async def wait(request: Request) -> None:
        began.set()
        await request.reader.read()  # until who asked has gone

    site.pages["/x"] = wait
    reading = asyncio.create_task(desk.get(f"{site.address}/x"))
    await began.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
