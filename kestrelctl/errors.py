"""Every error a user can see, in one tree.

KestrelError                    1  something failed
├── UsageError                  2  the command line or a job file is wrong
├── TasksFailed                 3  the job ended, but not all of its tasks succeeded
├── NotAllowed                  4  wrong credentials, or somebody else's job
├── Unreachable                 5  the server or the manager does not answer
├── TimedOut                    6  the given time ran out before the thing was done
├── NotFound                    7  no such job, task or worker
├── StoreFull                   8  the manager could not write to its store
├── MissingTool                 9  a program that is needed is not installed
├── Untrusted                  10  the server cannot prove that it is the one that is meant
├── HostsFailed                11  what was to be done on many hosts failed on some
├── Busy                       12  the account has too much under way; nothing was done
├── Incomplete                 13  only a part of what was asked for can be had
├── StoreUnusable              14  the manager's store is damaged, or not for this program
├── OverQuota                  15  the user or his group would have more tasks than they may
└── SteppedBack                16  the pool has gone on with another manager

The number is the exit status of `kestrelctl`; `docs/exit-codes.md` lists them for users.
"""

from __future__ import annotations

import errno

#: The system's errors where there is no room: the disk is full, or a quota is used up. Other errors
#: mean something else: a name that is too long, a file system that is mounted read-only.
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def why(error: Exception) -> str:
    """Returns the system's words for an error, without its number and the file; or its text."""
    return getattr(error, "strerror", None) or str(error)


class KestrelError(Exception):
    """Something failed.

    Args:
        message: what happened, one line.
        cause: why, one line, if known; further lines show where, with a caret.
        hint: what to do about it, ideally a command.
    """

    exit_status = 1
    code = "error"

    def __init__(
        self, message: str | None = None, *, cause: str | None = None, hint: str | None = None
    ) -> None:
        self.message = message or (self.__doc__ or "").strip().splitlines()[0]
        self.cause = cause
        self.hint = hint
        super().__init__(self.message)


class UsageError(KestrelError):
    """The command line or the job file is wrong."""

    exit_status = 2
    code = "usage"


class TasksFailed(KestrelError):
    """Not all tasks of the job succeeded."""

    exit_status = 3
    code = "tasks-failed"


class NotAllowed(KestrelError):
    """The pool does not allow this."""

    exit_status = 4
    code = "not-allowed"


class Unreachable(KestrelError):
    """The pool cannot be reached."""

    exit_status = 5
    code = "unreachable"


class Undelivered(Unreachable):
    """The server returned the request: the manager has not read it."""


class TimedOut(KestrelError):
    """The time ran out."""

    exit_status = 6
    code = "timed-out"


class NotFound(KestrelError):
    """There is no such thing in the pool."""

    exit_status = 7
    code = "not-found"


class StoreFull(KestrelError):
    """The manager cannot write to its store."""

    exit_status = 8
    code = "store-full"


class MissingTool(KestrelError):
    """A program that is needed is not installed."""

    exit_status = 9
    code = "missing-tool"


class Untrusted(KestrelError):
    """The server cannot prove that it is the one that is meant."""

    exit_status = 10
    code = "untrusted"


class HostsFailed(KestrelError):
    """Something failed on some hosts."""

    exit_status = 11
    code = "hosts-failed"


class Busy(KestrelError):
    """The account has too much under way: nothing was done, and asking again later is safe."""

    exit_status = 12
    code = "busy"


class FileChanged(KestrelError):
    """A file was changed while it was read."""


class FileDamaged(KestrelError):
    """The file that came is not the one that was sent."""


class FileExpired(NotFound):
    """The pool's file share does not keep the file any more."""


class NoSpace(KestrelError):
    """The disk is full."""


class Incomplete(KestrelError):
    """Only a part of it can be had."""

    exit_status = 13
    code = "incomplete"


class StoreUnusable(KestrelError):
    """The manager's store cannot be used as it is; trying again does not help."""

    exit_status = 14
    code = "store-unusable"

    @classmethod
    def damaged(cls, path: object, cause: str) -> StoreUnusable:
        """The store at a path is damaged."""
        return cls(
            "The manager's store is damaged",
            cause=cause,
            hint=f"restore {path} from a backup, or move it away to start with an empty one",
        )


class OverQuota(KestrelError):
    """There would be more tasks than the pool's operator allows; nothing was done."""

    exit_status = 15
    code = "over-quota"


class StoreTaken(StoreUnusable):
    """Another manager has the store now."""


class AnotherLeads(KestrelError):
    """Another manager of the pool leads; this one can stand by."""


class SteppedBack(KestrelError):
    """The pool has gone on with another manager; trying again does not help."""

    exit_status = 16
    code = "stepped-back"


BY_CODE: dict[str, type[KestrelError]] = {
    cls.code: cls
    for cls in (
        KestrelError,
        UsageError,
        TasksFailed,
        NotAllowed,
        Unreachable,
        TimedOut,
        NotFound,
        StoreFull,
        MissingTool,
        Untrusted,
        HostsFailed,
        Busy,
        Incomplete,
        StoreUnusable,
        OverQuota,
        SteppedBack,
    )
}
