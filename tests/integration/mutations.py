"""The manager without a network, and messages for it: valid ones, and what chance makes of them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from neighbourskit import Neighbourhood, pass_by

from kestrel_worlds.simulated_manager import NobodyJoins
from kestrelctl import clock, logs
from kestrelctl.core.invariants import violations
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.pool import Pool
from kestrelctl.flock.service.loan_addresses import loan_of
from kestrelctl.manager.access import Access
from kestrelctl.manager.listener import ManagerListener
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.requests.pool import Usage
from kestrelctl.manager.service import Service
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.store.sqlite.store import SqliteStore

DOMAIN = "pool.test"
USERS = [f"{name}@users.{DOMAIN}/{n}" for name in ("ada", "bob", "root") for n in (1, 2)]
WORKERS = [f"w{n}@workers.{DOMAIN}/1" for n in range(4)]
#: The manager's answer to a request at which its own code fails.
FAILED = "the manager failed at this request"
#: After so many messages the loop turns until nothing waits, and the pool's invariants are checked.
BATCH = 100
#: The same at a lender, where guests keep places until then.
FEW = 20

_SECTIONS = ("Worker to pool", "User to pool")
#: What the pool of a borrower says: to its loan, and to the flock of the lender.
_TO_LOAN = ("Pool to worker",)
_TO_FLOCK = ("Pool to pool: the overlay", "Pool to pool: lending")
_DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"
_NUMBERS = (
    0, -1, 1, 2**31, 2**53 + 1, 2**62, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, 5e-324,
    1e-9,
)  # fmt: skip
_TEXTS = (
    "", " ", "last", "all", "1", "1-500", "9-1", "0-9999999999", ",", "../../etc/passwd", "\0",
    "\ud800", "\uffff", "é", "東京", "\u202e", "💥" * 50, "%s%n", "'; drop table jobs; --",
    "a" * 70_000, "{}", "{n}", "w1@workers.pool.test/1", "stderr",
)  # fmt: skip


def examples(sections: tuple[str, ...] = _SECTIONS) -> dict[str, list[dict[str, Any]]]:
    """Valid messages of every type, by section of the document."""
    found: dict[str, list[dict[str, Any]]] = {}
    for part in re.split(r"^## ", _DOCUMENT.read_text(), flags=re.M)[1:]:
        title, _, text = part.partition("\n")
        if title in sections:
            found[title] = [
                json.loads(example) for example in re.findall(r"```json\n(.*?)```", text, re.S)
            ]
    return found


class Mutator:
    """Changes messages.

    Attributes:
        known: values that mean something to the pool now, such as numbers of attempts.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self.known: list[Any] = [1, 2, 3]

    def payload(self, message: dict[str, Any]) -> str:
        """A message with some changes, or none, as text that may be broken."""
        changed: Any = json.loads(json.dumps(message))
        for _ in range(self._random.choice((0, 1, 1, 1, 2, 3))):
            changed = self._change(changed)
        text = json.dumps(changed, ensure_ascii=self._random.random() < 0.5)
        if self._random.random() < 0.05:
            cut = self._random.randrange(len(text) + 1)
            text = text[:cut] + self._random.choice(("", "}", "\0", '"', "[" * 5000))
        return text

    def _change(self, value: Any) -> Any:
        """Changes one place in a value, at any depth."""
        random = self._random
        if isinstance(value, dict) and value and random.random() < 0.85:
            key = random.choice([each for each in value if each != "type"] or list(value))
            if random.random() < 0.1:
                del value[key]
            elif random.random() < 0.05:
                value[random.choice(_TEXTS)] = self._any()
            else:
                value[key] = self._change(value[key])
            return value
        if isinstance(value, list) and value and random.random() < 0.85:
            index = random.randrange(len(value))
            action = random.random()
            if action < 0.1:
                del value[index]
            elif action < 0.2 and not isinstance(value[index], (dict, list)):
                value.extend([value[index]] * random.choice((1, 10, 1000)))
            elif action < 0.2:
                value.append(value[index])
            else:
                value[index] = self._change(value[index])
            return value
        return self._any(value)

    def _any(self, instead_of: Any = None) -> Any:
        random = self._random
        # Mostly of the same kind: what is refused unread comes no further.
        if random.random() < 0.9 and isinstance(instead_of, (int, float)):
            numbers = [each for each in _NUMBERS if type(each) is type(instead_of)]
            return random.choice((*numbers, *self.known, instead_of + 1, -instead_of))
        if random.random() < 0.9 and isinstance(instead_of, str):
            return random.choice((*_TEXTS, instead_of * 2, instead_of[::-1]))
        kind = random.randrange(7)
        if kind == 0:
            return random.choice(_NUMBERS)
        if kind == 1:
            return random.choice(_TEXTS)
        if kind == 2:
            return random.choice(self.known)
        if kind == 3:
            return random.choice((None, True, False))
        if kind == 4:
            return [self._any() for _ in range(random.randrange(4))]
        if kind == 5:
            return {random.choice(_TEXTS): self._any() for _ in range(random.randrange(4))}
        deep: Any = 1
        for _ in range(random.choice((3, 50, 400))):
            deep = [deep]
        return deep


class NoNetwork:
    """What the manager sends is looked at and dropped."""

    online, refused, link = True, None, "connected"

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator
        self.failed: list[str] = []
        self.sent = 0

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        self.sent += 1
        if FAILED in payload:
            self.failed.append(payload)
        if '"run"' in payload and "workers." in to:
            message = directions.to_worker.decode(payload)
            if isinstance(message, workers.Run):
                values = [each for span in message.spans for each in span[:2]]
                self._mutator.known = (self._mutator.known + values)[-300:]

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        self.sent += 1

    def send_presence(
        self,
        to: str,
        kind: str | None = None,
        sender: str | None = None,
        show: str = "",
        status: str = "",
    ) -> None:
        """Nobody looks."""

    def when_taken(self, done: Callable[[], None]) -> None:
        done()

    def backlog_bytes(self) -> int:
        return 0

    def certificate(self) -> tuple[str, float] | None:
        return None

    def start(self) -> None:
        """There is nothing to connect to."""

    async def stop(self) -> None:
        """Nor to leave."""


class Manager:
    """The production manager with a real store, told things by hand.

    Attributes:
        troubles: whatever no message may cause: exceptions, broken invariants.
        lines: of the log, as a daemon would write it.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._random = Random(seed)
        self._mutator = Mutator(self._random)
        self._store = SqliteStore(directory)
        self.troubles: list[str] = []
        self.lines = 0
        self.pool = Pool(self._store.open())
        self._service = Service(self.pool, self._store, DOMAIN, clock)
        self._dispatcher = RequestDispatcher(
            self._service, NobodyJoins(), lambda: Usage(cpu_seconds=0.0, rss_bytes=0)
        )
        options = ManagerOptions(
            domain=DOMAIN,
            secret_file=directory / "secret",
            data_dir=directory,
            admins=(f"root@users.{DOMAIN}",),
        )
        self._listener = ManagerListener(self._service, self._dispatcher, Access(options), DOMAIN)
        self.session = NoNetwork(self._mutator)
        self._service.session = self._listener.session = self.session
        self._examples = examples()
        self._log = logging.Handler()
        self._log.addFilter(logs.Repeats())
        self._log.emit = self._on_line  # type: ignore[method-assign]

    def _on_line(self, record: logging.LogRecord) -> None:
        self.lines += 1
        if record.exc_info:
            self.troubles.append(self._log.format(record))

    async def tell(self, messages: int) -> None:
        """Tells the manager so many messages, and checks after each batch of them."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.troubles.append(repr(context)))
        log = logging.getLogger("kestrelctl")
        log.addHandler(self._log)
        log.propagate = False
        try:
            self._listener.on_online()
            for number, (sender, to, payload) in enumerate(self._messages(messages)):
                try:
                    self._tell(sender, to, payload)
                except Exception as error:
                    self.troubles.append(f"{payload[:500]!r}: {error!r}")
                if number % BATCH == BATCH - 1:
                    await self._settle()
            await self._settle()
        finally:
            log.propagate = True
            log.removeHandler(self._log)

    def _tell(self, sender: str, to: str, payload: str) -> None:
        chance = self._random.random()
        if chance < 0.01:
            self._listener.on_presence(
                sender, to, self._random.choice(("available", "unavailable"))
            )
        elif chance < 0.02:
            self._listener.on_bounce(sender, "service-unavailable")
        elif chance < 0.04:
            self._listener.on_body(sender, to, payload)
        else:
            self._listener.on_payload(sender, to, payload)

    def _messages(self, number: int) -> Iterator[tuple[str, str, str]]:
        random = self._random
        for _ in range(number):
            if random.random() < 0.5:
                section, sender, to = _SECTIONS[0], random.choice(WORKERS), f"pool@{DOMAIN}"
            else:
                section, sender, to = _SECTIONS[1], random.choice(USERS), f"jobs@{DOMAIN}"
            if random.random() < 0.02:
                to = random.choice((f"pool@{DOMAIN}", f"jobs@{DOMAIN}", DOMAIN, ""))
            yield sender, to, self._mutator.payload(random.choice(self._examples[section]))

    async def _settle(self) -> None:
        """Lets the manager do what it was told, as far as it does not wait for a worker."""
        for _ in range(20 * BATCH):
            await asyncio.sleep(0)
            if not (self._dispatcher.turns.waiting_bytes or self._listener._turns.waiting_bytes):
                break
        await asyncio.sleep(0.001)
        self.troubles.extend(violations(self.pool.state))
        self.troubles.extend(self.session.failed)
        self.session.failed.clear()

    async def close(self) -> None:
        await self._service.close()
        self._store.close()


#: All that a template may say, so that each of it is changed.
_TEMPLATE: dict[str, Any] = {
    "job_id": 7,
    "name": "words",
    "count": 5,
    "first": 1,
    "step": 2,
    "further": [[20, 1, 2]],
    "with_items": True,
    "program": {
        "argv": ["task", "{}"],
        "placeholders": "array",
        "env": {"LANG": "C"},
        "cleanup": ["tidy", "{n}"],
        "time_limit_seconds": 60.0,
        "outputs": ["*.txt"],
        "success_exits": [[0, 3]],
        "stop_signal": "INT",
        "stop_grace_seconds": 3.0,
        "join": True,
        "keep_logs": True,
        "inputs": [
            {
                "name": "data",
                "stored": {
                    "sha256": "a" * 64,
                    "size_bytes": 1,
                    "pieces": [{"sha256": "a" * 64, "size_bytes": 1, "url": "https://a.test/1"}],
                },
            },
            {"name": "page", "address": "https://example.org/page"},
        ],
        "stages": [{"name": "in", "argv": ["get", "{}"], "time_limit_seconds": 5.0, "tries": 2}],
    },
    "owner": "ada@users.a.test",
    "group": "physics",
}


class Lender:
    """The production manager of a pool that lends, told things by hand as a borrower's pool.

    Attributes:
        troubles: whatever no message may cause: exceptions, broken invariants, a job that no user
            could submit, a message that cannot be sent.
        guests: how many jobs came of it.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._random = Random(seed)
        self._mutator = Mutator(self._random)
        self._to_loan = [each for part in examples(_TO_LOAN).values() for each in part]
        self._to_flock = [each for part in examples(_TO_FLOCK).values() for each in part]
        self._numbers = 10**12
        self.troubles: list[str] = []
        self.guests: set[int] = set()
        around = Neighbourhood(directory)
        self.pool = around.open("b.test", cpus=8)
        self._home = around.open("a.test", through="b.test", cpus=0)
        self._said = around.said

    async def tell(self, messages: int) -> None:
        """Tells the lender so many messages, and checks after each batch of them."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.troubles.append(repr(context)))
        await pass_by(5)
        for number in range(messages):
            sender, to, payload = self._message()
            try:
                self.pool.listener.on_payload(sender, to, payload)
            except Exception as error:
                self.troubles.append(f"{payload[:500]!r}: {error!r}")
            if number % FEW == FEW - 1:
                await self._settle()
        await self._settle()

    def _message(self) -> tuple[str, str, str]:
        loans = [loan for _, loan in self.pool.flock.keeper.loans]
        if not loans or self._random.random() < 0.05:
            message = self._random.choice(self._to_flock)
            return "flock@a.test", "flock@b.test", self._mutator.payload(message)
        message = self._random.choice(self._to_loan)
        if self._random.random() < 0.6:
            self._numbers += 1
            known = self._numbers
            self._mutator.known = [*self._mutator.known, known][-50:]
            message = {
                "type": "run",
                "spans": [[known, 7, 0, 1, 0, 9]],
                "claims": [{"cpus": 1000}],
                "jobs": [_TEMPLATE],
                "items": ["delta"],
                "counts": [[known, 2]],
                "limits": [[0, {"memory": 10**12}]],
            }
        to = loan_of("b.test", self._random.choice(loans))
        return "pool@a.test", to, self._mutator.payload(message)

    async def _settle(self) -> None:
        """Lets all come to rest, looks at what came of it, and ends what runs."""
        await pass_by(1)
        for job in self.pool.guests():
            problem = problem_with_job(job.spec, home="a.test")
            if problem is not None:
                self.troubles.append(f"job {job.id} is no job: {problem}")
            if not job.owner.endswith(("@a.test", "@users.a.test")):
                self.troubles.append(f"job {job.id} is of {job.owner}")
            self.guests.add(job.id)
        for _, to, text in self._said:
            if not codec.fits(text):
                self.troubles.append(f"{to} is told {len(text)} characters")
        self._said.clear()
        self.troubles.extend(violations(self.pool.service.pool.state))
        for loan in self.pool.flock.keeper.loans.values():
            if loan.session.ad.assets["cpus"] > 8.0:
                self.troubles.append(f"a loan offers {loan.session.ad.assets}")
        self.pool.hands.end()
        await pass_by(1)
        if not self.pool.flock.keeper.loans:
            self._home.submit(6)
            await pass_by(5)

    async def works(self) -> bool:
        """Whether it runs a task of its own user after all that."""
        job = self.pool.submit(argv=("own",))
        for _ in range(5):  # guests may be in its way, which go in time
            await pass_by(5)
            self.pool.hands.end()
        await pass_by(1)
        return [str(record.state) for record in self.pool.ended(job)] == ["done"]
