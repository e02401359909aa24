"""What users ask of the pool. `docs/protocol.md` shows one of each.

`jobs` selects jobs: `last`, `all` (the active ones of the asking user), or ids and ranges like
`3,5-9`. Every request carries an `id` that its answer repeats.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kestrelctl.core.members.enrollment import DEFAULT_SECONDS
from kestrelctl.core.model.result import Count, Whole
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.core.model.task_state import TaskState
from kestrelctl.protocol.work import Message

MAX_KEY_CHARACTERS = 200

#: Short, because whatever is answered repeats it.
RequestId = Annotated[str, msgspec.Meta(max_length=100)]


class Request(Message, frozen=True, kw_only=True):
    """Anything a user asks."""

    id: RequestId = ""


class SubmitJob(Request, frozen=True, kw_only=True, tag="submit"):
    """Run a job. Answered by `submitted` once it is durable.

    Attributes:
        upload: name of lines sent before with `upload_items`, to be the job's items.
        watch: whether to be told when it ends, as after `watch`.
        key: a word of the client's own for this submission, which makes it safe to send again: one
            with a key that the user has used is answered with the job that it made then. It is
            refused if its spec is another. Empty for none: then each submission is a new job. The
            key of a forgotten job is free again.
    """

    spec: JobSpec
    upload: str = ""
    watch: bool = False
    key: Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)] = ""


class UploadItems(Request, frozen=True, kw_only=True, tag="upload_items"):
    """Lines for a job to come, in pieces that fit into a stanza. Kept for a minute."""

    upload: str
    lines: list[str]


class CancelJobs(Request, frozen=True, kw_only=True, tag="cancel"):
    """Stop jobs, running tasks included. Answered by `changed`."""

    jobs: str


class ListJobs(Request, frozen=True, kw_only=True, tag="job_status"):
    """Answered by `jobs`, newest last.

    Attributes:
        jobs: a selection; empty for the newest `limit`.
        owner: only his; empty for everybody's.
        states: only these; empty for any.
    """

    jobs: str = ""
    owner: str = ""
    states: list[str] = []
    limit: Count = 100


class ListTasks(Request, frozen=True, kw_only=True, tag="tasks"):
    """Answered by `tasks`: a page, in the order of the array.

    Attributes:
        states: only tasks in these states; empty for any.
        after: the index after which the page starts.
    """

    job: str
    states: list[TaskState] = []
    after: Whole = -1
    limit: Count = 1000
    ids: list[Whole] = []


class Watch(Request, frozen=True, kw_only=True, tag="watch"):
    """Be told when jobs end. Answered by `jobs` at once, then `ended` for each.

    Holds for a minute; ask again to keep it (and to see how far they are).
    """

    jobs: str


class Logs(Request, frozen=True, kw_only=True, tag="logs"):
    """Output of a task: what the manager has, or from the worker that ran it. Answered by `log`."""

    job: str
    task_id: Whole
    stream: str = "stdout"
    offset: Count = 0


class RetryJobs(Request, frozen=True, kw_only=True, tag="retry"):
    """Run tasks again that ended badly. Answered by `changed`."""

    jobs: str
    task_ids: list[Whole] = []


class ExplainJob(Request, frozen=True, kw_only=True, tag="explain"):
    """Why tasks of a job wait. Answered by `explanation`."""

    job: str


class TellStory(Request, frozen=True, kw_only=True, tag="story"):
    """What happened to a job and its tasks. Answered by `story`.

    Attributes:
        task_ids: the tasks to tell of from beginning to end; empty for the job itself and the
            latest happenings of its tasks. A job with one task is always told with it.
        limit: at most so many entries; those of the job go before those of its tasks, late ones
            before early ones.
    """

    job: str
    task_ids: list[Whole] = []
    limit: Count = 200


class ForgetJobs(Request, frozen=True, kw_only=True, tag="forget"):
    """Delete ended jobs and their results. Answered by `changed`."""

    jobs: str


class ListWorkers(Request, frozen=True, kw_only=True, tag="workers"):
    """Answered by `workers`.

    Attributes:
        names: a part of the address each; empty for all.
    """

    names: list[str] = []
    limit: Count = 1000
    after: str = ""


class DrainWorkers(Request, frozen=True, kw_only=True, tag="drain"):
    """Give workers nothing new (admins only). Answered by `changed`."""

    names: list[str]


class ResumeWorkers(Request, frozen=True, kw_only=True, tag="resume"):
    """End a drain or quarantine (admins only). Answered by `changed`."""

    names: list[str]


class EnrollWorker(Request, frozen=True, kw_only=True, tag="enroll"):
    """Let a machine join as a worker (admins only). Answered by `enrolled`.

    Attributes:
        name: under which it joins; empty to let the machine choose.
        valid_seconds: how long it may take to do so, from a minute to 30 days.
    """

    name: str = ""
    valid_seconds: float = DEFAULT_SECONDS


class RevokeWorkers(Request, frozen=True, kw_only=True, tag="revoke"):
    """Delete workers' accounts, and so end their sessions (admins only). Answered by `changed`.

    Attributes:
        names: whole names or addresses of accounts; parts of them do not count.
    """

    names: list[str]


class PoolStatus(Request, frozen=True, kw_only=True, tag="pool_status"):
    """Answered by `pool`."""


class PoolOverview(Request, frozen=True, kw_only=True, tag="pool_overview"):
    """Answered by `overview`, which is made anew at most once a second however many ask.

    Attributes:
        jobs: at most so many of the active ones.
    """

    jobs: Count = 100


class PoolTraffic(Request, frozen=True, kw_only=True, tag="pool_traffic"):
    """What the manager has received and sent. Answered by `traffic`."""


AnyRequest = (
    SubmitJob
    | UploadItems
    | CancelJobs
    | ListJobs
    | ListTasks
    | Watch
    | Logs
    | RetryJobs
    | ExplainJob
    | TellStory
    | ForgetJobs
    | ListWorkers
    | DrainWorkers
    | ResumeWorkers
    | EnrollWorker
    | RevokeWorkers
    | PoolStatus
    | PoolTraffic
    | PoolOverview
)

ENDED_STATES = ("done", "failed", "cancelled")
JOB_STATES = ("active", *ENDED_STATES)
