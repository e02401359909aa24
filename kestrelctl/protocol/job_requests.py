"""Requests about jobs. `docs/protocol.md` shows one of each.

`jobs` selects jobs: `last`, `all` (the active ones of the asking user; for `forget`, those that
have ended), `name:GLOB` (the same by name), or ids and ranges like `3,5-9`. An id must be there; a
range may have gaps.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.model.job.hold import MAX_HOLD_REASON_CHARACTERS
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shell_text import numbered
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.numbers import Count, Place, Seconds, Whole
from kestrelctl.protocol.job_answers import (
    Ended,
    FollowedLog,
    GraphSubmitted,
    JobExplanation,
    JobGraph,
    Jobs,
    Log,
    LogPage,
    OutputPage,
    Story,
    Submitted,
    SubmittedEach,
    Tasks,
)
from kestrelctl.protocol.request import Among, Changed, JobRequest, JobsRequest, UserRequest

MAX_KEY_CHARACTERS = 200
#: The most jobs that one message submits.
MOST_TOGETHER = 100


class SubmitJob(UserRequest, frozen=True, kw_only=True, tag="submit"):
    """Run a job. Answered by `submitted` once it is durable.

    Attributes:
        upload: name of lines sent before with `upload_items`, to be the job's items.
        watch: whether to be told when it ends, as after `watch`.
        explain: whether the answer is to say why if nothing could ever run the job.
        key: a word of the client's own for this submission, which makes it safe to send again: a
            submission with a key that the user has used is answered with the job that it made then,
            or is refused if its spec is another. Empty for none: then each submission is a new job.
            The key of a forgotten job is free again.
    """

    answered_by = (Submitted, Ended)

    spec: JobSpec
    upload: str = ""
    watch: bool = False
    explain: bool = False
    key: Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)] = ""

    def may_repeat(self) -> bool:
        """Whether it has a key, and no uploaded lines: they can be taken only once."""
        return bool(self.key) and not self.upload


class SubmitEach(UserRequest, frozen=True, kw_only=True, tag="submit_each"):
    """Run several jobs, each as if it had come by itself: one may be refused while others are
    taken. Answered by `submitted_each` once all that were taken are durable.

    Attributes:
        jobs: their `explain` is passed over.
    """

    answered_by = (SubmittedEach, Ended)

    jobs: Annotated[list[SubmitJob], msgspec.Meta(min_length=1, max_length=MOST_TOGETHER)]

    def may_repeat(self) -> bool:
        """Whether each of them may be sent twice."""
        return all(job.may_repeat() for job in self.jobs)


class SubmitLine(UserRequest, frozen=True, kw_only=True, tag="job"):
    """A job as the first Kestrel's job files put it. Answered by `submitted`.

    As then, its owner gets a chat message when it has ended.

    Attributes:
        command: a line for the shell; the id of the task, from 0, becomes its last argument.
        queue: how many tasks.
        cleanup: another line, run after each task, whatever came of it.
        requires: tags that a worker must provide, in a list or with spaces between them.
    """

    answered_by = (Submitted,)

    command: str
    queue: Count = 1
    cleanup: str = ""
    requires: list[str] | str = []

    def submission(self) -> SubmitJob:
        """Returns the same job as an ordinary submission."""
        requires = self.requires
        spec = JobSpec(
            program=Program(
                argv=numbered(self.command),
                cleanup=numbered(self.cleanup),
                placeholders=Placeholders.ARRAY if self.queue > 1 else Placeholders.NONE,
            ),
            count=self.queue,
            requires=tuple(requires.split() if isinstance(requires, str) else requires),
            notify=Notify.ALWAYS,
        )
        return SubmitJob(id=self.id, spec=spec)


class SubmitJobs(UserRequest, frozen=True, kw_only=True, tag="submit_jobs"):
    """Run several jobs, of which some wait for others: all of them or none. Answered by
    `graph_submitted` once they are durable.

    Attributes:
        upload: name of lines sent before with `upload_items`: a `GraphJob` each, as JSON.
        key: as in `submit`, for all of them; it goes with the first.
    """

    answered_by = (GraphSubmitted,)

    upload: str
    key: Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)] = ""


class UploadItems(UserRequest, frozen=True, kw_only=True, tag="upload_items"):
    """Lines for a job to come, in pieces that fit into a stanza. Kept for a minute."""

    answered_by = (Changed,)

    upload: str
    lines: list[str]


class CancelJobs(JobsRequest, frozen=True, kw_only=True, tag="cancel"):
    """Stop jobs, running tasks included. Answered by `changed`.

    Attributes:
        task_ids: only these tasks, of exactly one job; empty for all.
    """

    answered_by = (Changed,)
    among = Among.ACTIVE

    task_ids: list[Whole] = []


class HoldJobs(JobsRequest, frozen=True, kw_only=True, tag="hold"):
    """Hand nothing more of these jobs out; what is under way goes on. Answered by `changed`.

    In ranges, `all` and `name:GLOB`, jobs that are on hold are passed over. One that is named is
    `kept` as it is, with the reason that it has.
    """

    answered_by = (Changed,)
    among = Among.UNHELD

    reason: Annotated[str, msgspec.Meta(max_length=MAX_HOLD_REASON_CHARACTERS)] = ""


class ReleaseJobs(JobsRequest, frozen=True, kw_only=True, tag="release"):
    """Let jobs that are on hold go on. Answered by `changed`.

    In ranges, `all` and `name:GLOB`, jobs that are not on hold are passed over. One that is named
    is `kept` as it is.
    """

    answered_by = (Changed,)
    among = Among.HELD


class ListJobs(UserRequest, frozen=True, kw_only=True, tag="job_status"):
    """List jobs. Answered by `jobs`: a page, newest last. The first page has the newest.

    Jobs of others that have ended, and that the user may not see whole, are there only if `jobs` or
    `owner` ask for them.

    Attributes:
        jobs: a selection; empty for any.
        owner: only his; empty for everybody's.
        states: only these; empty for any.
        name: only jobs whose name fits this glob, and is for the user to know; empty for any.
        limit: the most on this page; 0 for as many as an answer may hold.
        before: the page ends before the job of this id; None for the first page.
        where: only jobs of which this expression is true; such a page may be empty, and the first
            does not say how many there are.
        details: also what lists leave out, for a job of one's own that is alone in the answer.
        ended_since: only jobs that have ended, at that time or later, in seconds since the epoch.
        used: also what their attempts took.
    """

    answered_by = (Jobs,)
    repeats = True

    jobs: str = ""
    owner: str = ""
    states: list[str] = []
    name: str = ""
    limit: Count = 100
    before: Count | None = None
    details: bool = False
    where: str = ""
    ended_since: Seconds | None = None
    used: bool = False


class ListTasks(JobRequest, frozen=True, kw_only=True, tag="tasks"):
    """List tasks. Answered by `tasks`: a page, in the order of the array.

    Attributes:
        states: only tasks in these states; empty for any.
        after: the index after which the page starts.
        items: whether each task comes with its item.
    """

    answered_by = (Tasks,)
    repeats = True
    shared = True

    states: list[TaskState] = []
    after: Place = -1
    limit: Count = 1000
    ids: list[Whole] = []
    items: bool = False


class ListOutputs(JobRequest, frozen=True, kw_only=True, tag="outputs"):
    """Tell where the files are that tasks of one's own job left. Answered by `output_page`.

    Attributes:
        after: the index after which the page starts.
        ids: only of these tasks, at most a thousand; empty for all.
    """

    answered_by = (OutputPage,)
    repeats = True

    after: Place = -1
    ids: list[Whole] = []


class Watch(UserRequest, frozen=True, kw_only=True, tag="watch"):
    """Be told when jobs end. Answered by `jobs` at once, then `ended` for each.

    Holds for a minute; ask again to keep it (and to see how far they are).
    """

    answered_by = (Jobs, Ended)
    repeats = True

    jobs: str


class Logs(JobRequest, frozen=True, kw_only=True, tag="logs"):
    """Fetch output of a task, from the manager or from the worker that ran it. Answered by `log`.

    Attributes:
        task_id: may be left out if the job has only one task.
        stored: whether to be told where it is, instead, if all of it is in the file share.
    """

    answered_by = (Log,)
    repeats = True

    task_id: Whole | None = None
    stream: str = "stdout"
    offset: Count = 0
    stored: bool = False


class FollowLogs(JobRequest, frozen=True, kw_only=True, tag="follow_logs"):
    """Fetch what a task has written by now. Answered by `followed_log`.

    Attributes:
        attempt: its output is wanted, from `offset` on; 0 for the one that runs, or else ran last.
        besides: an attempt of which all has been read: 0 does not mean that one, unless it runs.
    """

    answered_by = (FollowedLog,)

    task_id: Whole
    stream: str = "stdout"
    attempt: Count = 0
    offset: Count = 0
    besides: Count = 0


class AllLogs(JobRequest, frozen=True, kw_only=True, tag="all_logs"):
    """Fetch output of all tasks of a job that have, or may have, written something. Answered by
    `log_page`: as many as fit, in the order of the array.

    Attributes:
        after: the index after which the page starts.
        ids: only of these tasks, at most a thousand; empty for all. Managers before version 0.3
            send that of all.
    """

    answered_by = (LogPage,)

    stream: str = "stdout"
    after: Place = -1
    ids: list[Whole] = []


class RetryJobs(JobsRequest, frozen=True, kw_only=True, tag="retry"):
    """Run again the tasks that ended badly. Answered by `changed`."""

    answered_by = (Changed,)
    in_part = False

    task_ids: list[Whole] = []


class ScaleJob(JobRequest, frozen=True, kw_only=True, tag="scale"):
    """Keep so many copies of a service running. Answered by `changed`."""

    answered_by = (Changed,)

    copies: Count


class ExplainJob(JobRequest, frozen=True, kw_only=True, tag="explain"):
    """Explain why tasks of a job wait. Answered by `explanation`."""

    answered_by = (JobExplanation,)
    repeats = True
    shared = True


class DrawGraph(JobsRequest, frozen=True, kw_only=True, tag="job_graph"):
    """Show what jobs wait for, and what waits for them. Answered by `graph`."""

    answered_by = (JobGraph,)
    repeats = True
    shared = True
    in_part = False


class TellStory(JobRequest, frozen=True, kw_only=True, tag="story"):
    """Tell what happened to a job and its tasks. Answered by `story`.

    Attributes:
        task_ids: the tasks to tell of from beginning to end; empty for the job itself and the
            latest happenings of its tasks. A job with one task is always told with it.
        limit: at most so many entries; those of the job go before those of its tasks, late ones
            before early ones.
    """

    answered_by = (Story,)
    repeats = True

    task_ids: list[Whole] = []
    limit: Count = 200


class ForgetJobs(JobsRequest, frozen=True, kw_only=True, tag="forget"):
    """Delete ended jobs and their results. Answered by `changed`.

    In ranges, `all` and `name:GLOB`, jobs that have not ended are kept.
    """

    answered_by = (Changed,)
    among = Among.ENDED


RequestAboutJobs: TypeAlias = (
    SubmitJob
    | SubmitEach
    | SubmitLine
    | SubmitJobs
    | UploadItems
    | CancelJobs
    | HoldJobs
    | ReleaseJobs
    | ListJobs
    | ListTasks
    | ListOutputs
    | Watch
    | Logs
    | FollowLogs
    | AllLogs
    | RetryJobs
    | ScaleJob
    | ExplainJob
    | DrawGraph
    | TellStory
    | ForgetJobs
)

ENDED_STATES = ("done", "failed", "cancelled")


JOB_STATES = ("active", *ENDED_STATES)
