"""The parts that all requests of users have in common, and the users who may make each of them.

A request is an `AdminRequest`, a `JobRequest` or `JobsRequest` (those of an owner of jobs), or a
`UserRequest`. The manager checks that in one place, `manager.rights`, before anything serves it.
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar

import msgspec

from kestrelctl.errors import BY_CODE, KestrelError
from kestrelctl.protocol.message import Message


class Reply(Message, frozen=True, kw_only=True):
    """Anything the pool says to a user; `id` is that of the request."""

    id: str


class Failed(Reply, frozen=True, kw_only=True, tag="error"):
    """The request was refused or failed; `code` is one of those in `docs/exit-codes.md`."""

    code: str
    message: str
    cause: str = ""
    hint: str = ""

    def error(self) -> KestrelError:
        """Returns it as the error of its code."""
        kind = BY_CODE.get(self.code, KestrelError)
        return kind(self.message, cause=self.cause or None, hint=self.hint or None)


class Changed(Reply, frozen=True, kw_only=True, tag="changed"):
    """The changes by a request: job ids or worker addresses, and how many tasks they concern.

    Attributes:
        kept: how many jobs that were meant were left as they are. Jobs to be cancelled have ended;
            jobs to be forgotten have not; jobs to be held or released were so before, or are not
            active.
        left: how many are still to be done, because one answer cannot name them: ask again.
        missing: how many ids in ranges belong to no job.
    """

    what: list[str]
    tasks: int = 0
    kept: int = 0
    left: int = 0
    missing: int = 0


#: It is short, because every answer repeats it.
RequestId = Annotated[str, msgspec.Meta(max_length=100)]


class Among(enum.Enum):
    """The jobs that a selection of several is about; `all` and ranges pass over others."""

    ANY = "any"
    ACTIVE = "active"
    ENDED = "ended"
    HELD = "held"
    UNHELD = "unheld"  #: active, not on hold, and not being cancelled


class Request(Message, frozen=True, kw_only=True):
    """Anything a user asks.

    Attributes:
        answered_by: the answer, unless it is `Failed`, and what is pushed because of the request.
        repeats: it is sent again when no answer comes: it only reads, and costs little.

    Raises:
        TypeError: a request is defined that does not say who may make it.
    """

    answered_by: ClassVar[tuple[type[Reply], ...]] = ()
    repeats: ClassVar[bool] = False

    id: RequestId = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if Request in cls.__bases__ and cls.__module__ != __name__:
            raise TypeError(
                f"{cls.__name__} must say whose it is: AdminRequest, JobRequest, JobsRequest or "
                "UserRequest"
            )

    def may_repeat(self) -> bool:
        """Whether it does no harm to do it twice."""
        return self.repeats


class UserRequest(Request, frozen=True, kw_only=True):
    """A request of any user. Its answer is about the pool, or shows what all may see of others."""


class AdminRequest(Request, frozen=True, kw_only=True):
    """A request that only an admin of the pool may make.

    Attributes:
        only_admins_may: what it does, as an error says it.
    """

    only_admins_may: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not getattr(cls, "only_admins_may", ""):
            raise TypeError(f"{cls.__name__} must say what it does: only_admins_may")

    def objection(self, account: str) -> str:
        """Explains why an account that is no admin may not make it; empty if it may make it."""
        return f"only an admin of the pool may {self.only_admins_may}"


class JobRequest(Request, frozen=True, kw_only=True):
    """A request about exactly one job: its owner and admins may make it.

    Attributes:
        shared: in a pool that shares jobs, any user may make it.
    """

    shared: ClassVar[bool] = False

    job: str


class JobsRequest(Request, frozen=True, kw_only=True):
    """A request about several jobs: their owner and admins may make it.

    Attributes:
        shared: in a pool that shares jobs, any user may make it.
        among: which of the jobs that it selects are meant.
        in_part: it is served for jobs of one's own, though it also selects jobs of others, and is
            refused when that is done; otherwise it is refused whole.
    """

    shared: ClassVar[bool] = False
    among: ClassVar[Among] = Among.ANY
    in_part: ClassVar[bool] = True

    jobs: str
