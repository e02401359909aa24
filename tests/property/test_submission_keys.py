"""Whatever is sent again, whenever the manager dies: one key, one job."""

from __future__ import annotations

import os
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import Record
from kestrelctl.core.pool import Pool

SPECS = [
    JobSpec(program=Program(argv=("true",))),
    JobSpec(program=Program(argv=("false",)), count=2),
]

submissions = st.tuples(
    st.just("submit"),
    st.sampled_from(["ada", "bob"]),
    st.sampled_from("kl"),
    st.sampled_from(SPECS),
)
others = st.tuples(st.sampled_from(["commit", "commit", "crash", "cancel", "retry"]))


class Manager:
    """A pool, and a store that commits when it is told to."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.answered: dict[tuple[str, str], int] = {}
        self.asked: dict[str, tuple[str, str]] = {}
        self.now = 1.0
        self.start()

    def start(self) -> None:
        self.pending: list[Record] = []
        self.waiting: list[fx.Effect] = []
        self.pool = Pool(self.store.open())
        self.tell(ev.Reconnected(at=self.now))

    def tell(self, event: ev.Event) -> None:
        self.now += 1.0
        for effect in self.pool.handle(event):
            if isinstance(effect, fx.Persist):
                self.pending += effect.records
            elif effect.after_commit and self.pending:
                self.waiting.append(effect)
            else:
                self.do(effect)
        self.pool.check()

    def do(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Feed):
            self.tell(effect.event)
        elif isinstance(effect, fx.Answer) and effect.request in self.asked and not effect.error:
            whose = self.asked[effect.request]
            assert self.answered.setdefault(whose, effect.job_id) == effect.job_id
            assert [job.job_id for job in self.store.jobs(ids=[effect.job_id])], "not durable"

    def commit(self) -> None:
        records, self.pending = self.pending, []
        waiting, self.waiting = self.waiting, []
        with suppress(StopIteration):
            self.store.commit(records).send(None)
        for effect in waiting:
            self.do(effect)

    def submit(self, owner: str, key: str, spec: JobSpec) -> None:
        request = str(len(self.asked))
        self.asked[request] = (owner, key)
        earlier = self.store.job_of_key(owner, key)
        self.tell(
            ev.Submit(
                at=self.now, request=request, owner=owner, spec=spec, key=key, earlier=earlier
            )
        )

    def cancel(self) -> None:
        for job in list(self.pool.jobs):
            cancel = ev.Cancel(at=self.now, request="", job_id=job.id)
            self.tell(cancel)

    def retry(self) -> None:
        self.commit()
        for job in self.store.jobs(states=["cancelled"]):
            self.tell(
                ev.Retry(
                    at=self.now,
                    request="",
                    job_id=job.job_id,
                    record=job,
                    indexes=[],
                    rest=True,
                )
            )


@settings(max_examples=300, deadline=None, derandomize="CI" in os.environ)
@given(st.lists(st.one_of(submissions, others), max_size=30))
def test_no_sequence_of_repeats_and_restarts_makes_two_jobs(
    steps: list[tuple[object, ...]],
) -> None:
    manager = Manager()
    for what, *details in steps:
        if what == "crash":
            manager.start()
        else:
            getattr(manager, str(what))(*details)
    manager.commit()
    keyed = [(job.owner, job.key) for job in manager.store.jobs(limit=1000)]
    assert len(set(keyed)) == len(keyed)
    assert len(set(manager.answered.values())) == len(manager.answered)
