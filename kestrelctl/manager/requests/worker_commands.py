"""Has workers run the commands that they offer, for admins and for triggers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping, Sequence

import msgspec

from kestrelctl.core import events as ev
from kestrelctl.core.model.wording import plural
from kestrelctl.core.properties.command_definition import Parameters, values_of
from kestrelctl.core.properties.reading import PropertyValue
from kestrelctl.errors import KestrelError, NotFound, UsageError
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.members.log import MemberEvents
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.selection import workers_named
from kestrelctl.manager.service import Service
from kestrelctl.protocol import codec
from kestrelctl.protocol.commands import (
    MOST_WORKERS,
    CommandDone,
    CommandList,
    CommandResult,
    CommandResults,
    CommandsHere,
    CommandView,
    ListCommands,
    OfferedCommand,
    RunAtWorkers,
    RunCommand,
)

log = logging.getLogger(__name__)

#: The time that a worker's answer may take beyond the time that a command may last.
ANSWER_SECONDS = 15.0
#: The most answers that are waited for.
MOST_PENDING = 10_000
#: The room in an answer for what workers printed, beside their names; and the most that a character
#: takes.
ROOM_BYTES = codec.MAX_PAYLOAD_BYTES // 2
MOST_BYTES_OF_A_CHARACTER = 6
_GONE = ("leave", "failed")


class WorkerCommands:
    """The commands that workers offer, and those that they have been asked to run."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._offered: dict[str, dict[str, OfferedCommand]] = {}
        self._ids = itertools.count(1)
        #: request -> (worker, the latest event when it was asked, future of its answer)
        self._pending: dict[str, tuple[str, int, asyncio.Future[CommandDone]]] = {}
        service.listen(MemberEvents, self._on_members)

    # -- workers -----------------------------------------------------------------------------------

    def on_here(self, worker: str, said: CommandsHere) -> None:
        """Takes in what a worker offers; one that has yet to say hello offers it again then."""
        self._heard(worker)
        known = self._service.pool.workers.get(worker)
        if known is not None and known.synced:
            self._offered[worker] = {each.name: each for each in said.commands}

    def on_done(self, worker: str, said: CommandDone) -> None:
        """Takes in what came of a command; anybody's answer but the worker's own is dropped."""
        self._heard(worker)
        asked, _, future = self._pending.get(said.request, ("", 0, None))
        if future is not None and asked == worker and not future.done():
            future.set_result(said)

    def _heard(self, worker: str) -> None:
        now = self._service.now()
        self._service.handle(ev.Heard(at=now, cause=worker, worker=worker))

    def _on_members(self, told: MemberEvents) -> None:
        for event in told.events:
            if event.kind not in _GONE:
                continue
            known = self._service.pool.workers.get(event.worker)
            if known is None or not known.online:  # else it is back, and has said what it offers
                self._offered.pop(event.worker, None)
            for asked, latest, future in list(self._pending.values()):
                if asked == event.worker and event.number > latest and not future.done():
                    future.set_result(CommandDone(request="", error="the worker has gone"))

    # -- requests ----------------------------------------------------------------------------------

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            ListCommands: self.list_commands,
            RunAtWorkers: self.run_for,
        }

    async def list_commands(self, caller: Caller, request: ListCommands) -> None:
        """Serves users who ask for the commands."""
        found: dict[tuple[str, Parameters], tuple[int, float]] = {}
        for offered in self._offered.values():
            for each in offered.values():
                key = (each.name, each.parameters)
                workers, longest = found.get(key, (0, 0.0))
                found[key] = workers + 1, max(longest, each.timeout_seconds)
        caller.reply(
            CommandList(
                id=request.id,
                commands=[
                    CommandView(
                        name=name, parameters=parameters, workers=workers, timeout_seconds=longest
                    )
                    for (name, parameters), (workers, longest) in sorted(found.items())
                ],
            )
        )

    async def run_for(self, caller: Caller, request: RunAtWorkers) -> None:
        """Serves an admin who has a command run."""
        workers = self.workers_of(request.workers, request.group)
        if not workers:
            raise NotFound("no such worker is there", hint="kestrelctl worker list")
        results = await self.run(request.name, request.values, workers, by=caller.user)
        caller.reply(CommandResults(id=request.id, results=_cut(results)))

    def workers_of(self, names: Sequence[str], group: str) -> list[str]:
        """Workers that are online, of those names and in that group.

        Args:
            names: empty for all.
            group: empty for any.

        Raises:
            NotFound: there is no such group, or no worker of such a name.
        """
        groups, workers = self._service.pool.worker_groups, self._service.pool.workers
        if group and all(each.name != group for each in groups.all):
            raise NotFound(
                f"there is no group of workers {group!r}", hint="kestrelctl worker group list"
            )
        found: dict[str, None] = {} if names else dict.fromkeys(workers)
        for name, named in workers_named(names, workers):
            if not named:
                raise NotFound(f"there is no worker {name[:80]}", hint="kestrelctl worker list")
            found.update(dict.fromkeys(named))
        return [
            jid
            for jid in found
            if workers[jid].online and (not group or group in groups.of(jid, workers[jid].ad))
        ]

    async def run(
        self, name: str, texts: Mapping[str, str], workers: Sequence[str], *, by: str
    ) -> list[CommandResult]:
        """Has a command run at those of these workers that offer it.

        Args:
            texts: values of its parameters.
            by: who wants it; for the log.

        Raises:
            NotFound: none of them offers it.
            UsageError: none takes these values, or the workers are too many.
        """
        offering = [jid for jid in workers if name in self._offered.get(jid, {})]
        if not offering:
            raise NotFound(
                f"none of these workers offers the command {name}",
                hint="kestrelctl worker commands lists those that there are",
            )
        if len(offering) > MOST_WORKERS or len(self._pending) + len(offering) > MOST_PENDING:
            raise UsageError(
                f"{plural(len(offering), 'worker')} cannot be asked at once",
                hint=f"name up to {MOST_WORKERS:,}, or a group",
            )
        for jid in offering:  # so that nothing is run if one of them does not take these
            offer = self._offered[jid][name]
            values_of(name, offer.parameters, texts)
        log.info("%s has %s run at %s", by, name, plural(len(offering), "worker"))
        return list(await asyncio.gather(*(self._run_at(jid, name, texts) for jid in offering)))

    async def _run_at(self, jid: str, name: str, texts: Mapping[str, str]) -> CommandResult:
        began = self._service.now()
        offer = self._offered.get(jid, {}).get(name)
        if offer is None:
            return CommandResult(worker=jid, seconds=0.0, error="the worker offers this no more")
        # A worker may answer a manager that it was not asked by.
        request = f"{self._service.pool.epoch}-{next(self._ids)}"
        future: asyncio.Future[CommandDone] = asyncio.get_running_loop().create_future()
        self._pending[request] = jid, self._service.member_log.last, future
        try:
            values = values_of(name, offer.parameters, texts)
            self._service.tell(jid, RunCommand(request=request, name=name, values=dict(values)))
            async with asyncio.timeout(offer.timeout_seconds + ANSWER_SECONDS):
                done = await future
        except TimeoutError:
            done = CommandDone(request=request, error="the worker does not answer")
        except KestrelError as error:
            done = CommandDone(request=request, error=error.message)
        finally:
            del self._pending[request]
        seconds = round(max(0.0, self._service.now() - began), 3)
        return CommandResult(worker=jid, seconds=seconds, value=done.value, error=done.error)


def _cut(results: list[CommandResult]) -> list[CommandResult]:
    """Cuts each text to what there is room for, if the results are too much for one answer."""
    text = codec.encode(CommandResults(id="", results=results))
    if codec.fits(text):
        return results
    most = ROOM_BYTES // (len(results) * MOST_BYTES_OF_A_CHARACTER)
    return [
        msgspec.structs.replace(each, value=_short(each.value, most), error=each.error[:most])
        for each in results
    ]


def _short(value: PropertyValue | None, most: int) -> PropertyValue | None:
    return f"{value[:most]}…" if isinstance(value, str) and len(value) > most else value
