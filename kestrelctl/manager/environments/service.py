"""Starts environments when work needs them, and stops them when it does not.

The scheduler knows nothing of this: an environment's worker is a worker like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Mapping
from math import inf
from typing import NamedTuple, Protocol

from kestrelctl.core.classad.evaluation import Ad, Expression, is_true
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.making_room import MadeRoom, RoomMaking
from kestrelctl.core.environments.on_demand import (
    Decision,
    HostRoom,
    StartObstacle,
    amounts_of,
    decide,
)
from kestrelctl.core.environments.start_failures import StartFailures
from kestrelctl.core.environments.started import Environment, EnvironmentPhase
from kestrelctl.core.events import Drain
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.task_environment import KINDS as TASK_KINDS
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts, amounts, natural
from kestrelctl.core.model.worker.matching_ads import worker_ad
from kestrelctl.core.pacing.backoff import RETURN_SECONDS
from kestrelctl.core.scheduling.unmet import Unmet
from kestrelctl.errors import KestrelError, NotFound, UsageError
from kestrelctl.manager.access import bare
from kestrelctl.manager.environments.accounts import AccountList
from kestrelctl.manager.environments.demand import EnvironmentDemand, has
from kestrelctl.manager.environments.situation import Situation, situation
from kestrelctl.manager.environments.table import EnvironmentTable
from kestrelctl.manager.service import Service
from kestrelctl.protocol.workers import EnvironmentsHere, StartEnvironment, StopEnvironment
from kestrelctl.timer import Timer

log = logging.getLogger(__name__)

#: The least time between two looks, however much happens.
LOOK_SECONDS = 0.1
#: Events within so short a time are looked at together.
BURST_SECONDS = 0.005
#: The most time between two looks while there are environments, or work that waits; and the
#: greatest age of a decision, though nothing has changed that is looked at.
ROUND_SECONDS = 1.0
#: The time that hosts have after the manager's start to say what is there, before more is started.
SETTLE_SECONDS = 2.0
#: An order that a host has not answered after so long never came there.
UNHEARD_SECONDS = 20.0
#: A host that is away for so long counts as gone, with its environments: after a restart of the
#: server all are away for seconds.
AWAY_SECONDS = 60.0
#: The longest wait for environments that such a host was starting, counted from the server's
#: return: by then all have come back that were only away with it.
GIVES_UP_SECONDS = RETURN_SECONDS
#: The temporary account of an environment's worker is good for so long beyond its start.
ACCOUNT_SECONDS = 60.0


class Invitations(Protocol):
    """Accounts of workers: `manager.members.enrollment.EnrollmentRequests`."""

    async def invite(self, name: str, valid_seconds: float) -> tuple[str, str, int]:
        """A temporary account for a worker of that name: address, password, expiry."""
        ...

    async def take_away(self, jid: str, by: str) -> None:
        """Deletes an account, and ends its worker."""


class StartCounts(NamedTuple):
    """The outcomes of starts, by class."""

    started: Counter[str]
    failed: Counter[str]


class EnvironmentService:
    """The environments of a pool.

    Args:
        classes: by name.
        recipes: the text of the recipe of each class that has one.
        invitations: makes accounts for their workers.
        workers_host: the domain of these accounts.
        accounts: the names of those that may exist, over restarts of the manager.

    Attributes:
        book: the environments that there are.
        failures: starts that failed.
        demand: the part of what waits that they could run.
    """

    def __init__(
        self,
        service: Service,
        classes: Mapping[str, EnvironmentClass],
        recipes: Mapping[str, str],
        invitations: Invitations,
        workers_host: str,
        accounts: AccountList,
    ) -> None:
        self._service = service
        self.classes = classes
        self._recipes = recipes
        self._invitations = invitations
        self._workers_host = workers_host
        self._accounts = accounts
        #: The time at which accounts are deleted of which nobody says that there is an environment.
        self._drops_at = service.now() + AWAY_SECONDS
        self.book = EnvironmentTable(service.pool.epoch)
        self.failures = StartFailures()
        self._room = RoomMaking()
        self.counts = StartCounts(Counter(), Counter())
        self.demand = EnvironmentDemand(service.pool, classes, workers_host)
        self.obstacles: dict[str, StartObstacle] = dict.fromkeys(classes, StartObstacle.NOT_NEEDED)
        self._hosts_of = {
            name: Expression(cls.hosts) if cls.hosts else None for name, cls in classes.items()
        }
        #: By host: what it said of itself and makes, and the classes that may be there.
        self._classes_of: dict[str, tuple[WorkerAd, frozenset[str], frozenset[str]]] = {}
        self._loop = asyncio.get_running_loop()
        self._looked_at = -inf
        #: The situation at the last look. While it is the same, nothing is decided before then.
        self._situation: Situation | None = None
        self._decides_by = -inf
        self._has_minima = any(cls.minimum for cls in classes.values())
        self._connected, self._connected_at = True, -inf
        #: The time until which hosts have yet to say what they have.
        self._starts_at = service.now() + SETTLE_SECONDS
        self._timer = Timer(self._look)
        self._tasks: set[asyncio.Task[None]] = set()
        service.after_schedule.append(self._look_soon)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._service.now()

    def there(self) -> list[Environment]:
        """All environments, as they are now."""
        self._see_workers(self.now())
        return list(self.book.known.values())

    # -- what hosts say ----------------------------------------------------------------------------

    def on_here(self, host: str, said: EnvironmentsHere) -> None:
        """Takes in what a worker's machine says that it makes and has."""
        if host not in self._service.pool.workers:
            return
        for each, why in self.book.heard(host, said, self._service.now()):
            self._gone(each, why)
        for held in said.here:
            given_up = self.book.given_up.get(held.number)
            if given_up is not None and given_up.host == host:
                self._service.tell(host, StopEnvironment(number=held.number))
        self._look_soon()

    def _gone(self, environment: Environment, why: str) -> None:
        """Deals with an environment that is not there any more."""
        words = f"environment {environment.number} of class {environment.of}"
        over = log.info if environment.node else log.warning  # a node may leave when it is idle
        if environment.phase is EnvironmentPhase.STOPPING:
            log.info("%s at %s is stopped", words, environment.host)
        elif why and not environment.has_worked:
            self._failed(environment, why)
        elif why:
            over("%s at %s has gone: %s", words, environment.host, why)
        else:
            log.info("%s at %s is stopped", words, environment.host)
        self._drop_account_of(environment)

    def _failed(self, environment: Environment, why: str) -> None:
        of, host = environment.of, environment.host
        self.counts.failed[of] += 1
        self.failures.failed(of, host, self._service.now(), why)
        latest = self.failures.latest(of, host)
        assert latest is not None
        pause = latest.next_try_at - self._service.now()
        log.warning(
            "environment %d of class %s did not start at %s: %s; the next try there in %.0f s",
            environment.number, of, host, why, pause,
        )  # fmt: skip

    # -- looking -----------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        """Looks in a moment, if there is anything that could be made or is left."""
        if self._service.pool.connected and not self._connected:
            self._connected_at = self._service.now()
        self._connected = self._service.pool.connected
        if self.book.kinds or self.book.known or self._accounts.names:
            self._look_at(max(self._loop.time() + BURST_SECONDS, self._looked_at + LOOK_SECONDS))

    def _look_at(self, at: float) -> None:
        """Looks at that time, or earlier if that is planned."""
        self._timer.set_by(at)

    def _look(self) -> None:
        self._looked_at = self._loop.time()
        now = self._service.now()
        self._see_workers(now)
        if not self._service.pool.connected:
            return
        self._leave_hosts()
        hosts = self.hosts()
        unmet = self.demand.unmet(now)
        before, self._situation = self._situation, self._now_is(unmet, hosts, now)
        if self._situation == before and self._looked_at < self._decides_by:
            self._look_at(self._decides_by)
            return
        self._decides_by = self._looked_at + ROUND_SECONDS
        self._carry_out(self._decide(unmet, hosts, now), now)
        if self.book.known or self.book.given_up or self.demand.needed or self._accounts.names:
            self._look_at(self._decides_by)

    def _now_is(self, unmet: list[Unmet], hosts: list[HostRoom], now: float) -> Situation:
        workers = self._service.pool.workers
        there = self.book.known.values()
        moments = (self.failures.pausing(now), self._room.starving(now), now >= self._starts_at)
        return situation(
            unmet, hosts, [workers[host.name].ad for host in hosts], there, moments, now,
            nothing_to_do=not (there or self.demand.needed or self._has_minima),
        )  # fmt: skip

    def _carry_out(self, found: Decision, now: float) -> None:
        self.obstacles = found.obstacles
        for stop in found.stop:
            environment = self.book.known[stop.number]
            if stop.failed:
                self._failed(environment, stop.why)
            log.info("stopping environment %d: %s", stop.number, stop.why)
            self._stop(environment)
        for start in found.start if now >= self._starts_at else ():
            self._begin(start.of, start.host, asked_for=False)

    def _see_workers(self, now: float) -> None:
        workers = self._service.pool.workers
        gone = [host for host in self.book.kinds if _is_gone(workers.get(host), now)]
        for host in gone:
            for each in self.book.forget_host(host):
                self._drop_account_of(each)
            self.failures.forget_host(host)
            self.demand.forget_host(host)
            self._classes_of.pop(host, None)
        for each in list(self.book.known.values()):
            if self._has_vanished(each, now):
                log.warning(
                    "environment %d of class %s is given up: its host %s vanished while it started",
                    each.number, each.of, each.host,
                )  # fmt: skip
                self.book.give_up(each.number)
            elif not each.held and now - each.since > UNHEARD_SECONDS:
                del self.book.known[each.number]
                self._gone(each, "its host has not answered")
        of_all = (*self.book.known.values(), *self.book.given_up.values())
        names = {each.worker for each in of_all}
        of_ours = names | self._accounts.names
        online: dict[str, bool] = {}
        draining: set[str] = set()
        for worker in workers.values():
            name = worker.account.partition("@")[0]
            if name in of_ours and worker.online:
                online[name] = not worker.held
                if worker.draining:
                    draining.add(name)
        if now >= self._drops_at and self._service.pool.connected:
            self._drops_at = now + AWAY_SECONDS
            for name in self._accounts.names - names - online.keys():
                # Its environment went while no manager was there, or while no server was.
                self._spawn(self._drop_account(name))
        for useful in self.book.see_workers(online.items(), now, draining):
            self.counts.started[useful.of] += 1
            self.failures.succeeded(useful.of, useful.host)
            self._room.has_worked(useful.of)

    def _has_vanished(self, environment: Environment, now: float) -> bool:
        """Whether one was starting on a host that has been away for too long to wait for it."""
        host = self._service.pool.workers.get(environment.host)
        if environment.phase is not EnvironmentPhase.STARTING or host is None or host.online:
            return False
        away_since = max(host.offline_since, self._connected_at)
        return self._connected and now - away_since > GIVES_UP_SECONDS

    def _leave_hosts(self) -> None:
        """Stops or drains environments on hosts on which nothing new is to run."""
        for each in self.book.known.values():
            host = self._service.pool.workers.get(each.host)
            if host is None or not (host.draining or host.leaving) or each.asked_for or each.node:
                continue
            if each.phase is EnvironmentPhase.STARTING:
                log.info("stopping environment %d: its host is drained", each.number)
                self._stop(each)
            elif each.phase is EnvironmentPhase.READY and not each.draining:
                log.info("draining environment %d: its host is drained", each.number)
                self._drain(each, "its host is drained")

    def _decide(self, unmet: list[Unmet], hosts: list[HostRoom], now: float) -> Decision:
        needs = self.demand.needs(hosts, unmet)
        there = list(self.book.known.values())
        first = self._room.starving(now)
        found = decide(self.classes.values(), needs, hosts, there, self.failures, now, first)
        if now >= self._starts_at:
            starting = {start.of for start in found.start}
            for made in self._room.look(
                self.classes, needs, hosts, there, starting, self.failures, now
            ):
                self._make_room(self.book.known[made.number], made)
        return found

    def _make_room(self, environment: Environment, made: MadeRoom) -> None:
        environment.makes_room_for = made.starving
        log.info(
            "draining environment %d of class %s at %s: %s",
            environment.number, environment.of, environment.host, made.why,
        )  # fmt: skip
        self._drain(environment, made.why)

    def _drain(self, environment: Environment, why: str) -> None:
        """Lets an environment end what it runs, and begin no more."""
        environment.draining = True
        for worker in list(self._service.pool.workers.values()):
            if worker.account.partition("@")[0] == environment.worker:
                event = Drain(
                    at=self._service.now(),
                    cause=f"pool@{self._service.domain}",
                    worker=worker.jid,
                    by=f"the pool: {why}",
                )
                self._service.handle(event)

    def coming_for(self, shape: Shape) -> tuple[list[str], float | None]:
        """The classes of which an environment could run work of a shape, and is made by a host.

        Returns:
            Their names; and the seconds until the next try, if the latest start has failed wherever
            they can be made.
        """
        hosts = self.hosts()
        names = self.demand.coming_for(shape, hosts)
        places = [(of, host.name) for of in names for host in hosts if of in host.classes]
        return names, self.failures.pause_seconds(places, self._service.now())

    def for_tasks(self, wanted: TaskEnvironment) -> TaskEnvironment:
        """Makes the environment inside which tasks run whose job names a class, as that is now.

        Raises:
            NotFound: there is no such class.
            UsageError: tasks run inside no such environment without a worker of its own.
        """
        cls = self.classes.get(wanted.of)
        if cls is None:
            raise NotFound(
                f"there is no environment {wanted.of}",
                cause=f"the pool has {', '.join(sorted(self.classes))}",
            )
        if cls.kind not in TASK_KINDS:
            raise UsageError(
                f"tasks cannot run inside environment {wanted.of} without a worker of its own",
                cause=f"its kind is {cls.kind}; they can inside {', '.join(TASK_KINDS)}",
                hint=f"--requires {cls.tags[0]} starts one" if cls.tags else None,
            )
        return TaskEnvironment(wanted.of, cls.kind, self._recipes.get(wanted.of, ""))

    def hosts(self) -> list[HostRoom]:
        """The workers whose machines make environments, with what is free there."""
        found: list[HostRoom] = []
        promised: defaultdict[str, Counter[str]] = defaultdict(Counter)
        held: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for each in self.book.known.values():
            (held if each.held else promised)[each.host].update(self._taken(each))
        now = self._service.now()
        for name, kinds in self.book.kinds.items():
            worker = self._service.pool.workers.get(name)
            if worker is None or not _may_host(worker, now):
                continue
            free = Counter(worker.free)
            free.subtract(promised[name])
            whole = Counter(amounts(worker.ad.assets))
            whole.update(held[name])
            found.append(HostRoom(name, free, whole, self._classes_at(worker, kinds)))
        return found

    def _taken(self, environment: Environment) -> Amounts:
        cls = self.classes.get(environment.of)
        return amounts_of(cls) if cls is not None else {}

    def _classes_at(self, worker: Worker, kinds: frozenset[str]) -> frozenset[str]:
        """The classes that a host makes and may have; found out when it says something else."""
        known = self._classes_of.get(worker.jid)
        if known is None or known[0] is not worker.ad or known[1] != kinds:
            shown = Ad(worker_ad(worker.ad, worker.jid))
            may = frozenset(
                cls.name
                for cls in self.classes.values()
                if cls.kind in kinds and self._may_be_at(cls, shown)
            )
            known = self._classes_of[worker.jid] = (worker.ad, kinds, may)
        return known[2]

    def _may_be_at(self, cls: EnvironmentClass, host: Ad) -> bool:
        expression = self._hosts_of[cls.name]
        return expression is None or is_true(expression.evaluate(host))

    # -- starting and stopping ---------------------------------------------------------------------

    def start(self, of: str, host: str = "", *, patient: bool = False) -> Environment:
        """Starts an environment because somebody asks for it; it stays until it is stopped.

        Args:
            host: where; empty for the host that has the most room.
            patient: whether it is not to be tried where a start has failed lately, nor before all
                hosts have said what they have: so a rule may ask again and again.

        Raises:
            NotFound: there is no such class, or no such host.
            UsageError: it cannot be started there now.
        """
        cls = self.class_named(of)
        there = sum(each.of == of for each in self.book.known.values())
        if there >= cls.maximum:
            are = "is" if there == 1 else "are"
            raise UsageError(
                f"there {are} {plural(there, 'environment')} of class {of}, and no more may be",
                hint="`maximum` of the class says how many; `kestrelctl environment stop` ends one",
            )
        now = self._service.now()
        if patient and now < self._starts_at:
            raise UsageError("it is not known yet which environments there are")
        fitting = [
            each
            for each in self.hosts()
            if of in each.classes and (not host or host in (each.name, bare(each.name)))
        ]
        if not fitting:
            raise NotFound(
                f"no worker{' ' + host if host else ''} can start environments of class {of}",
                hint=f"`kestrelctl environment explain {of}` says why",
            )
        taken = amounts_of(cls)
        roomy = [each for each in fitting if has(each.free, taken)]
        if patient and roomy:
            roomy = [each for each in roomy if self.failures.may_start(of, each.name, now)]
            if not roomy:
                raise UsageError(
                    f"starts of environments of class {of} have failed of late",
                    hint=f"`kestrelctl environment explain {of}` says why",
                )
        if not roomy:
            raise UsageError(
                f"no worker has room for an environment of class {of} now",
                hint=f"`kestrelctl environment explain {of}` shows what is free",
            )
        best = max(roomy, key=lambda each: min(each.free.get(a, 0) / n for a, n in taken.items()))
        return self._begin(of, best.name, asked_for=True)

    def stop(self, number: int) -> Environment:
        """Stops an environment because somebody asks for that.

        Raises:
            NotFound: there is none of that number.
        """
        found = self.environment(number)
        self._stop(found)
        return found

    def environment(self, number: int) -> Environment:
        """Returns the environment of a number.

        Raises:
            NotFound: there is none.
        """
        found = self.book.known.get(number)
        if found is None:
            raise NotFound(
                f"there is no environment {number}", hint="`kestrelctl environment list` shows all"
            )
        return found

    def class_named(self, of: str) -> EnvironmentClass:
        """Returns the class of a name.

        Raises:
            NotFound: there is none.
        """
        found = self.classes.get(of)
        if found is None:
            known = ", ".join(sorted(self.classes)) or "none"
            raise NotFound(f"there is no environment class {of}", cause=f"there are: {known}")
        return found

    def _begin(self, of: str, host: str, *, asked_for: bool) -> Environment:
        now, node = self._service.now(), bool(self.classes[of].runs)
        environment = self.book.order(of, host, now, asked_for=asked_for, node=node)
        log.info("starting environment %d of class %s at %s", environment.number, of, host)
        self._spawn(self._order(environment))
        return environment

    async def _order(self, environment: Environment) -> None:
        cls = self.classes[environment.of]
        jid = password = ""
        try:
            if not environment.node:  # Nobody is lent what he does not need.
                self._accounts.add(environment.worker)
                valid_seconds = cls.start_seconds + ACCOUNT_SECONDS
                jid, password, _ = await self._invitations.invite(environment.worker, valid_seconds)
        except KestrelError as error:
            was_known = self.book.known.pop(environment.number, None) is not None
            if was_known and environment.phase is not EnvironmentPhase.STOPPING:
                self._failed(environment, f"{error.message} ({error.cause})")
            return
        is_known = self.book.known.get(environment.number) is environment
        if not is_known or environment.phase is EnvironmentPhase.STOPPING:
            return  # nobody wants it any more
        self._service.tell(
            environment.host,
            StartEnvironment(
                number=environment.number,
                of=cls.name,
                kind=cls.kind,
                image=cls.image,
                recipe=self._recipes.get(cls.name, ""),
                tags=list(cls.tags),
                assets=natural(amounts_of(cls)),
                start_seconds=cls.start_seconds,
                worker=environment.worker,
                jid=jid,
                password=password,
                asked_for=environment.asked_for,
                runs=list(cls.runs),
            ),
        )

    def _stop(self, environment: Environment) -> None:
        environment.phase, environment.since = EnvironmentPhase.STOPPING, self._service.now()
        self._service.tell(environment.host, StopEnvironment(number=environment.number))

    def _drop_account_of(self, environment: Environment) -> None:
        if not environment.node:
            self._spawn(self._drop_account(environment.worker))

    async def _drop_account(self, name: str) -> None:
        try:
            jid = f"{name}@{self._workers_host}"
            await self._invitations.take_away(jid, f"pool@{self._service.domain}")
            self._accounts.discard(name)
        except KestrelError as error:
            log.warning("the account of %s is not deleted: %s", name, error.message)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_gone(worker: Worker | None, now: float) -> bool:
    """Whether a host is away for longer than the server, or the way to it, may be."""
    if worker is None:
        return True
    return not worker.online and now - worker.offline_since > AWAY_SECONDS


def _may_host(worker: Worker, now: float) -> bool:
    """Whether environments may be started on the machine of a worker."""
    return (
        worker.online
        and worker.synced
        and not worker.draining
        and not worker.leaving
        and worker.quarantined_until <= now
        and not is_neighbour(worker.jid)
    )
