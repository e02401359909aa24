"""Accounts of users that send nasty requests as fast as they are answered, and in odd order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from random import Random
from typing import Any

from attacked import Attacked
from nasty import TAME, Nasty, kinds
from puppet import Puppet

from kestrelctl.protocol import codec, directions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import GraphJob

#: Of one account, before the pool is looked at.
MESSAGES = 150
#: What somebody types into a chat.
_WORDS = (
    "help", "submit {}", "jobs", "job {}", "status", "cancel {}", "hold {}", "release {}",
    "retry {}", "log {}", "why {}", "yes", "no", "stop", "workers", "forget {}", "{}",
)  # fmt: skip
#: Of the same jobs at once, thousands of times.
_ORDERS = (rq.ReleaseJobs, rq.RetryJobs, rq.CancelJobs, rq.HoldJobs, rq.ScaleJob, rq.ForgetJobs)


class Users:
    """Three of them; one is the account that types commands: what it sends is shown there."""

    def __init__(self, attacked: Attacked, dice: Random) -> None:
        self._each = [
            UserAttack(attacked, name, dice.randrange(1 << 30))
            for name in ("mallory", "mordred", "own")
        ]

    async def attack(self) -> None:
        await asyncio.gather(*(each.attack(MESSAGES) for each in self._each))


class UserAttack:
    """One account of a user that sends requests."""

    def __init__(self, attacked: Attacked, name: str, seed: int) -> None:
        self._attacked = attacked
        self._name = name
        self._dice = Random(seed)
        self._nasty = Nasty(self._dice, TAME)
        self._kinds = [
            kind for kind in kinds(rq.AnyRequest) if kind.__struct_config__.tag != "enroll"
        ]
        self._waiting: dict[str, str] = {}
        self._number = 0

    async def attack(self, messages: int) -> None:
        state = self._attacked.pool.state
        name, password = self._name, ""
        if name == "own":
            name = state.user.partition("@")[0]
            password = Path(state.password_file).read_text().strip()
        async with Puppet(state, name, "users", password=password) as puppet:
            to = f"jobs@{state.domain}"
            listening = asyncio.create_task(self._listen(puppet))
            for _ in range(messages):
                self._number += 1
                await self._one(puppet, to, state.domain)
                deadline = time.monotonic() + self._attacked.patience_seconds
                while len(self._waiting) > 20:
                    if time.monotonic() > deadline:
                        break
                    await asyncio.sleep(0.01)
            deadline = time.monotonic() + self._attacked.patience_seconds
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
                directions.answers.decode(json.dumps(answer))
            except codec.BadMessage as error:
                self._attacked.findings.append(f"no user can read {answer!r:.600}: {error}")
            if "failed at this request" in str(answer.get("message")):
                self._attacked.findings.append(f"the manager failed: {answer!r:.600}")
            if isinstance(answer.get("job_id"), int):
                self._nasty.known = [*self._nasty.known, answer["job_id"]][-50:]
