"""An attack on a real pool, then a look at it: `python tests/chaos/attack.py user|worker [...]`.

Accounts of the pool send nasty messages as fast as they are answered, and in odd order. Meanwhile
and afterwards, and after `down` and `up`, an innocent user's jobs must run, each request must be
answered with what a user's program can read, the manager must be the same process, and no command
and no log may show a traceback. Ends with status 1 if something did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from brokenpool import BrokenPool
from nasty import Nasty, kinds
from puppet import Puppet

from kestrelctl.core.model.spec import JobSpec
from kestrelctl.local.pool_state import pool_directory, read_state
from kestrelctl.protocol import codec, work
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.graph_answers import GraphJob

NAME = "attacked"
ANSWER_SECONDS = 60.0
MOST_MANAGER_BYTES = 500 << 20
MOST_LOG_BYTES = 20 << 20
#: Between two looks at the pool, in messages of one attacker.
ROUND = 150

_COMMON: dict[str, list[Any]] = {
    "argv": [["true"], ["sleep", "0.1"], ["false"]],
    "assets": [{"cpus": 2.0}],
    "after_each": [0],
    "count": [1, 2, 5],
    "environment": [None],
    "epoch": [None],
    "further": [[]],
    "graph": [None],
    "guest": [None],
    "held": [False],
    "incarnation": ["first", "second"],
    "items": [None],
    "job": ["last", "1", "2"],
    "jobs": ["last", "all", "1", "1-50"],
    "max_failures": [1, 3],
    "names": [[]],
    "no_retry_on": [[]],
    "output_to": [""],
    "priority": [100, 5],
    "request": [{"cpus": 1.0}],
    "retry_memory_bytes": [[]],
    "retry_on": [[]],
    "service": [False],
    "span": [1],
    "start": ["", "true"],
    "states": [[]],
    "stdin": [None],
    "success_exits": [[]],
    "time_limit_seconds": [None, 1.0],
    "upload": ["", "u"],
    "version": [work.VERSION],
    "wants": [None, 3],
    "workdir": [""],
}
_OF_WORKERS: dict[str, list[Any]] = {
    **_COMMON,
    "outcome": [0, 1, 2, 3, 4],
    "started_at": [time.time()],
    "version": [work.VERSION, work.VERSION, "0.2.0"],
    "wall_seconds": [1.0],
}
#: What somebody types into a chat.
_WORDS = (
    "help", "submit {}", "jobs", "job {}", "status", "cancel {}", "hold {}", "release {}",
    "retry {}", "log {}", "why {}", "yes", "no", "stop", "workers", "forget {}", "{}",
)  # fmt: skip
#: Of the same jobs at once, thousands of times.
_ORDERS = (rq.ReleaseJobs, rq.RetryJobs, rq.CancelJobs, rq.HoldJobs, rq.ScaleJob, rq.ForgetJobs)


class Attacked:
    """A pool as `kestrelctl up` makes it, those who do not attack it, and what did not hold.

    Attributes:
        findings: in words.
        counts: what was sent and came back, by kind.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {**os.environ, "XDG_STATE_HOME": str(directory)}
        os.environ["XDG_STATE_HOME"] = str(directory)
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self.pool: BrokenPool
        self._manager = 0
        self._honest = ""
        self._kept = 0

    async def up(self) -> None:
        status, told = await self.command("up", "--name", NAME, "--workers", "2")
        state = read_state(pool_directory(NAME))
        if status or state is None:
            raise AssertionError(f"the pool does not come up: {told}")
        self.pool = BrokenPool(state, self._directory / "witness")
        self._manager = state.manager_pid

    async def down(self) -> None:
        status, told = await self.command("down", "--name", NAME)
        if status:
            self.findings.append(f"down ends with status {status}: {told[-500:]}")

    async def command(self, *words: str, seconds: float = 120.0) -> tuple[int, str]:
        """Runs `kestrelctl`; returns its exit status and all that it printed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kestrelctl", *words,
            env=self._environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            told, _ = await asyncio.wait_for(process.communicate(), seconds)
        except TimeoutError:
            process.kill()
            self.findings.append(f"kestrelctl {' '.join(words)} does not end")
            return 1, ""
        text = told.decode(errors="replace")
        if "Traceback" in text:
            self.findings.append(f"kestrelctl {' '.join(words)}: {text[-1500:]}")
        return process.returncode or 0, text

    async def keep(self) -> None:
        """An innocent user's jobs that the attack must leave alone."""
        self._honest = f'Machine == "{os.uname().nodename}"'
        spec = JobSpec(argv=("true",), count=3, name="kept", held=True, requirements=self._honest)
        self._kept = await self._submit_as_abel(spec)

    async def _submit_as_abel(self, spec: JobSpec) -> int:
        state = self.pool.state
        async with Puppet(state, "abel", "users") as abel:
            request = codec.encode(rq.SubmitJob(id="abel", spec=spec))
            abel.session.send(request, f"jobs@{state.domain}")
            answer = await abel.answer(ANSWER_SECONDS)
        return int(answer["job_id"])

    async def look(self) -> None:
        """Notes what does not hold now."""
        state = self.pool.state
        if state.manager_pid != self._manager:
            self.findings.append("the manager is not the process that it was")
            self._manager = state.manager_pid
        size = psutil.Process(state.manager_pid).memory_info().rss
        self.counts["MB of the manager"] = size >> 20
        if size > MOST_MANAGER_BYTES:
            self.findings.append(f"the manager takes {size >> 20} MB")
        try:
            spec = JobSpec(argv=("true",), count=2, priority=255, requirements=self._honest)
            ended = await self.pool.ended(await self._submit_as_abel(spec), ANSWER_SECONDS)
            if ended.done != 2:
                self.findings.append(f"an innocent job ended so: {ended}")
            kept = await self.pool.view(self._kept)
            if kept.state != "active" or kept.waiting != 3:
                self.findings.append(f"the job that was kept is {kept}")
        except Exception as error:
            self.findings.append(f"an innocent job does not run: {error!r:.800}")

    async def type_commands(self) -> None:
        """What people look at, as those who read it: whatever is shown, it is no traceback."""
        for words in (
            ("job", "list"), ("job", "list", "--where", "Waiting >= 0"), ("pool", "status"),
            ("worker", "list"), ("user", "list"), ("user", "usage"), ("top", "--once"),
        ):  # fmt: skip
            status, told = await self.command(*words, "--pool", NAME)
            if status:
                self.findings.append(
                    f"kestrelctl {' '.join(words)} ends with {status}: {told:.600}"
                )
        newest = await self.pool.submit(JobSpec(argv=("true",)))
        ids = sorted(Random(newest).sample(range(1, newest + 1), min(newest, 3)))
        for number in ids:
            for look in ("info", "explain", "story", "tasks", "graph"):
                await self.command("job", look, str(number), "--pool", NAME)

    def read_logs(self) -> None:
        """Notes tracebacks in what daemons logged, and logs that have grown."""
        for log in sorted(pool_directory(NAME).rglob("*.log")):
            text = log.read_text(errors="replace")
            if "Traceback (most recent call last)" in text:
                place = text.index("Traceback (most recent call last)")
                self.findings.append(f"{log.name}: {text[place - 300 : place + 2500]}")
            if log.stat().st_size > MOST_LOG_BYTES:
                self.findings.append(f"{log.name} has {log.stat().st_size:,} bytes")


class UserAttack:
    """One account of a user that sends requests."""

    def __init__(self, attacked: Attacked, name: str, seed: int) -> None:
        self._attacked = attacked
        self._name = name
        self._dice = Random(seed)
        self._nasty = Nasty(self._dice, _COMMON)
        self._kinds = [
            kind for kind in kinds(rq.AnyRequest) if kind.__struct_config__.tag != "enroll"
        ]
        self._waiting: dict[str, str] = {}
        self._number = 0

    async def attack(self, messages: int) -> None:
        state = self._attacked.pool.state
        name, password = self._name, ""
        if name == "own":  # the account that types commands: what it sends is shown there
            name = state.user.partition("@")[0]
            password = Path(state.password_file).read_text().strip()
        async with Puppet(state, name, "users", password=password) as puppet:
            to = f"jobs@{state.domain}"
            listening = asyncio.create_task(self._listen(puppet))
            for _ in range(messages):
                self._number += 1
                await self._one(puppet, to, state.domain)
                deadline = time.monotonic() + ANSWER_SECONDS
                while len(self._waiting) > 20:
                    if time.monotonic() > deadline:
                        break
                    await asyncio.sleep(0.01)
            deadline = time.monotonic() + ANSWER_SECONDS
            while self._waiting and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            for payload in list(self._waiting.values())[:3]:
                self._attacked.findings.append(f"never answered: {payload:.600}")
            self._waiting.clear()
            listening.cancel()

    async def _one(self, puppet: Puppet, to: str, domain: str) -> None:
        chance = self._dice.random()
        if chance < 0.05:
            words = self._dice.choice(_WORDS).format(self._nasty.any_text())
            if "\0" not in words and len(words) < 100_000:
                with contextlib.suppress(UnicodeError, ValueError):
                    whom = self._dice.choice((to, domain, f"job-{self._nasty.known[-1]}@{domain}"))
                    puppet.session.send_body(words, whom)
            return
        if chance < 0.3:
            payload, known_as = self._order()
        elif chance < 0.38:
            payload, known_as = self._upload()
        else:
            kind = rq.SubmitJob if chance < 0.65 else self._dice.choice(self._kinds)
            known_as = f"{self._name}-{self._number}"
            payload = self._nasty.message(kind, known_as)
        if not codec.fits(payload):
            return
        self._attacked.counts["requests"] += 1
        if codec.id_in(payload) == known_as:  # otherwise nobody can say what it answers
            self._waiting[known_as] = payload
        puppet.session.send(payload, to)

    def _order(self) -> tuple[str, str]:
        known_as = f"{self._name}-{self._number}"
        kind = self._dice.choice(_ORDERS)
        job = str(self._dice.choice(self._nasty.known[-4:]))
        message: dict[str, Any] = {"type": kind.__struct_config__.tag, "id": known_as}
        message |= {"job": job, "copies": 2} if kind is rq.ScaleJob else {"jobs": job}
        return json.dumps(message), known_as

    def _upload(self) -> tuple[str, str]:
        """Jobs of a workflow, ahead of their submission; or that."""
        known_as = f"{self._name}-{self._number}"
        message: dict[str, Any]
        if self._dice.random() < 0.6:
            lines = [self._nasty.message(GraphJob) for _ in range(self._dice.choice((1, 2, 5)))]
            message = {"type": "upload_items", "id": known_as, "upload": "u", "lines": lines}
        else:
            message = {"type": "submit_jobs", "id": known_as, "upload": "u"}
        return json.dumps(message), known_as

    async def _listen(self, puppet: Puppet) -> None:
        while True:
            _, answer = await puppet.received.get()
            kind = str(answer.get("type"))
            self._attacked.counts[kind] += 1
            self._waiting.pop(str(answer.get("id", "")), None)
            if "bounced" in answer:
                continue
            try:
                codec.answers.decode(json.dumps(answer))
            except codec.BadMessage as error:
                self._attacked.findings.append(f"no user can read {answer!r:.600}: {error}")
            if "failed at this request" in str(answer.get("message")):
                self._attacked.findings.append(f"the manager failed: {answer!r:.600}")
            if isinstance(answer.get("job_id"), int):
                self._nasty.known = [*self._nasty.known, answer["job_id"]][-50:]


class WorkerAttack:
    """Sessions of one worker's account."""

    def __init__(self, attacked: Attacked, name: str, seed: int) -> None:
        self._attacked = attacked
        self._name = name
        self._dice = Random(seed)
        self._nasty = Nasty(self._dice, _OF_WORKERS)
        self._kinds = kinds(codec.FromAnyWorker)

    async def attack(self, messages: int) -> None:
        state = self._attacked.pool.state
        left = messages
        while left > 0:
            session = min(left, self._dice.choice((1, 10, 50, 100)))
            left -= session
            async with Puppet(state, self._name, "workers") as puppet:
                for _ in range(session):
                    await self._one(puppet, f"pool@{state.domain}")

    async def _one(self, puppet: Puppet, to: str) -> None:
        chance = self._dice.random()
        kind = work.Hello if chance < 0.2 else work.Report if chance < 0.4 else None
        if chance > 0.97:
            puppet.session.send_presence(to, self._dice.choice(("unavailable", None)))
            return
        payload = self._nasty.message(kind or self._dice.choice(self._kinds))
        if not codec.fits(payload):
            return
        self._attacked.counts["messages"] += 1
        puppet.session.send(payload, to)
        await asyncio.sleep(0.005)
        while not puppet.received.empty():
            _, answer = puppet.received.get_nowait()
            self._attacked.counts[str(answer.get("type"))] += 1
            if answer.get("type") == "run":
                numbers = [number for span in answer["spans"] for number in span[:3]]
                self._nasty.known = (self._nasty.known + numbers)[-50:]


async def bait(attacked: Attacked) -> None:
    """Jobs for workers that attack: whatever they do with them."""
    for spec in (
        JobSpec(argv=("sleep", "0.2"), count=300, max_failures=3, items=tuple("ab" * 150)),
        JobSpec(argv=("true",), count=50, checkpoints=("c",), priority=200),
        JobSpec(argv=("true",), count=20, outputs=("o",), keep_logs=True),
        JobSpec(argv=("true",), count=4, span=4),
    ):
        await attacked.pool.submit(spec)


@contextlib.asynccontextmanager
async def attacked_pool() -> AsyncIterator[Attacked]:
    """A pool that is there for the length of a `with`."""
    with tempfile.TemporaryDirectory(prefix="kestrel-attack-") as name:
        attacked = Attacked(Path(name))
        try:
            await attacked.up()
            yield attacked
        finally:
            await attacked.command("down", "--name", NAME, "--delete", "--yes")


async def main(options: argparse.Namespace) -> int:
    began = time.monotonic()
    dice = Random(options.seed)
    async with attacked_pool() as attacked:
        await attacked.keep()
        attackers: list[UserAttack | WorkerAttack] = [
            (UserAttack if options.role == "user" else WorkerAttack)(
                attacked, name, dice.randrange(1 << 30)
            )
            for name in ("mallory", "mordred", "own")
        ]
        while time.monotonic() < began + options.seconds:
            if options.role == "worker":
                await bait(attacked)
            await asyncio.gather(*(each.attack(ROUND) for each in attackers))
            await attacked.look()
            print(f"{time.monotonic() - began:.0f} s: {dict(attacked.counts)}", flush=True)
            if attacked.findings and not options.go_on:
                break
        await attacked.type_commands()
        await attacked.down()
        await attacked.up()
        await attacked.look()
        await attacked.type_commands()
        attacked.read_logs()
    for finding in dict.fromkeys(attacked.findings):
        print(f"FOUND: {finding}")
    print("it did not hold" if attacked.findings else "it held", f"; seed {options.seed}", sep="")
    return 1 if attacked.findings else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("role", choices=("user", "worker"), help="as whom")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--go-on", action="store_true", help="also after a finding")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
