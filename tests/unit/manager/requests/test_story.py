"""What a manager tells of a job: everything that is known, in order, to those who may hear it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poolkit import PoolDriver
from store_samples import cancelled, done, failed, happening, job, lost, result, waiting
from storekit import QuickStore

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import StageRun
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import MAX_HAPPENINGS, Happening, JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, UsageError
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.outputs import Outputs
from kestrelctl.manager.requests import story
from kestrelctl.manager.requests.story import Asked, Whereabouts, tell
from kestrelctl.manager.requests.tasks import TaskRequests
from kestrelctl.manager.rights import Rights
from kestrelctl.manager.selection import Selection
from kestrelctl.protocol import codec
from kestrelctl.protocol.answers import JobView, Story, StoryEntry
from kestrelctl.protocol.requests import TellStory

T0 = 1_700_000_000.0
W1 = "w1@pool.internal/a"
ENDED = job(
    spec=JobSpec(program=Program(argv=("true",)), count=10),
    submitted_at=T0,
    state="done",
    cursor=10,
    counts=Counts(done=10),
    ended_at=T0 + 9,
)
VIEW = JobView(job_id=1, name="", owner="ada", state="done", tasks=10, submitted_at=T0)


def told(entries: list[StoryEntry]) -> list[tuple[float, int | None, str]]:
    """When, of which task, what."""
    return [(entry.at - T0, entry.task_id, entry.what) for entry in entries]


def the_end(entries: list[StoryEntry], task_id: int | None) -> StoryEntry:
    """The one entry that says how a task, or the job, ended."""
    [found] = [each for each in entries if (each.task_id, each.what) == (task_id, "ended")]
    return found


def ran(index: int, started: float, wall: float, **more: Any) -> TaskRecord:
    """A task that was done, with the times of its attempt since T0."""
    report = result(index, started_at=T0 + started, wall_seconds=wall, **more)
    return msgspec.structs.replace(done(index), result=report)


class TestTelling:
    def test_a_task_that_simply_ran_has_a_whole_story_without_any_happening(self) -> None:
        row = ran(4, 1.5, 2.25, number=77, waited_seconds=0.5)
        assert tell(ENDED, [], [Asked(index=4, row=row)], T0 + 20) == [
            StoryEntry(
                at=T0,
                task_id=None,
                what="submitted",
                cause="ada@pool.internal",
                detail="10 tasks",
            ),
            StoryEntry(
                at=T0 + 1.5,
                task_id=4,
                what="started",
                number=77,
                worker=W1,
                detail="waited 0.500 s there",
            ),
            StoryEntry(
                at=T0 + 3.75,
                task_id=4,
                what="ended",
                number=77,
                worker=W1,
                cause="done",
                detail="ran 2.250 s; exit code 0",
            ),
            StoryEntry(at=T0 + 9, task_id=None, what="ended", cause="done", detail="10 done"),
        ]

    def test_a_task_has_ended_when_its_last_stage_has(self) -> None:
        stages = (StageRun("setup", 0.5), StageRun("run", 2.0), StageRun("out", 3.0, 2))
        found = tell(ENDED, [], [Asked(index=4, row=ran(4, 1.0, 2.0, stages=stages))], T0 + 20)
        assert the_end(found, 4).at == T0 + 6.0

    @given(
        submitted=st.floats(0, 1e10),
        lasted=st.floats(0, 1e6),
        started=st.floats(-1e12, 1e12),
        wall=st.floats(0, 1e9),
        indexes=st.sets(st.integers(0, 9), min_size=1),
    )
    def test_it_is_whole_and_in_order_whatever_the_clock_of_a_worker_says(
        self, submitted: float, lasted: float, started: float, wall: float, indexes: set[int]
    ) -> None:
        ended = submitted + lasted
        record = job(
            submitted_at=submitted, state="done", cursor=10, counts=Counts(done=10), ended_at=ended
        )
        asked = [
            Asked(index=i, row=ran(i, started - T0, wall, number=i + 1)) for i in sorted(indexes)
        ]
        entries = tell(record, [], asked, ended + 1)
        assert [(entries[i].task_id, entries[i].what) for i in (0, -1)] == [
            (None, "submitted"),
            (None, "ended"),
        ]
        assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
        for index in indexes:
            own = [entry for entry in entries if entry.task_id == index]
            assert [entry.what for entry in own] == ["started", "ended"]
            assert {entry.number for entry in own} == {index + 1}
        assert len(entries) == 2 + 2 * len(indexes)

    def test_what_was_stored_stands_where_it_happened(self) -> None:
        happenings = [
            happening(4, at=T0 + 1.0, number=5),
            happening(4, at=T0 + 1.5, number=6, what="failed", detail="exit code 3"),
            happening(-1, at=T0 + 2.5, number=0, worker="", what="retried", cause="ada"),
        ]
        row = ran(4, 2.0, 1.0, number=7)
        entries = tell(ENDED, happenings, [Asked(index=4, row=row)], T0 + 20)
        assert told(entries) == [
            (0.0, None, "submitted"),
            (1.0, 4, "lost"),
            (1.5, 4, "failed"),
            (2.0, 4, "started"),
            (2.5, None, "retried"),
            (3.0, 4, "ended"),
            (9.0, None, "ended"),
        ]
        assert entries[1] == StoryEntry(
            at=T0 + 1.0, task_id=4, what="lost", number=5, worker=W1, cause="lease"
        )
        assert (entries[2].detail, entries[4].cause) == ("exit code 3", "ada")

    def test_things_of_the_same_moment_keep_their_order(self) -> None:
        happenings = [happening(i, at=T0) for i in (3, 1, 2)]
        record = msgspec.structs.replace(ENDED, ended_at=T0)
        assert [entry.task_id for entry in tell(record, happenings, [], T0)] == [
            None, 3, 1, 2, None,
        ]  # fmt: skip

    def test_tasks_have_the_ids_that_users_know(self) -> None:
        record = msgspec.structs.replace(
            ENDED, spec=JobSpec(program=Program(argv=("x",)), count=3, first=10, step=5)
        )
        entries = tell(record, [happening(1)], [Asked(index=2, row=ran(2, 1, 1))], T0 + 20)
        assert {entry.task_id for entry in entries} == {None, 15, 20}

    @pytest.mark.parametrize(
        ("changes", "detail"),
        [
            ({"exit_code": 3}, "ran 0.125 s; exit code 3"),
            ({"signal": 9}, "ran 0.125 s; signal 9"),
            ({"reason": "time limit", "signal": 9}, "ran 0.125 s; time limit"),
        ],
    )
    def test_a_failure_says_how(self, changes: dict[str, Any], detail: str) -> None:
        report = result(2, outcome=Outcome.FAILED, **changes)
        row = msgspec.structs.replace(failed(2), result=report)
        end = the_end(tell(ENDED, [], [Asked(index=2, row=row)], T0 + 20), 2)
        assert (end.cause, end.detail) == ("failed", detail)

    def test_a_task_that_was_lost_ended_with_its_last_loss(self) -> None:
        happenings = [happening(3, at=T0 + n) for n in (1, 2)]
        cancel = happening(-1, at=T0 + 5, what="cancelled")
        entries = tell(ENDED, [*happenings, cancel], [Asked(index=3, row=lost(3))], T0 + 20)
        end = the_end(entries, 3)
        assert (end.at, end.cause, end.detail) == (T0 + 2, "lost", "5 losses")
        assert entries.index(end) > told(entries).index((2.0, 3, "lost"))

    def test_without_any_happening_it_ended_no_later_than_its_job(self) -> None:
        entries = tell(ENDED, [], [Asked(index=3, row=lost(3))], T0 + 20)
        assert the_end(entries, 3).at == T0 + 9
        active = msgspec.structs.replace(ENDED, ended_at=None)
        assert the_end(tell(active, [], [Asked(index=3, row=lost(3))], T0 + 20), 3).at == T0 + 20

    @pytest.mark.parametrize("row", [cancelled(7), None])
    def test_a_task_that_waited_was_cancelled_with_its_job(self, row: TaskRecord | None) -> None:
        record = job(submitted_at=T0, state="cancelled", cancelling=True, cursor=5, ended_at=T0 + 9)
        cancel = happening(-1, at=T0 + 4, what="cancelled", cause="ada")
        others = [happening(1, at=T0 + 6), happening(-1, at=T0 + 7, what="dropped")]
        entries = tell(record, [cancel, *others], [Asked(index=7, row=row)], T0 + 20)
        end = the_end(entries, 7)
        assert (end.at, end.cause) == (T0 + 4, "cancelled")

    @pytest.mark.parametrize(
        "record",
        [
            ENDED,
            job(submitted_at=T0, cancelling=True, cursor=8),
        ],
    )
    def test_an_end_that_is_not_stored_yet_is_not_told(self, record: JobRecord) -> None:
        for row in (None, waiting(7, failures=1)):
            entries = tell(record, [], [Asked(index=7, row=row)], T0 + 20)
            assert {entry.task_id for entry in entries} == {None}

    def test_a_live_task_is_told_as_it_is_now(self) -> None:
        runs = Whereabouts(what="running", number=9, worker=W1, sent_at=T0 + 3)
        rests = Whereabouts(what="waiting", detail="it pauses")
        entries = tell(
            job(submitted_at=T0),
            [],
            [Asked(index=1, row=failed(1), whereabouts=runs), Asked(index=2, whereabouts=rests)],
            T0 + 5,
        )
        assert told(entries) == [
            (0.0, None, "submitted"),
            (3.0, 1, "sent"),
            (5.0, 1, "running"),
            (5.0, 2, "waiting"),
        ]
        assert [(entry.number, entry.worker) for entry in entries[1:3]] == [(9, W1)] * 2
        assert entries[3].detail == "it pauses"

    def test_an_adopted_attempt_has_no_time_of_sending(self) -> None:
        runs = Whereabouts(what="running", number=9, worker=W1)
        entries = tell(job(submitted_at=T0), [], [Asked(index=1, whereabouts=runs)], T0 + 5)
        assert [entry.what for entry in entries] == ["submitted", "running"]


class TestCutting:
    ENTRIES = tell(ENDED, [happening(i % 3, at=T0 + i / 100) for i in range(1, 9)], [], T0 + 20)

    def test_what_fits_is_left_as_it_is(self) -> None:
        assert story.cut(self.ENTRIES, 10, VIEW) == (self.ENTRIES, False)

    def test_the_job_stays_before_its_tasks_and_the_latest_of_these(self) -> None:
        kept, more = story.cut(self.ENTRIES, 4, VIEW)
        assert kept == [self.ENTRIES[0], *self.ENTRIES[-3:]]
        assert more

    def test_the_end_of_a_job_stays_longest(self) -> None:
        assert story.cut(self.ENTRIES, 1, VIEW) == ([self.ENTRIES[-1]], True)

    def test_an_answer_is_never_larger_than_what_can_be_sent(self) -> None:
        happenings = [happening(i, detail="<" * 500) for i in range(2_000)]
        view = msgspec.structs.replace(
            VIEW, spec=JobSpec(program=Program(argv=("true",)), requires=("&" * 1000,) * 50)
        )
        kept, more = story.cut(tell(ENDED, happenings, [], T0 + 20), 10_000, view)
        assert more
        assert (kept[0].what, kept[-1].what, kept[-2].task_id) == ("submitted", "ended", 1999)
        answer = Story(id="x" * 100, job=view, entries=kept, more=more)
        assert codec.fits(codec.encode(answer))
        assert len(kept) > 80


class StoredPool(PoolDriver):
    """A pool driven by hand, and a whole store for what it writes."""

    def __init__(self, whole: QuickStore) -> None:
        super().__init__()
        self._whole = whole

    async def stored(self) -> QuickStore:
        """All that was written by now."""
        written, self.records = self.records, []
        await self._whole.commit(written)
        return self._whole


class Counter:
    """Where users ask for stories of a pool driven by hand."""

    def __init__(self, driver: StoredPool) -> None:
        self.driver = driver
        self.replies: list[Any] = []

    async def ask(
        self,
        job: str = "1",
        *task_ids: int,
        who: str = "ada",
        admin: bool = False,
        limit: int = 200,
    ) -> Story:
        store = await self.driver.stored()
        service: Any = SimpleNamespace(
            pool=self.driver.pool,
            store=store,
            now=lambda: self.driver.now,
            unstored=dict,
        )
        selection = Selection(self.driver.pool, store)
        requests = TaskRequests(service, selection, Outputs())
        caller = Caller(f"{who}/home", admin, self.replies.append)
        request = TellStory(id="7", job=job, task_ids=list(task_ids), limit=limit)
        record = await Rights(selection).job(caller, request)
        await requests.story(caller, request, record)
        found = self.replies[-1]
        assert isinstance(found, Story)
        assert found.id == "7"
        return found


@pytest.fixture
def driver(quick_store: QuickStore) -> StoredPool:
    """A pool."""
    return StoredPool(quick_store)


def whats(found: Story, task_id: int | None) -> list[str]:
    return [entry.what for entry in found.entries if entry.task_id == task_id]


class TestAsking:
    async def test_a_job_from_its_submission_to_its_end(self, driver: StoredPool) -> None:
        driver.join("w1", cpus=2)
        driver.submit(count=2)
        for attempt in list(driver.held("w1")):
            driver.report("w1", attempt)
        found = await Counter(driver).ask("last", 1)
        assert found.job.state == "done"
        assert whats(found, None) == ["submitted", "ended"]
        assert whats(found, 1) == ["started", "ended"]
        assert whats(found, 0) == []
        assert not found.more

    async def test_a_live_task_and_one_never_handed_out(self, driver: StoredPool) -> None:
        driver.join("w1", cpus=1)
        driver.submit(count=1000)
        found = await Counter(driver).ask("1", 0, 999)
        assert whats(found, 0) == ["sent", "running"]
        assert [entry.worker for entry in found.entries if entry.task_id == 0] == ["w1", "w1"]
        assert whats(found, 999) == ["waiting"]

    async def test_a_task_that_waits_at_its_worker_does_not_run(self, driver: StoredPool) -> None:
        driver.join("w1", cpus=1)
        driver.submit(count=1000)
        for _ in range(9):
            driver.report("w1", seconds=0.001)
        [(_, _, first), (_, _, second), *_] = driver.held("w1")
        found = await Counter(driver).ask("1", first, second)
        assert whats(found, first) == ["sent", "running"]
        assert whats(found, second) == ["sent", "queued"]

    async def test_a_task_whose_end_is_not_durable_yet_is_not_said_to_wait(
        self, driver: StoredPool
    ) -> None:
        driver.join("w1", cpus=1)
        driver.submit(count=1000)
        driver.report("w1")
        driver.records = [each for each in driver.records if not isinstance(each, TaskRecord)]
        assert whats(await Counter(driver).ask("1", 0), 0) == []

    async def test_a_job_of_one_task_is_told_with_it(self, driver: StoredPool) -> None:
        driver.submit(count=1, first=5)
        assert whats(await Counter(driver).ask(), 5) == ["waiting"]

    async def test_without_tasks_the_latest_of_all_is_told(self, driver: StoredPool) -> None:
        driver.submit(count=50)
        driver.records += [happening(i, at=driver.now + i) for i in range(50)]
        driver.now += 100
        found = await Counter(driver).ask(limit=11)
        assert [entry.task_id for entry in found.entries] == [None, *range(40, 50)]
        assert found.more

    async def test_with_tasks_only_what_is_theirs_and_the_jobs(self, driver: StoredPool) -> None:
        driver.submit(count=50)
        driver.records += [happening(i, at=driver.now) for i in (3, 4, -1, 3)]
        found = await Counter(driver).ask("1", 3, 3)
        assert whats(found, 3) == ["lost", "lost", "waiting"]
        assert whats(found, None) == ["submitted", "lost"]
        assert whats(found, 4) == []

    async def test_the_longest_story_there_can_be_is_looked_at_to_its_beginning(
        self, driver: StoredPool
    ) -> None:
        driver.submit(count=5)
        first: list[Happening] = [happening(-1, at=driver.now, what="retried")]
        rest = [happening(1, at=driver.now) for _ in range(MAX_HAPPENINGS - 1)]
        driver.records += [*first, *rest, happening(-1, at=driver.now, what="dropped")]
        found = await Counter(driver).ask(limit=5)
        assert whats(found, None) == ["submitted", "retried", "dropped"]

    @pytest.mark.parametrize(
        ("ask", "error"),
        [
            (lambda counter: counter.ask(who="bob"), NotAllowed),
            (lambda counter: counter.ask("9"), NotFound),
            (lambda counter: counter.ask("1", 50), NotFound),
            (lambda counter: counter.ask("1", *[3] * 1001), UsageError),
        ],
    )
    async def test_what_is_refused(
        self, driver: StoredPool, ask: Callable[[Counter], Any], error: type[KestrelError]
    ) -> None:
        driver.submit(count=50)
        counter = Counter(driver)
        with pytest.raises(error):
            await ask(counter)
        assert not counter.replies

    async def test_an_admin_may_read_everybodys(self, driver: StoredPool) -> None:
        driver.submit(count=50)
        assert (await Counter(driver).ask(who="bob", admin=True)).job.owner == "ada"

    async def test_a_cancelled_job_and_its_tasks(self, driver: StoredPool) -> None:
        driver.join("w1", cpus=1)
        driver.submit(count=1000)
        driver.cancel(1)
        found = await Counter(driver).ask("1", 999)
        assert the_end(found.entries, 999).cause == TaskState.CANCELLED
