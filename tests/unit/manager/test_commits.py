"""Group commit: what waits is released in order, and a store that broke is not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kestrelctl.core.effects import Answer, Effect, Feed, Note
from kestrelctl.core.events import JobClosed
from kestrelctl.core.model.records import Progress, Record
from kestrelctl.core.pacing.pace import Pace
from kestrelctl.manager.commits import FEW_RECORDS, GroupCommit


class Disk:
    """A store whose commits end when the test says so, and the commits that use it.

    Attributes:
        released: the texts of the notes that were released.
    """

    def __init__(self) -> None:
        self.released: list[str] = []
        self.broken: list[Exception] = []
        self.under_way: list[asyncio.Future[None]] = []
        self.delayed: Callable[[str], None]
        store: Any = SimpleNamespace(commit=self._commit)
        self.commits = GroupCommit(
            store, self._release, lambda error: None, lambda waiting: None, self.broken.append
        )

    async def _commit(self, records: Sequence[Record], on_delay: Callable[[str], None]) -> None:
        self.delayed = on_delay
        future = asyncio.get_running_loop().create_future()
        self.under_way.append(future)
        await future

    def _release(self, effect: Effect) -> None:
        if isinstance(effect, Feed | Answer):
            return
        assert isinstance(effect, Note)
        self.released.append(effect.text)
        if effect.text == "leads to more":
            self.after("more")

    def after(self, text: str) -> None:
        self.commits.after(Note(level="info", text=text))

    async def turn(self) -> None:
        """Everybody gets their turn."""
        for _ in range(5):
            await asyncio.sleep(0)


async def test_what_waits_is_released_in_the_order_in_which_it_came() -> None:
    disk = Disk()
    disk.commits.write([Progress(1, 1)])
    disk.after("leads to more")
    disk.after("before the commit")
    await disk.turn()
    disk.after("during the commit")
    assert disk.released == []
    disk.under_way[0].set_result(None)
    await disk.turn()
    disk.after("later")
    assert disk.released == [
        "leads to more", "before the commit", "during the commit", "more", "later"
    ]  # fmt: skip
    assert disk.commits.idle


async def test_a_commit_that_something_waits_for_does_not_wait_for_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kestrelctl.manager.commits.COMMIT_BURST", 1.0)
    monkeypatch.setattr("kestrelctl.manager.commits.COMMITS_PER_SECOND", 0.001)
    disk = Disk()
    disk.commits.write([Progress(1, 1)])
    await disk.turn()
    disk.under_way[0].set_result(None)
    await disk.turn()
    disk.commits.write([Progress(1, 2)])
    await disk.turn()
    assert len(disk.under_way) == 1
    closed = JobClosed(at=1.0, job_id=1)
    disk.commits.after(Feed(event=closed))
    await disk.turn()
    assert len(disk.under_way) == 1
    disk.commits.after(Feed(event=closed, urgent=True))
    await disk.turn()
    assert len(disk.under_way) == 2


@pytest.mark.parametrize(
    ("records", "waits"), [(1, False), (FEW_RECORDS, False), (FEW_RECORDS + 1, True)]
)
async def test_an_answer_to_a_user_waits_for_company_only_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch, records: int, waits: bool
) -> None:
    monkeypatch.setattr("kestrelctl.manager.commits.COMMIT_BURST", 1.0)
    monkeypatch.setattr("kestrelctl.manager.commits.COMMITS_PER_SECOND", 0.001)
    disk = Disk()
    disk.commits.write([Progress(1, 1)])
    await disk.turn()
    disk.commits.after(Answer(request="1"))  # for what is under way, and nothing more
    disk.under_way[0].set_result(None)
    await disk.turn()
    disk.commits.write([Progress(1, number) for number in range(records)])
    await disk.turn()
    assert len(disk.under_way) == 1
    disk.commits.after(Answer(request="2"))
    await disk.turn()
    assert len(disk.under_way) == (1 if waits else 2)


async def test_many_of_these_do_not_delay_what_comes_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kestrelctl.manager.commits.COMMIT_BURST", 1.0)
    monkeypatch.setattr("kestrelctl.manager.commits.COMMITS_PER_SECOND", 0.001)
    monkeypatch.setattr("kestrelctl.manager.commits.URGENT_COMMITS_PER_SECOND", 1e9)
    disk = Disk()
    for number in range(20):
        disk.commits.write([Progress(1, number)])
        disk.commits.after(Feed(event=JobClosed(at=1.0, job_id=1), urgent=True))
        await disk.turn()
        disk.under_way[-1].set_result(None)
        await disk.turn()
    assert len(disk.under_way) == 20
    pace = disk.commits._pace
    assert pace.pause_seconds(pace._at) <= 2_000.0  # and not twenty thousand


def test_a_token_that_is_given_back_can_be_taken_again() -> None:
    pace = Pace(0.5, 1.0)
    assert pace.pause_seconds(10.0) == 0.0
    for _ in range(20):
        assert pace.pause_seconds(10.0) == 2.0
        pace.give_back()


async def test_the_reason_why_a_commit_waits_is_told_until_it_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kestrelctl.manager.commits.STUCK_SECONDS", 0.0)
    disk = Disk()
    disk.commits.write([Progress(1, 1)])
    await asyncio.sleep(0)
    disk.delayed("nobody answers")
    await disk.turn()
    assert disk.commits.store_error == "nobody answers", "not that it takes long, which says less"
    disk.under_way[0].set_result(None)
    await disk.turn()
    assert disk.commits.store_error == ""


async def test_a_store_that_broke_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    disk.commits.write([Progress(1, 1)])
    await disk.turn()
    disk.under_way[0].set_exception(OSError("the disk is gone"))
    await disk.turn()
    assert len(disk.broken) == 1

    async def never(seconds: float) -> None:
        raise AssertionError("nothing is to be waited for")

    monkeypatch.setattr(asyncio, "sleep", never)
    await disk.commits.close()
