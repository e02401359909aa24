"""Manager and worker are killed together at bad moments: no environment is left, and none comes
twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import Spawn
from environment_house import House, house_of

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.requests import StopEnvironments
from kestrelctl.xmpp.prosody import PrivateServer

pytestmark = pytest.mark.timeout(300)

#: A second one of them would be started at once, if the pool forgot that there is one.
CLASSES = """
[environment.tiny]
kind = "venv"
recipe = "nothing.txt"
tags = ["tiny"]
maximum = 3
idle_seconds = 2
"""


class Watch:
    """Sees how many environments have a directory, all the time.

    Attributes:
        most: at once.
    """

    def __init__(self, house: House) -> None:
        self._place = house.directory / "worker" / "environments" / "venv"
        self.most = 0

    def running(self) -> list[Path]:
        found = list((self._place / "running").glob("*"))
        self.most = max(self.most, len(found))
        return found

    def is_prepared(self) -> bool:
        return bool(list((self._place / "prepared").glob("*")))

    def is_being_prepared(self) -> bool:
        return bool(list((self._place / "made").glob("*/*"))) and not self.is_prepared()


@contextlib.contextmanager
def both_killed(house: House) -> Iterator[None]:
    """What is meanwhile finds neither manager nor worker."""
    house.kill_manager()
    house.kill_worker()
    yield
    house.manager, house.worker = house.start_manager(), house.start_worker()


async def test_both_are_killed_and_nothing_is_left_or_comes_twice(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> None:
    async with house_of(private_server, spawn, tmp_path, CLASSES) as house:
        watch = Watch(house)

        async def until(what: Callable[[], object]) -> None:
            while not what():
                watch.running()
                await asyncio.sleep(0.005)

        spec = JobSpec(program=Program(argv=("sleep", "1000")), requires=("TINY",), max_losses=50)
        submitted = await house.user.ask(rq.SubmitJob(spec=spec))
        assert isinstance(submitted, an.Submitted)
        async with asyncio.timeout(250):
            await until(watch.is_being_prepared)
            with both_killed(house):
                assert not watch.is_prepared()
            await until(watch.running)
            with both_killed(house):
                assert watch.running(), "it has begun, and nobody has heard of it"
            before = await house.one_is("ready")
            await house.user.ask(StopEnvironments(numbers=[before.number]))
            with both_killed(house):
                pass
            after = await house.one_is("ready")
            assert after.number > before.number
            noted = (tmp_path / "manager" / "environment-accounts").read_text().split()
            assert after.worker in noted
            await house.user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))
            await house.none_is_left()
        assert watch.running() == []
        assert watch.most == 1
