"""What runs attempts of other pools as jobs of the own one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.events import Cancel
from kestrelctl.core.model.claim import Claim
from kestrelctl.core.model.guest import GuestOf
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.core.model.template import Template
from kestrelctl.flock.service.guest_executor import GuestExecutor
from kestrelctl.manager.service import Service


def guest_job(number: int) -> JobSpec:
    """A job for one attempt of another pool."""
    template = Template(job_id=1, argv=("task",))
    attempt = LocalAttempt(number, template, 0, None, Claim({}), (number, 1, 0, 1, 0), 0.0)
    memo = msgspec.json.encode(HeldAttempt.of(attempt, "flock@birch"))
    of = GuestOf(pool="alder", job_id=1, user="ada@users.alder", loan="0123456789ab", memo=memo)
    return JobSpec(argv=("task",), guest=of)


def after_a_restart(events: list[Any]) -> GuestExecutor:
    """One that knows attempt 7, which an earlier process of the manager has begun as job 3."""
    service = SimpleNamespace(handle=events.append, now=lambda: 1.0)
    unused: Any = None
    executor = GuestExecutor(
        cast(Service, service), "flock:alder", unused, unused, unused, unused, unused, unused, {}
    )
    executor.remember(3, guest_job(7))
    return executor


async def test_what_nobody_goes_on_with_after_a_restart_is_cancelled_here() -> None:
    """Otherwise its job would run to its end, and nobody would be told of it."""
    events: list[Any] = []
    executor = after_a_restart(events)
    assert executor.kill(7)
    assert executor.left() == []
    [cancelled] = events
    assert isinstance(cancelled, Cancel)
    assert cancelled.job_id == 3
