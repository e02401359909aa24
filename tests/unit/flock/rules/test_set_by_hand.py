"""A flock whose pools were told of each other, and how long guests may go on."""

from __future__ import annotations

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.flock.rules.announcing import Announcer, whole_of
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.lending import ClassToLend, Lender, LoanLimit
from kestrelctl.local.supervisor import flock_options
from kestrelctl.protocol.pools import LentClass
from kestrelctl.xmpp.federation import Federation, FlockMembership

LOAN = "0a1b2c3d4e5f"


def three_machines(free: float) -> LentClass:
    ad = WorkerAd(assets={"cpus": 1.0, "memory": 1e9})
    return LentClass(id=LOAN, ad=ad, machines=3, free={"cpus": free})


def test_who_was_told_of_machines_once_does_not_hear_that_they_are_busy() -> None:
    assert whole_of(three_machines(0.0)).free == {"cpus": 3.0, "memory": 3e9}
    settings = FlockSettings(minute_seconds=60.0)
    announcer = Announcer("a.example", 1, settings)
    free, busy = whole_of(three_machines(3.0)), whole_of(three_machines(0.0))
    assert announcer.next(0.0, [free], willing=True, ttl=1) is not None
    assert announcer.next(30.0, [busy], willing=True, ttl=1) is None
    assert announcer.next(60.0, [busy], willing=True, ttl=1) is not None


def test_guests_may_go_on_for_as_long_as_was_said() -> None:
    settings = FlockSettings(minute_seconds=60.0, reclaim_minutes=2.0)
    lender = Lender(settings, lambda borrower: LoanLimit())
    supplies = {LOAN: ClassToLend(LOAN, {"cpus": 1.0}, {}, wanted=1)}
    assert lender.overdue(0.0, supplies) == {}
    assert lender.overdue_at() == 120.0
    assert lender.overdue(119.0, supplies) == {}
    assert lender.overdue(120.0, supplies) == {LOAN: 1}


def test_guests_go_on_for_five_minutes_if_nothing_is_said() -> None:
    assert FlockSettings(minute_seconds=60.0).reclaim_seconds == 300.0


def test_a_local_manager_is_told_of_its_flock() -> None:
    flock = FlockMembership(
        through="a.kestrel.localhost",
        minute_seconds=0.05,
        reclaim_minutes=20.0,
        fixed=("a.kestrel.localhost", "b.kestrel.localhost"),
    )
    words = flock_options(Federation(certificate="c", key="k", flock=flock))
    said = " ".join(words)
    assert "--flock a.kestrel.localhost --flock-minute 0.05 --flock-reclaim 20.0" in said
    assert words.count("--flock-fixed") == 2
    assert flock_options(Federation(certificate="c", key="k")) == []
    assert flock_options(None) == []
