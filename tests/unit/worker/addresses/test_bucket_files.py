"""Inputs at `s3:` addresses, up to where s3fs asks the server: a double of it is here instead."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kestrelctl.core.model.files.inputs import Input
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, Unreachable
from kestrelctl.worker.addresses import bucket_files
from kestrelctl.worker.addresses.address_reader import AddressReader
from kestrelctl.worker.addresses.address_state import AddressState

KEYS = {"AWS_ACCESS_KEY_ID": "task", "AWS_SECRET_ACCESS_KEY": "secret"}


class Client:
    """What s3fs holds open."""

    closed = 0

    async def close(self) -> None:
        Client.closed += 1


class Body:
    """An object that is read."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    async def read(self, size: int) -> bytes:
        some, self.text = self.text[:size], self.text[size:]
        return some


class Buckets:
    """As `s3fs.S3FileSystem` is used.

    Attributes:
        made: what each was made with.
        objects: by bucket and key.
        cut_bytes: how much is missing of each that is read.
        error: what every call ends with.
    """

    made: ClassVar[list[dict[str, Any]]] = []
    objects: ClassVar[dict[str, bytes]] = {}
    cut_bytes = 0
    error: Exception | None = None

    def __init__(self, **options: Any) -> None:
        self.made.append(options)
        self._s3 = Client()

    def _of(self, path: str) -> dict[str, Any]:
        text = self.objects[path]
        tag = hashlib.md5(text).hexdigest()
        return {"name": path, "type": "file", "size": len(text), "ETag": tag}

    async def _info(self, path: str, *, refresh: bool) -> Mapping[str, Any]:
        assert refresh
        if self.error is not None:
            raise self.error
        if path in self.objects:
            return self._of(path)
        if any(each.startswith(f"{path}/") for each in self.objects):
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    async def _find(self, path: str, *, detail: bool, refresh: bool) -> Mapping[str, Any]:
        assert detail
        assert refresh
        return {each: self._of(each) for each in self.objects if each.startswith(f"{path}/")}

    async def open_async(self, path: str) -> Body:
        text = self.objects[path]
        return Body(text[: len(text) - self.cut_bytes])


@pytest.fixture
def buckets(monkeypatch: pytest.MonkeyPatch) -> type[Buckets]:
    monkeypatch.setattr(bucket_files.s3fs, "S3FileSystem", Buckets)
    monkeypatch.setattr(Buckets, "made", [])
    monkeypatch.setattr(Client, "closed", 0)
    objects = {"bucket/x": b"alpha", "bucket/model/a": b"a", "bucket/model/lib/b": b"b"}
    monkeypatch.setattr(Buckets, "objects", objects)
    return Buckets


class Desk:
    """A worker that reads at addresses for a task."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.reader = AddressReader(sleep=self._go_on)

    async def _go_on(self, _seconds: float) -> None:
        """Does not wait."""

    async def identity(self, address: str, **variables: str) -> str:
        return await self.reader.identity(self._wanted(address), variables)

    async def get(self, address: str, *, sha256: str = "", **variables: str) -> None:
        wanted = self._wanted(address, sha256)
        await self.reader.get(AddressState(wanted, variables, "", "x"), self.target, lambda _: None)

    def _wanted(self, address: str, sha256: str = "") -> Input:
        directory = address.endswith("/")
        return Input(name="in", address=address, directory=directory, sha256=sha256)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "target")


async def test_an_object_is_a_file_and_all_below_a_key_a_directory(
    buckets: type[Buckets], desk: Desk
) -> None:
    await desk.get("s3://bucket/x")
    assert desk.target.read_bytes() == b"alpha"
    await desk.get("s3://bucket/model/")
    found = {str(p.relative_to(desk.target)) for p in desk.target.rglob("*") if p.is_file()}
    assert found == {"a", "lib/b"}
    assert len(buckets.made) == Client.closed == 2


async def test_the_keys_are_those_of_the_task_and_never_the_worker_s(
    buckets: type[Buckets], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, f"{value} of the worker")
    monkeypatch.setenv("AWS_PROFILE", "worker")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://of.the.worker")
    await desk.get("s3://bucket/x", **KEYS, AWS_SESSION_TOKEN="token", AWS_REGION="moon")
    await desk.get("s3://bucket/x")
    named, anybody = buckets.made
    assert (named["key"], named["secret"], named["token"]) == ("task", "secret", "token")
    assert named["client_kwargs"] == {"region_name": "moon"}
    assert (named["anon"], anybody["anon"]) == (False, True)
    for made in buckets.made:
        assert made["endpoint_url"] is None
        assert made["config_kwargs"]["ignore_configured_endpoint_urls"]
        session = made["session"]
        assert session.profile is None
        for name in ("config_file", "credentials_file"):
            assert session.get_config_variable(name) == "/dev/null"


async def test_the_task_says_where_the_buckets_are_and_not_over_an_open_line(
    buckets: type[Buckets], desk: Desk
) -> None:
    for place in ("https://minio.example.org", "http://127.0.0.1:9000"):
        await desk.get("s3://bucket/x", **KEYS, AWS_ENDPOINT_URL=place)
        assert buckets.made[-1]["endpoint_url"] == place
    for place in ("http://minio.example.org", "file:///etc"):
        with pytest.raises(NotAllowed, match="https"):
            await desk.get("s3://bucket/x", **KEYS, AWS_ENDPOINT_URL=place)
    sha256 = hashlib.sha256(b"alpha").hexdigest()
    await desk.get("s3://bucket/x", sha256=sha256, AWS_ENDPOINT_URL="http://minio.example.org")


async def test_it_is_known_by_what_the_server_calls_it_and_by_the_server(
    buckets: type[Buckets], desk: Desk
) -> None:
    found = [await desk.identity("s3://bucket/model/")]
    assert found[0] == await desk.identity("s3://bucket/model/")
    found.append(await desk.identity("s3://bucket/model/", AWS_ENDPOINT_URL="https://other"))
    buckets.objects["bucket/model/a"] = b"c"
    found.append(await desk.identity("s3://bucket/model/"))
    buckets.objects["bucket/model/c"] = b"c"
    found.append(await desk.identity("s3://bucket/model/"))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("key", ["../../etc/x", "a/../x", "a//x", "./x", "a\0x", "x" * 256])
async def test_a_key_that_is_no_path_is_refused(
    buckets: type[Buckets], desk: Desk, key: str
) -> None:
    buckets.objects[f"bucket/model/{key}"] = b"x"
    with pytest.raises(KestrelError, match="is no path"):
        await desk.get("s3://bucket/model/")


@pytest.mark.parametrize("key", ["weights", "weights/deep/er"])
async def test_keys_that_no_directory_can_hold_are_refused(
    buckets: type[Buckets], desk: Desk, key: str
) -> None:
    """The worker was blamed for it, which it is not: each would fail at it."""
    buckets.objects |= {f"bucket/made/{key}": b"x", f"bucket/made/{key}/x": b"x"}
    with pytest.raises(KestrelError, match="both a file and a directory"):
        await desk.get("s3://bucket/made/")


async def test_what_is_cut_off_is_not_taken_for_the_whole(
    buckets: type[Buckets], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Buckets, "cut_bytes", 1)
    with pytest.raises(Unreachable, match="cut off"):
        await desk.get("s3://bucket/x")


async def test_what_cannot_be_had_is_told(
    buckets: type[Buckets], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in ("s3://bucket/gone", "s3://bucket/gone/", "s3://bucket/model"):
        with pytest.raises(NotFound):
            await desk.get(address)
    for error, ours in (
        (PermissionError("no"), NotAllowed),
        (TimeoutError("slow"), Unreachable),
        (OSError("odd"), KestrelError),
    ):
        monkeypatch.setattr(Buckets, "error", error)
        with pytest.raises(ours) as told:
            await desk.get("s3://bucket/x")
        assert type(told.value) is ours
