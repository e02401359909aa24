"""What a loan looks like as a worker, how it is connected, and what of it counts at home."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from neighbourskit import Neighbourhood, PoolOfFlock, on_its_own_clock, pass_by

from kestrelctl.core.model.files import workdir
from kestrelctl.core.model.job import guest
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.refusal import Refusal
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.flock.rules.lending import Grant
from kestrelctl.flock.service.guest_executor import GuestExecutor
from kestrelctl.flock.service.lent_ad import (
    LEAST_CPUS,
    fits_one,
    lent_machine,
    loan_ad,
)
from kestrelctl.flock.service.lent_session import LentSession
from kestrelctl.flock.service.loan_addresses import flock_of, loan_of, pool_and_loan
from kestrelctl.flock.service.open_flock import DiskSpools
from kestrelctl.worker.run.executor import CommandSpec

LOAN = "0a1b2c3d4e5f"
MACHINE = WorkerAd(
    assets={"cpus": 4.0, "memory": 16e9, "seats": 2.0, "scratch": 5.0},
    tags=("gpu", guest.TAG, workdir.TAG),
    shared=("seats",),
    unknown={"scratch": "du"},
    host="one.b.test",
    os="linux",
    arch="x86_64",
    ends_at=5.0,
)


# -- the ad of a loan ------------------------------------------------------------------------------


def test_what_tasks_share_or_nobody_knows_and_names_of_machines_are_not_lent() -> None:
    lent = lent_machine(MACHINE)
    assert lent.assets == {"cpus": 4.0, "memory": 16e9}
    assert (lent.host, lent.shared, lent.unknown, lent.units) == ("", (), {}, {})
    assert lent.ends_at is None


def test_tags_that_mean_nothing_to_other_pools_are_taken_off() -> None:
    assert lent_machine(MACHINE).tags == ("gpu",)


def test_a_loan_is_as_large_as_what_is_lent_and_never_without_any_processor() -> None:
    machine = lent_machine(MACHINE)
    lent = loan_ad(machine, {"cpus": 9.0, "gold": 1.0}, [], "b.test", 50.0)
    assert (lent.assets, lent.host, lent.ends_at) == ({"cpus": 9.0}, "b.test", 50.0)
    assert loan_ad(machine, {}, [], "b.test", 50.0).assets == {"cpus": LEAST_CPUS}


@pytest.mark.parametrize(
    ("request_", "fits"),
    [
        ({"cpus": 4.0}, True),
        ({"cpus": 4.1}, False),
        ({"cpus": 1.0, "memory": 16e9}, True),
        ({"cpus": 1.0, "memory": 17e9}, False),
    ],
    ids=str,
)
@on_its_own_clock
async def test_a_task_that_fits_no_single_machine_is_kept_away(
    tmp_path: Path, request_: dict[str, float], fits: bool
) -> None:
    home = Neighbourhood(tmp_path).open("a.test", cpus=0)
    lent = loan_ad(lent_machine(MACHINE), {"cpus": 400.0, "memory": 16e11}, [], "b.test", 1e10)
    job = home.submit(request=request_)
    await pass_by(0.1)
    shape: Shape = home.job(job).shape
    refusal = home.service.pool.would_fit(shape, lent, loan_of("b.test", LOAN))
    assert (refusal is None) is fits
    assert refusal is None or isinstance(refusal, Refusal)


def test_what_a_task_does_not_ask_for_does_not_keep_it_away() -> None:
    clauses = fits_one(lent_machine(MACHINE))
    assert clauses
    assert all(" is undefined || " in each for each in clauses)


# -- its connection --------------------------------------------------------------------------------


class Ears:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_online(self) -> None:
        self.heard.append("online")

    def on_offline(self, why: str) -> None:
        self.heard.append(why)


class Connected:
    """A loan's connection, over a manager's that is a double."""

    def __init__(self, *, online: bool = True) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.ears = Ears()
        connection: Any = SimpleNamespace(
            online=online,
            link="up",
            send=lambda text, to, sender: self.sent.append((text, to, sender)),
            send_body=lambda text, to, sender: self.sent.append((text, to, sender)),
            send_presence=lambda to, kind, sender, show="", status="": self.sent.append(
                (kind or "available", to, sender)
            ),
        )
        listener: Any = self.ears
        self.connection = connection
        self.link = LentSession("flock@b.test/x", connection, listener)


async def test_a_loan_speaks_as_itself_over_its_manager_s_connection() -> None:
    found = Connected()
    found.link.start()
    await asyncio.sleep(0)
    assert found.ears.heard == ["online"]
    found.link.send("hi", "pool@a.test", "pool@b.test")
    found.link.send_presence("pool@a.test")
    assert found.sent == [
        ("hi", "pool@a.test", "flock@b.test/x"),
        ("available", "pool@a.test", "flock@b.test/x"),
    ]


async def test_while_the_manager_is_offline_nothing_is_sent() -> None:
    found = Connected(online=False)
    found.link.start()
    await asyncio.sleep(0)
    found.link.send("hi", "pool@a.test")
    found.link.on_online()
    found.link.on_online()
    found.link.on_offline("gone")
    found.link.on_offline("gone")
    found.link.send("hi", "pool@a.test")
    assert (found.ears.heard, found.sent) == (["online", "gone"], [])


async def test_a_loan_that_begins_as_the_manager_goes_offline_greets_when_it_is_back() -> None:
    found = Connected()
    found.link.start()
    found.connection.online = False
    found.link.on_offline("gone")
    await asyncio.sleep(0)
    assert found.ears.heard == []
    found.connection.online = True
    found.link.on_online()
    assert found.ears.heard == ["online"]


async def test_a_loan_that_ends_says_goodbye_once_to_whom_it_greeted() -> None:
    found = Connected()
    found.link.on_online()
    found.link.send_presence("pool@a.test")
    await found.link.stop()
    await found.link.stop()
    found.link.on_online()
    assert [each[0] for each in found.sent] == ["available", "unavailable"]
    assert found.ears.heard == ["online"]


# -- what counts at home ---------------------------------------------------------------------------


async def borrowing(directory: Path) -> tuple[PoolOfFlock, PoolOfFlock, str]:
    """A home that has a loan of one processor, for which it has asked; and the loan's address."""
    around = Neighbourhood(directory)
    lender = around.open("b.test")
    home = around.open("a.test", through="b.test", cpus=0)
    await pass_by(5)
    home.submit()
    await pass_by(1)
    [(_, loan)] = lender.flock.keeper.loans
    return lender, home, loan_of("b.test", loan)


@on_its_own_clock
async def test_no_more_counts_than_was_asked_for(tmp_path: Path) -> None:
    _, home, jid = await borrowing(tmp_path)
    claimed = WorkerAd(assets={"cpus": 500.0, "gold": 9.0}, distance_seconds=9.0)
    found = home.flock.admitted(jid, claimed)
    assert found.assets == {"cpus": 1.0}
    assert found.distance_seconds == pytest.approx(0.002, abs=1e-4), "as it was measured"


@on_its_own_clock
async def test_less_counts_if_less_is_lent(tmp_path: Path) -> None:
    _, home, jid = await borrowing(tmp_path)
    assert home.flock.admitted(jid, WorkerAd(assets={"cpus": 0.25})).assets == {"cpus": 0.25}


@on_its_own_clock
async def test_when_the_wish_is_forgotten_no_more_counts_than_before(tmp_path: Path) -> None:
    _, home, jid = await borrowing(tmp_path)
    home.flock.desk.borrower.forget("b.test")
    assert home.flock.may_work(jid)
    assert home.flock.admitted(jid, WorkerAd(assets={"cpus": 500.0})).assets == {"cpus": 1.0}


@on_its_own_clock
async def test_a_lender_is_asked_for_files_only_while_it_holds_tasks(tmp_path: Path) -> None:
    lender, home, _ = await borrowing(tmp_path)
    assert home.flock.desk.holders() == {"b.test"}
    lender.hands.end()
    await pass_by(5)
    assert home.flock.desk.holders() == set()


# -- the lender ------------------------------------------------------------------------------------


@on_its_own_clock
async def test_a_loan_without_any_processor_is_not_opened(tmp_path: Path) -> None:
    lender = Neighbourhood(tmp_path).open("b.test")
    await pass_by(1)
    lender.flock.keeper._apply(Grant("a.test", LOAN, {"memory": 1.0}, 1e12), 0.0)
    assert lender.flock.keeper.loans == {}


@on_its_own_clock
async def test_each_guest_leaves_two_lines_that_say_who_what_and_how(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kestrelctl.flock.audit")
    lender, _, _ = await borrowing(tmp_path)
    lender.hands.end(exit_code=3)
    await pass_by(5)
    begins, ends = [r.getMessage() for r in caplog.records if r.name == "kestrelctl.flock.audit"]
    assert begins == "guest job 1 begins: task 0 of job 1 of ada@users.a.test of a.test: task 0"
    assert ends.endswith(", exit 3: task 0 of job 1 of ada@users.a.test of a.test")
    counts = lender.flock.keeper.counts
    assert (counts.begun, counts.done, counts.failed, counts.given_back) == (1, 0, 1, 0)
    assert counts.today(lender.service.now()) == 1
    assert counts.today(lender.service.now() + 86_400.0) == 0


@on_its_own_clock
async def test_the_end_of_a_task_is_told_to_the_loan_that_has_it_and_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[GuestExecutor] = []
    tell = GuestExecutor.ended

    def hear(executor: GuestExecutor, record: TaskRecord) -> None:
        told.append(executor)
        tell(executor, record)

    monkeypatch.setattr(GuestExecutor, "ended", hear)
    lender, _, _ = await borrowing(tmp_path)
    other = lender.around.open("c.test", through="b.test", cpus=0)
    await pass_by(65)
    other.submit()
    await pass_by(1)
    loans = lender.flock.keeper.loans
    assert len(loans) == len(lender.hands.running) == 2
    lender.submit(3, argv=("own",))
    lender.hands.end()
    await pass_by(1)
    lender.hands.end()
    await pass_by(1)
    assert sorted(map(id, told)) == sorted(id(loan.executor) for loan in loans.values())
    assert lender.flock.keeper._holders == {}


@on_its_own_clock
async def test_a_guest_says_whose_it_is_and_asks_for_the_same_machine(tmp_path: Path) -> None:
    lender, _, jid = await borrowing(tmp_path)
    [job] = lender.guests()
    spec: JobSpec = job.spec
    assert spec.guest is not None
    assert (spec.guest.pool, spec.guest.job_id, spec.guest.user) == (
        "a.test", 1, "ada@users.a.test",
    )  # fmt: skip
    assert (spec.count, spec.max_failures, spec.guest.loan) == (1, 1, pool_and_loan(jid)[1])
    assert spec.requires[0] == "isolation:plain"
    assert spec.request == {"cpus": 1.0}


@on_its_own_clock
async def test_a_guest_runs_on_machines_of_the_class_that_was_lent_and_on_no_others(
    tmp_path: Path,
) -> None:
    lender, _, _ = await borrowing(tmp_path)
    [job] = lender.guests()
    pool = lender.service.pool
    [lent] = [worker.ad for worker in pool.workers.values()]
    assert pool.would_fit(job.shape, lent, "twin@workers.b.test") is None
    larger = replace(lent, assets={**lent.assets, "cpus": lent.assets["cpus"] + 1})
    assert pool.would_fit(job.shape, larger, "larger@workers.b.test") is not None


@on_its_own_clock
async def test_a_loan_that_rests_offers_nothing(tmp_path: Path) -> None:
    lender, home, jid = await borrowing(tmp_path)
    lender.flock.keeper.loans["a.test", pool_and_loan(jid)[1]].rest()
    await pass_by(0.05)
    assert home.service.pool.workers[jid].ad.assets == {"cpus": LEAST_CPUS}


@on_its_own_clock
async def test_what_runs_counts_also_of_assets_that_are_lent_no_more(tmp_path: Path) -> None:
    lender, home, jid = await borrowing(tmp_path)
    home.submit(request={"cpus": 0.5, "memory": 1e9})
    await pass_by(90)
    loan = lender.flock.keeper.loans["a.test", pool_and_loan(jid)[1]]
    assert loan.used == {"cpus": 1.5, "memory": 1e9}
    loan.rest()
    assert loan.used == {"cpus": 1.5, "memory": 1e9}


@on_its_own_clock
async def test_without_having_seen_a_machine_a_loan_begins_nothing(tmp_path: Path) -> None:
    lender, _, jid = await borrowing(tmp_path)
    loan = lender.flock.keeper.loans["a.test", pool_and_loan(jid)[1]]
    [number] = loan.session.agent.running
    command = CommandSpec(number, Program(argv=("true",)), {})
    assert isinstance(loan._guest_spec(command), JobSpec)
    loan.machine = None
    assert loan._guest_spec(command) == (
        "no-resources: the lender has started anew, and none of the machines that it lends has "
        "greeted it yet"
    )


# -- where results wait ----------------------------------------------------------------------------


def test_each_loan_has_a_directory_that_goes_with_it(tmp_path: Path) -> None:
    spools = DiskSpools(tmp_path / "flock")
    assert spools.kept() == []
    spool = spools.open("a.test", LOAN)
    spool.append([(7, b"result")])
    spool.close()
    assert DiskSpools(tmp_path / "flock").kept() == [("a.test", LOAN)]
    assert [number for number, _ in spools.open("a.test", LOAN).load()] == [7]
    spools.remove("a.test", LOAN)
    spools.remove("a.test", LOAN)
    assert spools.kept() == []


def test_addresses_of_pools_and_loans() -> None:
    assert flock_of("b.test") == "flock@b.test"
    assert pool_and_loan(loan_of("b.test", LOAN)) == ("b.test", LOAN)
    assert pool_and_loan(flock_of("b.test")) == ("b.test", "")


@on_its_own_clock
async def test_nothing_of_a_program_is_lost_on_its_way_to_a_guests_job(tmp_path: Path) -> None:
    lender, _, jid = await borrowing(tmp_path)
    loan = lender.flock.keeper.loans["a.test", pool_and_loan(jid)[1]]
    [number] = loan.session.agent.running
    program = Program(
        argv=("task", "{}"),
        placeholders=Placeholders.NONE,
        cleanup=("tidy",),
        time_limit_seconds=90.0,
        outputs=("*.csv",),
        stages=(Stage(name="in", argv=("get",)),),
        success_exits=((0, 3),),
        stop_signal="USR1",
        stop_grace_seconds=7.0,
        join=True,
        keep_logs=True,
    )
    spec = loan._guest_spec(CommandSpec(number, program, {}))
    assert isinstance(spec, JobSpec)
    assert spec.program.env["KESTREL_JOB_ID"] == "1"
    assert replace(spec.program, env={}, time_limit_seconds=90.0) == program
