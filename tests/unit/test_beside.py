"""What a daemon stands on ends with it, and none of it dies in silence."""

from __future__ import annotations

import asyncio

import pytest

from kestrelctl.beside import beside, logged
from kestrelctl.errors import KestrelError


class Work:
    """Goes on until it is cancelled; notes that it was."""

    def __init__(self) -> None:
        self.was_cancelled = False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def fails() -> None:
    raise KestrelError("the disk is on fire")


async def ends() -> None:
    """Has nothing more to do."""


async def test_works_end_with_the_body() -> None:
    work = Work()
    async with asyncio.timeout(5.0), beside(work.run(), ends()):
        await asyncio.sleep(0)
        assert not work.was_cancelled
    assert work.was_cancelled


async def test_what_one_of_them_raises_ends_the_body_and_is_raised() -> None:
    work, body = Work(), Work()

    async def daemon() -> None:
        async with beside(work.run(), fails()):
            await body.run()

    with pytest.raises(KestrelError, match="on fire"):
        await daemon()
    assert body.was_cancelled
    assert work.was_cancelled


async def test_what_the_body_raises_is_raised_as_it_is() -> None:
    work = Work()

    async def daemon() -> None:
        async with beside(work.run()):
            await asyncio.sleep(0)
            await fails()

    with pytest.raises(KestrelError, match="on fire"):
        await daemon()
    assert work.was_cancelled


async def test_what_a_daemon_can_go_on_without_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await logged("the fire brigade", fails())
    assert "the fire brigade has failed" in caplog.text
