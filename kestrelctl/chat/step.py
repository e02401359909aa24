"""The outcome of a message: an answer at once, or a request whose reply tells how to go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kestrelctl.chat.sentences import problem
from kestrelctl.errors import KestrelError, NotAllowed
from kestrelctl.protocol.request import Failed, Reply
from kestrelctl.protocol.requests import AnyRequest


class NotDone(str):
    """An answer that says why nothing was done."""

    __slots__ = ()


@dataclass(frozen=True)
class Step:
    """A request to the pool.

    Attributes:
        then: what to say, or to ask next, from the reply.
        job: the job that it is about; all that is said of another user's job is that it is not his.
        otherwise: the same if the pool refuses; None to tell its reasons.
        changes: whether it leads to something that stays, such as a job.
    """

    request: AnyRequest
    then: Callable[[Reply], str | Step]
    job: str = ""
    otherwise: Callable[[Failed], str | Step] | None = None
    changes: bool = False

    def answer(self, reply: Reply) -> str | Step:
        """Returns what to say, or to ask next."""
        if isinstance(reply, Failed):
            return self.otherwise(reply) if self.otherwise else refusal(reply, self.job)
        try:
            return self.then(reply)
        except KestrelError as error:
            return NotDone(problem(error))


def refusal(failed: Failed, job: str) -> NotDone:
    """Explains why the pool refuses something."""
    if failed.code == NotAllowed.code and job:
        if failed.cause:  # of several it was done for some
            words = f"not all of {job} are jobs of yours"
            return NotDone(problem(KestrelError(words, cause=failed.cause)))
        return no_such_job(job)
    return NotDone(problem(KestrelError(failed.message, cause=failed.cause, hint=failed.hint)))


def no_such_job(job: str) -> NotDone:
    """Says that a job is not there, or belongs to somebody else."""
    return NotDone(f"There is no job {job} of yours. To see yours, write: jobs")
