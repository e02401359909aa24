"""A pool driven by hand: a fake clock, workers that answer when told to, records of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from jobkit import job_spec

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.after import After, ids_of
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import EndedTasks, Record, Snapshot, TokenRecord, ended_tasks
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.setting import Setting
from kestrelctl.core.model.share_change import GroupChange
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts, amounts
from kestrelctl.core.pool import Pool
from kestrelctl.manager.requests.descent import ended_pairs

E = TypeVar("E", bound=fx.Effect)
FRESH = Snapshot(epoch=1, secret=MemoryStore().secret, next_job_id=1, jobs=[], workers=[])

#: All invariants are looked at after each of so many changes, and then, where hours pass, after one
#: of so many: books that are wrong stay wrong.
EACH, ONE_OF = 400, 8

#: (attempt number, job id, index)
Attempt = tuple[int, int, int]


def _present(**assets: float) -> dict[str, float]:
    return {name: float(amount) for name, amount in assets.items() if amount}


class PoolDriver:
    """Drives a pool by hand and checks every invariant as it goes."""

    def __init__(self, config: Config | None = None, snapshot: Snapshot = FRESH) -> None:
        self.pool = Pool(snapshot, config)
        self.now = 1000.0
        self.effects: list[fx.Effect] = []
        self.records: list[Record] = []
        self.ended: list[int] = []
        self.answers: list[fx.Answer] = []
        self._requests = 0
        self._starts = 1
        self._held_back = False
        self._changes = 0
        self.tell(ev.Reconnected(at=self.now))

    def store(self) -> MemoryStore:
        """What is durable by now."""
        store = MemoryStore()
        with suppress(StopIteration):
            store.commit(self.records).send(None)
        return store

    def restart(self) -> None:
        """The manager dies and another one starts with what is durable."""
        store = self.store()
        self._starts += 1
        for _ in range(self._starts):
            snapshot = store.open()
        self.pool = Pool(snapshot, self.pool.state.config)
        self.tell(ev.Reconnected(at=self.now))

    # -- time and events ---------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> list[fx.Effect]:
        """An event, then a scheduling pass, and at once the commit of what came of both."""
        found = self._commit(self.pool.handle(event))
        if self._held_back:
            self._check()
        else:
            found += self._schedule()
        self.effects = found
        return found

    def hold_back(self) -> None:
        """Nothing is handed out until `let_go`."""
        self._held_back = True

    def let_go(self) -> None:
        """All that waits is handed out."""
        self._held_back = False
        self.effects = self._schedule()

    def _schedule(self) -> list[fx.Effect]:
        found = self._commit(self.pool.schedule(self.now))
        self._check()
        return found

    def _check(self) -> None:
        self._changes += 1
        if self._changes <= EACH or not self._changes % ONE_OF:
            self.pool.check()

    def _commit(self, effects: list[fx.Effect]) -> list[fx.Effect]:
        found = list(effects)
        for effect in effects:
            if isinstance(effect, fx.Persist):
                self.records.extend(effect.records)
            elif isinstance(effect, fx.Feed):
                found += self._commit(self.pool.handle(effect.event))
            elif isinstance(effect, fx.JobEnded):
                self.ended.append(effect.record.job_id)
            elif isinstance(effect, fx.Answer):
                self.answers.append(effect)
        return found

    def wait(self, seconds: float) -> list[fx.Effect]:
        """Lets time pass."""
        self.now += seconds
        return self.tell(ev.Tick(at=self.now))

    def live(self, seconds: float, step: float = 1.0) -> None:
        """Lets time pass while every worker gives its signs of life."""
        end = self.now + seconds
        while self.now < end:
            self.now += step
            for name, worker in list(self.pool.state.workers.items()):
                if worker.online:
                    self.tell(ev.Heard(at=self.now, worker=name))
            self.tell(ev.Tick(at=self.now))

    def of(self, kind: type[E]) -> list[E]:
        """The effects of one kind among those of the last event."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    # -- users -------------------------------------------------------------------------------------

    def submit(
        self,
        count: int = 1,
        owner: str = "ada",
        cpus: float = 1,
        memory_bytes: int = 0,
        fpga: float = 0,
        matlab: float = 0,
        seats: float = 0,
        argv: tuple[str, ...] = ("true",),
        **spec: Any,
    ) -> int:
        """A job of so many tasks; returns its id."""
        self._requests += 1
        request = _present(cpus=cpus, memory=memory_bytes, fpga=fpga, matlab=matlab, seats=seats)
        job = job_spec(argv=argv, count=count, request=request, **spec)
        self.tell(
            ev.Submit(
                at=self.now,
                request=str(self._requests),
                owner=owner,
                spec=job,
                ended=self._ended(owner, job),
                paired=ended_pairs(self.store(), owner, [job.after_each]) if job.after_each else {},
            )
        )
        return self.answers[-1].job_id

    def submit_under(self, key: str, spec: JobSpec) -> fx.Answer:
        """The user hands a job in under a key, perhaps again."""
        earlier = self.store().job_of_key("ada", key)
        self.tell(
            ev.Submit(at=self.now, request="r", owner="ada", spec=spec, key=key, earlier=earlier)
        )
        return self.answers[-1]

    def _ended(self, owner: str, spec: JobSpec) -> dict[int, str]:
        """The final states of parents, as the store knows them."""
        if not spec.after:
            return {}
        ids = list(ids_of(spec.after))
        found = self.store().jobs(ids=ids, owner=owner, limit=len(ids))
        return {job.job_id: job.state for job in found if job.state != "active"}

    def _paired(self, owner: str, job_id: int) -> EndedTasks | None:
        """A job for whose tasks others wait, if the store knows it as ended."""
        return ended_pairs(self.store(), owner, [job_id]).get(job_id)

    def submit_graph(
        self,
        *after: tuple[After, ...],
        owner: str = "ada",
        key: str = "",
        each: Mapping[int, int] | None = None,
        **spec: Any,
    ) -> int:
        """Jobs alike as one, each with the places of those that it waits for.

        Args:
            each: place of a job -> that of the one whose tasks its tasks wait for.

        Returns:
            The id of the first.
        """
        specs = [job_spec(**spec) for _ in after]
        self.tell(
            ev.SubmitGraph(
                at=self.now,
                request="g",
                owner=owner,
                specs=specs,
                after=[*after],
                after_each=[(each or {}).get(place) for place in range(len(after))],
                key=key,
                earlier=self.store().job_of_key(owner, key) if key else None,
            )
        )
        return self.answers[-1].job_id

    def hold(self, job_id: int, reason: str = "", by: str = "ada") -> fx.Answer:
        """Puts a job on hold."""
        self.tell(
            ev.PutOnHold(at=self.now, cause=by, request="h", by=by, job_id=job_id, reason=reason)
        )
        return self.answers[-1]

    def release(self, job_id: int, by: str = "ada") -> fx.Answer:
        """Lets a job go on that is on hold."""
        event = ev.Release(at=self.now, cause=by, request="r", job_id=job_id)
        self.tell(event)
        return self.answers[-1]

    def cancel(self, job_id: int, *indexes: int) -> fx.Answer:
        """Stops a job, or only these tasks of it."""
        self.tell(ev.Cancel(at=self.now, request="c", job_id=job_id, indexes=[*indexes]))
        return self.answers[-1]

    def retry(self, job_id: int, *, rest: bool = True) -> fx.Answer:
        """All of a job that ended badly shall run again, as the store has it; and no other job."""
        store = self.store()
        record = next((job for job in store.jobs(ids=[job_id]) if job.state != "active"), None)
        bad = store.ended_badly(job_id)
        self.tell(
            ev.Retry(
                at=self.now,
                request="r",
                job_id=job_id,
                record=record,
                indexes=bad,
                rest=rest,
                ended={} if record is None else self._ended(record.owner, record.spec),
                bad=[] if record is None else ended_tasks(record, bad).bad,
                paired=record and self._paired(record.owner, record.spec.after_each),
            )
        )
        return self.answers[-1]

    def own(self, name: str, total: int) -> fx.Answer:
        """The whole pool has so many of these."""
        return self.put(TokenRecord(name, total))

    def disown(self, name: str) -> fx.Answer:
        """The pool has none of these any more."""
        return self.drop(TokenRecord, name)

    def put(self, setting: Setting | GroupChange) -> fx.Answer:
        """An admin sets something that has a name."""
        self.tell(ev.PutSetting(at=self.now, cause="root", request="p", setting=setting))
        return self.answers[-1]

    def drop(self, kind: type[Setting], name: str) -> fx.Answer:
        """An admin removes it."""
        self.tell(ev.DropSetting(at=self.now, cause="root", request="d", kind=kind, name=name))
        return self.answers[-1]

    def tasks_ahead(self, job_id: int) -> int:
        """What `explain` says of that."""
        return self.pool.explain(self.pool.state.jobs[job_id], self.now).tasks_ahead

    # -- workers -----------------------------------------------------------------------------------

    def join(
        self,
        *names: str,
        cpus: float = 1,
        memory_bytes: int = 0,
        tags: Iterable[str] = (),
        holds: Iterable[Attempt] = (),
        incarnation: str = "one",
        version: str = "",
        start: str = "",
        host: str = "",
        attributes: dict[str, bool | int | float | str] | None = None,
        wants: int | None = None,
        **assets: float,
    ) -> None:
        """Workers say hello, and charge what they hold as their jobs ask, as far as they have that;
        they were handed it.
        """
        offered = _present(cpus=cpus, memory=memory_bytes, **assets)
        ad = WorkerAd(
            assets=offered,
            tags=tuple(tags),
            version=version,
            start=start,
            host=host,
            attributes=attributes or {},
        )
        held = [(*attempt, place) for place, attempt in enumerate(holds)]
        claims = [
            {name: n for name, n in self._claim(job_id).items() if name in offered}
            for _, job_id, _, _ in held
        ]
        for name in names:
            self.tell(
                ev.Joined(
                    at=self.now,
                    worker=name,
                    incarnation=incarnation,
                    ad=ad,
                    holds=held,
                    claims=claims,
                    seals=self.seals(name, [attempt[:3] for attempt in held]),
                    wants=wants,
                )
            )

    def seals(self, name: str, attempts: Iterable[Attempt]) -> list[Seal]:
        """What a worker has that was handed these, each by itself."""
        mark = self.pool.seals.mark
        return [
            (number, job_id, index, 1, mark(name, number, job_id, index, 1))
            for number, job_id, index in attempts
        ]

    def _claim(self, job_id: int) -> Amounts:
        job = self.pool.state.jobs.get(job_id)
        return job.shape.request if job is not None else amounts({"cpus": 1.0})

    def lose(self, name: str, *, begun: bool = True) -> list[fx.Effect]:
        """A worker goes away; what it has had begun, because it gave a sign of life."""
        if begun:
            self.now += 0.001
            self.tell(ev.Heard(at=self.now, worker=name))
        return self.tell(ev.Lost(at=self.now, worker=name, cause="unavailable"))

    def give_back(self) -> list[fx.Effect]:
        """Workers give back what they were just asked for."""
        found: list[fx.Effect] = []
        for wish in self.of(fx.Recall):
            event = ev.Returned(at=self.now, worker=wish.worker, numbers=wish.numbers)
            found += self.tell(event)
        return found

    def held(self, name: str) -> list[Attempt]:
        """What the pool thinks a worker has, oldest first."""
        worker = self.worker(name)
        return [(number, task.job.id, task.index) for number, task in worker.held.items()]

    def worker(self, name: str) -> Worker:
        return self.pool.state.workers[name]

    def jobs_at(self, name: str) -> list[int]:
        return [job_id for _, job_id, _ in self.held(name)]

    def report(
        self,
        name: str,
        *attempts: Attempt,
        outcome: int = Outcome.DONE,
        seconds: float = 2.0,
        **more: Any,
    ) -> list[fx.Effect]:
        """A worker reports attempts that it was handed; without any, the oldest that it holds.

        Args:
            more: further fields of the results.
        """
        results = [
            Result(number, job_id, index, outcome, self.now, seconds, **more)
            for number, job_id, index in attempts or self.held(name)[:1]
        ]
        seals = self.seals(name, [(r.number, r.job_id, r.index) for r in results])
        return self.tell(ev.Reported(at=self.now, worker=name, results=results, seals=seals))

    def fail(
        self, name: str, *attempts: Attempt, seconds: float = 0.1, **more: Any
    ) -> list[fx.Effect]:
        return self.report(name, *attempts, outcome=Outcome.FAILED, seconds=seconds, **more)

    def finish_all(self, seconds: float = 2.0, rounds: int = 100_000) -> None:
        """Every worker reports what it holds, until nothing is left to do."""
        for _ in range(rounds):
            busy = [name for name, worker in self.pool.state.workers.items() if worker.held]
            if not busy:
                self.pool.check()
                return
            self.now += seconds
            for name in busy:
                self.report(name, *self.held(name), seconds=seconds)
        raise AssertionError("the work does not end")
