"""What a manager tells Prometheus of its flock."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from flockkit import NEAR
from managerkit import PlayedManager, settled
from metricskit import Page
from neighbourskit import Neighbourhood, PoolOfFlock, on_its_own_clock, pass_by

from kestrelctl.core import events as ev
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.guest import TAG
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import KestrelError, NotAllowed, Unreachable
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.policy import Policy
from kestrelctl.flock.service import files_home
from kestrelctl.flock.service.flock_numbers import DROP_REASONS, flock_numbers
from kestrelctl.flock.service.flock_service import FlockService
from kestrelctl.metrics.exposition import written
from kestrelctl.metrics.flock_families import (
    GIVEN,
    MOST_POOLS_SHOWN,
    TAKEN,
    FilesHomeCounts,
    FlockNumbers,
    LoanNumbers,
    flock_families,
)
from kestrelctl.protocol import codec
from kestrelctl.protocol.pools import (
    Borrow,
    FlockMessage,
    GivenSlot,
    LentClass,
    NotLent,
    PoolAnnouncement,
    PoolPing,
    Repay,
    WantSlot,
)
from kestrelctl.worker.run.executor import Completion

CLASS = "0a1b2c3d4e5f"
SETTINGS = FlockSettings()


def page(found: FlockNumbers) -> Page:
    return Page(written(flock_families(found)).decode())


def loan(pool: str, direction: str, cpus: float = 2.0, *, cut_off: bool = False) -> LoanNumbers:
    return LoanNumbers(
        pool=pool, direction=direction, loans=1, cpus=cpus, running=1, is_unreachable=cut_off
    )


# -- the families ----------------------------------------------------------------------------------


def test_a_pool_in_no_flock_says_so_and_nothing_else() -> None:
    found = page(FlockNumbers())
    assert found.value("kestrel_flock_member") == 0
    assert found.by("kestrel_flock_loans", "direction") == {GIVEN: 0, TAKEN: 0}
    assert sum(found.samples.values()) == 0


def test_loans_of_several_classes_of_a_pool_are_one_series_of_each_direction() -> None:
    loans = [loan("a", GIVEN), loan("a", GIVEN, 3.0), loan("a", TAKEN), loan("b", TAKEN)]
    found = page(FlockNumbers(loans=loans, round_trips={"a": 0.1, "b": 0.2}))
    assert found.by("kestrel_flock_loans", "direction") == {GIVEN: 2, TAKEN: 2}
    assert found.value("kestrel_flock_loan_cpus", pool="a", direction=GIVEN) == 5
    assert found.value("kestrel_flock_loan_cpus", pool="a", direction=TAKEN) == 2
    assert found.value("kestrel_flock_loan_tasks", pool="a", direction=GIVEN) == 2


def test_loans_of_pools_that_cannot_be_reached_are_counted_apart() -> None:
    loans = [loan("a", GIVEN, cut_off=True), loan("b", GIVEN), loan("a", TAKEN)]
    found = page(FlockNumbers(loans=loans))
    assert found.by("kestrel_flock_cut_off_loans", "direction") == {GIVEN: 1, TAKEN: 0}


def test_many_pools_have_a_bounded_number_of_series_and_the_nearest_have_their_own() -> None:
    names = [f"p{number:03}" for number in range(200)]
    trips = {name: 0.001 * (200 - number) for number, name in enumerate(names)}
    found = page(FlockNumbers(round_trips=trips, loans=[loan(name, TAKEN) for name in names]))
    shown = found.by("kestrel_flock_round_trip_seconds", "pool")
    assert set(shown) == set(names[-MOST_POOLS_SHOWN:])
    cpus = found.by("kestrel_flock_loan_cpus", "pool")
    assert set(cpus) == {*shown, "other"}
    assert cpus["other"] == 2.0 * (200 - MOST_POOLS_SHOWN)
    assert sum(cpus.values()) == 400.0


def test_files_are_counted_by_what_became_of_them() -> None:
    counts = FilesHomeCounts(moved=3, moved_bytes=4096, retries=2, failed=1)
    found = page(FlockNumbers(files=counts))
    outcomes = found.by("kestrel_flock_files_home_total", "outcome")
    assert outcomes == {"moved": 3, "retried": 2, "failed": 1}
    assert found.value("kestrel_flock_files_home_bytes_total") == 4096


# -- what a manager counts -------------------------------------------------------------------------


class MemberOfFlock:
    """A manager of the pool `pool` that is in a flock; other pools are played."""

    def __init__(self, directory: Path) -> None:
        self.manager = PlayedManager(directory)
        service = self.manager.service
        self.flock = FlockService(
            service,
            self.manager.dispatcher.outputs,
            SETTINGS,
            NoSpools(),  # type: ignore[arg-type]
            Random(1),
            Policy([]),
        )
        self.flock.on_online()
        self.flock.begin([])

    async def hear(self, pool: str, message: FlockMessage, address: str = "") -> None:
        """Another pool says something."""
        text = codec.encode(message)
        self.flock.on_payload(address or f"flock@{pool}", "flock@pool", text)
        await settled()

    async def submit(self, tasks: int) -> None:
        """A user of the own pool has work."""
        spec = JobSpec(program=Program(argv=("true",)), count=tasks)
        now = self.manager.service.now()
        event = ev.Submit(at=now, cause="ada", request="r", owner="ada@users.pool", spec=spec)
        self.manager.service.handle(event)
        await settled()

    async def look(self) -> None:
        self.flock._look()
        await settled()

    async def lend(self) -> None:
        """The near pool opens the loan that it was asked for."""
        ad = WorkerAd(assets={"cpus": 4.0}, tags=(TAG,))
        event = ev.Joined(
            at=self.manager.service.now(), worker=NEAR, incarnation="one", ad=ad,
            holds=[], claims=[], seals=[],
        )  # fmt: skip
        self.manager.service.handle(event)
        await settled()

    @property
    def numbers(self) -> FlockNumbers:
        return flock_numbers(self.manager.service, self.flock)


class NoSpools:
    """Where no loan is ever given."""

    def kept(self) -> list[tuple[str, str]]:
        return []


def said(pool: str, seq: int = 1, free: float = 4.0) -> PoolAnnouncement:
    machine = WorkerAd(assets={"cpus": 4.0}, tags=(TAG,))
    lent = LentClass(id=CLASS, ad=machine, machines=1, free={"cpus": free})
    return PoolAnnouncement(pool=pool, seq=seq, expires_seconds=150.0, classes=(lent,))


async def test_a_member_tells_whom_it_knows_and_what_was_said(tmp_path: Path) -> None:
    member = MemberOfFlock(tmp_path)
    assert (member.numbers.member, member.numbers.states["free"]) == (True, 0)
    await member.hear("near.example", said("near.example"))
    await member.hear("full.example", said("full.example", free=0.0))
    numbers = member.numbers
    assert (numbers.received, numbers.states["free"], numbers.states["full"]) == (2, 1, 1)
    member.flock.on_bounce("flock@full.example", "remote-server-not-found")
    assert member.numbers.states["unreachable"] == 1
    assert member.manager.service.stanzas.total(PoolAnnouncement)[0] == 2


async def test_what_is_dropped_is_counted_by_why(tmp_path: Path) -> None:
    member = MemberOfFlock(tmp_path)
    assert member.numbers.dropped == dict.fromkeys(DROP_REASONS, 0)
    await member.hear("near.example", said("near.example", free=4000.0))
    await member.hear("near.example", said("pool"))
    await member.hear("near.example", PoolPing(token=1), "eve@near.example")
    member.flock.overlay.dropped["own"] += 1
    found = {why: number for why, number in member.numbers.dropped.items() if number}
    assert found == {"absurd": 1, "own": 2, "stranger": 1}


async def test_tasks_that_find_no_place_are_wanting_until_they_run(tmp_path: Path) -> None:
    member = MemberOfFlock(tmp_path)
    await member.submit(3)
    await member.look()
    assert (member.numbers.wanting, member.numbers.wishes) == (3, 0)
    member.manager.now += 7.0
    assert member.numbers.starved_seconds == 7.0
    await member.hear("near.example", said("near.example"))
    await member.look()
    numbers = member.numbers
    assert (numbers.wanting, numbers.wishes, numbers.starved_seconds) == (3, 1, 0.0)
    await member.lend()
    await member.look()
    numbers = member.numbers
    assert numbers.wanting == 0
    assert [(each.direction, each.pool, each.running) for each in numbers.loans] == [
        (TAKEN, "near.example", 3)
    ]


async def test_the_time_to_the_first_hand_out_begins_when_a_loan_is_asked_for(
    tmp_path: Path,
) -> None:
    member = MemberOfFlock(tmp_path)
    await member.hear("near.example", said("near.example"))
    await member.submit(9)
    await member.look()
    member.manager.now += 0.5
    await member.lend()
    await member.look()
    await member.look()
    hand_outs = member.numbers.hand_outs
    assert (hand_outs.count, hand_outs.sum) == (1, 0.5)


async def test_tasks_that_found_a_place_at_home_end_the_wait_for_a_loan(tmp_path: Path) -> None:
    member = MemberOfFlock(tmp_path)
    await member.hear("near.example", said("near.example"))
    await member.submit(1)
    await member.look()
    member.manager.service.handle(
        ev.Cancel(at=member.manager.now, cause="ada", request="c", job_id=1)
    )
    await member.look()
    member.manager.now += 60.0
    await member.submit(1)
    await member.lend()
    await member.look()
    assert member.numbers.hand_outs.count == 0


async def test_a_pool_that_has_left_wants_nothing(tmp_path: Path) -> None:
    member = MemberOfFlock(tmp_path)
    await member.submit(3)
    await member.look()
    member.flock.end()
    member.manager.now += 7.0
    numbers = member.numbers
    assert (numbers.member, numbers.lends) == (False, False)
    assert (numbers.wanting, numbers.wishes, numbers.starved_seconds) == (0, 0, 0.0)


async def test_a_loan_whose_lender_is_gone_is_cut_off_while_tasks_are_there(
    tmp_path: Path,
) -> None:
    member = MemberOfFlock(tmp_path)
    await member.hear("near.example", said("near.example"))
    await member.submit(1)
    await member.look()
    await member.lend()
    assert [each.is_unreachable for each in member.numbers.loans] == [False]
    member.flock.on_bounce("flock@near.example", "remote-server-timeout")
    assert [each.is_unreachable for each in member.numbers.loans] == [True]


# -- both sides of a loan --------------------------------------------------------------------------


async def two(directory: Path) -> tuple[PoolOfFlock, PoolOfFlock]:
    """A pool with two processors, and one whose users have none."""
    around = Neighbourhood(directory)
    lender = around.open("b.test")
    home = around.open("a.test", through="b.test", cpus=0.0)
    await pass_by(5)
    return lender, home


def seen(pool: PoolOfFlock) -> FlockNumbers:
    return flock_numbers(pool.service, pool.flock)


@on_its_own_clock
async def test_a_loan_is_given_on_one_side_and_taken_on_the_other(tmp_path: Path) -> None:
    lender, home = await two(tmp_path)
    home.submit(2)
    await pass_by(1)
    [given], [taken] = seen(lender).loans, seen(home).loans
    assert (given.direction, given.pool, given.cpus, given.running) == (GIVEN, "a.test", 2.0, 2)
    assert (taken.direction, taken.pool, taken.cpus, taken.running) == (TAKEN, "b.test", 2.0, 2)
    assert (seen(lender).lends, seen(home).hand_outs.count) == (True, 1)


@on_its_own_clock
async def test_messages_about_loans_are_counted_by_type_on_both_sides(tmp_path: Path) -> None:
    lender, home = await two(tmp_path)
    home.submit()
    await pass_by(1)
    home.flock._send("b.test", Borrow(loan="0" * 12, at_most={"cpus": 1.0}, seconds=60.0))
    lender.flock._send("a.test", WantSlot(request="1", size_bytes=1, filename="x"))
    await pass_by(1)
    home.flock.end()
    await pass_by(1)
    about = {"borrow": 2, "repay": 1, "not_lent": 1, "want_slot": 1, "slot": 1}
    assert counted(home, "out") == {n: about[n] for n in ("borrow", "repay", "slot")}
    assert counted(lender, "in") == counted(home, "out")
    assert counted(lender, "out") == {n: about[n] for n in ("not_lent", "want_slot")}
    assert counted(home, "in") == counted(lender, "out")


def counted(pool: PoolOfFlock, direction: str) -> dict[str, int]:
    """How many messages about loans went out or came in, by type."""
    about = {kind.__struct_config__.tag for kind in (Borrow, Repay, NotLent, WantSlot, GivenSlot)}
    return {
        kind: number
        for kind, way, number, _ in pool.service.stanzas.counted()
        if way == direction and kind in about
    }


@on_its_own_clock
async def test_guests_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    lender, home = await two(tmp_path)
    home.submit()
    await pass_by(5)
    lender.hands.end(wall_seconds=4.0, cpu_seconds=2.5)
    await pass_by(1)
    cancelled = home.submit()
    await pass_by(1)
    home.cancel(cancelled)
    await pass_by(1)
    home.submit(max_failures=1)
    await pass_by(1)
    lender.hands.end(exit_code=3)
    await pass_by(1)
    numbers = seen(lender)
    assert numbers.guests == {"begun": 3, "done": 1, "failed": 1, "given-back": 1, "refused": 0}
    assert numbers.guest_cpu_seconds == 2.5


@on_its_own_clock
async def test_what_a_neighbour_lacks_is_named(tmp_path: Path) -> None:
    _, home = await two(tmp_path)
    job = home.submit(requires=("a-tag",))
    await pass_by(1)
    [answer] = home.flock.explain(home.job(job))
    assert (answer.reason, answer.detail) == ("missing-tags", "A-TAG")


# -- files that go home ----------------------------------------------------------------------------


class ShareWithTroubles:
    """A file share that says what it was told to at each upload."""

    def __init__(self, *troubles: KestrelError | None) -> None:
        self._troubles = list(troubles)

    def __call__(self, *_: object, **__: object) -> ShareWithTroubles:
        return self

    async def get(self, stored: StoredFile, path: Path) -> None:
        path.touch()

    async def put(self, path: Path) -> StoredFile:
        trouble = self._troubles.pop(0)
        if trouble is not None:
            raise trouble
        return ARCHIVE


PIECE = Piece(url="https://b.test/1", size_bytes=700, sha256="0" * 64)
ARCHIVE = StoredFile(pieces=(PIECE,), size_bytes=700, sha256="0" * 64)


async def test_a_file_that_went_home_and_one_that_could_not_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = ShareWithTroubles(Unreachable("away"), None, NotAllowed("it is full"))
    monkeypatch.setattr(files_home, "FileShare", share)

    async def no_pause(_: float) -> None:
        """Time is no matter here."""

    carrier = files_home.FilesHome(
        tmp_path / "files",
        lambda *_: pytest.fail("the share asks for no places"),
        ca_file=None,
        now=lambda: 0.0,
        random=lambda: 0.0,
        sleep=no_pause,
    )
    moved = await carrier.carry("a.test", Completion(1, exit_code=0, outputs=ARCHIVE))
    assert moved.outputs == ARCHIVE
    failed = await carrier.carry("a.test", Completion(2, exit_code=0, outputs=ARCHIVE))
    assert failed.reason == "outputs-failed: it is full"
    assert carrier.counts == FilesHomeCounts(moved=1, moved_bytes=700, retries=1, failed=1)
