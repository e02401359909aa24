"""A pool of a flock that means no good: a real server, and instead of a manager whoever says what
he likes. It joins, borrows, and attacks the pool that lends to it for a while.

    .venv/bin/python tests/chaos/hostile_neighbour.py [SECONDS] [SEED]

What it attacks is a pool of its own on loopback, which ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from flock_servers import Component, Servers

from kestrel_worlds.flock_worlds.hostile_neighbours import made_up
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.flock.overlay.overlay import Overlay
from kestrelctl.flock.overlay.overlay_settings import OverlaySettings
from kestrelctl.flock.service.loan_addresses import flock_of, pool_and_loan
from kestrelctl.local.control import connect_local
from kestrelctl.local.flock_membership import addresses_of, flock_domain, membership
from kestrelctl.local.pool_state import PoolState
from kestrelctl.local.throw_away_flock import throw_away_flock
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.pools import Borrow, OverlayMessage, PoolAnnouncement
from kestrelctl.xmpp import stanza

LENDER, HOSTILE = flock_domain("aspen"), flock_domain("viper")
#: Unit of the intervals in which pools tell each other things.
MINUTE_SECONDS = 2.0
#: It asks for no more.
CPUS = 1.0
#: How long anything may take on a machine that does something else, too.
SECONDS = 200.0
#: So often is said again what is not answered.
TIMES = 10
#: Between two messages of an attack.
PAUSE_SECONDS = 0.005
#: Half of what the lender's server reads of one domain: what is more would only wait there.
BYTES_PER_SECOND = 1_000_000.0
_EMPTY = {
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "size_bytes": 0,
    "pieces": [],
}


class HostileNeighbour:
    """Speaks as the manager of a pool of the flock.

    Attributes:
        loan: the address of what it has been lent; empty as long as that is nothing.
        offered_cpus: the most that the loan has ever said that it has.
        results: what was reported, by the number of the attempt.
    """

    def __init__(self, component: Component) -> None:
        self._component = component
        self._overlay = Overlay(HOSTILE, Random(1), OverlaySettings(minute_seconds=MINUTE_SECONDS))
        self._numbers = itertools.count(1 << 40)
        self.loan = ""
        self.offered_cpus = 0.0
        self.results: dict[int, Result] = {}

    async def live(self) -> None:
        """Joins, borrows, and answers what an honest pool answers; until it is cancelled."""
        self._overlay.join(LENDER, time.time())
        while True:
            self._overlay.tick(time.time())
            for pool, message in self._overlay.take_sends():
                self.say(codec.encode(message), flock_of(pool), flock_of(HOSTILE))
            with contextlib.suppress(TimeoutError):
                element = await self._component.hear(0.2)
                payload = element.findtext(f"{{{codec.JSON_NAMESPACE}}}json")
                if payload:
                    self._hear(element.get("from", ""), payload)

    def _hear(self, sender: str, payload: str) -> None:
        pool, loan = pool_and_loan(sender)
        if loan:
            self._hear_loan(sender, directions.from_worker.decode(payload))
            return
        message = directions.flock.decode(payload)
        if isinstance(message, PoolAnnouncement) and message.pool == LENDER:
            for cls in message.classes[:1]:
                wish = Borrow(loan=cls.id, at_most={"cpus": CPUS, "memory": 1e15}, seconds=3600.0)
                self.say(codec.encode(wish), flock_of(LENDER), flock_of(HOSTILE))
        elif isinstance(message, OverlayMessage):
            self._overlay.hear(pool, message, time.time())

    def _hear_loan(self, sender: str, message: directions.FromAnyWorker) -> None:
        if isinstance(message, workers.Hello):
            self.offered_cpus = max(self.offered_cpus, message.ad.assets.get("cpus", 0.0))
            self.loan = sender
            welcome = workers.Welcome(
                incarnation=message.incarnation, greeting=message.greeting, heartbeat_seconds=5.0
            )
            self.tell_loan(codec.encode(welcome))
        elif isinstance(message, workers.Resized):
            self.offered_cpus = max(self.offered_cpus, message.ad.assets.get("cpus", 0.0))
        elif isinstance(message, workers.Report):
            self.results.update((result.number, result) for result in message.results)
            numbers = [result.number for result in message.results]
            self.tell_loan(codec.encode(workers.Ack(numbers=numbers)))

    def say(self, text: str, to: str, sender: str) -> None:
        self._component.say(stanza.message(text, to, sender))

    def tell_loan(self, text: str) -> None:
        """Says something to the loan as the pool that has borrowed it."""
        self.say(text, self.loan, f"pool@{HOSTILE}")

    def hand_over(self, template: dict[str, Any]) -> int:
        """Hands the loan an attempt; returns its number."""
        number = next(self._numbers)
        fields = {"job_id": number, "argv": ["true"], "owner": f"ada@users.{HOSTILE}"} | template
        names = Program.__struct_fields__
        program = {name: fields.pop(name) for name in names if name in fields}
        run = {
            "type": "run",
            "spans": [[number, number, 0, 1, 0, 7]],
            "claims": [{"cpus": 1000}],
            "jobs": [fields | {"program": program}],
        }
        self.tell_loan(json.dumps(run, separators=(",", ":")))
        return number

    async def result(self, number: int) -> Result:
        """How an attempt has ended."""
        await until(lambda: number in self.results)
        return self.results[number]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def attacked_pool(directory: Path) -> AsyncIterator[tuple[PoolState, HostileNeighbour]]:
    """A pool that lends, of two workers, and who has a loan of it."""
    flock = directory / "flock"
    flock.mkdir()
    async with throw_away_flock(flock, {"aspen": 2}, minute_seconds=MINUTE_SECONDS) as found:
        servers = Servers(directory)
        own = directory / HOSTILE
        own.mkdir()
        federation = membership(flock, own, HOSTILE, LENDER, MINUTE_SECONDS)
        servers.addresses = addresses_of(flock)
        async with servers.pool(HOSTILE, federation) as (_, component):
            neighbour = HostileNeighbour(component)
            living = asyncio.create_task(neighbour.live())
            try:
                await until(lambda: bool(neighbour.loan) or living.done())
                yield found.pools["aspen"], neighbour
            finally:
                living.cancel()
                await asyncio.gather(living, return_exceptions=True)


def escapes(outside: Path) -> Iterator[dict[str, Any]]:
    """Templates whose files would be put outside of a scratch directory, to `outside`."""
    for name in (f"../../../../../../../../..{outside}", str(outside)):
        yield {"inputs": [{"name": name, "stored": _EMPTY}]}
        yield {"stdin": {"name": name, "stored": _EMPTY}}
        yield {"parent_files": [{"name": name, "job_id": 1}]}
    yield {"workdir": "..", "outputs": ["../../**"]}


async def attack(neighbour: HostileNeighbour, random: Random, seconds: float) -> int:
    """Says what no honest pool says, for a while; returns how often."""
    over = time.monotonic() + seconds
    said = 0
    while time.monotonic() < over:
        message = made_up(random, HOSTILE)
        text = json.dumps(message, separators=(",", ":"))
        neighbour.tell_loan(text)
        said += 1
        await asyncio.sleep(max(PAUSE_SECONDS, len(text) / BYTES_PER_SECOND))
    return said


async def one_at_a_time(neighbour: HostileNeighbour, witness: Path) -> None:
    """Passes if of several attempts one runs at a time, as is lent, after a wish for more.

    What is said right after an attack may be dropped, so it is said again, as honest pools do.
    """
    neighbour.tell_loan('{"type":"resize","request":"1","change":{"amounts":{"cpus":400.0}}}')
    ends: list[Result] = []
    for number in range(TIMES):
        seen = witness.with_name(f"{witness.name}-{number}")
        script = f"echo begins >>{seen}; sleep 0.3; echo ends >>{seen}"
        argv = ["/bin/sh", "-c", script]
        numbers = [neighbour.hand_over({"argv": argv}) for _ in range(4)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS / TIMES):
                ends = [await neighbour.result(each) for each in numbers]
            break
    assert [end.outcome for end in ends] == [Outcome.DONE] * 4, ends
    assert seen.read_text().split() == ["begins", "ends"] * 4
    assert neighbour.offered_cpus <= CPUS, neighbour.offered_cpus


async def own_users_are_served(state: PoolState) -> None:
    """Passes if a user of the attacked pool has a job done there."""
    async with connect_local(state) as user:
        spec = JobSpec(program=Program(argv=("/bin/sh", "-c", "exit 0")), count=4)
        answer = await user.ask(rq.SubmitJob(spec=spec))
        assert isinstance(answer, an.Submitted), answer
        async with asyncio.timeout(SECONDS):
            while True:
                found = await user.ask(rq.ListJobs(jobs=str(answer.job_id)))
                assert isinstance(found, an.Jobs), found
                if found.jobs[0].state == "done":
                    return
                await asyncio.sleep(0.1)


async def main(seconds: float, seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        async with attacked_pool(here) as (state, neighbour):
            said = await attack(neighbour, Random(seed), seconds)
            await one_at_a_time(neighbour, here / "witness")
            await own_users_are_served(state)
            reported = len(neighbour.results)
    print(f"{said:,} messages in {seconds:g} s; {reported:,} attempts were answered")


if __name__ == "__main__":
    words = sys.argv[1:]
    asyncio.run(main(float(words[0]) if words else 60.0, int(words[1]) if words[1:] else 1))
