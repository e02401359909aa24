"""Answers every request of a user, with what was asked for or with the reason why not."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import msgspec

from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.environments.answering import EnvironmentRequests
from kestrelctl.manager.environments.service import EnvironmentService
from kestrelctl.manager.members.properties import PropertyService
from kestrelctl.manager.members.service import MemberService
from kestrelctl.manager.outputs import Outputs
from kestrelctl.manager.requests.channels import ChannelRequests
from kestrelctl.manager.requests.graphs import GraphRequests
from kestrelctl.manager.requests.jobs import JobRequests, Neighbourhood, Submission
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.requests.pool import PoolRequests, Resizes, Usage
from kestrelctl.manager.requests.settings import SettingRequests
from kestrelctl.manager.requests.shares import ShareRequests
from kestrelctl.manager.requests.task_files import TaskFileRequests
from kestrelctl.manager.requests.tasks import TaskRequests
from kestrelctl.manager.requests.users import UserRequests
from kestrelctl.manager.requests.worker_commands import WorkerCommands
from kestrelctl.manager.rights import Handlers, Rights
from kestrelctl.manager.selection import Selection
from kestrelctl.manager.sending.outbox import Outbox
from kestrelctl.manager.sending.turns import TOO_MANY, USER_LINES, Turns
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import EnvironmentList
from kestrelctl.protocol.requests import EnvironmentRequest
from kestrelctl.protocol.triggers import TriggerRequest
from kestrelctl.protocol.workers import Join, ToJoiner


class SubmittedTogether:
    """The answers to several submissions, in their order; they go out when all are there.

    Args:
        caller: who has sent them.
        request_id: the id of their message.
        count: how many there are.
    """

    def __init__(self, caller: Caller, request_id: str, count: int) -> None:
        self._caller = caller
        self._id = request_id
        self._answers: dict[int, an.Submitted | an.Failed] = {}
        self._left = count

    def caller_of(self, place: int) -> Caller:
        """Returns who is answered to the submission at a place.

        What he is told besides, such as the end of a job that he watches, he is told at once.
        """

        def reply(answer: an.Reply) -> None:
            if isinstance(answer, an.Submitted | an.Failed):
                self._take(place, answer)
            else:
                self._caller.reply(answer)

        return replace(self._caller, reply=reply)

    def _take(self, place: int, answer: an.Submitted | an.Failed) -> None:
        self._answers[place] = answer
        self._left -= 1
        if self._left == 0:
            found = [self._answers[each] for each in sorted(self._answers)]
            self._answers.clear()  # who watches their jobs is known by this for long
            self._caller.reply(an.SubmittedEach(id=self._id, answers=found))


log = logging.getLogger(__name__)

#: So many jobs of one message are submitted in a turn, which is a few milliseconds of the manager.
JOBS_IN_A_TURN = 10
#: What is told of a request at which the manager made a mistake.
FAILED = KestrelError("the manager failed at this request")


class Enrollment(Protocol):
    """Lets machines join: `manager.members.enrollment` in production."""

    async def enroll(self, caller: Caller, request: rq.EnrollWorker) -> None:
        """Makes a token for a machine."""

    async def revoke(self, caller: Caller, request: rq.RevokeWorkers) -> None:
        """Takes workers' accounts away."""

    def revoked_by(self, worker: str) -> str:
        """Tells who had a worker's account deleted; empty if nobody, as far as is known."""
        ...

    def check(self, worker: str) -> None:
        """Makes such a worker log in again, which it can only if it has a new account."""

    def join(self, sender: str, message: Join, reply: Callable[[ToJoiner], None]) -> None:
        """Answers a machine that has logged in with a temporary account."""

    def on_online(self) -> None:
        """Notes that the manager has a session, perhaps after a while without one."""


class RequestDispatcher:
    """The user side of a manager.

    Args:
        usage: tells what the manager's process takes of its machine.

    Attributes:
        pending: waits for answers of the core.
        properties: what workers tell of their hosts.
        worker_commands: what they offer to run.
        channels: carries what owners of jobs and their tasks say to each other.
    """

    def __init__(
        self, service: Service, enrollment: Enrollment, usage: Callable[[], Usage]
    ) -> None:
        self._wall = service.wall
        self.outputs = Outputs()
        self.resizes = Resizes()
        self.enrollment = enrollment
        self.outbox = Outbox(
            lambda: service.session, f"jobs@{service.domain}", lambda: self.turns.go_on()
        )
        self.turns = Turns(service.now, USER_LINES, self.outbox.has_room)
        selection = Selection(service.pool, service.store)
        self._rights = Rights(selection)
        pending = self.pending = PendingAnswers(service)
        jobs = self._jobs = JobRequests(service, selection, pending)
        graphs = self._graphs = GraphRequests(service, selection, pending, jobs.uploaded)
        tasks = TaskRequests(service, selection, self.outputs)
        self.properties = PropertyService(service)
        self.worker_commands = WorkerCommands(service)
        self.channels = ChannelRequests(service, selection)
        pool = PoolRequests(service, selection, self.resizes, usage, self.properties.book)
        settings = self._settings = SettingRequests(service, pending)
        self._serve: dict[type, Callable[..., Awaitable[None]]] = {
            **jobs.handlers(),
            **graphs.handlers(),
            **tasks.handlers(),
            **TaskFileRequests(service, selection).handlers(),
            **pool.handlers(),
            **settings.handlers(),
            **UserRequests(service).handlers(),
            **ShareRequests(service, pending).handlers(),
            **MemberService(service).handlers(),
            **self.properties.handlers(),
            **self.worker_commands.handlers(),
            **self.channels.handlers(),
            rq.EnrollWorker: enrollment.enroll,
            rq.RevokeWorkers: enrollment.revoke,
            rq.ListEnvironments: _no_environments,
        }

    def serve_flock(self, handlers: Handlers, neighbours: Neighbourhood) -> None:
        """Serves requests about the flock from now on, and has the reasons why tasks wait name
        neighbours.

        Args:
            handlers: the methods that serve each kind of request about the flock, but for those
                that set and remove rules: these are served like other settings.
            neighbours: tells why each neighbour does not run the tasks of a job that wait.
        """
        self._serve |= handlers
        self._serve[rq.SetFlockRule] = self._settings.set
        self._serve[rq.RemoveFlockRule] = self._settings.remove
        self._jobs.neighbours = neighbours

    def serve_environments(self, desk: EnvironmentService) -> None:
        """Serves requests about environments from now on."""
        self._jobs.environments = lambda job: desk.coming_for(job.shape)
        self._jobs.gives_way = lambda job: desk.demand.gives_way(job.shape, desk.hosts())
        self._jobs.inside = self._graphs.inside = desk.for_tasks
        self._serve |= EnvironmentRequests(desk).handlers()

    def serve_also(self, handlers: Handlers) -> None:
        """Serves these requests, too, from now on."""
        self._serve |= handlers

    def serve(self, caller: Caller, request: rq.AnyRequest) -> None:
        """Answers a request, now or when what it asks for is done."""
        if isinstance(request, rq.SubmitEach):
            self._serve_each(caller, request)
            return
        self.turns.spawn(caller.user, partial(self._guarded, self._told(caller), request))

    def _serve_each(self, caller: Caller, request: rq.SubmitEach) -> None:
        """Has several jobs submitted, a few in each turn, each as if it had come by itself.

        The request itself has no turn that lasts: many of them would leave none to their jobs.
        """
        together = SubmittedTogether(caller, request.id, len(request.jobs))
        several = [
            (self._told(together.caller_of(place)), msgspec.structs.replace(job, explain=False))
            for place, job in enumerate(request.jobs)
        ]
        for part in _turns_of(several):
            size_bytes = sum(len(codec.encode(job)) for _, job in part)
            work = partial(self.turns.spawn, caller.user, partial(self._submit_part, part))
            if not self.turns.take(caller.jid, caller.user, size_bytes, work):
                _refuse(part, TOO_MANY)

    async def _submit_part(self, part: Sequence[Submission]) -> None:
        try:
            answers = await self._jobs.submit_each(part)
        except Exception:
            log.exception("jobs of %s could not be submitted", part[0][0].jid)
            _refuse(part, FAILED)
            return
        for (caller, request), answer in zip(part, answers, strict=True):
            if isinstance(answer, KestrelError):
                caller.reply(failed(request.id, answer))
            else:
                caller.reply(answer)

    def _told(self, caller: Caller) -> Caller:
        """Returns a caller who is told moments by the machine's clock."""
        return replace(caller, reply=lambda answer: caller.reply(self._wall.told(answer)))

    def forget(self, jid: str) -> int:
        """Drops what waits for a user's session that has gone; returns how many answers."""
        self.turns.drop(jid)
        return self.outbox.drop(jid)

    async def _guarded(self, caller: Caller, request: rq.AnyRequest) -> None:
        try:
            serve = self._serve.get(type(request))
            if serve is None:
                raise _not_here(request)
            await serve(caller, request, *await self._rights.check(caller, request))
        except KestrelError as error:
            caller.reply(failed(request.id, error))
        except Exception:
            log.exception("a request of %s failed: %s", caller.jid, type(request).__name__)
            caller.reply(failed(request.id, FAILED))


async def _no_environments(caller: Caller, request: rq.ListEnvironments) -> None:
    caller.reply(EnvironmentList(id=request.id, classes=[]))


def _not_here(request: rq.AnyRequest) -> NotFound:
    """Makes the error that the pool was started without what a request is about."""
    if isinstance(request, EnvironmentRequest):
        return NotFound(
            "this pool has no classes of environments",
            cause="its manager was started without any",
            hint="docs/environments.md says how environments are written and started",
        )
    if isinstance(request, TriggerRequest):
        return NotFound(
            "this pool has no triggers",
            cause="its manager was started without any",
            hint="docs/triggers.md says how triggers are written",
        )
    return NotFound(
        "this pool is in no flock",
        cause="its manager was started without one",
        hint="docs/flock.md says how pools find each other",
    )


def _turns_of(several: Sequence[Submission]) -> Iterator[list[Submission]]:
    """Parts them into those of one turn; what was sent ahead may be long, and has one to itself."""
    part: list[Submission] = []
    for each in several:
        if part and (len(part) == JOBS_IN_A_TURN or part[-1][1].upload or each[1].upload):
            yield part
            part = []
        part.append(each)
    yield part


def _refuse(part: Sequence[Submission], error: KestrelError) -> None:
    """Tells each that its job was not submitted."""
    for caller, request in part:
        caller.reply(failed(request.id, error))


def failed(request_id: str, error: KestrelError) -> an.Failed:
    """Makes an answer of an error."""
    return an.Failed(
        id=request_id,
        code=error.code,
        message=error.message,
        cause=error.cause or "",
        hint=error.hint or "",
    )
