"""What a worker keeps of inputs that it reads at addresses."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
from inputkit import ADA, BOB, Share, an_input

from kestrelctl.core.model.files.inputs import Input
from kestrelctl.errors import FileChanged, FileDamaged, Unreachable
from kestrelctl.worker.addresses import address_reader
from kestrelctl.worker.addresses.address_reader import AddressReader
from kestrelctl.worker.addresses.addressed_files import AddressedFile
from kestrelctl.worker.files.input_cache import MOST_CHANGES, InputCache, InputRefused


class Site:
    """A place with an address, which a test writes to.

    Attributes:
        state: what is there, and as what it is known.
        reads: how often it was read.
        on_read: called when one begins.
    """

    def __init__(self) -> None:
        self.state: tuple[bytes, str] = (b"alpha", "1")
        self.files: dict[tuple[bytes, ...], bytes] = {}
        self.reads = 0
        self.errors: list[Exception] = []
        self.on_read: Callable[[], None] = lambda: None
        self.variables: Mapping[str, str] = {}
        self.closed = True

    async def identity(self) -> str:
        return self.state[1]

    async def each(self) -> AsyncIterator[AddressedFile]:
        self.reads += 1
        if self.errors:
            raise self.errors.pop()
        for names, text in (self.files or {(): self.state[0]}).items():
            yield AddressedFile(names, False, self.pieces(text))

    async def pieces(self, text: bytes) -> AsyncIterator[bytes]:
        self.on_read()
        yield text

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
async def cache(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[InputCache]:
    async def no_pause(_seconds: float) -> None:
        """Goes on at once."""

    def files(_self: object, _wanted: Input, variables: Mapping[str, str]) -> Site:
        site.variables, site.closed = variables, False
        return site

    monkeypatch.setattr(AddressReader, "_files", files)
    found = InputCache(tmp_path / "inputs", 100, Share().get, AddressReader(sleep=no_pause), "pool")
    yield found
    await found.close()


def at_site(**more: object) -> Input:
    return Input(name="in", address="https://site/x", **more)


async def used(cache: InputCache, wanted: Input, owner: str = ADA) -> bytes:
    entry = await cache.take(owner, wanted, {"AWS_REGION": "moon"})
    try:
        return Path(entry.path).read_bytes()
    finally:
        cache.release(entry)


async def test_it_is_read_once_while_it_stays_the_same_there(cache: InputCache, site: Site) -> None:
    for _ in range(3):
        assert await used(cache, at_site()) == b"alpha"
    assert site.reads == 1
    assert (cache.hits, cache.misses, cache.fetched_bytes) == (2, 1, 5)
    assert site.variables == {"AWS_REGION": "moon"}
    assert site.closed


async def test_what_has_changed_there_is_read_anew_by_later_tasks(
    cache: InputCache, site: Site
) -> None:
    await used(cache, at_site())
    site.state = (b"bravo", "2")
    assert await used(cache, at_site()) == b"bravo"


async def test_what_nobody_can_tell_from_its_next_state_is_read_each_time(
    cache: InputCache, site: Site
) -> None:
    site.state = (b"alpha", "")
    await used(cache, at_site())
    site.state = (b"bravo", "")
    assert await used(cache, at_site()) == b"bravo"
    assert cache.used_bytes == 0


async def test_with_its_hash_it_is_kept_whatever_is_there_later_and_is_the_same_as_sent(
    cache: InputCache, site: Site
) -> None:
    sha256 = hashlib.sha256(b"alpha").hexdigest()
    assert await used(cache, at_site(sha256=sha256)) == b"alpha"
    site.state = (b"bravo", "2")
    assert await used(cache, at_site(sha256=sha256)) == b"alpha"
    assert await used(cache, an_input("alpha")) == b"alpha"
    assert site.reads == 1
    assert cache.misses == 1


async def test_another_hash_than_the_job_says_is_no_input(cache: InputCache, site: Site) -> None:
    with pytest.raises(InputRefused) as refused:
        await used(cache, at_site(sha256="ab" * 32))
    assert refused.value.message.startswith("no-input: 'in': what is there is not what the job")
    assert isinstance(refused.value.__cause__, FileDamaged)
    assert cache.used_bytes == 0


async def test_another_owner_has_it_read_for_himself(cache: InputCache, site: Site) -> None:
    await used(cache, at_site(), ADA)
    await used(cache, at_site(), BOB)
    assert site.reads == 2


async def test_one_that_changes_while_it_is_read_is_read_again(
    cache: InputCache, site: Site
) -> None:
    def change() -> None:
        site.on_read = lambda: None
        site.state = (b"bravo", "2")

    site.on_read = change
    assert await used(cache, at_site()) == b"bravo"
    assert site.reads == 2


async def test_one_that_never_stops_changing_is_refused(cache: InputCache, site: Site) -> None:
    def change() -> None:
        site.state = (b"x", f"{site.reads}")

    site.on_read = change
    site.state = (b"x", "0")
    with pytest.raises(InputRefused, match="changed while it was fetched") as refused:
        await used(cache, at_site())
    assert isinstance(refused.value.__cause__, FileChanged)
    assert site.reads == MOST_CHANGES


async def test_a_body_without_end_ends_at_the_bound_of_the_cache(
    cache: InputCache, site: Site, tmp_path: Path
) -> None:
    taken = []

    async def endless(_self: Site, _text: bytes) -> AsyncIterator[bytes]:
        while True:
            taken.append(cache.used_bytes)
            yield bytes(30)

    site.pieces = endless.__get__(site)  # type: ignore[method-assign]
    with pytest.raises(InputRefused, match="it has more than 100 bytes"):
        await used(cache, at_site())
    assert taken == [0, 30, 60, 90]
    assert cache.used_bytes == 0


async def test_what_is_under_way_has_room_set_aside_and_pushes_out_what_nobody_uses(
    cache: InputCache, site: Site
) -> None:
    await used(cache, an_input("a" * 60))
    site.state = (b"b" * 60, "1")
    await used(cache, at_site())
    assert cache.used_bytes == 60


async def test_what_cannot_be_reached_is_tried_again_and_what_is_not_there_is_not(
    cache: InputCache, site: Site
) -> None:
    site.errors = [Unreachable("cut off")] * (address_reader.MOST_TRIES - 1)
    assert await used(cache, at_site()) == b"alpha"
    site.state = (b"bravo", "2")
    site.errors = [FileDamaged("no"), FileDamaged("no")]
    with pytest.raises(InputRefused):
        await used(cache, at_site())
    assert len(site.errors) == 1


async def test_a_directory_comes_as_one_and_is_for_reading(cache: InputCache, site: Site) -> None:
    site.files = {(b"sub", b"a\n"): b"a", (b"b",): b"b"}
    entry = await cache.take(ADA, Input(name="in", address="s3://bucket/x/", directory=True))
    found = Path(entry.path)
    assert {str(p.relative_to(found)) for p in found.rglob("*")} == {"sub", "sub/a\n", "b"}
    assert (found / "b").stat().st_mode & 0o777 == 0o400
    cache.release(entry)
