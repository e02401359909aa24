"""Does what triggers want done: as requests of an admin, so that the same rules count for both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kestrelctl.core.membership.handler_words import ToldEvent
from kestrelctl.core.model.wording import plural
from kestrelctl.core.triggers.actions import Action
from kestrelctl.errors import KestrelError, NotFound, UsageError
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.environments.service import EnvironmentService
from kestrelctl.manager.handlers.service import HandlerService
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.commands import ReadProperties
from kestrelctl.protocol.requests import StopEnvironments

log = logging.getLogger(__name__)

#: The kind of event that a handler is told; a trigger's name stands for the worker.
TRIGGER = "trigger"


class TriggerDeeds:
    """Does the actions of triggers.

    Attributes:
        environments, handlers: None if the pool has none.
    """

    def __init__(self, service: Service, dispatcher: RequestDispatcher) -> None:
        self._service = service
        self._dispatcher = dispatcher
        self.environments: EnvironmentService | None = None
        self.handlers: HandlerService | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._deeds: dict[str, Callable[[str, Action], None]] = {
            "query": self._query,
            "run_command": self._run_command,
            "start_environment": self._start_environment,
            "stop_environment": self._stop_environment,
            "hold": self._hold,
            "release": self._release,
            "drain": self._drain,
            "resume": self._resume,
            "notify": self._notify,
        }

    def do(self, trigger: str, action: Action) -> str:
        """Begins an action; returns what is wrong with it, or nothing."""
        try:
            self._deeds[action.name](trigger, action)
        except KestrelError as error:
            log.warning("trigger %s: %s: %s", trigger, action, error.message)
            return error.message
        return ""

    def _ask(self, trigger: str, request: rq.AnyRequest) -> None:
        """Has a request served as if an admin had made it."""

        def hear(answer: an.Reply) -> None:
            if isinstance(answer, an.Failed):
                log.warning("trigger %s: %s", trigger, answer.message)

        caller = Caller(f"{TRIGGER}-{trigger}@{self._service.domain}", True, hear)
        self._dispatcher.serve(caller, request)

    # -- actions -----------------------------------------------------------------------------------

    def _query(self, trigger: str, action: Action) -> None:
        names = [name for texts in action.given for name in texts]
        for jid in self._workers_of(action):
            # Workers that have no plugins are not told: an older one would not understand.
            if self._dispatcher.properties.book.of(jid):
                self._service.tell(jid, ReadProperties(names=names))

    def _run_command(self, trigger: str, action: Action) -> None:
        name = _one(action, 0)
        values = {
            key: ",".join(texts)
            for key, texts in action.named.items()
            if key not in ("workers", "group")
        }
        workers = self._workers_of(action)

        async def run() -> None:
            try:
                results = await self._dispatcher.worker_commands.run(
                    name, values, workers, by=f"{TRIGGER} {trigger}"
                )
            except KestrelError as error:
                log.warning("trigger %s: %s", trigger, error.message)
                return
            failed = [each for each in results if each.error]
            if failed:
                who, why = failed[0].worker, failed[0].error
                many = plural(len(failed), "worker")
                log.warning("trigger %s: %s failed at %s: %s: %s", trigger, name, many, who, why)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _workers_of(self, action: Action) -> list[str]:
        group = action.named.get("group", ("",))[0]
        names = action.named.get("workers")
        if names == ():
            return []  # a list that came to nothing, which is not all
        return self._dispatcher.worker_commands.workers_of(list(names or ()), group)

    def _start_environment(self, trigger: str, action: Action) -> None:
        if self.environments is None:
            raise NotFound("this pool has no classes of environments")
        host = action.named.get("host", ("",))[0]
        self.environments.start(_one(action, 0), host, patient=True)

    def _stop_environment(self, trigger: str, action: Action) -> None:
        if self.environments is None:
            raise NotFound("this pool has no classes of environments")
        wanted = action.given[0]
        numbers = [each.number for each in self.environments.there() if each.of in wanted]
        if numbers:
            self._ask(trigger, StopEnvironments(numbers=numbers))

    def _hold(self, trigger: str, action: Action) -> None:
        found = [job_id for job_id in _job_ids(action) if self._is_held(job_id) is not True]
        if found:
            jobs = ",".join(map(str, found))
            self._ask(trigger, rq.HoldJobs(jobs=jobs, reason=f"{TRIGGER} {trigger}"))

    def _release(self, trigger: str, action: Action) -> None:
        found = [job_id for job_id in _job_ids(action) if self._is_held(job_id) is not False]
        if found:
            self._ask(trigger, rq.ReleaseJobs(jobs=",".join(map(str, found))))

    def _is_held(self, job_id: int) -> bool | None:
        job = self._service.pool.job(job_id)
        return None if job is None else job.hold is not None

    def _drain(self, trigger: str, action: Action) -> None:
        workers = self._service.pool.workers
        names = [
            name for name in action.given[0] if name not in workers or not workers[name].draining
        ]
        if names:
            self._ask(trigger, rq.DrainWorkers(names=names))

    def _resume(self, trigger: str, action: Action) -> None:
        workers = self._service.pool.workers
        names = [
            name
            for name in action.given[0]
            if name not in workers or workers[name].draining or workers[name].quarantined_until
        ]
        if names:
            self._ask(trigger, rq.ResumeWorkers(names=names))

    def _notify(self, trigger: str, action: Action) -> None:
        handler, text = _one(action, 0), " ".join(action.given[1])
        if self.handlers is None or handler not in self.handlers.lines:
            raise NotFound(f"there is no handler {handler[:80]}", hint="docs/events.md")
        self.handlers.put(
            ToldEvent(
                pool=self._service.domain,
                handler=handler,
                number=0,
                at=self._service.now(),
                event=TRIGGER,
                worker=trigger,
                reason=text,
            )
        )


def _one(action: Action, place: int) -> str:
    texts = action.given[place]
    if len(texts) != 1:
        raise UsageError(f"{action.name}() takes one text there, not {len(texts)}")
    return texts[0]


def _job_ids(action: Action) -> list[int]:
    for text in action.given[0]:
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise UsageError(f"{text[:80]!r} is no id of a job")
    return [int(text) for text in action.given[0]]
