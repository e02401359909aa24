"""What is large of calls, on its way to interpreters of other machines."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cli_fake_pool import FakeShare

from kestrelctl.client.calls import MOST_AHEAD, Call, CallFailed, Calls, _Interpreter, _Job
from kestrelctl.client.interpreter import FILE_BYTES, PICKLED
from kestrelctl.client.parcels import Parcels
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.errors import FileDamaged, NotFound

LARGE = b"x" * (FILE_BYTES + 1)


class Keeps(FakeShare):
    """A share that gives back what it was sent last, or nothing."""

    lost_all = False

    async def get(self, stored: StoredFile, target: Path) -> None:
        if self.lost_all:
            raise FileDamaged("a file came damaged from the file share")
        target.write_bytes(self.sent[-1])


async def until_sent(parcels: Parcels) -> None:
    await asyncio.gather(*parcels._tasks.values())


async def test_something_is_sent_once_and_told_of() -> None:
    share = Keeps()
    told: list[int] = []
    parcels = Parcels(lambda: share, lambda: told.append(1))
    for _ in range(2):
        parcels.send(("call", 1), LARGE)
        assert not parcels.is_settled(("call", 1))
    await until_sent(parcels)
    parcels.send(("call", 1), LARGE)
    assert parcels.is_settled(("call", 1))
    assert share.sent == [LARGE]
    assert told == [1]
    stored = parcels.stored(("call", 1))
    assert stored is not None
    assert await parcels.fetched(stored) == LARGE


async def test_where_the_share_takes_nothing_things_go_another_way() -> None:
    share = FakeShare()
    share.full = True
    parcels = Parcels(lambda: share, lambda: None)
    parcels.send(("call", 1), LARGE)
    await until_sent(parcels)
    assert parcels.is_settled(("call", 1))
    assert parcels.stored(("call", 1)) is None
    assert not parcels.is_settled(("call", 2)), "there may be room again"


async def test_a_pool_without_a_share_is_asked_once() -> None:
    asked: list[int] = []

    def opens() -> Any:
        asked.append(1)
        raise NotFound("the pool has no file share")

    parcels = Parcels(opens, lambda: None)
    parcels.send(("call", 1), LARGE)
    await until_sent(parcels)
    assert parcels.is_settled(("share", 7))
    parcels.send(("share", 7), LARGE)
    assert asked == [1]


class Far(Calls):
    """Calls whose only interpreter sees no files of this machine."""

    def __init__(self, share: FakeShare) -> None:
        job: Any = SimpleNamespace(id=3)
        self.interpreter = _Interpreter(_Job(job, 1), 1, 5, b"key")
        self.interpreter.ready = True
        self._interpreters = {(3, 1): self.interpreter}
        self._pending = deque()
        self._shares = {7: LARGE, 8: b"small"}
        self._share_files = {}
        self._parcels = Parcels(lambda: share, lambda: None)
        self._ack: Any = SimpleNamespace(set_once=lambda _seconds: None)
        self._tasks = set()
        self._loop = asyncio.get_running_loop()
        self.done = 0
        self.said: list[tuple[dict[str, Any], list[bytes]]] = []

    def _say(self, interpreter: Any, header: dict[str, Any], blobs: Any = None) -> None:
        self.said.append((header, blobs or []))

    def _plan_pump(self) -> None:
        """Calls are handed out when the test says so."""

    def given(self, op: str) -> list[tuple[dict[str, Any], list[bytes]]]:
        return [each for each in self.said if each[0]["op"] == op]


async def test_a_call_follows_its_arguments_which_are_sent_ahead() -> None:
    share = FakeShare()
    calls = Far(share)
    calls.add(Call(number, "f", LARGE, ()) for number in range(MOST_AHEAD + 5))
    calls._give(calls.interpreter, 1)
    assert not calls.said
    await until_sent(calls._parcels)
    assert len(share.sent) == MOST_AHEAD
    calls._give(calls.interpreter, 1)
    [(header, blobs)] = calls.given("calls")
    assert (header["ids"], blobs) == ([0], [b""])
    assert header["files"][0]["size_bytes"] == len(LARGE)
    assert header["files"][0]["pieces"][0]["url"].startswith("https://share/")


async def test_what_is_shared_is_sent_before_the_call_that_uses_it() -> None:
    calls = Far(FakeShare())
    calls.add([Call(1, "f", b"small", (7, 8))])
    calls._give(calls.interpreter, 1)
    assert not calls.said
    await until_sent(calls._parcels)
    calls._give(calls.interpreter, 1)
    told = {header["share"]: (header["file"], blobs) for header, blobs in calls.given("share")}
    assert told[8] == ("", [b"small"])
    assert (told[7][0]["size_bytes"], told[7][1]) == (len(LARGE), [b""])


async def test_who_cannot_read_the_share_is_sent_all_in_messages() -> None:
    calls = Far(FakeShare())
    calls.add([Call(1, "f", LARGE, (7,))])
    calls._give(calls.interpreter, 1)
    await until_sent(calls._parcels)
    calls._give(calls.interpreter, 1)
    calls._on_unfetched(calls.interpreter, {"ids": [1], "why": "it answered 404"}, [])
    calls.said.clear()
    calls._give(calls.interpreter, 1)
    [(header, blobs)] = calls.given("share")
    assert (header["file"], blobs) == ("", [LARGE])
    [(header, blobs)] = calls.given("calls")
    assert (header["ids"], header["files"], blobs) == ([1], [""], [LARGE])


async def test_what_is_large_goes_through_messages_where_no_file_can_be_written(
    tmp_path: Path,
) -> None:
    calls = Far(FakeShare())
    calls.interpreter.sees_files = True
    calls._directory = tmp_path / "full"
    calls.add([Call(1, "f", LARGE, (7,))])
    calls._give(calls.interpreter, 1)
    for op in ("share", "calls"):
        [(_, blobs)] = calls.given(op)
        assert blobs == [LARGE]
    assert list(calls.interpreter.has) == [1]


async def test_a_result_is_read_from_the_share_and_fails_alone_if_it_cannot_be() -> None:
    share = Keeps()
    calls = Far(share)
    calls._parcels.send(("result", 1), pickle.dumps("the result"))
    await until_sent(calls._parcels)
    stored = calls._parcels.stored(("result", 1))
    assert stored is not None
    told = {"sha256": stored.sha256, "size_bytes": stored.size_bytes, "pieces": [
        {"sha256": each.sha256, "size_bytes": each.size_bytes, "url": each.url}
        for each in stored.pieces
    ]}  # fmt: skip
    found = [Call(number, "f", b"", ()) for number in range(3)]
    calls.interpreter.has = {call.number: call for call in found}
    for number, said in enumerate((told, told, {"sha256": 7})):
        share.lost_all = number == 1
        entry = {"id": number, "kind": PICKLED, "stored": said}
        calls._on_results(calls.interpreter, {"results": [entry], "seconds": 0.1}, [b""])
        await asyncio.gather(*calls._tasks)
    assert found[0].future.result(0) == "the result"
    failed = found[1].future.exception(0)
    assert isinstance(failed, CallFailed)
    assert "came damaged" in (failed.cause or "")
    assert "cannot be read" in str(found[2].future.exception(0))


async def test_whatever_keeps_a_thing_from_the_share_it_goes_another_way() -> None:
    class Fails(FakeShare):
        async def put(self, path: Path) -> StoredFile:
            raise RuntimeError("a mistake")

    told: list[int] = []
    parcels = Parcels(Fails, lambda: told.append(1))
    parcels.send(("call", 1), LARGE)
    await until_sent(parcels)
    assert parcels.is_settled(("call", 1))
    assert told == [1]
