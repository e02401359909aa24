"""A worker proves what it was handed; nobody can make a proof up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.records import Snapshot, TaskRecord
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import SECRET_BYTES, Seal, Seals
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool
from kestrelctl.protocol.handout import run_messages

ONE, OTHER = Seals(b"1" * SECRET_BYTES), Seals(b"2" * SECRET_BYTES)
numbers = st.integers(0, 2**63 - 1)


def sealed(seals: Seals, worker: str, number: int, job_id: int, index: int, n: int) -> Seal:
    return number, job_id, index, n, seals.mark(worker, number, job_id, index, n)


@given(numbers, numbers, numbers, st.integers(1, 1000), st.data())
def test_a_seal_proves_each_attempt_of_its_span_and_no_other(
    number: int, job_id: int, index: int, n: int, data: st.DataObject
) -> None:
    proof = ONE.proven("w@x/1", [sealed(ONE, "w@x/2", number, job_id, index, n)])
    within = data.draw(st.integers(0, n - 1))
    assert proof.covers(number + within, job_id, index + within)
    assert not proof.covers(number + n, job_id, index + n)
    assert not proof.covers(number - 1, job_id, index - 1)
    assert not proof.covers(number + within, job_id, index + within + 1)
    assert not proof.covers(number + within, job_id + 1, index + within)


@given(numbers, st.data())
def test_nothing_in_a_seal_can_be_changed(mark: int, data: st.DataObject) -> None:
    seal = list(sealed(ONE, "w@x/1", 1000, 7, 20, 5))
    place = data.draw(st.integers(0, 4))
    seal[place] = data.draw(numbers.filter(lambda value: value != seal[place]))
    number, job_id, index, n, changed = seal
    proof = ONE.proven("w@x/1", [(number, job_id, index, n, changed)])
    assert not proof.covers(number, job_id, index)


@pytest.mark.parametrize(
    ("seals", "worker"), [(ONE, "v@x/1"), (ONE, "w@y/1"), (OTHER, "w@x/1"), (ONE, "w")]
)
def test_a_seal_is_of_one_pool_for_one_account(seals: Seals, worker: str) -> None:
    seal = sealed(ONE, "w@x/1", 1000, 7, 20, 5)
    assert not seals.proven(worker, [seal]).covers(1000, 7, 20)


def test_a_secret_has_one_size() -> None:
    with pytest.raises(ValueError, match="31 bytes instead of 32"):
        Seals(bytes(31))


def test_all_that_is_handed_out_can_be_proven_by_the_worker_that_got_it() -> None:
    """Also where a hand-out travels in several messages."""
    driver = PoolDriver()
    items = tuple("x" * 150_000 for _ in range(9))
    driver.submit(9, items=items)
    driver.join("w", cpus=9)
    [run] = driver.of(fx.Run)
    run = replace(run, items=list(items))
    messages = run_messages(run, [], driver.pool.seals, lambda span, why: None)
    assert len(messages) > 1
    shown = [(*span[:4], span[5]) for message in messages for span in message.spans]
    proof = driver.pool.seals.proven("w", shown)
    assert all(proof.covers(*attempt) for attempt in driver.held("w"))


def test_numbers_of_a_new_store_are_not_those_of_an_earlier_one() -> None:
    """Else a worker that comes back has two attempts of one number."""
    firsts = {
        Pool(Snapshot(epoch=1, secret=secret, next_job_id=1, jobs=[], workers=[])).state.next_number
        for secret in (bytes([n]) * SECRET_BYTES for n in range(20))
    }
    assert len(firsts) == 20
    assert all(0 < first < 1 << 63 for first in firsts)


def test_a_worker_of_an_earlier_store_brings_nothing_into_a_new_one() -> None:
    """Task 0 of an old job 1 is no task of the new job 1."""
    old = PoolDriver()
    old.submit()
    old.join("w")
    [attempt] = old.held("w")
    seals = old.seals("w", [attempt])
    snapshot = Snapshot(epoch=1, secret=bytes(SECRET_BYTES), next_job_id=1, jobs=[], workers=[])
    new = PoolDriver(snapshot=snapshot)
    new.submit()
    new.tell(
        ev.Joined(
            at=new.now,
            worker="w",
            incarnation="one",
            ad=WorkerAd(assets={"cpus": 0.5}),
            holds=[(*attempt, -1)],
            seals=seals,
        )
    )
    assert new.of(fx.Welcome)[-1].kill == [attempt[0]]
    result = Result(*attempt, Outcome.DONE, new.now, 1.0)
    new.tell(ev.Reported(at=new.now, worker="w", results=[result], seals=seals))
    assert not [record for record in new.records if isinstance(record, TaskRecord)]
    assert new.pool.totals.attempts_unproven == 2
    assert new.of(fx.Acknowledge)[-1].numbers == [attempt[0]], "it need not be kept any longer"


def test_a_worker_that_was_started_anew_is_not_believed_what_it_never_had() -> None:
    """The story of a whole pool: 50 tasks ran elsewhere, a liar claims the rest after a restart."""
    driver = PoolDriver()
    driver.join("honest", cpus=50)
    driver.submit(1000)
    running = driver.held("honest")
    driver.restart()
    forged = [(1, 1, index, -1) for index in range(1000)]
    for seals in ([], driver.seals("honest", running)):
        driver.tell(
            ev.Joined(
                at=driver.now,
                worker="liar",
                incarnation="one",
                ad=WorkerAd(assets={"cpus": 0.5}),
                holds=[*forged, *((*attempt, -1) for attempt in running)],
                seals=seals,
            )
        )
        results = [Result(n, j, i, Outcome.DONE, driver.now, 1.0) for n, j, i, _ in forged]
        results += [Result(*attempt, Outcome.DONE, driver.now, 1.0) for attempt in running]
        driver.tell(ev.Reported(at=driver.now, worker="liar", results=results, seals=seals))
    assert driver.pool.state.jobs[1].counts.done == 0
    driver.join("honest", cpus=50, holds=running)
    assert driver.held("honest") == running
