"""A worker that means harm speaks to a real manager's shell: what it makes the manager say."""

from __future__ import annotations

from byhand import POOL, SOON_SECONDS, Manager

from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.manager.sending.acknowledgements import COMPANY_SECONDS
from kestrelctl.protocol import codec, requests, workers
from kestrelctl.protocol.workers import MOST_INCARNATION_CHARACTERS


def test_no_acknowledgement_is_too_large_for_the_server() -> None:
    """The server ends the link of the manager, and so the pool, at a stanza that is too large."""
    house = Manager()
    house.hello()
    most = (1 << 63) - 1
    results = [Result(most, 1, 1, Outcome.DONE, 0.0, 0.0)] * 8_000
    for _ in range(6):
        house.worker.say(workers.Report(results=results), POOL)
    house.wait(COMPANY_SECONDS + 5 * SOON_SECONDS)
    assert len(house.acknowledged()) == 6 * len(results)
    for message in house.worker.of(workers.Ack):
        assert codec.fits(codec.encode(message))


def test_no_kill_is_too_large_for_the_server() -> None:
    house = Manager()
    house.tell(
        workers.Hello(
            version=workers.VERSION,
            incarnation="one",
            greeting=1,
            ad=WorkerAd(assets={"cpus": 512.0}),
        )
    )
    house.submit(count=60_000, request={"cpus": 0.005})
    house.wait(1.0)
    assert len(house.attempts()) == 60_000
    house.ask(requests.CancelJobs(id="c", jobs="1"))
    house.wait(1.0)
    kills = house.worker.of(workers.Kill)
    assert sum(len(kill.numbers) for kill in kills) == 60_000
    for kill in kills:
        assert codec.fits(codec.encode(kill))


def test_an_incarnation_is_a_word() -> None:
    house = Manager()
    house.tell(
        workers.Hello(
            version=workers.VERSION,
            incarnation="\x7f" * (MOST_INCARNATION_CHARACTERS + 1),
            ad=WorkerAd(),
        )
    )
    assert len(house.worker.of(workers.Refused)) == 1
    assert house.manager.pool is not None
    assert house.manager.pool.workers == {}
