"""Serves what users ask about jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from kestrelctl.core import events as ev
from kestrelctl.core.counting.percentile import percentile
from kestrelctl.core.effects import Answer, JobEnded
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import STAGES, StageRun
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.core.model.job.task_state import FINAL_STATES
from kestrelctl.core.model.names import is_called
from kestrelctl.core.model.objection import objection_to
from kestrelctl.core.model.records import JobRecord, TaskRecord, ended_tasks
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import Busy, KestrelError, UsageError
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests.descent import (
    below,
    ended_pairs,
    ended_parents,
    in_vain_no_more,
    stopped_in_vain_no_more,
)
from kestrelctl.manager.requests.environments import no_environments, with_environment
from kestrelctl.manager.requests.parent_files import check_parents
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.requests.steady_reads import ForSubmission, SteadyReads
from kestrelctl.manager.requests.where import listed_job, where_jobs
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.selection import MAX_RECORDS, Selected, Selection, check_glob
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import job_requests as rq
from kestrelctl.protocol.handout import problem_with_size
from kestrelctl.protocol.job_answers import NeighbourAnswer, StageSum
from kestrelctl.store.sums import Used

#: The most tasks of which stages are summed up, those of one page; and the most that are looked up
#: in several jobs.
MOST_TASKS = 1000


def stage_sums(rows: Iterable[TaskRecord]) -> list[StageSum]:
    """Sums up what each stage took in the latest attempts of tasks, in the order of the stages."""
    found: dict[str, list[StageRun]] = {name: [] for name in STAGES}
    for row in rows:
        for run in row.result.stages if row.result is not None else ():
            found[run.name].append(run)
    return [
        StageSum(
            name=name,
            tasks=len(runs),
            mean_seconds=sum(run.wall_seconds for run in runs) / len(runs),
            repeated=sum(run.tries - 1 for run in runs),
        )
        for name, runs in found.items()
        if runs
    ]


#: A submission, and who is told what becomes of it.
Submission: TypeAlias = tuple[Caller, rq.SubmitJob]

KEPT_SECONDS = 60.0
#: The most sessions of one account that watch one job.
MOST_SESSIONS = 20


class _HasJid(Protocol):
    @property
    def jid(self) -> str: ...


T = TypeVar("T", bound=_HasJid)


class Watchers(Generic[T]):
    """Watchers by job; one that does not ask again for a minute is dropped."""

    def __init__(self) -> None:
        self._by_job: dict[int, dict[str, tuple[float, T]]] = {}

    def add(self, job_id: int, watcher: T, now: float) -> None:
        """Watches a job, or goes on doing so."""
        known = self._by_job.get(job_id, {})
        live = {jid: entry for jid, entry in known.items() if entry[0] >= now}
        live.pop(watcher.jid, None)
        account = watcher.jid.partition("/")[0]
        own = [jid for jid in live if jid.partition("/")[0] == account]
        if len(own) >= MOST_SESSIONS:
            del live[own[0]]  # the one that asked longest ago
        live[watcher.jid] = (now + KEPT_SECONDS, watcher)
        self._by_job[job_id] = live

    def pop(self, job_id: int, now: float) -> list[T]:
        """Takes out the watchers that are to be told that a job has ended."""
        found = self._by_job.pop(job_id, {})
        return [watcher for until, watcher in found.values() if until >= now]


#: An upload that is not submitted after so long is dropped, whatever is added to it.
LONGEST_SECONDS = 600.0
#: The most that one account may send ahead: bytes of JSON text, and uploads.
MOST_BYTES = 48 * 1024 * 1024
MOST_UPLOADS = 16
#: The most bytes that all accounts may send ahead together.
MOST_BYTES_TOGETHER = 128 * 1024 * 1024


class _Upload:
    """Pieces of one job's items."""

    def __init__(self, now: float) -> None:
        self.began_at = self.touched_at = now
        self.bytes = 0
        self.count = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes, count: int, now: float) -> None:
        self._pieces.append(piece)
        self.bytes += len(piece)
        self.count += count
        self.touched_at = now

    def lines(self) -> list[str]:
        decode = _decoder.decode
        return [line for piece in self._pieces for line in decode(piece)]


_decoder = msgspec.json.Decoder(list[str])


class Uploads:
    """Uploads by session and name."""

    def __init__(self) -> None:
        self._uploads: dict[tuple[str, str], _Upload] = {}

    @property
    def bytes(self) -> int:
        """The bytes that are held of all accounts."""
        return sum(upload.bytes for upload in self._uploads.values())

    def add(self, jid: str, name: str, lines: list[str], now: float) -> int:
        """Adds lines; returns how many there are now.

        Raises:
            Busy: other uploads of the account take the room.
            UsageError: this one alone takes more than an account may.
        """
        self.drop_old(now)
        key = (jid, name)
        piece = msgspec.json.encode(lines)
        upload = self._uploads.get(key)
        own = [each for each in self._uploads if _account(each) == _account(key)]
        held = sum(self._uploads[each].bytes for each in own)
        if (upload.bytes if upload else 0) + len(piece) > MOST_BYTES:
            self._drop(key)
            raise UsageError(
                "the items of the job are too large together",
                cause=f"the manager keeps {MOST_BYTES:,} bytes of them for one account",
                hint="submit them as several jobs",
            )
        if held + len(piece) > MOST_BYTES or (upload is None and len(own) >= MOST_UPLOADS):
            raise Busy(
                "no more items can be sent ahead by this account now",
                cause=f"{plural(len(own), 'upload')} of {held:,} bytes were not submitted yet",
                hint=f"submit them; what is not used is dropped after {KEPT_SECONDS:g} s",
            )
        self._make_room(len(piece), held, key)
        if upload is None:
            upload = self._uploads[key] = _Upload(now)
        upload.add(piece, len(lines), now)
        return upload.count

    def take(self, jid: str, name: str) -> list[str]:
        """Takes out the lines of an upload, which is over now.

        Raises:
            UsageError: there is no such upload (any more).
        """
        key = (jid, name)
        upload = self._uploads.get(key)
        if upload is None:
            raise UsageError("the job's items did not arrive", hint="submit it again")
        self._drop(key)
        return upload.lines()

    def drop_old(self, now: float) -> None:
        """Drops uploads that were not added to for a minute, or are not submitted after ten."""
        for key, upload in list(self._uploads.items()):
            if upload.touched_at + KEPT_SECONDS < now:
                self._drop(key)
            if upload.began_at + LONGEST_SECONDS < now:
                self._drop(key)

    def _make_room(self, size: int, held: int, key: tuple[str, str]) -> None:
        """Drops the oldest uploads of whoever holds most, unless that is the one who wants room."""
        while self.bytes + size > MOST_BYTES_TOGETHER:
            by_account: dict[str, int] = {}
            for each, upload in self._uploads.items():
                by_account[_account(each)] = by_account.get(_account(each), 0) + upload.bytes
            most = max(by_account, key=by_account.__getitem__)
            if by_account[most] <= held + size:
                raise Busy(
                    "the manager holds as many items of jobs to come as it can",
                    cause=f"{len(by_account)} accounts have sent {self.bytes:,} bytes ahead",
                    hint="try again in a minute",
                )
            theirs = [each for each in self._uploads if _account(each) == most]
            self._drop(min(theirs, key=lambda each: self._uploads[each].touched_at))

    def _drop(self, key: tuple[str, str]) -> None:
        self._uploads.pop(key, None)


def _account(key: tuple[str, str]) -> str:
    return key[0].partition("/")[0]


#: The most neighbours that are named in an explanation.
MOST_NEIGHBOURS = 100
#: Tells why each neighbour does not run the tasks of a job that wait, the nearest first.
Neighbourhood: TypeAlias = Callable[[Job], list[NeighbourAnswer]]


class JobRequests:
    """Serves requests to submit, cancel, hold, release, retry, forget, list, watch and explain."""

    def __init__(self, service: Service, selection: Selection, pending: PendingAnswers) -> None:
        self._service = service
        self._selection = selection
        self._pending = pending
        self._steady_reads = SteadyReads(service)
        self._uploads = Uploads()
        self._looks_at_uploads = False
        self._watchers: Watchers[Caller] = Watchers()
        #: Jobs whose retry is not durable yet: what the store says of their tasks is out of date.
        self._retrying: set[int] = set()
        #: Set by whatever keeps the pool in a flock.
        self.neighbours: Neighbourhood = lambda job: []
        #: Names the classes of environments that are started for a job's tasks, and the seconds
        #: until one is tried again if starts fail; set where there are some.
        self.environments: Callable[[Job], tuple[list[str], float | None]] = lambda job: ([], None)
        #: Names a worker that could run them if its machine's environments were gone; likewise.
        self.gives_way: Callable[[Job], str] = lambda job: ""
        #: Fills in what the tasks of a job run inside; set where there are classes of environments.
        self.inside: Callable[[TaskEnvironment], TaskEnvironment] = no_environments
        service.listen(JobEnded, self._on_job_ended)

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            rq.SubmitJob: self.submit,
            rq.SubmitLine: self.submit_line,
            rq.UploadItems: self.upload_items,
            rq.CancelJobs: self.cancel,
            rq.HoldJobs: self.hold,
            rq.ReleaseJobs: self.release,
            rq.ListJobs: self.list_jobs,
            rq.Watch: self.watch,
            rq.RetryJobs: self.retry,
            rq.ScaleJob: self.scale,
            rq.ExplainJob: self.explain,
            rq.ForgetJobs: self.forget,
        }

    async def submit_line(self, caller: Caller, request: rq.SubmitLine) -> None:
        await self.submit(caller, request.submission())

    async def submit(self, caller: Caller, request: rq.SubmitJob) -> None:
        [answer] = await self.submit_each([(caller, request)])
        if isinstance(answer, KestrelError):
            raise answer
        caller.reply(answer)

    async def submit_each(
        self, submissions: Sequence[Submission]
    ) -> list[an.Submitted | KestrelError]:
        """Submits jobs of one user with one look at the store and, mostly, one commit.

        Args:
            submissions: at least one. To each caller its job's end is told, if that is watched.

        Returns:
            What became of each.
        """
        found: dict[int, an.Submitted | KestrelError] = {}
        specs: dict[int, JobSpec] = {}
        for place, (caller, request) in enumerate(submissions):
            try:
                specs[place] = await self._submitted_spec(caller, request)
            except KestrelError as error:
                found[place] = error
        known = await self._steady_reads.for_submissions(
            submissions[0][0].user,
            [(submissions[place][1].key, [spec]) for place, spec in specs.items()],
        )
        makes: dict[int, Callable[[str], ev.Event]] = {}
        for (place, spec), depends in zip(specs.items(), known, strict=True):
            if isinstance(depends, KestrelError):
                found[place] = depends
            else:
                makes[place] = partial(self._submission, *submissions[place], spec, depends)
        answers = await self._pending.each_answer_to(makes.values())
        for place, answer in zip(makes, answers, strict=True):
            if isinstance(answer, Answer):
                found[place] = self._submitted(*submissions[place], answer)
            else:
                found[place] = answer
        return [found[place] for place in range(len(submissions))]

    async def _submitted_spec(self, caller: Caller, request: rq.SubmitJob) -> JobSpec:
        """Returns the job that a request submits.

        Raises:
            UsageError: the job cannot be accepted.
        """
        spec = request.spec
        if request.upload:
            lines = self._uploads.take(caller.jid, request.upload)
            spec = msgspec.structs.replace(spec, items=tuple(lines), count=len(lines))
        spec = with_environment(spec, self.inside)
        problem = problem_with_job(spec) or problem_with_size(spec)
        if problem:
            raise UsageError("the job cannot be accepted", cause=problem)
        objection = objection_to(spec)
        if objection is not None:
            cause, hint = objection
            raise UsageError("the job cannot be accepted", cause=cause, hint=hint)
        await check_parents(self._service, spec)
        return spec

    def _submission(
        self,
        caller: Caller,
        request: rq.SubmitJob,
        spec: JobSpec,
        depends: ForSubmission,
        token: str,
    ) -> ev.Submit:
        return ev.Submit(
            at=self._service.now(),
            cause=caller.jid,
            request=token,
            owner=caller.user,
            spec=spec,
            key=request.key,
            earlier=depends.earlier,
            ended=depends.ended,
            paired=depends.paired,
        )

    def _submitted(self, caller: Caller, request: rq.SubmitJob, answer: Answer) -> an.Submitted:
        job = self._service.pool.job(answer.job_id)
        if request.watch and job is not None:
            self._watchers.add(answer.job_id, caller, self._service.now())
        hopeless = None
        if request.explain and job is not None and job.remaining:
            explanation = self._explanation(job)
            hopeless = explanation if explanation.is_hopeless else None
        return an.Submitted(
            id=request.id,
            job_id=answer.job_id,
            tasks=answer.tasks,
            repeated=answer.repeated,
            hopeless=hopeless,
        )

    def uploaded(self, caller: Caller, name: str) -> list[str]:
        """Takes out the lines that a caller has sent ahead; they are kept no longer.

        Raises:
            UsageError: there are none of that name.
        """
        return self._uploads.take(caller.jid, name)

    async def upload_items(self, caller: Caller, request: rq.UploadItems) -> None:
        held = self._uploads.add(caller.jid, request.upload, request.lines, self._service.now())
        self._look_at_uploads_later()
        caller.reply(an.Changed(id=request.id, what=[request.upload], tasks=held))

    def _look_at_uploads_later(self) -> None:
        """Drops in time what nobody submits, even if nobody sends anything."""
        if not self._looks_at_uploads:
            self._looks_at_uploads = True
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._look_at_uploads)

    def _look_at_uploads(self) -> None:
        self._looks_at_uploads = False
        self._uploads.drop_old(self._service.now())
        if self._uploads.bytes:
            self._look_at_uploads_later()

    async def cancel(self, caller: Caller, request: rq.CancelJobs, selected: Selected) -> None:
        indexes: list[int] = []
        if request.task_ids:
            record = await self._selection.one(selected, request.jobs)
            indexes = self._selection.indexes(record, request.task_ids)
        ids = selected.ids
        found = await self._pending.answers_to(
            lambda token, job_id=job_id: ev.Cancel(  # type: ignore[misc]
                at=self._service.now(),
                cause=caller.jid,
                request=token,
                job_id=job_id,
                indexes=indexes,
            )
            for job_id in ids
        )
        tasks = sum(answer.tasks for answer in found)
        if indexes and not tasks:
            ids = []
        await self._selection.refuse_others(selected, len(ids))
        caller.reply(
            an.Changed(
                id=request.id,
                what=list(map(str, ids)),
                tasks=tasks,
                kept=selected.passed_over,
                left=selected.left,
                missing=selected.missing,
            )
        )

    async def hold(self, caller: Caller, request: rq.HoldJobs, selected: Selected) -> None:
        found = await self._pending.answers_to(
            lambda token, job_id=job_id: ev.PutOnHold(  # type: ignore[misc]
                at=self._service.now(),
                cause=caller.jid,
                request=token,
                by=caller.user,
                job_id=job_id,
                reason=request.reason,
            )
            for job_id in selected.ids
        )
        await self._selection.refuse_others(selected, len(found))
        caller.reply(_changed(request.id, found, selected))

    async def release(self, caller: Caller, request: rq.ReleaseJobs, selected: Selected) -> None:
        found = await self._pending.answers_to(
            lambda token, job_id=job_id: ev.Release(  # type: ignore[misc]
                at=self._service.now(),
                cause=caller.jid,
                request=token,
                job_id=job_id,
            )
            for job_id in selected.ids
        )
        await self._selection.refuse_others(selected, len(found))
        caller.reply(_changed(request.id, found, selected))

    async def retry(self, caller: Caller, request: rq.RetryJobs, selected: Selected) -> None:
        done: list[str] = []
        tasks = 0
        records = await self._selection.records(selected, request.jobs)
        task_ids = list(dict.fromkeys(request.task_ids))
        if len(records) > 1 and len(task_ids) > MOST_TASKS:
            raise UsageError(
                f"{plural(len(task_ids), 'task')} are too many of several jobs",
                hint=f"name one job, or at most {MOST_TASKS:,} tasks",
            )
        ids = {record.job_id for record in records}
        for record in records:
            if record.spec.after_each not in ids:  # otherwise its tasks come back with those
                self._bad_of(record, task_ids)
        for record in records:
            job_id = record.job_id
            if job_id in self._retrying:
                raise KestrelError(f"job {job_id} is being retried just now", hint="try again")
            self._retrying.add(job_id)
            try:
                tasks += await self._retry(caller, job_id, task_ids)
            except UsageError:
                if str(record.spec.after_each) not in done:
                    raise
                continue  # its tasks came back with those that they wait for
            finally:
                self._retrying.discard(job_id)
            done.append(str(job_id))
        found = await self._retry_behind(caller, [record.job_id for record in records])
        tasks += sum(answer.tasks for answer in found)
        done += [str(answer.job_id) for answer in found]
        caller.reply(an.Changed(id=request.id, what=done, tasks=tasks))

    async def _retry_behind(self, caller: Caller, job_ids: list[int]) -> list[Answer]:
        """Brings jobs back that ended because these did not end well: they wait again."""
        store = self._service.store
        behind = [
            job_id
            async for job_id in below(store, job_ids)
            if self._service.pool.job(job_id) is None
        ]
        answers: list[Answer] = []
        for start in range(0, len(behind), MAX_RECORDS):
            ids = behind[start : start + MAX_RECORDS]
            stopped = stopped_in_vain_no_more(store, ids, self._service.pool.job)
            answers += await self._pending.answers_to(
                lambda token, record=record: self._retry_of(  # type: ignore[misc]
                    caller, token, record.job_id, store.ended_badly(record.job_id, []), rest=True
                )
                for record in stopped
            )
            answers += await self._retry_tasks_behind(caller, ids)
        return answers

    async def _retry_tasks_behind(self, caller: Caller, ids: list[int]) -> list[Answer]:
        """Does the same for single tasks of jobs that have ended; one job after the other, because
        tasks of one may wait for those of another.
        """
        store, pool = self._service.store, self._service.pool
        answers: list[Answer] = []
        for record in store.jobs(ids=ids, limit=len(ids)):
            job_id, parent = record.job_id, pool.job(record.spec.after_each)
            if parent is None or pool.job(job_id) is not None:
                continue
            waiting = in_vain_no_more(store, record, parent.bad)
            if waiting is not None:
                answers.append(
                    await self._pending.answer_to(
                        lambda token, job_id=job_id, bad=waiting: self._retry_of(  # type: ignore[misc]
                            caller, token, job_id, bad, rest=True
                        )
                    )
                )
        return answers

    def _retry_of(
        self, caller: Caller, token: str, job_id: int, bad: list[tuple[int, str]], *, rest: bool
    ) -> ev.Retry:
        """Makes the event that has tasks of a job run again that have ended badly.

        Args:
            bad: these, with their states.
            rest: whether those that never started come back, too.
        """
        store = self._service.store
        active = self._service.pool.job(job_id) is not None
        record = None if active else self._selection.whole_at_once(job_id)
        after = record.spec.after if record is not None else ()
        parent = record.spec.after_each if record is not None else 0
        ended = ended_tasks(record, store.ended_badly(job_id)) if record is not None else None
        return ev.Retry(
            at=self._service.now(),
            cause=caller.jid,
            request=token,
            job_id=job_id,
            record=record,
            indexes=bad,
            rest=rest,
            happenings=store.count_happenings(job_id),
            ended=ended_parents(store, record.owner, after) if record is not None else {},
            bad=ended.bad if ended is not None else [],
            paired=ended_pairs(store, None, [parent]).get(parent),
        )

    async def _retry(self, caller: Caller, job_id: int, task_ids: list[int]) -> int:
        record = await self._selection.record(job_id)
        bad = self._bad_of(record, task_ids)
        whole = not task_ids
        answer = await self._pending.answer_to(
            lambda token: self._retry_of(caller, token, record.job_id, bad, rest=whole)
        )
        return answer.tasks

    def _bad_of(self, record: JobRecord, task_ids: list[int]) -> list[tuple[int, str]]:
        """The tasks of a job that ended badly, with their states.

        Args:
            task_ids: of these; empty for all.

        Raises:
            NotFound: it has no such task.
            UsageError: there is nothing to retry.
        """
        indexes = self._selection.indexes(record, task_ids)
        bad = self._service.store.ended_badly(record.job_id, indexes)
        never_started = record.cancelling or (
            record.state != "active" and record.cursor < record.spec.count
        )
        if not bad and (task_ids or not never_started):
            raise UsageError(
                f"job {record.job_id} has no such task that failed, was lost or cancelled",
                hint="`kestrelctl job retry JOBS --failed` leaves alone what is well",
            )
        return bad

    async def scale(self, caller: Caller, request: rq.ScaleJob, record: JobRecord) -> None:
        answer = await self._pending.answer_to(
            lambda token: ev.ScaleService(
                at=self._service.now(),
                cause=caller.jid,
                request=token,
                job_id=record.job_id,
                copies=request.copies,
            )
        )
        caller.reply(an.Changed(id=request.id, what=[str(record.job_id)], tasks=answer.tasks))

    async def forget(self, caller: Caller, request: rq.ForgetJobs, selected: Selected) -> None:
        is_waited_for = self._service.pool.is_waited_for
        free = [job_id for job_id in selected.ids if not is_waited_for(job_id)]
        if not free:
            free = selected.ids  # the pool says what waits for these
        what: list[str] = []
        for start in range(0, len(free), MAX_RECORDS):
            ids = free[start : start + MAX_RECORDS]
            records = await self._service.store.ask(
                lambda read, ids=ids: read.jobs(ids=ids, limit=len(ids))  # type: ignore[misc]
            )
            found = await self._pending.answers_to(
                lambda token, record=record: ev.Forget(  # type: ignore[misc]
                    at=self._service.now(),
                    cause=caller.jid,
                    request=token,
                    record=record,
                )
                for record in records
            )
            what += [str(answer.job_id) for answer in found]
        await self._selection.refuse_others(selected, len(what))
        caller.reply(
            an.Changed(
                id=request.id,
                what=what,
                kept=selected.passed_over + len(selected.ids) - len(free),
                left=selected.left,
                missing=selected.missing,
            )
        )

    def _account(self, caller: Caller, name: str) -> str:
        """The account that a name means: itself, or the one with it before its `@`.

        Raises:
            UsageError: several have.
        """
        if "@" in name:
            return name
        if is_called(caller.user, name):
            return caller.user
        named = [user for user in self._service.pool.sharers.users() if is_called(user.name, name)]
        found = [user.name for user in named if user.at_home] or [user.name for user in named]
        if len(found) > 1:
            raise UsageError(
                f"several users are called {name}", hint=f"name the whole account: {name}@…"
            )
        return found[0] if found else name

    async def list_jobs(self, caller: Caller, request: rq.ListJobs) -> None:
        store = self._service.store
        check_glob(request.name)
        ids: list[int] | None = None
        if request.jobs:
            ids = (await self._selection.jobs(caller, request.jobs)).ids
        owner = self._account(caller, request.owner) if request.owner else None
        if request.name and not caller.sees(owner or ""):
            # Whoever may not know a name may not find it out by asking for it.
            owner, ids = caller.user, ids if owner in (None, caller.user) else []
        # Ended jobs of others that the caller may not see tell him nothing, and may be thousands.
        chosen = ids is not None or owner is not None or caller.sees_all
        ended_of = None if chosen else caller.user
        limit = min(request.limit or MAX_RECORDS, MAX_RECORDS)
        wanted = limit
        if request.where:
            limit = MAX_RECORDS
        since = request.ended_since
        if since is not None:
            since = self._service.wall.steady(since)
        records = await store.ask(
            lambda read: read.jobs(
                ids=ids,
                owner=owner,
                states=request.states,
                name=request.name,
                before=request.before,
                ended_since=since,
                ended_of=ended_of,
                limit=limit,
            )
        )
        found = await self._views(caller, records)
        if request.used:
            found = await self._with_used(caller, found)
        if request.details and len(found) == 1 and caller.owns(records[0].owner):
            found = [await self._detailed(records[0], found[0])]
        if request.where:
            where = where_jobs(request.where, found)
            fitting = where.those_that_fit(
                found,
                lambda view: (f"job {view.job_id}", listed_job(view)),
                is_first=request.before is None,
            )
            page = views.first_that_fit(reversed(fitting[-wanted:]))[::-1]
            before = records[0].job_id if len(records) == limit else None
            if len(page) < len(fitting):
                before = page[0].job_id
            caller.reply(an.Jobs(id=request.id, jobs=page, before=before))
            return
        page = views.first_that_fit(reversed(found))[::-1]
        before = page[0].job_id if len(records) == limit or len(page) < len(found) else None
        total = None
        if request.before is None:
            total = len(found)
            if before is not None:
                total = await store.ask(
                    lambda read: read.count_jobs(
                        ids=ids,
                        owner=owner,
                        states=request.states,
                        name=request.name,
                        ended_since=since,
                        ended_of=ended_of,
                    )
                )
        caller.reply(an.Jobs(id=request.id, jobs=page, before=before, total=total))

    async def watch(self, caller: Caller, request: rq.Watch) -> None:
        selected = await self._selection.jobs(caller, request.jobs)
        ids = self._selection.for_one_answer(selected, request.jobs)
        # Whoever is shown as active here is active below, so that its end is told.
        records = await self._steady_reads.ask(
            lambda read: read.jobs(ids=ids, limit=len(ids)), lambda ended: ended.job_id in ids
        )
        for record in records:
            if self._service.pool.job(record.job_id):
                self._watchers.add(record.job_id, caller, self._service.now())
        caller.reply(an.Jobs(id=request.id, jobs=await self._views(caller, records)))

    async def _views(self, caller: Caller, records: list[JobRecord]) -> list[an.JobView]:
        find, unstored = self._service.pool.job, self._service.unstored()
        found = [
            _as_seen(
                caller,
                views.job_view(record, find(record.job_id), unstored.get(record.job_id)),
            )
            for record in records
        ]
        if len(found) != 1:
            return [views.abridged(view) for view in found]
        return [await self._in_full(records[0], found[0])]

    async def _detailed(self, record: JobRecord, view: an.JobView) -> an.JobView:
        """A job with what only the spec and the tasks tell."""
        job = self._service.pool.job(record.job_id)
        spec = await self._spec(record.job_id)
        store, job_id = self._service.store, record.job_id
        used_by, spread = await store.ask(lambda read: (read.used([job_id]), read.spread(job_id)))
        used = used_by.get(job_id, Used())
        view = views.with_spread(views.with_used(view, used), used, spread)
        if spec.program.stages:
            rows = await store.ask(
                lambda read: read.tasks(job_id, states=FINAL_STATES, limit=MOST_TASKS)
            )
            view = msgspec.structs.replace(view, stage_sums=stage_sums(rows))
        if job is not None:
            running = views.running_use(self._service.pool, job)
            view = msgspec.structs.replace(view, running_use=running)
        return views.detailed(view, spec)

    async def _with_used(self, caller: Caller, found: list[an.JobView]) -> list[an.JobView]:
        """Jobs with what they took, as far as they are the caller's to see."""
        seen = [view.job_id for view in found if caller.sees(view.owner)]
        used = await self._service.store.ask(lambda read: read.used(seen))
        return [
            views.with_used(view, used[view.job_id]) if view.job_id in used else view
            for view in found
        ]

    async def _in_full(self, record: JobRecord, view: an.JobView) -> an.JobView:
        """A job that is alone in an answer, with its command and its requirements uncut."""
        if record.spec.shows_all() or not view.whole:
            return view
        return views.uncut(view, await self._spec(record.job_id))

    async def _spec(self, job_id: int) -> JobSpec:
        """The spec of a job with its whole program, perhaps without its items."""
        job = self._service.pool.job(job_id)
        if job is None or job.is_long:
            return (await self._selection.whole(job_id)).spec
        return job.spec

    async def explain(self, caller: Caller, request: rq.ExplainJob, record: JobRecord) -> None:
        job = self._service.pool.job(record.job_id)
        if job is None or not job.remaining:
            raise UsageError(
                f"no task of job {record.job_id} waits: it ended as {record.state}",
                hint=f"`kestrelctl job tasks {record.job_id}` shows how each task went",
            )
        caller.reply(msgspec.structs.replace(self._explanation(job), id=request.id))

    def _explanation(self, job: Job) -> an.JobExplanation:
        """Explains why a job's tasks wait, with the part of neighbours and environments in that."""
        unstored = self._service.unstored().get(job.id)
        found = views.explanation(self._service.pool, job, unstored, self._service.now())
        near = self.neighbours(job)[:MOST_NEIGHBOURS] if found.waiting else []
        found = msgspec.structs.replace(found, neighbours=near)
        if found.waiting and not found.ever:
            coming, again = self.environments(job)
            gives_way = self.gives_way(job)
            found = msgspec.structs.replace(
                found, environments=coming, next_start_seconds=again, gives_way=gives_way
            )
        return found

    def _on_job_ended(self, ended: JobEnded) -> None:
        watchers = self._watchers.pop(ended.record.job_id, self._service.now())
        if not watchers:
            return
        view = views.job_view(ended.record, None)
        view = msgspec.structs.replace(
            views.abridged(view),
            dispatch_p50_seconds=percentile(ended.dispatch_seconds, 50),
            dispatch_p99_seconds=percentile(ended.dispatch_seconds, 99),
        )
        for caller in watchers:
            caller.reply(an.Ended(id="", job=_as_seen(caller, view)))


def _changed(request_id: str, found: list[Answer], selected: Selected) -> an.Changed:
    """Tells what was held or released; `kept` counts jobs that were so before, or cannot be so."""
    return an.Changed(
        id=request_id,
        what=[str(answer.job_id) for answer in found if not answer.repeated],
        tasks=sum(answer.tasks for answer in found),
        kept=sum(answer.repeated for answer in found) + selected.passed_over,
        left=selected.left,
        missing=selected.missing,
    )


def _as_seen(caller: Caller, view: an.JobView) -> an.JobView:
    """A job as far as it is the caller's business."""
    return view if caller.sees(view.owner) else views.summary(view)
