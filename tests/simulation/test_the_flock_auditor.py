"""Worlds of several pools are worth something only if they find defects: here some are planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from flockworldkit import HOME, LENDER, TwoPools, job, two_pools

from kestrel_worlds.flock_worlds.guest_audit import GuestAudit, PoolAudit
from kestrel_worlds.simulation_clock import SimulationClock
from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.flock.rules.lending import LoanLimit
from kestrelctl.flock.service.borrowing import BorrowingService
from kestrelctl.flock.service.guest_executor import GuestExecutor
from kestrelctl.flock.service.loan import Loan
from kestrelctl.flock.service.loans import LoanKeeper
from kestrelctl.protocol import requests, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.worker.connection.session import WorkerSession
from kestrelctl.worker.process import WorkerProcess


def doing_nothing(found: object = None) -> Callable[..., Any]:
    """Does nothing."""
    return lambda *arguments, **more: found


def ends_with(pools: TwoPools) -> str:
    """The problems of a world that goes on to its end."""
    with pools:
        pools.world.run()
    return "\n".join(pools.world.whole.problems)


def is_found(problem: str, pools: TwoPools, within_seconds: float = 60.0) -> bool:
    """Whether a world shows the problem, on the way."""
    with pools:
        for second in range(int(within_seconds)):
            pools.until(float(second))
            if any(problem in each for each in pools.world.whole.problems):
                return True
    return False


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not as it should be may last for some seconds only."""
    monkeypatch.setattr("kestrel_worlds.flock_worlds.flock_vigil.HEARD_SECONDS", 4.0)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert (
        ends_with(TwoPools(two_pools([job("second", 6)], [job("second", 6, at_seconds=2.0)]))) == ""
    )


@pytest.mark.usefixtures("impatient")
def test_a_guest_that_runs_on_though_it_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuestExecutor, "kill", doing_nothing(found=True))
    with TwoPools(two_pools([job("minute", 5)])) as pools:
        pools.until(8.0)
        pools.home.operator.ask(requests.CancelJobs(jobs="1"))
        assert is_found("runs on", pools)


@pytest.mark.usefixtures("impatient")
def test_a_guest_that_runs_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loan, "give_back", doing_nothing())
    with TwoPools(two_pools([job("minute", 5)])) as pools:
        pools.until(8.0)
        monkeypatch.setattr(BorrowingService, "may_work", doing_nothing(found=False))
        pools.until(9.0)
        pools.home.operator.ask(requests.CancelJobs(jobs="1"))
        pools.restart(pools.home)
        assert is_found("runs for nobody", pools)


@pytest.mark.usefixtures("impatient")
def test_an_end_that_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(executor: GuestExecutor, record: TaskRecord) -> None:
        """Whatever has ended, nobody is told."""

    monkeypatch.setattr(GuestExecutor, "ended", ended)
    assert is_found("is not reported", TwoPools(two_pools([job("second", 5)])))


def test_guests_that_stay_where_own_tasks_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoanKeeper, "_take_back", doing_nothing())
    own = job("second", 8, at_seconds=5.0)
    assert is_found("keeps own tasks from", TwoPools(two_pools([job("minute", 5)], [own])))


def test_a_new_manager_that_takes_its_guests_for_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_asked(desk: BorrowingService, jid: str) -> bool:
        lender, _, loan = jid.partition("@")[2].partition("/")
        return desk.borrower.allowance(lender, loan, desk._service.now()) is not None

    monkeypatch.setattr(BorrowingService, "may_work", only_asked)
    with TwoPools(two_pools([job("minute", 5)])) as pools:
        pools.until(8.0)
        pools.restart(pools.home)
        assert is_found("a new manager refuses", pools)


def test_a_guest_against_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoanKeeper, "_judge", doing_nothing(found=("plain", None)))
    monkeypatch.setattr(LoanKeeper, "_limit", doing_nothing(found=LoanLimit()))
    with TwoPools(two_pools([job("second", 40)])) as pools:
        pools.until(2.0)
        rule = FlockRule(name="no", direction="lend", action="deny")
        pools.lender.operator.ask(rq.SetFlockRule(rule=rule))
        assert is_found("against its rules", pools)


def test_loans_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loan, "end", doing_nothing())
    assert "does not come to rest: birch: a loan of" in ends_with(
        TwoPools(two_pools([job("second", 5)], minute_seconds=2.0))
    )


def test_results_that_are_reported_before_they_are_spooled(monkeypatch: pytest.MonkeyPatch) -> None:
    spool = WorkerProcess.spool

    def of_machines(process: WorkerProcess, *spooled: Any) -> None:
        if not spooled[2].startswith("flock@"):
            spool(process, *spooled)

    monkeypatch.setattr(WorkerProcess, "spool", of_machines)
    pools = TwoPools(two_pools([job("second", 5)]))
    assert is_found(f"is reported to {HOME} before it is spooled", pools)


def test_results_that_go_with_their_loan(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the home sees it, they are still to come."""
    report = WorkerSession.report

    def of_machines(session: WorkerSession) -> None:
        if not session.account.startswith("flock@"):
            report(session)

    monkeypatch.setattr(WorkerSession, "report", of_machines)
    with TwoPools(two_pools([job("second", 5)])) as pools:
        pools.until(3.5)
        [key, *_] = pools.lender.manager.spools.kept()
        pools.lender.manager.spools.remove(*key)
        assert any("is dropped, which waits for it" in p for p in pools.world.whole.problems)


@pytest.mark.usefixtures("impatient")
def test_attempts_that_a_loan_never_took(monkeypatch: pytest.MonkeyPatch) -> None:
    take = WorkerSession._on_run

    def of_machines(session: WorkerSession, message: workers.Run) -> None:
        if not session.account.startswith("flock@"):
            take(session, message)

    monkeypatch.setattr(WorkerSession, "_on_run", of_machines)
    with TwoPools(two_pools([job("second", 5)])) as pools:
        assert is_found("waits for attempt", pools)


def test_pools_that_do_not_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kestrelctl.flock.overlay.overlay.Overlay.join", doing_nothing())
    problems = ends_with(TwoPools(two_pools([], minute_seconds=2.0)))
    assert "alder knows [], not ['birch']" in problems


def test_what_a_guest_is_said_to_be() -> None:
    """Three audits without pools: a guest is lent on, is of somebody else, and of no job at all."""
    whole = GuestAudit()
    clock = SimulationClock()
    home, lender, third = (PoolAudit(name, clock, whole) for name in (HOME, LENDER, "cedar"))
    home.committed([record(1, JobSpec(program=Program(argv=("task",))), owner="ada@users.alder")])
    lender.committed([record(5, guest_of(HOME, 1, "ada@users.alder"))])
    assert whole.problems == []
    third.committed([record(3, guest_of(LENDER, 5, "ada@users.alder"))])
    third.committed([record(4, guest_of(HOME, 1, "eve@users.alder"))])
    third.committed([record(6, guest_of(HOME, 2, "ada@users.alder"))])
    found = "\n".join(whole.problems)
    assert "a guest of birch, was lent on" in found
    assert "a guest of alder, is said to be of eve@users.alder" in found
    assert "a guest of alder, is of a job that is not durable there" in found


def guest_of(home: str, job_id: int, user: str) -> JobSpec:
    """A job for one attempt of a job of another pool."""
    template = Template(job_id=job_id, program=Program(argv=("task",)))
    attempt = LocalAttempt(7, template, 0, None, Claim({"cpus": 1000}), (7, job_id, 0, 1, 0), 0.0)
    memo = msgspec.json.encode(HeldAttempt.of(attempt, f"flock@{LENDER}"))
    of = GuestOf(pool=home, job_id=job_id, user=user, loan="0123456789ab", memo=memo)
    return JobSpec(program=Program(argv=("task",)), guest=of)


def record(job_id: int, spec: JobSpec, owner: str = "") -> JobRecord:
    """A job that is durable."""
    user = spec.guest.user if spec.guest is not None else owner
    return JobRecord(job_id=job_id, owner=user, spec=spec, submitted_at=0.0)
