"""Files by the pool's own file share, each promise asked of a real Prosody."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import time
import weakref
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from listening import listening
from servers import encrypted_server, running
from small_disk import mounted

from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.errors import (
    FileChanged,
    FileDamaged,
    FileExpired,
    KestrelError,
    NotAllowed,
    OverQuota,
    Unreachable,
    Untrusted,
)
from kestrelctl.files import share as file_share
from kestrelctl.files.share import FileShare
from kestrelctl.protocol.upload_slots import PieceTooLarge, Slot
from kestrelctl.xmpp import prosody
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer, free_ports
from kestrelctl.xmpp.user import UserConnection, connect_user

MIB = 1024 * 1024
MODULES = Path(prosody.__file__).parent / "prosody_modules"


@pytest.fixture
async def user_of_server(private_server: PrivateServer) -> AsyncIterator[UserConnection]:
    async with logged_in(private_server) as connection:
        yield connection


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_share, "LONGEST_PAUSE_SECONDS", 0.05)


@contextlib.asynccontextmanager
async def logged_in(
    server: PrivateServer, name: str = "alice", host: str = ""
) -> AsyncIterator[UserConnection]:
    jid = f"{name}@{host or server.users_domain}"
    password = server.add_account(jid)
    async with connect_user(
        jid, password, server.domain, LOOPBACK, server.client_port, tls=False
    ) as connection:
        yield connection


def reconfigured(server: PrivateServer, option: str, value: object) -> PrivateServer:
    """With another value for an option of the share; before it is started."""
    file = server.directory / "prosody.cfg.lua"
    lines = file.read_text().splitlines()
    found = [n for n, line in enumerate(lines) if line.strip().startswith(f"{option} =")]
    if found:
        lines[found[0]] = f"    {option} = {value}"
    else:
        lines.append(f"    {option} = {value}")
    file.write_text("\n".join(lines) + "\n")
    return server


def large(path: Path, size_bytes: int = 5 * MIB + 7) -> Path:
    path.write_bytes(os.urandom(size_bytes))
    return path


@dataclass
class Cutting:
    """A proxy that ends connections after so many bytes of an answer, and counts them.

    Attributes:
        after_bytes: of each of the next connections; then none is cut.
        asked: the first line and the ranges of all requests.
        connections, open_now: how many came, and are there.
    """

    port: int
    to_port: int
    after_bytes: list[int]
    asked: list[str]
    upwards: bool = False
    connections: int = 0
    open_now: int = 0

    def through(self, url: str) -> str:
        return url.replace(f":{self.to_port}/", f":{self.port}/")

    def of(self, stored: StoredFile) -> StoredFile:
        """The same file, to be read through here."""
        pieces = tuple(
            msgspec.structs.replace(piece, url=self.through(piece.url)) for piece in stored.pieces
        )
        return msgspec.structs.replace(stored, pieces=pieces)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        up, down = await asyncio.open_connection(LOOPBACK, self.to_port)
        most = self.after_bytes.pop(0) if self.after_bytes else None
        request = asyncio.create_task(self._copy(reader, down, most if self.upwards else None))
        answer = asyncio.create_task(self._copy(up, writer, None if self.upwards else most))
        self.open_now += 1
        try:
            await asyncio.wait((request, answer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.open_now -= 1
            for each in (request, answer):
                each.cancel()
            for each in (writer, down):
                each.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536 if most is None else min(65536, most)):
                head = data.partition(b"\r\n\r\n")[0].decode(errors="replace").splitlines()
                if head[0].endswith("HTTP/1.1"):
                    ranges = [line for line in head if line.startswith("Range:")]
                    self.asked.append(" ".join((head[0].split()[0], *ranges)))
                writer.write(data)
                await writer.drain()
                if most is not None:
                    most -= len(data)
                    if most <= 0:
                        return


@contextlib.asynccontextmanager
async def cutting(
    server: PrivateServer, *after_bytes: int, upwards: bool = False
) -> AsyncIterator[Cutting]:
    (port,) = free_ports(1)
    proxy = Cutting(port, server.http_port, list(after_bytes), [], upwards)
    async with listening(proxy.serve, port):
        yield proxy


async def test_a_file_comes_back_as_it_was_sent(
    user_of_server: UserConnection, tmp_path: Path
) -> None:
    share = FileShare(user_of_server.request_slot, piece_bytes=2 * MIB)
    for size_bytes in (0, 1, 2 * MIB, 5 * MIB + 7):
        path = large(tmp_path / "source", size_bytes)
        stored = await share.put(path)
        assert [piece.size_bytes for piece in stored.pieces] == [
            min(2 * MIB, size_bytes - start) for start in range(0, size_bytes, 2 * MIB)
        ]
        assert stored.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert "source" not in repr(stored)
        await FileShare().get(stored, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    assert {each.name for each in tmp_path.iterdir()} == {"source", "copy", "xmpp"}


async def test_workers_store_files_too(private_server: PrivateServer, tmp_path: Path) -> None:
    path = large(tmp_path / "source")
    async with logged_in(private_server, "node7", private_server.workers_domain) as worker:
        await FileShare().get(await FileShare(worker.request_slot).put(path), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


async def test_what_was_cut_off_is_read_on(
    private_server: PrivateServer, user_of_server: UserConnection, tmp_path: Path
) -> None:
    path = large(tmp_path / "source")
    stored = await FileShare(user_of_server.request_slot).put(path)
    async with cutting(private_server, 2 * MIB, MIB) as proxy:
        await FileShare().get(proxy.of(stored), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    first, *others = proxy.asked
    assert first == "GET"
    assert [each.startswith("GET Range: bytes=") for each in others] == [True, True]


async def test_small_files_come_one_after_the_other_over_one_connection_and_soon(
    private_server: PrivateServer, user_of_server: UserConnection, tmp_path: Path
) -> None:
    path = large(tmp_path / "source", 1000)
    stored = await FileShare(user_of_server.request_slot).put(path)
    share = FileShare()
    async with cutting(private_server) as proxy:
        for n in range(3):
            await share.get(proxy.of(stored), tmp_path / str(n))
    assert (len(proxy.asked), proxy.connections) == (3, 1)
    async with asyncio.timeout(3):  # it would be four with delayed acknowledgements (tcp(7))
        for n in range(100):
            await share.get(stored, tmp_path / f"again-{n}")


async def test_a_connection_that_nobody_uses_is_closed(
    private_server: PrivateServer,
    user_of_server: UserConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kestrelctl.files.share.IDLE_SECONDS", 0.1)
    path = large(tmp_path / "source", 1000)
    stored = await FileShare(user_of_server.request_slot).put(path)
    share = FileShare()
    async with cutting(private_server) as proxy:
        await share.get(proxy.of(stored), tmp_path / "first")
        async with asyncio.timeout(20):
            while proxy.open_now:
                await asyncio.sleep(0.01)
        await share.get(proxy.of(stored), tmp_path / "second")
    assert proxy.connections == 2


async def test_connections_of_a_share_that_nobody_has_any_more_are_closed_at_once(
    private_server: PrivateServer, user_of_server: UserConnection, tmp_path: Path
) -> None:
    """Not when it happens to be collected: that may be after the loop's end."""
    path = large(tmp_path / "source", 1000)
    stored = await FileShare(user_of_server.request_slot).put(path)
    share = FileShare()
    await share.get(stored, tmp_path / "copy")
    left = weakref.ref(share)
    del share
    assert left() is None


async def test_the_next_call_reads_on(
    private_server: PrivateServer,
    user_of_server: UserConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_share, "MOST_TRIES", 1)
    path = large(tmp_path / "source")
    stored = await FileShare(user_of_server.request_slot, piece_bytes=2 * MIB).put(path)
    target = tmp_path / "files" / "copy"
    target.parent.mkdir()
    async with cutting(private_server, 3 * MIB) as proxy:
        with pytest.raises(Unreachable, match="file share"):
            await FileShare().get(proxy.of(stored), target)
        assert not target.exists()
        proxy.asked.clear()
        await FileShare().get(proxy.of(stored), target)
    assert target.read_bytes() == path.read_bytes()
    assert proxy.asked[0].startswith("GET Range: bytes=")
    assert len(proxy.asked) == 2, "the first piece was there"
    assert list(target.parent.iterdir()) == [target]


async def test_what_lies_there_wrong_is_read_again(
    user_of_server: UserConnection, tmp_path: Path
) -> None:
    path = large(tmp_path / "source")
    stored = await FileShare(user_of_server.request_slot, piece_bytes=2 * MIB).put(path)
    target = tmp_path / "copy"
    draft = target.with_name(file_share._draft_name(stored, target.name))
    draft.write_bytes(path.read_bytes()[: 2 * MIB] + b"garbage" * MIB)
    await FileShare().get(stored, target)
    assert target.read_bytes() == path.read_bytes()


async def test_an_upload_that_was_cut_off_is_sent_again_to_another_place(
    private_server: PrivateServer, user_of_server: UserConnection, tmp_path: Path
) -> None:
    path = large(tmp_path / "source")
    places: list[str] = []
    async with cutting(private_server, 2 * MIB, MIB, upwards=True) as proxy:

        async def slots(size_bytes: int, filename: str) -> Slot:
            slot = await user_of_server.request_slot(size_bytes, filename)
            places.append(slot.get_url)
            return slot._replace(put_url=proxy.through(slot.put_url))

        stored = await FileShare(slots).put(path)
    assert len(set(places)) == 3
    assert [piece.url for piece in stored.pieces] == places[-1:]
    await FileShare().get(stored, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


async def test_a_share_that_is_away_is_waited_for(
    private_server: PrivateServer, user_of_server: UserConnection, tmp_path: Path
) -> None:
    failures = 3

    async def slots(size_bytes: int, filename: str) -> Slot:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Unreachable
        return await user_of_server.request_slot(size_bytes, filename)

    await FileShare(slots).put(large(tmp_path / "source"))

    async def away(size_bytes: int, filename: str) -> Slot:
        raise Unreachable

    with pytest.raises(Unreachable):
        await FileShare(away).put(tmp_path / "source")


async def test_another_file_than_the_one_that_was_sent_is_refused(
    private_server: PrivateServer, user_of_server: UserConnection, tmp_path: Path
) -> None:
    share = FileShare(user_of_server.request_slot, piece_bytes=2 * MIB)
    stored = await share.put(large(tmp_path / "source"))
    turned = msgspec.structs.replace(stored, pieces=stored.pieces[1::-1] + stored.pieces[2:])
    with pytest.raises(FileDamaged, match="damaged") as caught:
        await share.get(turned, tmp_path / "copy")
    assert caught.value.cause == "the hash of the whole is another than that of what was sent"
    (kept,) = stored_files(private_server, 1 * MIB + 7)
    kept.write_bytes(os.urandom(MIB + 7))
    with pytest.raises(FileDamaged, match="damaged"):
        await share.get(stored, tmp_path / "copy")
    assert {each.name for each in tmp_path.iterdir()} == {"source", "xmpp"}


def stored_files(server: PrivateServer, size_bytes: int | None = None) -> list[Path]:
    return [
        path
        for path in server.directory.rglob("*.bin")
        if size_bytes is None or path.stat().st_size == size_bytes
    ]


async def test_a_file_that_changes_while_it_is_sent_is_an_error(
    user_of_server: UserConnection, tmp_path: Path
) -> None:
    path = large(tmp_path / "source")

    def grow() -> None:
        with path.open("ab") as stream:
            stream.write(b"more")

    def shrink() -> None:
        os.truncate(path, 100)

    def another() -> None:
        shutil.copy(path, tmp_path / "other")
        (tmp_path / "other").replace(path)

    for change in (grow, shrink, another, path.unlink):
        left = 2

        async def slots(size_bytes: int, filename: str) -> Slot:
            nonlocal left
            left -= 1
            if not left:
                change()  # noqa: B023
            return await user_of_server.request_slot(size_bytes, filename)

        large(path)
        with pytest.raises(FileChanged, match="changed while it was sent"):
            await FileShare(slots, piece_bytes=3 * MIB).put(path)


async def test_pieces_are_as_large_as_the_share_allows(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    reconfigured(server, "http_file_share_size_limit", MIB)
    path = large(tmp_path / "source")
    async with running(server), logged_in(server) as user:
        with pytest.raises(PieceTooLarge, match="1,048,576"):
            await user.request_slot(MIB + 1, "piece")
        stored = await FileShare(user.request_slot).put(path)
        assert [piece.size_bytes for piece in stored.pieces] == [MIB] * 5 + [7]
        await FileShare().get(stored, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


async def test_a_strangers_account_gets_no_place(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    with (server.directory / "prosody.cfg.lua").open("a") as file:
        file.write('VirtualHost "elsewhere.localhost"\n')
    async with running(server), logged_in(server, host="elsewhere.localhost") as stranger:
        with pytest.raises(NotAllowed, match="may not store files"):
            await stranger.request_slot(1, "piece")


async def test_nobody_uploads_without_a_place(
    private_server: PrivateServer, user_of_server: UserConnection, tmp_path: Path
) -> None:
    slot = await user_of_server.request_slot(10, "piece")
    for headers in ("", "Authorization: Bearer guess\r\n"):
        reader, writer = await asyncio.open_connection(LOOPBACK, private_server.http_port)
        writer.write(
            f"PUT {urlsplit(slot.put_url).path} HTTP/1.1\r\nHost: {LOOPBACK}\r\n{headers}"
            "Content-Length: 10\r\n\r\n0123456789".encode()
        )
        status = (await reader.readline()).split()[1]
        writer.close()
        assert status in (b"401", b"403"), "the first is Prosody 0.12's, the second Prosody 13's"
    with pytest.raises(FileExpired):
        await FileShare().get(of_url(slot.get_url, b"0123456789"), tmp_path / "copy")


def of_url(url: str, content: bytes) -> StoredFile:
    sha256 = hashlib.sha256(content).hexdigest()
    piece: Mapping[str, object] = {"sha256": sha256, "size_bytes": len(content), "url": url}
    return msgspec.convert(
        {"sha256": sha256, "size_bytes": len(content), "pieces": [piece]}, StoredFile
    )


async def test_files_expire_also_while_the_server_is_up_for_a_moment_only(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    async with running(server), logged_in(server) as user:
        stored = await FileShare(user.request_slot).put(large(tmp_path / "source"))
        await FileShare().get(stored, tmp_path / "copy")
    for noted in server.directory.rglob("cron.dat"):
        noted.unlink()  # as if it had been up for the first time
    reconfigured(server, "http_file_share_expires_after", 0)
    async with running(server):
        while stored_files(server):
            await asyncio.sleep(0.05)
        with pytest.raises(FileExpired, match="any more"):
            await FileShare().get(stored, tmp_path / "copy")


async def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    path = large(tmp_path / "source")
    async with running(server), logged_in(server) as user:
        stored = await FileShare(user.request_slot).put(path)
    reconfigured(server, "kestrel_slots_account_percent", 100)
    reconfigured(server, "kestrel_slots_bytes_of_all", 6 * MIB)
    async with running(server), logged_in(server, "bob") as user:
        await FileShare().get(stored, tmp_path / "copy")
        with pytest.raises(OverQuota, match="no more"):
            await FileShare(user.request_slot).put(path)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "end", [b'item({\n\t["key"] = "x', b"\0" * 4096, b"item({\n\t[\0\0\0\0", b"   item(\n"]
)
async def test_a_list_of_files_that_was_cut_off_is_read_up_to_there(
    tmp_path: Path, end: bytes
) -> None:
    """A power failure leaves half of what was written last, or zeros."""
    server = PrivateServer.create(tmp_path / "xmpp")
    path = large(tmp_path / "source", 7)
    async with running(server), logged_in(server) as user:
        stored = [await FileShare(user.request_slot).put(path) for _ in range(2)]
    [log] = server.directory.rglob("kestrel_slots.list")
    whole = log.read_bytes()
    log.write_bytes(whole + end)
    for _ in range(2):  # the next start finds it mended
        async with running(server), logged_in(server, "bob") as user:
            for each in stored:
                await FileShare().get(each, tmp_path / "copy")
            stored.append(await FileShare(user.request_slot).put(path))
    assert log.with_name(f"{log.name}.damaged").read_bytes() == whole + end
    said = "".join(file.read_text() for file in server.directory.rglob("*.log"))
    assert said.count("2 uploads before it are known") == 1


async def test_an_account_stores_so_much_a_day_and_no_more(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    reconfigured(server, "kestrel_slots_account_bytes_per_day", 6 * MIB)
    path = large(tmp_path / "source")
    async with running(server), logged_in(server) as alice, logged_in(server, "bob") as bob:
        await FileShare(alice.request_slot).put(path)
        with pytest.raises(OverQuota, match="no more"):
            await FileShare(alice.request_slot).put(path)
        await FileShare(bob.request_slot).put(path)


async def test_an_account_has_a_bounded_number_of_files(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    reconfigured(server, "kestrel_slots_of_account", 2)
    async with running(server), logged_in(server) as alice, logged_in(server, "bob") as bob:
        for _ in range(2):
            await alice.request_slot(1, "piece")
        with pytest.raises(OverQuota) as caught:
            await alice.request_slot(1, "piece")
        assert caught.value.cause == "Too many files are stored"
        await bob.request_slot(1, "piece")


async def test_a_share_on_a_full_disk_says_so(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    data = server.directory / "data"
    with mounted(data, "1m"):
        async with running(server), logged_in(server) as user:
            given = await user.request_slot(8, "piece")
            fill(data)
            with pytest.raises(KestrelError) as refused:
                await every_place(user)
            assert "can store nothing now" in refused.value.message
            assert "No space left on device" in (refused.value.cause or "")
            assert "room on the server's disk" in (refused.value.hint or "")

            async def slots(_size_bytes: int, _name: str) -> Slot:
                return given

            (tmp_path / "source").write_bytes(b"8 bytes.")
            with pytest.raises(KestrelError) as refused:
                await FileShare(slots).put(tmp_path / "source")
            assert "room on the server's disk" in (refused.value.hint or "")


async def every_place(user: UserConnection) -> None:
    """Asks for more than what the last block of the server's notes may have room for."""
    for _ in range(100):
        await user.request_slot(8, "piece")


def fill(disk: Path) -> None:
    """As somebody else who writes on this disk."""
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


async def places(user: UserConnection, size_bytes: int = MIB) -> int:
    """Asks for places, sends nothing there, and says how many there were."""
    for taken in range(100):
        try:
            await user.request_slot(size_bytes, "piece")
        except OverQuota:
            return taken
    raise AssertionError("there is no end of places")


async def test_one_account_that_sends_nothing_leaves_room_for_others_and_gets_its_own_back(
    tmp_path: Path,
) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    reconfigured(server, "kestrel_slots_bytes_of_all", 32 * MIB)
    reconfigured(server, "kestrel_slots_account_bytes_per_day", 8 * MIB)
    reconfigured(server, "kestrel_slots_unused_seconds", 2)
    path = large(tmp_path / "source")
    async with running(server), logged_in(server) as alice, logged_in(server, "bob") as bob:
        assert await places(alice) == 8, "a quarter of the share"
        stored = await FileShare(bob.request_slot).put(path)
        async with asyncio.timeout(20):
            while True:
                await asyncio.sleep(0.2)
                with contextlib.suppress(OverQuota):
                    await FileShare(alice.request_slot).put(path)
                    break
        assert await places(alice) == 2, "what was sent stays counted"
        await FileShare().get(stored, tmp_path / "copy")


async def test_a_place_is_given_back_only_when_nothing_can_be_sent_there_any_more(
    user_of_server: UserConnection,
) -> None:
    """A file that came later would be counted for nobody, and never deleted."""
    slot = await user_of_server.request_slot(1, "piece")
    claims = slot.headers["Authorization"].split(".")[1]
    holds_until = json.loads(base64.urlsafe_b64decode(claims + "=="))["exp"]
    module = (MODULES / "mod_storage_kestrel_slots.lua").read_text()
    given_back = re.search(r'"kestrel_slots_unused_seconds", (\d+)', module)
    assert given_back is not None
    assert holds_until - time.time() < float(given_back[1])


async def test_a_place_is_given_back_also_over_a_restart_and_never_while_it_is_sent_to(
    tmp_path: Path,
) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    reconfigured(server, "kestrel_slots_bytes_of_all", 32 * MIB)
    async with running(server), logged_in(server) as alice:
        assert await places(alice) == 8
    reconfigured(server, "kestrel_slots_unused_seconds", 1)
    async with running(server), logged_in(server) as alice:
        await asyncio.sleep(1.2)
        slot = await alice.request_slot(8 * MIB, "piece")
        url = urlsplit(slot.put_url)
        reader, writer = await asyncio.open_connection(LOOPBACK, server.http_port)
        token = slot.headers["Authorization"]
        head = f"PUT {url.path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nAuthorization: {token}\r\n"
        writer.write(f"{head}Content-Length: {8 * MIB}\r\n\r\n".encode() + b"first")
        await writer.drain()
        for _ in range(3):
            await asyncio.sleep(1.1)
            assert await places(alice) == 0, "it is being sent to"
        writer.write(bytes(8 * MIB - 5))
        await writer.drain()
        assert b" 201 " in await reader.readline()
        writer.close()
        await asyncio.sleep(1.1)
        assert await places(alice) == 0, "it was sent"


async def test_the_share_of_a_pool_with_tls_is_trusted_like_its_server(tmp_path: Path) -> None:
    path = large(tmp_path / "source")
    async with encrypted_server(tmp_path) as server, server.connect("alice") as user:
        share = FileShare(user.request_slot, ca_file=server.authority.file)
        stored = await share.put(path)
        assert {urlsplit(piece.url).scheme for piece in stored.pieces} == {"https"}
        await share.get(stored, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == path.read_bytes()
        with pytest.raises(Untrusted, match="not trusted"):
            await FileShare().get(stored, tmp_path / "other")
        with pytest.raises(Untrusted, match="not trusted"):
            await FileShare(user.request_slot).put(path)


async def test_a_transfer_that_is_given_up_ends(
    private_server: PrivateServer, user_of_server: UserConnection, tmp_path: Path
) -> None:
    stored = await FileShare(user_of_server.request_slot).put(large(tmp_path / "source"))
    connected = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        while await reader.read(65536):
            pass

    share = FileShare()
    async with listening(silent) as port:
        asked = stored.pieces[0].url.replace(f":{private_server.http_port}/", f":{port}/")
        piece = msgspec.structs.replace(stored.pieces[0], url=asked)
        transfer = asyncio.create_task(
            share.get(msgspec.structs.replace(stored, pieces=(piece,)), tmp_path / "copy")
        )
        await connected.wait()
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        await asyncio.to_thread(share._threads.shutdown)
