"""Messages of the simplest workers: the profile of the first Kestrel, and the end of each task.

Each message is one JSON object that a person could type. `docs/protocol.md` shows one of each.
`manager.chat.profile_workers` turns them into the messages of `protocol.workers` and back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from kestrelctl.core.model.end_reason import CANCELLED, NO_REASON
from kestrelctl.core.model.job import placeholders
from kestrelctl.core.model.job.shell_text import as_line
from kestrelctl.core.model.job.template import fill_for, variables
from kestrelctl.core.model.numbers import Seconds
from kestrelctl.core.model.result import TAIL_BYTES, Outcome, Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.core.model.worker.isolation import is_reserved
from kestrelctl.core.model.worker.own_tags import first_own
from kestrelctl.errors import UsageError
from kestrelctl.protocol.message import Message
from kestrelctl.protocol.workers import Refused, Who

if TYPE_CHECKING:
    from kestrelctl.core.agent.agent import LocalAttempt

#: The version in the ad of a worker that speaks these messages.
VERSION = "profile"

_MEBIBYTE = 1 << 20
#: The number of the attempt, then its seal: first number, job id, first index, n, mark.
_ID = re.compile(r"(\d{1,19})\.(\d{1,19})\.(\d{1,19})\.(\d{1,19})\.(\d{1,19})\.(\d{1,19})")
_MOST = (1 << 63) - 1

#: 32 bits, as systems have; every store has room for its negative, too.
ExitStatus = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 32) - 1)]


class Profile(Message, frozen=True, kw_only=True, tag="profile"):
    """A worker joins, answers `who`, or offers something else than before.

    Attributes:
        os: such as Linux; the worker provides it, too.
        ram: MB (2^20 bytes) that tasks may take.
        cores: processors that tasks may take.
        provides: tags, in a list or with spaces between them.
        running: ids of all tasks that it still runs; None if it does not say.
    """

    os: str = ""
    ram: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    cores: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    provides: list[str] | str = []
    running: list[str] | None = None


class Finish(Message, frozen=True, kw_only=True, tag="finish"):
    """A task has ended.

    Attributes:
        id: as it came with the task.
        status: the exit status; minus the number of the signal that ended it.
        seconds: how long it ran; without it, the time since it was sent counts.
        output, error: what it wrote, as text; the last 4 KiB of each are kept.
    """

    id: str
    status: ExitStatus = 0
    seconds: Seconds | None = None
    output: str = ""
    error: str = ""


class Welcomed(Message, frozen=True, kw_only=True, tag="welcome"):
    """The worker is in."""


class RunTask(Message, frozen=True, kw_only=True, tag="task"):
    """Run a task now.

    Attributes:
        id: to be repeated in `finish`.
        task: its id in the job, for people.
        command: a line for the shell.
        cleanup: another, to be run after it, whatever came of it.
        env: what is to be added to the environment of both.
    """

    id: str
    job: int
    task: int
    command: str
    cleanup: str = ""
    env: dict[str, str] = {}
    time_limit_seconds: float | None = None


class CancelTask(Message, frozen=True, kw_only=True, tag="cancel"):
    """End a task, and say `finish` when it has ended."""

    id: str


FromProfileWorker = Profile | Finish
ToProfileWorker = Welcomed | RunTask | CancelTask | Who | Refused


def ad_of(profile: Profile, host: str) -> WorkerAd:
    """Returns the ad of a worker with a profile.

    Args:
        host: the name of its account.

    Raises:
        UsageError: such a worker cannot give itself a tag, or it offers what no worker can.
    """
    said = profile.provides
    tags = said.split() if isinstance(said, str) else said
    for tag in tags:
        _check_tag(tag, "provides")
    os_tag = "-".join(profile.os.upper().split())
    if os_tag:
        _check_tag(os_tag, "os")
        tags = [*tags, os_tag]
    own = first_own(tags)
    if own is not None:
        raise UsageError(f"no tag {own.name}: simple workers do not {own.does}")
    assets = {"cpus": profile.cores}
    if profile.ram:
        assets["memory"] = profile.ram * _MEBIBYTE
    ad = WorkerAd(
        assets=assets,
        tags=(*dict.fromkeys(tags), placeholders.TAG),  # the pool fills commands for it
        host=host,
        os=profile.os,
        version=VERSION,
    )
    if problem := problem_with_ad(ad):
        raise UsageError(problem)
    return ad


def _check_tag(tag: str, where: str) -> None:
    if not tag or tag.split() != [tag] or "," in tag:
        raise UsageError(f"{tag[:40]!r} in {where} is not one word")
    if is_reserved(tag):
        raise UsageError(f"{tag[:40]!r} in {where} says how tasks are isolated; leave it out")


class TaskId(msgspec.Struct, frozen=True):
    """The id of a sent task: its attempt, and the seal that shows that it was sent."""

    number: int
    seal: Seal

    @property
    def job_id(self) -> int:
        """The id of the attempt's job."""
        return self.seal[1]

    @property
    def index(self) -> int:
        """The index of the task in its job."""
        return self.seal[2] + self.number - self.seal[0]

    def __str__(self) -> str:
        return ".".join(map(str, (self.number, *self.seal)))

    @classmethod
    def parse(cls, text: str) -> TaskId | None:
        """The id in a text; None if no pool would write it that way."""
        found = _ID.fullmatch(text)
        if found is None:
            return None
        number, *seal = map(int, found.groups())
        made = cls(number, (seal[0], seal[1], seal[2], seal[3], seal[4]))
        inside = 0 <= number - seal[0] < seal[3]
        return made if inside and max(number, made.index, *seal) <= _MOST else None


def task_message(attempt: LocalAttempt) -> RunTask:
    """Makes the message that has a worker run an attempt now."""
    template = attempt.template
    task_id, index, item = template.task_id(attempt.index), attempt.index, attempt.item
    command = fill_for(template, template.program.argv, index, item)
    cleanup = fill_for(template, template.program.cleanup, index, item)
    joined = "exec 2>&1; " if template.program.join else ""
    return RunTask(
        id=str(TaskId(attempt.number, attempt.seal)),
        job=template.job_id,
        task=task_id,
        command=joined + as_line(command, task_id),
        cleanup=joined + as_line(cleanup, task_id) if cleanup else "",
        env=variables(template, index, item, attempt.count, attempt.hosts),
        time_limit_seconds=template.program.time_limit_seconds,
    )


def result_of(
    finish: Finish, task: TaskId, *, now: float, sent_at: float, cancelled: bool
) -> Result:
    """Makes a result from what a worker has reported.

    Args:
        now, sent_at: seconds since the epoch.
        cancelled: whether the worker was asked to end the task.
    """
    done = finish.status == 0
    seconds = max(0.0, finish.seconds if finish.seconds is not None else now - sent_at)
    output = finish.output.encode("utf-8", "replace")
    error = finish.error.encode("utf-8", "replace")
    ended = Outcome.KILLED if cancelled else Outcome.FAILED
    return Result(
        number=task.number,
        job_id=task.job_id,
        index=task.index,
        outcome=Outcome.DONE if done else ended,
        started_at=round(now - seconds, 6),
        wall_seconds=round(seconds, 6),
        exit_code=max(0, finish.status),
        signal=max(0, -finish.status),
        reason=CANCELLED if cancelled and not done else NO_REASON,
        stdout=output[-TAIL_BYTES:],
        stderr=error[-TAIL_BYTES:],
        stdout_bytes=len(output),
        stderr_bytes=len(error),
    )
