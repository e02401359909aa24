"""Whatever is written, both stores say the same of what both keep."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from store_samples import FULL_SPEC, STORED, happening, job

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.checkpoint import Checkpoint
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import StageRun
from kestrelctl.core.model.job.task_state import FINAL_STATES, Counts, TaskState
from kestrelctl.core.model.records import (
    FlockPeer,
    FlockPeerGone,
    GroupRecord,
    JobForgotten,
    JobRecord,
    OwnerTold,
    PolicyRecord,
    Progress,
    Record,
    Snapshot,
    StoredRecord,
    TaskRecord,
    TokenRecord,
    UserRecord,
    WorkerGone,
    WorkerRecord,
)
from kestrelctl.core.model.result import Result
from kestrelctl.core.model.setting import SettingGone
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.store import writing
from kestrelctl.store.port import CoreStore
from kestrelctl.store.sqlite import store as sqlite
from kestrelctl.store.sqlite.store import SqliteStore

JOBS = range(1, 4)
INDEXES = range(8)
STORED_STATES = [TaskState.WAITING, *FINAL_STATES]
KEYS = {1: "", 2: "k", 3: "k"}
SPECS = {
    1: replace(FULL_SPEC, items=None, count=10**9),
    2: JobSpec(program=Program(argv=("true",)), count=10**9),
    3: JobSpec(program=Program(argv=("false",)), count=10**9),
}

job_ids = st.sampled_from(JOBS)
indexes = st.sampled_from(INDEXES)
small = st.integers(0, 3)
wide = st.integers(-(2**63), 2**63 - 1)
seconds = st.floats(allow_nan=False, allow_infinity=False)
durations = st.floats(0.0, 1e12)
words = st.text(max_size=8)
names = st.sampled_from(["ada", "bob", ""])
amounts = st.floats(min_value=0.001, max_value=2.0**60, exclude_max=True)
ads = st.builds(
    WorkerAd,
    assets=st.dictionaries(st.sampled_from(["cpus", "memory", "fpga"]), amounts),
    tags=st.lists(words, max_size=2).map(tuple),
    host=words,
)
bounds = {
    "weight": st.floats(min_value=1e-6, max_value=1e6),
    "max_running": st.none() | small,
    "max_queued": st.none() | st.integers(0, 2**53),
    "limits": st.dictionaries(st.sampled_from(["cpus", "gpus"]), st.integers(0, 2**62)),
}
group_names = st.sampled_from(["physics", "bio"])
users = st.builds(
    UserRecord,
    name=st.sampled_from(["ada", "bob"]),
    group=st.just("") | group_names,
    usage=durations,
    usage_at=durations,
    mail=st.sampled_from(["", "ada@example.org"]),
    max_stored_bytes=st.none() | st.just("default") | st.integers(0, 2**53),
    max_queued_bytes=st.none() | st.just("default") | st.integers(0, 2**53),
    **bounds,
)
rule_names = st.sampled_from(["night", "eve"])
rules = st.builds(
    FlockRule,
    name=rule_names,
    direction=st.sampled_from(["lend", "borrow"]),
    action=st.sampled_from(["allow", "deny"]),
    order=small,
    pools=st.lists(words, max_size=2).map(tuple),
    max_cpus=st.none() | durations,
    requirements=words,
)
pools = st.sampled_from(["a.test", "b.test"])
groups = st.builds(GroupRecord, name=group_names, **bounds)
counts = st.builds(Counts, done=small, failed=small, lost=small, cancelled=small)


@st.composite
def job_records(draw: st.DrawFn) -> JobRecord:
    job_id = draw(job_ids)
    return job(
        job_id,
        owner=f"owner {job_id % 2}",
        spec=SPECS[job_id],
        key=KEYS[job_id],
        state=draw(st.sampled_from(["active", "active", "done", "failed", "cancelled"])),
        cancelling=draw(st.booleans()),
        cursor=draw(indexes),
        counts=draw(counts),
        ended_at=draw(st.none() | seconds),
        untold=draw(st.booleans()),
        unmailed=draw(st.booleans()),
        hold=draw(st.none() | st.builds(Hold, names, seconds, words)),
        freed=draw(st.booleans()),
        settled=draw(st.dictionaries(job_ids, st.sampled_from(["done", "failed"]))),
    )


@st.composite
def task_records(draw: st.DrawFn) -> TaskRecord:
    job_id, index = draw(job_ids), draw(indexes)
    result = st.builds(
        Result,
        number=wide,
        job_id=st.just(job_id),
        index=st.just(index),
        outcome=small,
        started_at=seconds,
        wall_seconds=durations,
        peak_bytes=st.integers(0, 2**63 - 1),
        signal=small,
        reason=words,
        stdout=st.binary(max_size=8),
        stderr=st.binary(max_size=8),
        output_files=st.integers(0, 2**63 - 1),
        outputs=st.none() | st.just(STORED),
        stored_seconds=durations,
        stdout_stored=st.none() | st.just(STORED),
        stderr_stored=st.none() | st.just(STORED),
        stages=st.lists(st.builds(StageRun, words, durations, small)).map(tuple),
    )
    return TaskRecord(
        job_id,
        index,
        draw(st.sampled_from(STORED_STATES)),
        draw(small),
        draw(small),
        draw(words),
        draw(st.none() | result),
        draw(small),
        least_seconds=draw(st.just(0.0) | durations),
        checkpoint=draw(
            st.none() | st.builds(Checkpoint, wide, st.integers(1, 9), st.just(STORED), seconds)
        ),
    )


records = st.one_of(
    task_records(),
    job_records(),
    st.builds(Progress, job_ids, indexes),
    st.builds(OwnerTold, job_ids, st.none(), st.booleans()),
    st.builds(WorkerRecord, names, st.booleans(), ads),
    st.builds(WorkerGone, names),
    st.builds(TokenRecord, names, st.integers(1, 10**9)),
    st.builds(SettingGone, st.just(TokenRecord), names),
    users,
    st.builds(StoredRecord, st.sampled_from(["ada", "bob"]), small, st.integers(0, 2**53)),
    groups,
    st.builds(SettingGone, st.just(GroupRecord), group_names),
    rules,
    st.builds(SettingGone, st.just(FlockRule), rule_names),
    st.builds(PolicyRecord, names, words, words),
    st.builds(WorkerGroup, name=names, where=words),
    st.builds(SettingGone, st.sampled_from([PolicyRecord, WorkerGroup]), names),
    st.builds(FlockPeer, pool=pools, through=st.booleans(), heard_at=durations),
    st.builds(FlockPeerGone, pools),
    st.builds(JobForgotten, job_ids),
    st.builds(happening, st.integers(-1, 7), job_ids, at=seconds, number=wide, detail=words),
)


def allowed(batches: list[list[Record]]) -> list[list[Record]]:
    """Leaves out what no pool says: anything about a job that was forgotten."""
    forgotten: set[int] = set()
    kept: list[list[Record]] = []
    for batch in batches:
        kept.append([])
        for record in batch:
            job_id = getattr(record, "job_id", None)
            if job_id in forgotten:
                continue
            kept[-1].append(record)
            if isinstance(record, JobForgotten):
                forgotten.add(record.job_id)
    return kept


def answers(store: CoreStore) -> list[object]:
    """All that can be asked of a store, more or less."""
    said: list[object] = [
        store.jobs(),
        *(store.job(job_id) for job_id in range(5)),
        store.jobs(limit=2, states=["active", "done"]),
        store.jobs(ids=[1, 3], owner="owner 1"),
        *(store.job_of_key(f"owner {n}", "k") for n in range(3)),
        store.job_ids(owner="owner 0"),
        store.untold(2),
    ]
    for job_id in JOBS:
        said += [
            store.tasks(job_id),
            store.tasks(job_id, limit=2, after=3),
            store.tasks(job_id, states=[TaskState.DONE, TaskState.WAITING], limit=3),
            store.tasks(job_id, states=[TaskState.LOST], after=1),
            store.tasks(job_id, indexes=[5, 2, 3], states=FINAL_STATES, after=2),
            store.ended_badly(job_id),
            store.ended_badly(job_id, [1, 6]),
            store.count_happenings(job_id),
        ]
    return said


async def compare(batches: list[list[Record]], data_dir: Path) -> None:
    memory, on_disk = MemoryStore(), SqliteStore(data_dir)
    assert _without_secret(memory) == _without_secret(on_disk)
    try:
        for batch in batches:
            await memory.commit(batch)
            await on_disk.commit(batch)
            assert answers(memory) == answers(on_disk)
        memory.close()
        on_disk.close()
        assert _without_secret(memory) == _without_secret(on_disk)
        assert answers(memory) == answers(on_disk)
    finally:
        on_disk.close()


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(records, max_size=12), max_size=4).map(allowed))
def test_both_stores_give_the_same_answers(batches: list[list[Record]]) -> None:
    with tempfile.TemporaryDirectory() as data_dir, pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "FORGET_ROWS", 2)
        patch.setattr(sqlite, "SYNCHRONOUS", "OFF")
        asyncio.run(compare(batches, Path(data_dir)))


def _without_secret(store: CoreStore) -> Snapshot:
    return replace(store.open(), secret=b"")
