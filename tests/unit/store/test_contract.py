"""What every store promises, whatever holds the data; and what a whole one promises besides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from store_samples import (
    FULL_RULE,
    FULL_SPEC,
    STORED,
    cancelled,
    done,
    failed,
    happening,
    job,
    lost,
    result,
    waiting,
)

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core.effects import Persist, Run
from kestrelctl.core.events import (
    Drain,
    JobStored,
    Joined,
    Reconnected,
    Reported,
    Submit,
    WorkerStored,
)
from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.model.files.byte_limit import MOST_STORED_SUM_BYTES
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.after import After, WantedEnd
from kestrelctl.core.model.job.checkpoint import Checkpoint
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.light_spec import Apart, lightened
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.job.stage import StageRun
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import (
    FlockPeer,
    FlockPeerGone,
    GroupRecord,
    Happening,
    JobForgotten,
    OwnerTold,
    PolicyRecord,
    Progress,
    Record,
    Snapshot,
    StoredRecord,
    TaskRecord,
    TokenRecord,
    UserGone,
    UserRecord,
    WorkerGone,
    WorkerRecord,
)
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import SECRET_BYTES
from kestrelctl.core.model.setting import SettingGone
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.pool import Pool
from kestrelctl.errors import StoreFull
from kestrelctl.store.edges import Edge
from kestrelctl.store.port import CoreStore, Store
from kestrelctl.store.postgresql.store import PostgresqlStore


def reopened(store: CoreStore) -> Snapshot:
    """What the next manager finds."""
    store.close()
    return store.open()


@contextmanager
def without_space(store: Any) -> Iterator[None]:
    """The store cannot grow."""
    if isinstance(store, MemoryStore):
        store.full = True
        yield
        store.full = False
    elif isinstance(store, PostgresqlStore):
        with psycopg.connect(store._conninfo, autocommit=True) as link:
            link.execute(NO_SPACE)
            yield
            link.execute("DROP TRIGGER no_space ON tasks")
    else:
        [pages] = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        yield
        store._writer.execute("PRAGMA max_page_count = 1000000")


#: As PostgreSQL says it when its disk is full.
NO_SPACE = """
    CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full';
    END
    $$;
    CREATE TRIGGER no_space BEFORE INSERT ON tasks EXECUTE FUNCTION no_space();
"""

OK, FAILED = WantedEnd.OK, WantedEnd.FAILED


class TestOpening:
    def test_a_new_store_is_empty(self, store: CoreStore) -> None:
        found = reopened(store)
        assert found == Snapshot(epoch=2, secret=found.secret, next_job_id=1, jobs=[], workers=[])
        assert store.jobs() == []
        assert store.tasks(1) == []
        assert store.ended_badly(1) == []

    def test_each_manager_has_a_higher_epoch(self, store: CoreStore) -> None:
        assert [reopened(store).epoch for _ in range(3)] == [2, 3, 4]

    def test_all_its_managers_have_one_secret(self, store: CoreStore) -> None:
        secret = reopened(store).secret
        assert len(secret) == SECRET_BYTES
        assert reopened(store).secret == secret

    async def test_job_ids_go_on_where_they_were(self, store: CoreStore) -> None:
        await store.commit([job(1), job(7), job(3)])
        assert reopened(store).next_job_id == 8

    async def test_the_id_of_a_forgotten_job_is_not_used_again(self, store: CoreStore) -> None:
        await store.commit([job(1), job(2, state="done")])
        await store.commit([JobForgotten(2)])
        assert reopened(store).next_job_id == 3

    async def test_workers_are_remembered_until_they_are_gone(self, store: CoreStore) -> None:
        await store.commit([WorkerRecord("b"), WorkerRecord("a"), WorkerRecord("c")])
        await store.commit([WorkerRecord("a", draining=True), WorkerGone("b"), WorkerGone("x")])
        assert reopened(store).workers == [WorkerRecord("a", draining=True), WorkerRecord("c")]

    async def test_tokens_of_the_pool_are_remembered_until_they_are_gone(
        self, store: CoreStore
    ) -> None:
        await store.commit(
            [TokenRecord("seats", 2), TokenRecord("matlab", 5), SettingGone(TokenRecord, "x")]
        )
        await store.commit([TokenRecord("matlab", 10**9), SettingGone(TokenRecord, "seats")])
        assert reopened(store).settings == [TokenRecord("matlab", 10**9)]

    async def test_rules_of_the_flock_are_remembered_until_they_are_gone(
        self, store: CoreStore
    ) -> None:
        deny = FlockRule(name="deny", direction="borrow", action="deny", pools=("b.test",))
        await store.commit([FULL_RULE, deny, SettingGone(FlockRule, "x")])
        assert reopened(store).settings == [deny, FULL_RULE]
        other = FlockRule(name="deny", direction="lend", action="deny")
        await store.commit([other, SettingGone(FlockRule, FULL_RULE.name)])
        assert reopened(store).settings == [other]

    async def test_pools_of_the_flock_are_remembered_until_they_are_gone(
        self, store: CoreStore
    ) -> None:
        heard = FlockPeer(pool="c.test", heard_at=1_700_000_000.5)
        await store.commit([heard, FlockPeer(pool="b.test", through=True), FlockPeerGone("x")])
        await store.commit([FlockPeer(pool="a.test"), FlockPeerGone("a.test")])
        assert reopened(store).flock_peers == [FlockPeer(pool="b.test", through=True), heard]
        await store.commit([FlockPeer(pool="c.test", through=True), FlockPeerGone("b.test")])
        assert reopened(store).flock_peers == [FlockPeer(pool="c.test", through=True)]

    async def test_what_a_worker_last_said_of_itself_is_remembered(self, store: CoreStore) -> None:
        assets = {"cpus": 0.3, "memory": 2.0**53 - 1, "fpga": 2}
        first = WorkerAd(assets=assets, tags=("gpu", "ü"), host="lab7", os="Linux")
        second = WorkerAd(assets=assets, host="lab7", arch="x86_64", version="0.2")
        await store.commit([WorkerRecord("a", ad=first), WorkerRecord("b", ad=first)])
        await store.commit(
            [WorkerRecord("a", ad=second), WorkerRecord("b", draining=True, ad=first)]
        )
        assert reopened(store).workers == [
            WorkerRecord("a", ad=second),
            WorkerRecord("b", draining=True, ad=first),
        ]


class TestEdges:
    async def test_who_waits_for_whom_is_kept(self, store: CoreStore) -> None:
        await store.commit(
            [
                job(1),
                job(
                    3,
                    spec=JobSpec(
                        program=Program(argv=("a",)), after=(After(1, 1), After(2, 2, FAILED))
                    ),
                ),
                job(4, spec=JobSpec(program=Program(argv=("a",)), after=(After(1, 3),))),
            ]
        )
        kept = [Edge(3, 1, 1, OK), Edge(3, 2, 2, FAILED), Edge(4, 1, 3, OK)]
        assert store.edges() == kept
        assert store.edges(limit=2) == kept[:2]
        assert store.edges(above=3) == kept[2:]
        assert store.edges(ids=[1, 3]) == kept[:2]
        await store.commit([JobForgotten(3)])
        assert store.edges() == kept[2:]

    async def test_how_parents_ended_is_found_for_those_that_wait(self, store: CoreStore) -> None:
        waits = JobSpec(program=Program(argv=("a",)), after=(After(1, 3),))
        await store.commit([job(1, state="done"), job(2), job(3, state="failed")])
        await store.commit([job(4, spec=waits, settled={9: "done"})])
        found = reopened(store)
        assert found.parents == {1: "done", 3: "failed"}
        assert found.jobs[-1].record.settled == {9: "done"}
        await store.commit([job(4, spec=waits, freed=True)])
        found = reopened(store)
        assert found.parents == {}
        assert found.jobs[-1].record.freed
        assert found.jobs[-1].record.settled == {}

    async def test_a_job_for_whose_tasks_others_wait_is_one_of_them(self, store: CoreStore) -> None:
        both = JobSpec(program=Program(argv=("a",)), after=(After(3, 4),), after_each=2)
        await store.commit([job(5, spec=both)])
        assert store.edges() == [Edge(5, 2, 2, "each"), Edge(5, 3, 4, OK)]

    async def test_which_tasks_of_it_ended_badly_is_found(self, store: CoreStore) -> None:
        many = JobSpec(program=Program(argv=("a",)), count=9)
        behind = replace(many, after_each=1)
        rows: list[Record] = [done(0), failed(1), failed(2), lost(4)]
        await store.commit([job(1, spec=many), *rows, Progress(1, 6)])
        await store.commit([job(2, spec=behind)])
        found = reopened(store)
        assert found.jobs[0].bad == [(1, 2), (4, 4)]
        assert found.jobs[1].bad == []
        assert found.paired == {}
        counts = Counts(done=1, failed=2, lost=1, cancelled=5)
        ended = job(1, spec=many, state="failed", cursor=6, counts=counts)
        await store.commit([ended, cancelled(3), done(5)])
        found = reopened(store)
        assert found.paired[1].bad == [(1, 4), (6, 8)]
        assert found.paired[1].record.spec.count == 9


class TestShares:
    async def test_what_is_set_for_users_is_remembered(self, store: CoreStore) -> None:
        ada = UserRecord(
            name="ada",
            weight=0.5,
            group="physics",
            max_running=0,
            max_queued=2**53,
            limits={"gpus": 0, "memory": 2**62},
            usage=1e9 / 3,
            usage_at=1_700_000_000.25,
            mail="ada+jobs@example.org",
            max_stored_bytes=MOST_STORED_SUM_BYTES,
            max_queued_bytes=None,
        )
        await store.commit([UserRecord(name="bob", max_stored_bytes=0), ada])
        bob = UserRecord(name="bob", weight=2.0, max_stored_bytes=None, max_queued_bytes=7)
        await store.commit([bob, UserRecord(name="carl")])
        assert reopened(store).users == [ada, bob, UserRecord(name="carl")]
        await store.commit([UserGone("bob"), UserGone("nobody")])
        assert reopened(store).users == [ada, UserRecord(name="carl")]

    async def test_what_users_have_stored_is_remembered_until_it_counts_no_more(
        self, store: CoreStore
    ) -> None:
        first, second = StoredRecord("ada", 472_000, 5), StoredRecord("ada", 472_001, 1)
        his = StoredRecord("bob", 472_000, MOST_STORED_SUM_BYTES)
        await store.commit([second, StoredRecord("ada", 472_000, 3), first, his])
        assert reopened(store).stored == [first, second, his]
        await store.commit([StoredRecord("ada", 472_000, 0), StoredRecord("eve", 1, 0)])
        assert reopened(store).stored == [second, his]

    async def test_groups_are_remembered_until_they_are_gone(self, store: CoreStore) -> None:
        physics = GroupRecord(name="physics", weight=3.0, max_running=5, limits={"cpus": 8000})
        await store.commit([GroupRecord(name="bio", max_queued=7), GroupRecord(name="physics")])
        await store.commit(
            [physics, *(SettingGone(GroupRecord, name) for name in ("bio", "nobody"))]
        )
        assert reopened(store).settings == [physics]

    async def test_settings_come_by_kind_and_name_and_kinds_share_no_names(
        self, store: Store
    ) -> None:
        gpu, all_ = WorkerGroup(name="b", tags=("gpu",)), WorkerGroup(name="a", names=("*",))
        policy = PolicyRecord("b", "true", "ConsumptionCpus = 2\n")
        await store.commit([gpu, TokenRecord("b", 2), all_, policy])
        assert reopened(store).settings == [policy, TokenRecord("b", 2), all_, gpu]
        await store.commit([SettingGone(TokenRecord, "b"), SettingGone(WorkerGroup, "a")])
        assert reopened(store).settings == [policy, gpu]


class TestActiveJobs:
    async def test_only_active_jobs_are_brought_back(self, store: CoreStore) -> None:
        states = ["active", "done", "failed", "cancelled", "active"]
        await store.commit([job(i, state=state) for i, state in enumerate(states, start=1)])
        assert [found.record.job_id for found in reopened(store).jobs] == [1, 5]

    async def test_a_job_is_brought_back_as_it_was(self, store: CoreStore) -> None:
        record = job(spec=FULL_SPEC, cancelling=True)
        await store.commit([record])
        [found] = reopened(store).jobs
        assert found.record == replace(record, spec=replace(FULL_SPEC, items=None))
        assert found.apart == Apart(spec_bytes=encoded_bytes(FULL_SPEC), items=True, program=False)

    async def test_a_long_program_stays_in_the_store(self, store: CoreStore) -> None:
        program = Program(argv=("run", *["word"] * 2_000), env={"A": "b"})
        spec = JobSpec(program=program)
        await store.commit([job(spec=spec)])
        [found] = reopened(store).jobs
        assert found.record.spec == lightened(spec)
        assert found.apart == Apart(spec_bytes=encoded_bytes(spec), items=False, program=True)
        assert await store.program(1) == program
        assert store.job(1) == job(spec=spec)

    async def test_what_is_short_is_brought_back_with_its_job(self, store: CoreStore) -> None:
        await store.commit([job(1)])
        [found] = reopened(store).jobs
        assert (found.record, found.apart) == (job(1), None)
        assert await store.program(1) == job(1).spec.program
        assert await store.program(2) is None

    async def test_a_job_never_sent_is_one_row_however_long_it_is(self, store: CoreStore) -> None:
        await store.commit([job(spec=JobSpec(program=Program(argv=("true",)), count=10**12))])
        [found] = reopened(store).jobs
        assert (found.unfinished, found.counters) == ([], {})

    async def test_what_is_below_the_cursor_and_has_not_ended_is_unfinished(
        self, store: CoreStore
    ) -> None:
        await store.commit([job(), Progress(1, 8)])
        await store.commit([done(0), failed(2), lost(3), cancelled(5), waiting(6, failures=1)])
        [found] = reopened(store).jobs
        assert found.unfinished == [1, 4, 6, 7]
        assert found.record.cursor == 8
        assert found.record.counts == Counts(done=1, failed=1, lost=1, cancelled=1)

    async def test_failures_and_losses_of_tasks_to_repeat_are_kept(self, store: CoreStore) -> None:
        again = [waiting(0), waiting(1, failures=2), waiting(2, losses=3), waiting(3, 1, 1)]
        await store.commit([job(cursor=9), *again, failed(4)])
        [found] = reopened(store).jobs
        assert found.counters == {1: (2, 0), 2: (0, 3), 3: (1, 1)}

    async def test_attempts_that_are_over_stay_so(self, store: CoreStore) -> None:
        over = (3 << 40) + 17
        again = [
            waiting(0, concluded=over, retried_after=over - 1, memory_step=2, least_seconds=8.0),
            waiting(1),
            waiting(2, failures=1, concluded=5),
        ]
        await store.commit([job(cursor=9), *again, done(3)])
        [found] = reopened(store).jobs
        assert found.concluded == {0: over, 2: 5}
        assert found.retried_after == {0: over - 1}
        assert found.memory_steps == {0: 2}
        assert found.least_seconds == {0: 8.0}
        assert found.counters == {2: (1, 0)}
        assert store.tasks(1, limit=3) == again

    async def test_what_tasks_go_on_from_is_kept(self, store: CoreStore) -> None:
        piece = Piece(sha256="0" * 64, size_bytes=6, url="https://share/1")
        stored = StoredFile(sha256="0" * 64, size_bytes=6, pieces=(piece,))
        found_at = Checkpoint((3 << 40) + 17, 4, stored, 1500.25)
        again = [waiting(0, checkpoint=found_at), waiting(1)]
        await store.commit([job(cursor=9, resumed=2), *again])
        [found] = reopened(store).jobs
        assert found.checkpoints == {0: found_at}
        assert found.record.resumed == 2
        assert store.tasks(1, limit=2) == again

    async def test_the_cursor_is_beyond_every_stored_task(self, store: CoreStore) -> None:
        await store.commit([job(), Progress(1, 2), done(5)])
        [found] = reopened(store).jobs
        assert found.record.cursor == 6
        assert found.unfinished == [0, 1, 2, 3, 4]

    async def test_the_last_word_on_the_cursor_counts(self, store: CoreStore) -> None:
        await store.commit([job(1), job(2), Progress(1, 3), Progress(2, 5), Progress(1, 4)])
        await store.commit([Progress(2, 7), job(2, cursor=9)])
        await store.commit([Progress(99, 1)])
        assert [found.record.cursor for found in reopened(store).jobs] == [4, 9]

    async def test_tasks_of_one_job_do_not_count_for_another(self, store: CoreStore) -> None:
        await store.commit([job(1, cursor=2), job(2, cursor=2), done(0, 1), done(1, 2)])
        assert [found.unfinished for found in reopened(store).jobs] == [[1], [0]]

    async def test_a_job_brought_back_by_a_retry_is_active_again(self, store: CoreStore) -> None:
        ended = job(state="failed", cursor=10, counts=Counts(done=9, failed=1), ended_at=5.0)
        await store.commit([job(), *(done(i) for i in range(9)), failed(9), ended])
        await store.commit([job(cursor=10), waiting(9)])
        [found] = reopened(store).jobs
        assert found.unfinished == [9]
        assert found.record.counts == Counts(done=9)
        assert found.record.ended_at is None


class TestJobs:
    async def test_an_ended_job_is_found_as_it_ended(self, store: CoreStore) -> None:
        ended = job(
            spec=FULL_SPEC,
            state="failed",
            cancelling=True,
            cursor=3,
            counts=Counts(done=1, failed=2, lost=3, cancelled=4),
            ended_at=1_700_000_100.75,
        )
        await store.commit([job(spec=FULL_SPEC)])
        await store.commit([ended])
        assert store.job(1) == ended
        assert store.jobs(ids=[1]) == [replace(ended, spec=FULL_SPEC.head())]

    async def test_a_hold_comes_and_goes(self, store: CoreStore) -> None:
        held = job(hold=Hold("ada@pool.internal", 1_700_000_050.25, "Quota des Größenwahns"))
        await store.commit([job()])
        await store.commit([held])
        assert (store.job(1), store.jobs()) == (held, [held])
        await store.commit([job()])
        assert store.job(1) == job()

    async def test_a_service_may_grow(self, store: CoreStore) -> None:
        spec = replace(job().spec, service=True, count=3)
        await store.commit([job(spec=spec)])
        await store.commit([job(spec=replace(spec, count=5), stopped_by="deadline")])
        assert store.job(1) == job(spec=replace(spec, count=5), stopped_by="deadline")
        assert store.jobs()[0].spec.count == 5

    async def test_later_records_change_nothing_of_what_they_lack(self, store: CoreStore) -> None:
        program = Program(argv=("run", *["word"] * 2_000))
        spec = JobSpec(program=program, service=True, count=2, items=("a", "b"))
        await store.commit([job(spec=spec)])
        await store.commit([job(spec=lightened(spec), cancelling=True)])
        assert store.job(1) == job(spec=spec, cancelling=True)
        grown = replace(spec, items=None)
        await store.commit([job(2, spec=grown)])
        await store.commit([job(2, spec=replace(lightened(grown), count=7))])
        assert store.job(2) == job(2, spec=replace(grown, count=7))

    async def test_items_are_read_some_at_a_time(self, store: CoreStore) -> None:
        items = tuple(f"item {n}" * (1 + n % 7 * 400) for n in range(2_500))
        await store.commit(
            [job(1, spec=JobSpec(program=Program(argv=("x",)), count=2_500, items=items)), job(2)]
        )
        for index in (0, 1, 999, 1_000, 1_777, 2_499):
            window = await store.items(1, index)
            assert window is not None
            assert window.covers(index)
            assert window.items == items[window.first : window.beyond]
            assert window.total == 2_500
        for job_id, index in ((1, 2_500), (1, -1), (2, 0), (3, 0)):
            assert await store.items(job_id, index) is None

    async def test_lists_hold_the_heads_of_jobs_and_one_job_is_read_whole(
        self, store: CoreStore
    ) -> None:
        spec = replace(
            FULL_SPEC,
            program=replace(FULL_SPEC.program, argv=("run", "x" * 100_000)),
            requires=("gpu",) * 50_000,
        )
        await store.commit([job(1, spec=spec, key="k"), job(2)])
        for _ in range(2):
            assert [found.spec for found in store.jobs()] == [spec.head(), job(2).spec]
            assert store.job(1) == store.job_of_key(job().owner, "k") == job(1, spec=spec, key="k")
            assert store.job(2) == job(2)
            assert store.job(3) is None
            assert reopened(store).jobs[0].record.spec == replace(spec, items=None)
        await store.commit([job(1, spec=spec, key="k", state="done"), JobForgotten(1)])
        assert store.job(1) is None

    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            ({}, [1, 2, 3, 4]),
            ({"limit": 2}, [3, 4]),
            ({"limit": 0}, []),
            ({"limit": -1}, []),
            ({"ids": [4, 1, 99]}, [1, 4]),
            ({"ids": []}, []),
            ({"states": ["done", "failed"]}, [2, 4]),
            ({"owner": "bob"}, [2, 3]),
            ({"owner": "o'neil"}, []),
            ({"ids": [1, 2, 3], "states": ["active"], "owner": "bob"}, [3]),
            ({"states": ["active"], "limit": 1}, [3]),
            ({"before": 3}, [1, 2]),
            ({"before": 4, "limit": 1}, [3]),
            ({"name": "night*"}, [1, 4]),
            ({"name": "night-[!a]"}, [4]),
            ({"name": "night-?", "owner": "ada", "before": 2}, [1]),
            ({"name": "*"}, [1, 2, 3, 4]),
            ({"ended_of": "ada"}, [1, 3, 4]),
            ({"ended_of": "bob", "states": ["done", "failed"]}, [2]),
            ({"ended_of": "eve", "name": "night*"}, [1]),
        ],
    )
    async def test_selection(
        self, store: CoreStore, selection: dict[str, Any], expected: list[int]
    ) -> None:
        await store.commit(
            [
                job(3, owner="bob"),
                job(1, owner="ada", spec=JobSpec(program=Program(argv=("a",)), name="night-a")),
                job(2, owner="bob", state="done"),
                job(
                    4,
                    owner="ada",
                    state="failed",
                    spec=JobSpec(program=Program(argv=("a",)), name="night-b"),
                ),
            ]
        )
        assert [found.job_id for found in store.jobs(**selection)] == expected
        if not {"limit", "before"} & set(selection):
            assert store.job_ids(**selection) == expected
            assert store.count_jobs(**selection) == len(expected)

    async def test_a_job_is_found_by_its_owner_and_the_key_of_its_submission(
        self, store: CoreStore
    ) -> None:
        ada = job(1, owner="ada", key="nightly 'ü'")
        bob = job(2, owner="bob", key="nightly 'ü'")
        await store.commit([ada, bob, job(3, owner="ada"), job(4, owner="ada")])
        for _ in range(2):
            assert store.job_of_key("ada", ada.key) == ada
            assert store.job_of_key("bob", bob.key) == bob
            assert store.job_of_key("ada", "nightly") is None
            reopened(store)
        ended = job(1, owner="ada", key=ada.key, state="done", ended_at=5.0)
        await store.commit([ended])
        assert store.job_of_key("ada", ada.key) == ended

    async def test_the_key_of_a_forgotten_job_is_free_in_the_same_commit(
        self, store: CoreStore
    ) -> None:
        await store.commit([job(1, key="k", state="done")])
        await store.commit([JobForgotten(1), job(2, key="k")])
        found = store.job_of_key(job().owner, "k")
        assert found is not None
        assert found.job_id == 2
        await store.commit([job(2, key="k", state="done"), JobForgotten(2)])
        assert store.job_of_key(job().owner, "k") is None

    async def test_a_forgotten_job_is_gone_with_its_tasks(self, store: CoreStore) -> None:
        await store.commit([job(1, state="done"), job(2), done(0, 1), failed(1, 1), failed(0, 2)])
        await store.commit([JobForgotten(1)])
        for _ in range(2):
            assert [found.job_id for found in store.jobs()] == [2]
            assert (store.tasks(1), store.ended_badly(1)) == ([], [])
            assert store.ended_badly(2) == [(0, "failed")]
            reopened(store)


class TestTasks:
    async def test_a_result_comes_back_as_it_was(self, store: CoreStore) -> None:
        report = Result(
            number=(5 << 40) + 17,
            job_id=1,
            index=4,
            outcome=Outcome.KILLED,
            started_at=1_700_000_000.123456,
            wall_seconds=0.1,
            waited_seconds=1e-9,
            cpu_seconds=12345.678,
            peak_bytes=2**62,
            exit_code=-1,
            signal=9,
            reason="memory",
            stdout="Zeile\n\0\tend ☃ 🐦".encode() + b"\xff",
            stderr=b'it\'s "broken"',
            stdout_bytes=2**40,
            stderr_bytes=3,
            output_files=7,
            outputs=STORED,
            stored_seconds=12.25,
            stdout_stored=STORED,
            stderr_stored=replace(STORED, sha256="e" * 64),
            stages=(StageRun("setup", 0.5, 3), StageRun("run", 1e-6)),
        )
        record = TaskRecord(1, 4, TaskState.CANCELLED, 2, 3, "w@pool.internal/ü", report)
        await store.commit([job(), record])
        assert store.tasks(1) == [record]

    @pytest.mark.parametrize("record", [waiting(3, 1, 2), lost(3), cancelled(3)])
    async def test_a_task_without_a_result_comes_back_without(
        self, store: CoreStore, record: TaskRecord
    ) -> None:
        await store.commit([job(), record])
        assert store.tasks(1) == [record]

    async def test_the_last_word_on_a_task_counts(self, store: CoreStore) -> None:
        await store.commit([job(), waiting(0, failures=1), done(0), failed(1)])
        await store.commit([waiting(1)])
        assert store.tasks(1) == [done(0), waiting(1)]

    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            ({}, [0, 2, 3, 4, 7]),
            ({"limit": 2}, [0, 2]),
            ({"limit": 2, "after": 2}, [3, 4]),
            ({"after": 7}, []),
            ({"limit": 0}, []),
            ({"limit": -1}, []),
            ({"states": [TaskState.DONE]}, [0, 7]),
            ({"states": [TaskState.FAILED, TaskState.LOST]}, [2, 3]),
            ({"states": [TaskState.DONE, TaskState.FAILED], "after": 0}, [2, 7]),
            ({"states": [TaskState.RUNNING]}, []),
            ({"indexes": [7, 3, 1, 0]}, [0, 3, 7]),
            ({"indexes": [7, 3, 0], "after": 0, "limit": 1}, [3]),
            ({"indexes": [0, 2, 3], "states": [TaskState.LOST]}, [3]),
            ({"indexes": [0], "after": 0}, []),
        ],
    )
    async def test_selection(
        self, store: CoreStore, selection: dict[str, Any], expected: list[int]
    ) -> None:
        await store.commit([job(1), job(2), done(7), waiting(4, 1), lost(3), failed(2), done(0)])
        await store.commit([failed(1, 2)])
        assert [found.index for found in store.tasks(1, **selection)] == expected

    async def test_pages_of_a_long_job_join_up(self, store: CoreStore) -> None:
        await store.commit([job(), *(done(index) for index in range(2500))])
        seen: list[int] = []
        while page := store.tasks(1, after=seen[-1] if seen else -1):
            seen.extend(task.index for task in page)
        assert seen == list(range(2500))

    async def test_what_ended_badly(self, store: CoreStore) -> None:
        await store.commit([job(), done(0), cancelled(4), waiting(1, 1), failed(3), lost(2)])
        assert store.ended_badly(1) == [(2, "lost"), (3, "failed"), (4, "cancelled")]
        assert store.ended_badly(1, [4, 0, 2, 9]) == [(2, "lost"), (4, "cancelled")]
        assert all(type(state) is str for _, state in store.ended_badly(1))


class TestHappenings:
    async def test_one_comes_back_as_it_was(self, whole: Store) -> None:
        full = Happening(
            job_id=1,
            index=4,
            at=1_700_000_000.123456,
            what="failed",
            number=(5 << 40) + 17,
            worker="w@pool.internal/ü",
            cause="ada@pool.internal",
            detail="Zeile\n\0\tend ☃ 🐦",
        )
        bare = Happening(job_id=1, index=-1, at=2.5, what="dropped")
        await whole.commit([job(), full, bare])
        assert whole.happenings(1) == [full, bare]
        reopened(whole)
        assert whole.happenings(1) == [full, bare]

    async def test_they_keep_the_order_in_which_they_were_said(self, whole: Store) -> None:
        told = [happening(index, at=float(-index)) for index in (5, 1, -1, 1, 0)]
        await whole.commit([job(), *told[:3]])
        await whole.commit(told[3:])
        assert whole.happenings(1) == told

    async def test_none_replaces_another(self, whole: Store) -> None:
        await whole.commit([job(), happening(3), happening(3)])
        await whole.commit([happening(3)])
        assert whole.happenings(1) == [happening(3)] * 3

    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            ({}, [7, -1, 2, 7, 3, -1]),
            ({"limit": 2}, [3, -1]),
            ({"limit": 0}, []),
            ({"limit": -1}, []),
            ({"indexes": [7]}, [7, -1, 7, -1]),
            ({"indexes": [2, 3, 99]}, [-1, 2, 3, -1]),
            ({"indexes": [0]}, [-1, -1]),
            ({"indexes": [7], "limit": 3}, [-1, 7, -1]),
        ],
    )
    async def test_selection(
        self, whole: Store, selection: dict[str, Any], expected: list[int]
    ) -> None:
        await whole.commit([job(1), job(2), happening(2, 2), happening(-1, 2)])
        await whole.commit([happening(index) for index in (7, -1, 2, 7, 3, -1)])
        assert [found.index for found in whole.happenings(1, **selection)] == expected

    async def test_those_of_a_forgotten_job_are_gone(self, whole: Store) -> None:
        await whole.commit([job(1, state="done"), job(2), happening(0, 1), happening(0, 2)])
        await whole.commit([JobForgotten(1)])
        for _ in range(2):
            assert whole.happenings(1) == []
            assert whole.happenings(2) == [happening(0, 2)]
            reopened(whole)

    async def test_a_manager_that_starts_knows_how_many_there_are(self, store: CoreStore) -> None:
        await store.commit([job(1), job(2), *(happening(index) for index in (0, 0, -1))])
        assert [found.happenings for found in reopened(store).jobs] == [3, 0]
        assert [store.count_happenings(job_id) for job_id in (1, 2, 3)] == [3, 0, 0]
        await store.commit([JobForgotten(1)])
        assert store.count_happenings(1) == 0

    async def test_a_full_store_keeps_none_of_a_batch(self, store: CoreStore) -> None:
        await store.commit([job(), happening(0)])
        batch: list[Record] = [happening(1), *(done(index) for index in range(400))]
        with without_space(store), pytest.raises(StoreFull):
            await store.commit(batch)
        assert store.count_happenings(1) == 1
        await store.commit(batch)
        assert store.count_happenings(1) == 2


class TestCommits:
    async def test_a_full_store_takes_nothing_and_works_again_when_there_is_space(
        self, store: CoreStore
    ) -> None:
        await store.commit([job(), done(0)])
        batch: list[Record] = [
            Progress(1, 400),
            WorkerRecord("w"),
            job(2),
            *(done(index) for index in range(1, 400)),
        ]
        with without_space(store):
            for _ in range(2):
                with pytest.raises(StoreFull) as caught:
                    await store.commit(batch)
                assert caught.value.cause
            assert [found.index for found in store.tasks(1)] == [0]
            assert [found.job_id for found in store.jobs()] == [1]
        await store.commit(batch)
        assert len(store.tasks(1)) == 400
        found = reopened(store)
        assert [unfinished.record.cursor for unfinished in found.jobs] == [400, 0]
        assert found.workers == [WorkerRecord("w")]

    async def test_a_batch_may_be_committed_twice(self, store: CoreStore) -> None:
        batch: list[Record] = [job(), Progress(1, 2), done(0), waiting(1, 1), WorkerRecord("w")]
        await store.commit(batch)
        await store.commit(batch)
        [found] = reopened(store).jobs
        assert found.record.counts == Counts(done=1)
        assert found.counters == {1: (1, 0)}

    async def test_statistics_count_what_was_committed(self, whole: Store) -> None:
        await whole.commit([job(), done(0)])
        await whole.commit([])
        await whole.commit([done(1)])
        found = whole.statistics()
        assert (found.commits, found.records) == (2, 3)


class TestWithAPool:
    """A pool on this store goes on after a restart with neither more nor less to do."""

    async def test_a_restarted_pool_has_the_rest_to_do(self, store: CoreStore) -> None:
        pool = Pool(reopened(store))
        submit = Submit(
            at=1.0,
            request="r",
            owner="ada",
            spec=JobSpec(program=Program(argv=("true",)), count=20, max_failures=2),
        )
        hello = Joined(
            at=1.0, worker="w/a", incarnation="1", ad=WorkerAd(assets={"cpus": 8}), holds=[]
        )
        records: list[Record] = []
        stored = (JobStored(at=1.0, job_id=1), WorkerStored(at=1.0, worker="w/a"))
        for event in (Reconnected(at=1.0), submit, hello, *stored):
            effects = pool.handle(event)
            records += [r for e in effects if isinstance(e, Persist) for r in e.records]
        effects = pool.schedule(1.0)
        [run] = [effect for effect in effects if isinstance(effect, Run)]
        [(number, job_id, index, n, _)] = run.spans
        # The reports become durable; how far the array was sent does not, in time.
        reports = [
            result(index + i, job_id, number=number + i, outcome=Outcome.FAILED * (i == n - 1))
            for i in range(1, n)
        ]
        effects = pool.handle(Reported(at=2.0, worker="w/a", results=reports))
        records += [r for e in effects if isinstance(e, Persist) for r in e.records]
        await store.commit(records)

        again = Pool(reopened(store))
        again.check()
        restored = again.state.jobs[1]
        assert restored.counts == Counts(done=n - 2)
        assert restored.remaining == 20 - (n - 2)
        assert restored.live[n - 1].failures == 1

    async def test_a_restarted_pool_knows_what_absent_workers_offer(self, store: CoreStore) -> None:
        pool = Pool(reopened(store))
        ad = WorkerAd(assets={"cpus": 8, "fpga": 2}, tags=("gpu",), version="0.2")
        events = (
            Reconnected(at=1.0),
            Joined(at=1.0, worker="w/a", incarnation="1", ad=ad, holds=[]),
            Drain(at=1.0, worker="w/a", by="root"),
        )
        effects = [effect for event in events for effect in pool.handle(event)]
        await store.commit([r for e in effects if isinstance(e, Persist) for r in e.records])
        again = Pool(reopened(store))
        for request, reason in (
            ({"cpus": 8.0, "fpga": 2.0}, Reason.UNHEARD),
            ({"cpus": 1.0, "fpga": 3.0}, Reason.TOO_SMALL),
        ):
            spec = JobSpec(program=Program(argv=("true",)), request=request, requires=("gpu",))
            again.handle(Submit(at=2.0, request="r", owner="ada", spec=spec))
            job = again.state.jobs[again.state.next_job_id - 1]
            [group] = again.explain(job, 2.0).groups
            assert group.refusal.reason == reason
        assert again.state.workers["w/a"].draining


class TestOwners:
    async def test_who_is_still_to_be_told_is_known_after_a_restart(self, store: CoreStore) -> None:
        spec = JobSpec(program=Program(argv=("true",)), items=("a",), notify=Notify.ALWAYS)
        over: dict[str, Any] = {"state": "done", "ended_at": 1_700_000_009.0, "untold": True}
        ended = [job(n, spec=spec, **over) for n in (1, 2, 3)]
        await store.commit([*ended, job(4)])
        await store.commit([OwnerTold(2, 1_700_000_009.0), OwnerTold(3, 1_700_000_001.0)])
        reopened(store)
        heads = [replace(record, spec=spec.head()) for record in ended]
        assert store.untold(10) == [heads[0], heads[2]]
        assert store.untold(1) == heads[:1]
        assert store.job(2) == replace(ended[1], untold=False)

    async def test_who_is_still_to_be_sent_a_mail_is_known_after_a_restart(
        self, whole: Store
    ) -> None:
        spec = JobSpec(program=Program(argv=("true",)), items=("a",))
        over: dict[str, Any] = {"state": "done", "ended_at": 1_700_000_009.0, "unmailed": True}
        ended = [job(n, owner=f"owner{n % 2}", spec=spec, **over) for n in (1, 2, 3, 4)]
        await whole.commit([*ended, job(5, owner="owner2")])
        told = [OwnerTold(1, 1_700_000_009.0), OwnerTold(2, 1_700_000_009.0, by_mail=True)]
        await whole.commit([*told, OwnerTold(3, 1_700_000_001.0, by_mail=True)])
        reopened(whole)
        heads = {each.job_id: replace(each, spec=spec.head()) for each in ended}
        assert whole.unmailed_owners() == ["owner0", "owner1"]
        assert whole.unmailed("owner1", 10) == [heads[1], heads[3]]
        assert whole.unmailed("owner1", 1) == [heads[1]]
        assert whole.unmailed("owner0", 10) == [heads[4]]
        assert whole.unmailed("owner2", 10) == []
        assert whole.untold(10) == []

    async def test_a_job_that_runs_again_or_is_forgotten_is_not_told_of(
        self, store: CoreStore
    ) -> None:
        over: dict[str, Any] = {"state": "done", "ended_at": 1_700_000_009.0, "untold": True}
        await store.commit([job(1, **over), job(2, **over)])
        await store.commit([job(1), JobForgotten(2), OwnerTold(2, 1_700_000_009.0)])
        assert store.untold(10) == []
        await store.commit([OwnerTold(1, None), job(1, **over)])
        assert [record.job_id for record in store.untold(10)] == [1]
