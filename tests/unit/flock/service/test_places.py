"""Places for what guests leave, in the file share of their home, and how it comes there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from neighbourskit import on_its_own_clock, pass_by

from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.errors import NotAllowed, TimedOut, Unreachable
from kestrelctl.flock.service.files_home import GIVE_UP_SECONDS, FilesHome, has_files
from kestrelctl.flock.service.home_slots import (
    ANSWER_SECONDS,
    SLOTS_PER_MINUTE,
    HomeSlots,
    SlotGiver,
)
from kestrelctl.protocol.pools import GivenSlot, WantSlot
from kestrelctl.protocol.upload_slots import PieceTooLarge, Slot
from kestrelctl.worker.run.executor import Completion

SLOT = Slot("https://a.test/put", "https://a.test/get", {"Authorization": "x"})


def at(url: str) -> StoredFile:
    piece = Piece(sha256="0" * 64, size_bytes=3, url=url)
    return StoredFile(sha256="0" * 64, size_bytes=3, pieces=(piece,))


HERE, HOME = at("https://b.test/out"), at("https://a.test/out")


# -- asking ----------------------------------------------------------------------------------------


class Asking:
    """A lender that asks homes for places, and what it has sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, WantSlot]] = []
        self.slots = HomeSlots(lambda pool, message: self.sent.append((pool, message)))

    def ask(self) -> asyncio.Task[Slot]:
        return asyncio.get_running_loop().create_task(self.slots.ask("a.test", 3, "out"))

    async def answered(self, **given: Any) -> Slot:
        asking = self.ask()
        await pass_by(0.1)
        [(pool, wanted)] = self.sent
        assert (pool, wanted.size_bytes, wanted.filename) == ("a.test", 3, "out")
        assert self.slots.hear("a.test", GivenSlot(request=wanted.request, **given))
        return await asking


@on_its_own_clock
async def test_a_home_that_is_asked_gives_a_place() -> None:
    given = {"put_url": SLOT.put_url, "get_url": SLOT.get_url, "headers": dict(SLOT.headers)}
    assert await Asking().answered(**given) == SLOT


@on_its_own_clock
async def test_why_a_home_gives_none_is_told_by_its_code() -> None:
    with pytest.raises(NotAllowed, match=r"a\.test: it holds nothing"):
        await Asking().answered(problem="it holds nothing", code="not-allowed")


@on_its_own_clock
async def test_a_share_that_takes_smaller_pieces_says_how_small() -> None:
    with pytest.raises(PieceTooLarge) as caught:
        await Asking().answered(most_bytes=2)
    assert caught.value.most_bytes == 2


@on_its_own_clock
async def test_a_home_that_does_not_answer_is_not_waited_for() -> None:
    asking = Asking()
    waits = asking.ask()
    await pass_by(ANSWER_SECONDS + 0.1)
    with pytest.raises(TimedOut):
        await waits
    late = GivenSlot(request=asking.sent[0][1].request, put_url="x")
    assert not asking.slots.hear("a.test", late)


@on_its_own_clock
async def test_nobody_else_answers_for_a_home_and_it_answers_once() -> None:
    asking = Asking()
    waits = asking.ask()
    await pass_by(0.1)
    request = asking.sent[0][1].request
    given = GivenSlot(request=request, put_url=SLOT.put_url, get_url=SLOT.get_url)
    assert not asking.slots.hear("eve.test", given)
    assert not asking.slots.hear("a.test", GivenSlot(request="unknown"))
    assert asking.slots.hear("a.test", given)
    assert not asking.slots.hear("a.test", given)
    assert (await waits).put_url == SLOT.put_url


# -- giving ----------------------------------------------------------------------------------------


class Giving:
    """A home with a share, and whom it has answered what."""

    def __init__(self, own: Slot | Exception | None = SLOT) -> None:
        self.own = own
        self.answers: list[tuple[str, GivenSlot]] = []
        self.giver = SlotGiver(
            self._slot if own is not None else None,
            lambda: {"b.test"},
            lambda pool, message: self.answers.append((pool, message)),
            asyncio.get_running_loop().time,
        )

    async def _slot(self, size_bytes: int, filename: str) -> Slot:
        if isinstance(self.own, Exception):
            raise self.own
        assert self.own is not None
        return self.own

    async def asked(self, pool: str = "b.test") -> GivenSlot:
        self.giver.give(pool, WantSlot(request="7", size_bytes=3, filename="out"))
        await pass_by(0.0)
        await pass_by(0.0)
        to, given = self.answers[-1]
        assert (to, given.request) == (pool, "7")
        return given


@on_its_own_clock
async def test_who_holds_tasks_is_given_a_place() -> None:
    given = await Giving().asked()
    assert (given.put_url, given.get_url, given.problem) == (SLOT.put_url, SLOT.get_url, "")
    assert given.headers == dict(SLOT.headers)


@on_its_own_clock
async def test_only_who_holds_tasks_is_given_a_place() -> None:
    given = await Giving().asked("eve.test")
    assert (given.put_url, given.code) == ("", "not-allowed")


@on_its_own_clock
async def test_a_pool_without_a_share_says_so() -> None:
    assert (await Giving(None).asked()).code == "not-found"


@on_its_own_clock
async def test_what_the_share_refuses_is_passed_on() -> None:
    given = await Giving(NotAllowed("the quota is used up", cause="of today")).asked()
    assert (given.problem, given.code) == ("the quota is used up (of today)", "not-allowed")
    assert (await Giving(PieceTooLarge(2)).asked()).most_bytes == 2


@on_its_own_clock
async def test_a_pool_that_asks_for_too_many_places_waits_for_more() -> None:
    home = Giving()
    given = [await home.asked() for _ in range(int(SLOTS_PER_MINUTE) + 1)]
    assert {each.code for each in given[:-1]} == {""}
    assert given[-1].code == "busy"
    await pass_by(0.15)
    assert (await home.asked()).code == ""


# -- bringing home ---------------------------------------------------------------------------------


class Carrying:
    """A lender's carrier, whose shares do what the test says, one word for each try."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.problems: list[Exception | None] = []
        self.tries = 0
        (directory / "under way").mkdir()
        (directory / "under way" / "old").touch()
        monkeypatch.setattr("kestrelctl.flock.service.files_home.FileShare", self._share)
        loop = asyncio.get_running_loop()
        self.directory = directory / "under way"
        self.carrier = FilesHome(
            self.directory, self._slot, ca_file=None, now=loop.time, random=lambda: 0.5,
            sleep=pass_by,
        )  # fmt: skip

    async def _slot(self, pool: str, size_bytes: int, filename: str) -> Slot:
        return SLOT

    def _share(self, slots: Callable[..., Any] | None = None, ca_file: Any = None) -> Any:
        async def get(stored: StoredFile, path: Path) -> None:
            assert stored == HERE
            path.write_bytes(b"abc")

        async def put(path: Path) -> StoredFile:
            assert path.read_bytes() == b"abc"
            self.tries += 1
            problem = self.problems.pop(0) if self.problems else None
            if problem is not None:
                raise problem
            return HOME

        return SimpleNamespace(get=get, put=put)

    async def carry(self, **left: Any) -> Completion:
        found = await self.carrier.carry("a.test", Completion(1, exit_code=0, **left))
        assert list(self.directory.iterdir()) == [], "nothing stays under way"
        return found


@on_its_own_clock
async def test_what_a_guest_leaves_and_prints_gets_addresses_at_its_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carrying = Carrying(tmp_path, monkeypatch)
    found = await carrying.carry(outputs=HERE, stdout_stored=HERE)
    assert (found.outputs, found.stdout_stored, found.stderr_stored) == (HOME, HOME, None)
    assert (found.exit_code, found.reason) == (0, "")


@on_its_own_clock
async def test_a_home_that_is_away_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carrying = Carrying(tmp_path, monkeypatch)
    carrying.problems = [Unreachable("away"), TimedOut("slow")]
    found = await carrying.carry(outputs=HERE)
    assert (found.outputs, carrying.tries) == (HOME, 3)
    assert found.stored_seconds > 0


@pytest.mark.parametrize(
    ("away_seconds", "reason"),
    [(GIVE_UP_SECONDS - 60.0, ""), (GIVE_UP_SECONDS, "outputs-failed: the share is away")],
)
@on_its_own_clock
async def test_after_ten_minutes_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away_seconds: float, reason: str
) -> None:
    carrying = Carrying(tmp_path, monkeypatch)
    carrying.problems = [Unreachable("the share is away")] * 1000
    asyncio.get_running_loop().call_later(away_seconds, carrying.problems.clear)
    found = await carrying.carry(outputs=HERE)
    assert (found.outputs, found.reason) == (None if reason else HOME, reason)


@on_its_own_clock
async def test_what_another_try_would_not_change_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carrying = Carrying(tmp_path, monkeypatch)
    carrying.problems = [NotAllowed("no place")]
    found = await carrying.carry(outputs=HERE)
    assert (carrying.tries, found.reason) == (1, "outputs-failed: no place")


@on_its_own_clock
async def test_what_was_printed_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carrying = Carrying(tmp_path, monkeypatch)
    carrying.problems = [NotAllowed("no place")]
    found = await carrying.carry(stdout_stored=HERE)
    assert (found.stdout_stored, found.reason) == (None, "")


def test_most_guests_leave_no_files() -> None:
    assert not has_files(Completion(1, exit_code=0))
    assert has_files(Completion(1, exit_code=0, stderr_stored=HERE))
