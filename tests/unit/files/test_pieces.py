"""Files in pieces: what describes one, and how a place for a piece is asked for."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlsplit
from xml.etree import ElementTree

import msgspec
import pytest

from kestrelctl.core.model.files.stored_file import Piece, StoredFile, problem_with_stored_file
from kestrelctl.errors import (
    FileChanged,
    FileDamaged,
    KestrelError,
    NoSpace,
    NotAllowed,
    NotFound,
    OverQuota,
    Untrusted,
)
from kestrelctl.files import share as file_share
from kestrelctl.files.connection import Line, LineCut
from kestrelctl.files.share import FileShare
from kestrelctl.protocol.upload_slots import (
    NAMESPACE,
    PieceTooLarge,
    Slot,
    slot_in,
    slot_request,
)
from kestrelctl.xmpp.slots import request_slot
from kestrelctl.xmpp.xmpp_session import IqRefused, XmppSession

HASH = hashlib.sha256(b"whole").hexdigest()
PIECE = Piece(sha256=HASH, size_bytes=5, url="https://pool.example.org/file_share/x/piece")
STORED = StoredFile(sha256=HASH, size_bytes=5, pieces=(PIECE,))


def test_a_file_may_be_empty_or_have_pieces() -> None:
    assert problem_with_stored_file(STORED) is None
    assert problem_with_stored_file(StoredFile(sha256=HASH, size_bytes=0, pieces=())) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"sha256": HASH.upper()},
        {"sha256": "../../etc/passwd"},
        {"size_bytes": 6},
        {"size_bytes": -1},
        {"pieces": ()},
        {"pieces": (msgspec.structs.replace(PIECE, sha256="0"),)},
        {"pieces": (msgspec.structs.replace(PIECE, url="file:///etc/passwd"),)},
        {"pieces": (msgspec.structs.replace(PIECE, url="https://pool.example.org/é"),)},
        {"pieces": (msgspec.structs.replace(PIECE, url="https://pool.example.org/a b"),)},
        {"pieces": (msgspec.structs.replace(PIECE, url=f"https://{'a' * 64}.org/x"),)},
        {"pieces": (msgspec.structs.replace(PIECE, url="https://pool.example.org:x/x"),)},
        {"pieces": (PIECE, msgspec.structs.replace(PIECE, size_bytes=0))},
        {"pieces": (msgspec.structs.replace(PIECE, size_bytes=-5), *(PIECE,) * 2)},
    ],
)
async def test_what_describes_no_file_is_fetched_from_nowhere(
    wrong: dict[str, object], tmp_path: Path
) -> None:
    described = msgspec.structs.replace(STORED, **wrong)
    assert problem_with_stored_file(described)
    with pytest.raises(FileDamaged, match="no file of a file share"):
        await FileShare().get(described, tmp_path / "target")


def answered(inner: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<iq xmlns='jabber:client'>{inner}</iq>")


def test_a_place_is_read_from_an_answer() -> None:
    slot = slot_in(
        answered(
            f"<slot xmlns='{NAMESPACE}'><put url='https://p'><header name='Authorization'>"
            "Bearer a\nb</header><header name='Host'>elsewhere</header></put>"
            "<get url='https://g'/></slot>"
        )
    )
    assert slot == Slot("https://p", "https://g", {"Authorization": "Bearer ab"})
    assert slot_in(answered("")) is None
    assert (
        slot_in(answered(f"<slot xmlns='{NAMESPACE}'><put url='p'/><get url='g'/></slot>")) is None
    )
    assert (
        slot_in(
            answered(
                f"<slot xmlns='{NAMESPACE}'><put url='https://p'><header name='Cookie'>é</header>"
                "</put><get url='https://g'/></slot>"
            )
        )
        is None
    )
    assert slot_in(answered(f"<slot xmlns='{NAMESPACE}'><put url='https://p'/></slot>")) is None


def test_a_request_is_well_formed_whatever_the_name() -> None:
    request = ElementTree.fromstring(slot_request(7, "a'b\"<&"))
    assert (request.get("filename"), request.get("size")) == ("a'b\"<&", "7")


class Refusing:
    """A session whose server answers by an error."""

    def __init__(self, condition: str, inner: str = "") -> None:
        self.refusal = IqRefused(condition, "why", answered(inner))

    async def ask_iq(
        self, payload: str, to: str, sender: str | None, *, kind: str
    ) -> ElementTree.Element:
        assert (to, sender, kind) == ("share.pool.example.org", None, "get")
        raise self.refusal


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("forbidden", NotAllowed),
        ("resource-constraint", OverQuota),
        ("service-unavailable", NotFound),
        ("remote-server-not-found", NotFound),
        ("bad-request", KestrelError),
    ],
)
async def test_a_refusal_says_what_it_means(condition: str, kind: type[KestrelError]) -> None:
    session = cast(XmppSession, Refusing(condition))
    with pytest.raises(KestrelError) as caught:
        await request_slot(session, "pool.example.org", 7, "piece")
    assert type(caught.value) is kind
    assert caught.value.cause


async def test_a_piece_that_is_too_large_says_how_large_one_may_be() -> None:
    most = f"<file-too-large xmlns='{NAMESPACE}'><max-file-size>9</max-file-size></file-too-large>"
    session = cast(XmppSession, Refusing("not-acceptable", f"<error>{most}</error>"))
    with pytest.raises(PieceTooLarge) as caught:
        await request_slot(session, "pool.example.org", 10, "piece")
    assert caught.value.most_bytes == 9


async def test_a_size_of_thousands_of_digits_is_none() -> None:
    most = f"<file-too-large xmlns='{NAMESPACE}'><max-file-size>{'9' * 5000}</max-file-size>"
    session = cast(
        XmppSession, Refusing("not-acceptable", f"<error>{most}</file-too-large></error>")
    )
    with pytest.raises(KestrelError) as caught:
        await request_slot(session, "pool.example.org", 10, "piece")
    assert not isinstance(caught.value, PieceTooLarge)


async def test_a_share_that_takes_nothing_at_all_is_not_asked_for_ever(tmp_path: Path) -> None:
    async def slots(size_bytes: int, filename: str) -> Slot:
        raise PieceTooLarge(0)

    (tmp_path / "source").write_bytes(b"x")
    async with asyncio.timeout(10):
        with pytest.raises(PieceTooLarge):
            await FileShare(slots).put(tmp_path / "source")


@pytest.mark.parametrize("status", [401, 403, 503])
async def test_where_a_place_is_over_another_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Prosody 0.12 says 401 of a place that is over, Prosody 13 says 403."""

    class Server(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status if self.path == "/first" else 201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr(file_share, "_pause_seconds", lambda _: 0.0)
    (tmp_path / "source").write_bytes(b"whole")
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever).start()
        places = iter(["first", "second"])

        async def slots(size_bytes: int, filename: str) -> Slot:
            url = f"http://127.0.0.1:{server.server_port}/{next(places)}"
            return Slot(url, url, {})

        try:
            stored = await FileShare(slots).put(tmp_path / "source")
        finally:
            server.shutdown()
    assert [urlsplit(piece.url).path for piece in stored.pieces] == ["/second"]


async def test_a_full_disk_is_named_and_what_came_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(self: Line, *_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Line, "get", get)
    draft = tmp_path / file_share._draft_name(STORED, "target")
    draft.write_bytes(b"who")
    with pytest.raises(NoSpace, match="no space for"):
        await FileShare().get(STORED, tmp_path / "target")
    assert draft.read_bytes() == b"who"


def test_a_server_that_says_nonsense_of_the_part_it_sends_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = SimpleNamespace(status=206, getheader=lambda *_: f"bytes {'9' * 5000}-")
    connection = SimpleNamespace(
        request=lambda *_, **__: None, getresponse=lambda: answer, close=lambda: None
    )
    line = Line(None)
    monkeypatch.setattr(line, "_open", lambda address: (urlsplit(address), connection))
    with pytest.raises(LineCut, match="another part"):
        line.get(PIECE.url, 2, 5, lambda _chunk: None)


async def test_nothing_leaves_the_machine_in_the_clear(tmp_path: Path) -> None:
    url = "http://192.0.2.1/file_share/x/piece"

    async def slots(size_bytes: int, filename: str) -> Slot:
        return Slot(url, url, {})

    (tmp_path / "source").write_bytes(b"x")
    with pytest.raises(Untrusted, match="in the clear"):
        await FileShare(slots).put(tmp_path / "source")
    elsewhere = msgspec.structs.replace(PIECE, url=url)
    with pytest.raises(Untrusted, match="in the clear"):
        await FileShare().get(
            msgspec.structs.replace(STORED, pieces=(elsewhere,)), tmp_path / "target"
        )


async def test_a_file_that_was_written_to_meanwhile_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"whole")

    async def slots(size_bytes: int, filename: str) -> Slot:
        return Slot(PIECE.url, PIECE.url, {})

    def put(self: Line, slot: Slot, size_bytes: int, next_chunk: Callable[[], object]) -> None:
        while next_chunk():
            pass
        source.write_bytes(b"other")
        os.utime(source, ns=(0, 0))

    monkeypatch.setattr(Line, "put", put)
    with pytest.raises(FileChanged, match="changed while it was sent"):
        await FileShare(slots).put(source)


async def test_what_came_wrong_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(self: Line, url: str, start: int, size: int, add: Callable[[object], None]) -> None:
        add(memoryview(b"other"))

    monkeypatch.setattr(Line, "get", get)
    with pytest.raises(FileDamaged, match="damaged"):
        await FileShare().get(STORED, tmp_path / "target")
    assert list(tmp_path.iterdir()) == []


async def test_two_do_not_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def get(self: Line, url: str, start: int, size: int, add: Callable[[object], None]) -> None:
        loop.call_soon_threadsafe(inside.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        add(memoryview(b"whole"))

    monkeypatch.setattr(Line, "get", get)
    first = asyncio.create_task(FileShare().get(STORED, tmp_path / "target"))
    await inside.wait()
    try:
        with pytest.raises(KestrelError, match="fetched already"):
            await asyncio.wait_for(FileShare().get(STORED, tmp_path / "target"), 5)
    finally:
        go_on.set()
        await first
    assert (tmp_path / "target").read_bytes() == b"whole"
