"""What a worker's shell promises, one promise at a time; the pool is the test."""

from __future__ import annotations

from itertools import pairwise

import pytest
from byhand import SOON_SECONDS, Worker

from kestrel_worlds.truth import Fate
from kestrelctl.core.agent.agent import COMPANY_SECONDS, ENDED
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import AssetChange, WorkerAd
from kestrelctl.protocol import workers
from kestrelctl.worker.connection.session import REPORT_RESULTS, UNANSWERED_SECONDS


@pytest.fixture
def worker() -> Worker:
    return Worker()


def next_pause_seconds(worker: Worker) -> float:
    """Between the last hello that was heard and the next one."""
    [*_, (before, _)] = worker.hellos()
    heard = len(worker.hellos())
    while len(worker.hellos()) == heard:
        worker.wait(1.0)
    return worker.hellos()[-1][0] - before


def test_it_shows_itself_and_says_hello(worker: Worker) -> None:
    assert [type(m) if m != "available" else m for _, m in worker.pool.heard] == [
        "available",
        workers.Hello,
    ]


def test_an_unanswered_hello_is_repeated_less_and_less_often(worker: Worker) -> None:
    first = next_pause_seconds(worker)
    assert UNANSWERED_SECONDS <= first <= 1.5 * UNANSWERED_SECONDS + 0.1
    for _ in range(3):
        next_pause_seconds(worker)
    assert next_pause_seconds(worker) >= 16 * UNANSWERED_SECONDS


def test_after_a_welcome_an_unanswered_hello_is_soon_repeated(worker: Worker) -> None:
    for _ in range(5):
        next_pause_seconds(worker)
    worker.welcome()
    worker.tell(workers.Who())
    assert next_pause_seconds(worker) <= 1.5 * UNANSWERED_SECONDS + 0.1


def test_after_a_reconnect_an_unanswered_hello_is_soon_repeated(worker: Worker) -> None:
    for _ in range(5):
        next_pause_seconds(worker)
    worker.machine.drop_connection()
    worker.wait(1.0)
    assert next_pause_seconds(worker) <= 1.5 * UNANSWERED_SECONDS + 0.1


def test_a_worker_that_is_in_says_hello_no_more(worker: Worker) -> None:
    worker.tell(workers.Who())
    worker.welcome()
    worker.wait(10 * UNANSWERED_SECONDS)
    assert len(worker.hellos()) == 2


def test_a_worker_without_a_connection_says_no_hello(worker: Worker) -> None:
    worker.tell(workers.Who())
    worker.server.stop()
    assert worker.machine.process is not None
    sent = list(worker.machine.process.stanzas.counted())
    worker.wait(10 * UNANSWERED_SECONDS)
    assert list(worker.machine.process.stanzas.counted()) == sent


def test_when_nobody_is_there_it_asks_again_within_seconds() -> None:
    worker = Worker()
    worker.pool.kill()
    worker.pool.forget()
    worker.machine.drop_connection()
    worker.wait(2.0)
    worker.pool.start()
    worker.wait(2.0)
    assert worker.hellos()


def test_while_nobody_is_there_it_asks_less_and_less_often(worker: Worker) -> None:
    """Each try is a line in the server's log, and a manager that comes asks those it knows."""

    def hellos() -> int:
        assert worker.machine.process is not None
        counted = worker.machine.process.stanzas.counted()
        return sum(n for kind, way, n, _ in counted if (kind, way) == ("hello", "out"))

    worker.pool.kill()
    worker.machine.drop_connection()
    worker.wait(600.0)
    before = hellos()
    worker.wait(3600.0)
    assert 160 <= hellos() - before <= 320


def test_attempts_before_the_welcome_do_not_count(worker: Worker) -> None:
    worker.run(100, 2)
    worker.welcome()
    assert worker.running == []


def test_a_welcome_to_an_earlier_process_does_not_count(worker: Worker) -> None:
    worker.tell(workers.Welcome(incarnation="another", greeting=1, heartbeat_seconds=60.0))
    worker.run(100, 2)
    assert worker.running == []


def test_a_welcome_to_an_earlier_hello_does_not_count(worker: Worker) -> None:
    worker.tell(workers.Who())
    (_, first), (_, _) = worker.hellos()
    worker.tell(workers.Welcome(incarnation=first.incarnation, greeting=1, heartbeat_seconds=60.0))
    worker.run(100, 2)
    assert worker.running == []


def test_what_is_to_be_killed_ends_and_is_reported(worker: Worker) -> None:
    worker.welcome()
    """One runs, and one has not been handed to the launcher."""
    worker.run(100, 7)
    assert worker.running == [100, 101]
    worker.tell(workers.Kill(numbers=[100, 106]))
    worker.wait(1.0)
    assert worker.running == [101, 102]
    assert worker.outcomes() == {100: Outcome.KILLED, 106: Outcome.KILLED}
    assert {100, 106} <= worker.machine.spool.records.keys()


def test_what_a_welcome_wants_killed_ends(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 3)
    worker.tell(workers.Who())
    worker.welcome(kill=[101, 102])
    assert worker.running == [100]
    assert worker.outcomes() == {101: Outcome.KILLED, 102: Outcome.KILLED}
    assert list(worker.machine.spool.records) == [102, 101]
    assert worker.audit.problems == []


def test_what_came_to_a_full_worker_runs_when_there_is_room(worker: Worker) -> None:
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.welcome()
    worker.run(100, 8)
    assert worker.running == [100, 101]
    worker.wait(2.5)
    assert worker.running == [104, 105], "more than wait at the launcher"


def test_a_draining_worker_says_so_and_gives_back_what_has_not_started(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 4)
    worker.machine.terminate()
    worker.wait()
    assert len(worker.pool.of(workers.Leaving)) == 1
    assert [m.numbers for m in worker.pool.of(workers.Returned)] == [[102, 103]]
    worker.run(200, 1)
    assert [m.numbers for m in worker.pool.of(workers.Returned)][1:] == [[200]]


def test_a_worker_gives_back_what_has_not_started_though_it_drains_before_its_welcome(
    worker: Worker,
) -> None:
    worker.welcome()
    worker.run(100, 4)
    worker.tell(workers.Who())
    worker.machine.terminate()
    worker.wait()
    assert [number for number, *_ in worker.hellos()[-1][1].holds] == [100, 101, 102, 103]
    assert [m.numbers for m in worker.pool.of(workers.Returned)] == [[102, 103]]
    worker.welcome()
    assert worker.running == [100, 101]
    assert len(worker.pool.of(workers.Returned)) == 1


def test_a_drained_worker_stays_until_its_results_are_acknowledged(worker: Worker) -> None:
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.welcome()
    worker.run(100, 1)
    worker.machine.terminate()
    worker.wait(2.0)
    assert worker.machine.alive
    worker.tell(workers.Ack(numbers=[100]))
    assert not worker.machine.alive


def test_a_drained_worker_does_not_wait_for_a_pool_that_is_away(worker: Worker) -> None:
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.welcome()
    worker.run(100, 1)
    worker.machine.terminate()
    worker.wait(10.0)
    assert not worker.machine.alive
    assert list(worker.machine.spool.records) == [100]


def test_results_survive_the_process_and_are_reported_by_the_next(worker: Worker) -> None:
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.welcome()
    worker.run(100, 1)
    worker.wait(2.0)
    worker.machine.kill()
    worker.pool.forget()
    worker.machine.start()
    worker.wait()
    [(_, hello)] = worker.hellos()
    assert hello.holds == [(100, 1, 0, ENDED)]
    worker.welcome()
    assert worker.outcomes() == {100: Outcome.DONE}


def test_what_is_acknowledged_is_forgotten_for_good(worker: Worker) -> None:
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.welcome()
    worker.run(100, 2)
    worker.wait(2.0)
    worker.tell(workers.Run(spans=[], ack=[100]))
    worker.tell(workers.Ack(numbers=[101]))
    assert worker.machine.spool.records == {}
    worker.tell(workers.Who())
    assert worker.hellos()[-1][1].holds == []


@pytest.mark.parametrize("callbacks", range(1, 12))
def test_no_result_is_reported_that_a_crash_could_lose(callbacks: int) -> None:
    """Wherever in its turn the process dies: what the pool has heard of is in the spool."""
    worker = Worker(WorkerAd(assets={"cpus": 4.0}))
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.welcome()
    worker.run(100, 4)
    worker.wait(0.9)
    worker.machine.kill_in_a_turn(callbacks)
    worker.wait(3.0)
    assert worker.outcomes().keys() <= worker.machine.spool.records.keys()
    assert not [text for text in worker.audit.problems if "spooled" in text]


def test_no_result_waits_long_for_company() -> None:
    worker = Worker(WorkerAd(assets={"cpus": 1.0}))
    worker.fate = Fate(0.15, Outcome.DONE)
    worker.welcome()
    worker.run(100, 12)
    worker.wait(3.0)
    waits = [
        at - (worker.audit.executions[result.number].ended_at or 0.0)
        for at, report in worker.pool.heard
        if isinstance(report, workers.Report)
        for result in report.results
    ]
    assert len(waits) == 12
    assert max(waits) <= COMPANY_SECONDS + SOON_SECONDS


def test_a_silent_worker_gives_signs_of_life(worker: Worker) -> None:
    worker.welcome(heartbeat_seconds=3.0)
    worker.pool.forget()
    worker.wait(60.0)
    moments = [at for at, message in worker.pool.heard if isinstance(message, workers.Heartbeat)]
    assert max(b - a for a, b in pairwise(moments)) <= 3.0 + 0.01
    assert 20 <= len(moments) <= 31


def test_what_the_pool_takes_back_is_given_back(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 4)
    worker.tell(workers.Recall(numbers=[101, 103]))
    assert [m.numbers for m in worker.pool.of(workers.Returned)] == [[103]]


def test_what_is_taken_back_in_time_never_starts(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 1)
    worker.pool.say(
        workers.Run(spans=[(200, 1, 0, 1, 0, 0)], claims=[{"cpus": 1000}]), worker.machine.address
    )
    worker.tell(workers.Recall(numbers=[200]))
    assert [m.numbers for m in worker.pool.of(workers.Returned)] == [[200]]
    assert worker.running == [100]


def test_what_fits_starts_when_what_did_not_fit_is_taken_back(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 1)
    spans = [(200, 1, 0, 1, 0, 0), (300, 1, 0, 1, 1, 0), (400, 1, 0, 1, 0, 0), (500, 1, 0, 1, 1, 0)]
    worker.tell(workers.Run(spans=spans, claims=[{"cpus": 2000}, {"cpus": 500}]))
    worker.tell(workers.Recall(numbers=[200]))
    assert worker.running == [100, 300]
    worker.tell(workers.Kill(numbers=[400]))
    assert worker.running == [100, 300, 500]


def resize(cpus: float, request: str = "1") -> workers.Resize:
    return workers.Resize(request=request, change=AssetChange(amounts={"cpus": cpus}))


def test_a_worker_offers_what_the_pool_wants_and_lets_run_what_runs(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 4)
    worker.tell(resize(1.0))
    smaller = WorkerAd(assets={"cpus": 1.0})
    assert worker.pool.of(workers.Resized) == [workers.Resized(ad=smaller, request="1")]
    assert worker.running == [100, 101]
    worker.tell(workers.Kill(numbers=[100]))
    worker.wait(1.0)
    assert worker.running == [101], "as many as it has now"
    worker.tell(resize(2.0))
    assert worker.running == [101, 102]
    worker.tell(workers.Who())
    assert worker.hellos()[-1][1].ad.assets == {"cpus": 2.0}


def test_what_could_never_start_any_more_comes_back_after_the_word_on_that(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 1)
    spans = [(200, 1, 0, 1, 0, 0), (300, 1, 0, 1, 1, 0)]
    worker.tell(workers.Run(spans=spans, claims=[{"cpus": 2000}, {"cpus": 1000}]))
    worker.tell(resize(1.5))
    said = [m for _, m in worker.pool.heard if isinstance(m, workers.Resized | workers.Returned)]
    assert said[1:] == [workers.Returned(numbers=[200])]
    assert isinstance(said[0], workers.Resized)


def test_a_resize_between_hello_and_welcome_is_told(worker: Worker) -> None:
    """The pool may read that hello, whose ad is the one of before."""
    worker.tell(resize(1.0))
    worker.welcome()
    assert [message.ad.assets for message in worker.pool.of(workers.Resized)] == [{"cpus": 1.0}]


def test_a_number_means_units_that_the_worker_has_had(worker: Worker) -> None:
    worker.welcome()
    for change in (
        AssetChange(units={"gpus": ("a", "b")}),
        AssetChange(amounts={"gpus": 1.0}),
        AssetChange(amounts={"gpus": 2.0}),
        AssetChange(amounts={"gpus": 3.0}),
    ):
        worker.tell(workers.Resize(request="1", change=change))
    said = worker.pool.of(workers.Resized)
    ids = [[unit.id for unit in message.ad.units["gpus"]] for message in said]
    assert ids == [["a", "b"], ["a"], ["a", "b"], ["a", "b"]]
    assert said[-1].problem == "there are 2 units of gpus, not 3"


def test_what_a_worker_cannot_offer_it_says_and_changes_nothing(worker: Worker) -> None:
    worker.welcome()
    worker.tell(resize(0.0))
    [answer] = worker.pool.of(workers.Resized)
    assert answer.problem == "a worker has 0.001 to 1,000,000 cpus, not 0"
    assert answer.ad.assets == {"cpus": 2.0}
    worker.run(100, 3)
    assert worker.running == [100, 101]


def test_nobody_but_its_pool_gives_a_worker_orders(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 1)
    worker.stranger().say(workers.Kill(numbers=[100]), worker.machine.address)
    worker.wait(1.0)
    assert worker.running == [100]


def test_what_ends_without_a_connection_is_reported_once_after_it(worker: Worker) -> None:
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.welcome()
    worker.run(100, 1)
    worker.server.stop()
    worker.wait(2.0)
    worker.server.start()
    worker.wait(30.0)
    worker.welcome()
    assert worker.outcomes() == {100: Outcome.DONE}
    assert worker.machine.process is not None
    sent = {kind: n for kind, way, n, _ in worker.machine.process.stanzas.counted() if way == "out"}
    assert sent["report"] == 1


def test_a_worker_that_lacks_a_job_gives_its_attempts_back_and_says_hello(worker: Worker) -> None:
    worker.welcome()
    worker.pool.forget()
    worker.tell(workers.Run(spans=[(100, 1, 0, 2, 0, 0)], claims=[{"cpus": 1000}]))
    assert [m.numbers for m in worker.pool.of(workers.Returned)] == [[100, 101]]
    assert len(worker.hellos()) == 1


def test_reports_are_of_a_size_that_a_message_can_have() -> None:
    many = REPORT_RESULTS + 100
    worker = Worker(WorkerAd(assets={"cpus": float(many)}))
    worker.fate = Fate(1.0, Outcome.DONE)
    worker.welcome()
    worker.run(100, many)
    worker.wait(10.0)
    worker.tell(workers.Who())
    worker.pool.forget()
    worker.tell(
        workers.Welcome(
            incarnation=worker.machine.process.incarnation,  # type: ignore[union-attr]
            greeting=2,
            heartbeat_seconds=60.0,
        )
    )
    reports = [[r.number for r in report.results] for report in worker.pool.of(workers.Report)]
    assert [len(numbers) for numbers in reports] == [REPORT_RESULTS, 100]
    assert len({number for numbers in reports for number in numbers}) == many


def test_a_machine_that_cannot_start_a_task_does_not_hold_it_against_the_task(
    worker: Worker,
) -> None:
    worker.fate = Fate(1.0, Outcome.UNABLE)
    worker.welcome()
    worker.run(100, 1)
    worker.wait(2.0)
    assert worker.outcomes() == {100: Outcome.UNABLE}


def test_signs_of_life_follow_the_interval_that_the_pool_last_asked_for(worker: Worker) -> None:
    worker.welcome(heartbeat_seconds=3.0)
    worker.tell(workers.SetHeartbeat(heartbeat_seconds=30.0))
    worker.wait(30.0)
    worker.pool.forget()
    worker.wait(300.0)
    assert 10 <= len(worker.pool.of(workers.Heartbeat)) <= 15


def test_a_draining_worker_says_so_again_to_a_pool_that_may_have_missed_it(worker: Worker) -> None:
    worker.welcome()
    worker.run(100, 1)
    worker.machine.terminate()
    worker.wait()
    worker.tell(workers.Who())
    worker.pool.forget()
    worker.tell(
        workers.Welcome(
            incarnation=worker.machine.process.incarnation,  # type: ignore[union-attr]
            greeting=2,
            heartbeat_seconds=60.0,
        )
    )
    assert len(worker.pool.of(workers.Leaving)) == 1


def test_a_piece_of_output_says_that_there_is_more(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.welcome()
    assert worker.machine.process is not None
    printed = b"0123456789"
    monkeypatch.setattr(
        worker.machine.process.executor,
        "read_output",
        lambda number, stream, offset, limit: printed[offset : offset + limit],
    )
    for offset in (0, 4, 8):
        worker.tell(
            workers.FetchOutput(request="r", number=100, stream="stdout", offset=offset, limit=4)
        )
    pieces = worker.pool.of(workers.Output)
    assert b"".join(piece.data for piece in pieces) == printed
    ends = [piece.offset + len(piece.data) for piece in pieces]
    more = [end < (piece.size_bytes or 0) for end, piece in zip(ends, pieces, strict=True)]
    assert more == [True, True, False]


def said_uses(worker: Worker) -> list[tuple[float, workers.RunningUsage]]:
    return [(at, m) for at, m in worker.pool.heard if isinstance(m, workers.RunningUsage)]


def test_it_says_what_long_tasks_use_once_in_an_interval(worker: Worker) -> None:
    worker.welcome(usage_seconds=60.0)
    worker.run(1, 2)
    began = worker.clock.now
    worker.wait(600.0)
    said = said_uses(worker)
    assert 60.0 <= said[0][0] - began <= 120.0
    assert all([use.number for use in message.uses] == [1, 2] for _, message in said)
    for (before, _), (after, message) in pairwise(said):
        assert 54.0 <= after - before <= 60.0
        assert message.uses[0].wall_seconds == pytest.approx(after - began, abs=0.1)
        assert message.uses[0].cpu_seconds == pytest.approx((after - began) / 2, abs=0.1)


def test_of_short_tasks_it_says_nothing(worker: Worker) -> None:
    worker.fate = Fate(20.0, Outcome.DONE)
    worker.welcome(usage_seconds=60.0)
    worker.run(1, 20)
    worker.wait(600.0)
    assert len(worker.outcomes()) == 20
    assert said_uses(worker) == []


def test_who_is_not_told_how_often_says_nothing_of_what_tasks_use(worker: Worker) -> None:
    worker.welcome()
    worker.run(1, 1)
    worker.wait(1200.0)
    assert said_uses(worker) == []


def test_without_a_welcome_it_says_nothing_of_what_tasks_use(worker: Worker) -> None:
    worker.welcome(usage_seconds=60.0)
    worker.run(1, 1)
    worker.machine.drop_connection()
    worker.wait(600.0)
    assert said_uses(worker) == []


def test_an_absurd_interval_does_not_keep_it_busy(worker: Worker) -> None:
    worker.welcome(usage_seconds=1e-9)
    worker.run(1, 1)
    worker.wait(10.0)
    assert 5 <= len(said_uses(worker)) <= 12
