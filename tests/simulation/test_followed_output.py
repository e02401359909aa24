"""What a manager answers to who follows the output of a task, attempt by attempt."""

from __future__ import annotations

import pytest
from byhand import POOL, SOON_SECONDS, Manager

from kestrelctl.core.model.config import Config
from kestrelctl.core.model.result import TAIL_BYTES, Outcome
from kestrelctl.errors import Busy, NotAllowed
from kestrelctl.protocol import answers, requests, workers
from kestrelctl.protocol.job_answers import FollowedLog


@pytest.fixture
def house() -> Manager:
    return Manager(Config(backoff_seconds=2.0))


def followed(house: Manager, attempt: int = 0, offset: int = 0, besides: int = 0) -> FollowedLog:
    """What the user is answered; a worker that is asked has written `hello`, and more."""
    house.user.forget()
    house.worker.forget()
    request = requests.FollowLogs(
        id="f", job="1", task_id=0, attempt=attempt, offset=offset, besides=besides
    )
    house.ask(request)
    for asked in house.worker.of(workers.FetchOutput):
        data = b"hello and more"[asked.offset :][:5]
        house.tell(
            workers.Output(request=asked.request, offset=asked.offset, data=data, size_bytes=14)
        )
    house.wait(0.2)
    [found] = house.user.of(FollowedLog)
    return found


def test_of_a_task_that_waits_there_is_nothing_to_read(house: Manager) -> None:
    house.submit()
    found = followed(house)
    assert (found.state, found.piece) == ("waiting", None)


def test_a_running_attempt_is_read_at_its_worker_from_where_one_is(house: Manager) -> None:
    house.hello()
    house.submit()
    [number] = house.attempts()
    first = followed(house)
    assert first.piece is not None
    assert (first.state, first.piece.attempt, first.piece.count) == ("running", number, 1)
    assert (first.piece.data, first.piece.more, first.piece.over) == (b"hello", True, "")
    assert first.piece.worker == house.worker.address
    last = followed(house, attempt=number, offset=10)
    assert last.piece is not None
    assert (last.piece.data, last.piece.more) == (b"more", False)


def test_what_an_attempt_wrote_before_it_failed_is_read_before_the_next_one(
    house: Manager,
) -> None:
    house.hello()
    house.submit(max_failures=3)
    [number] = house.attempts()
    text = b"hello, then no more"
    house.report(number, Outcome.FAILED, 0, stdout=text, stdout_bytes=len(text), exit_code=3)
    house.wait(0.5)
    found = followed(house, attempt=number, offset=5)
    assert found.piece is not None
    assert (found.state, found.piece.attempt) == ("waiting", number)
    assert (found.piece.data, found.piece.over) == (b", then no more", "exit code 3")
    assert followed(house, besides=number).piece is None
    house.wait(3.0)
    second = followed(house, besides=number).piece
    assert second is not None
    assert second.attempt > number
    assert (second.count, second.data) == (2, b"hello")
    again = followed(house, attempt=number, offset=5).piece
    assert again is not None
    assert (again.attempt, again.data) == (number, b", then no more")


def test_who_comes_after_the_end_reads_the_last_attempt_from_its_beginning(
    house: Manager,
) -> None:
    house.hello()
    house.submit()
    tail = b"x" * TAIL_BYTES
    house.report(house.attempts()[0], stdout=tail, stdout_bytes=TAIL_BYTES + 10)
    house.wait(0.5)
    found = followed(house)
    assert found.state == "done"
    assert found.piece is not None
    assert (found.piece.data, found.piece.more, found.piece.over) == (b"hello", True, "exit code 0")


def test_an_attempt_of_which_no_end_is_known_was_given_up(house: Manager) -> None:
    house.hello()
    house.submit()
    [number] = house.attempts()
    assert house.worker.session is not None
    house.worker.session.send_presence(POOL)
    house.wait()
    house.worker.kill()
    house.wait(SOON_SECONDS)
    found = followed(house, attempt=number)
    assert found.state == "waiting"
    assert found.piece is not None
    assert (found.piece.attempt, found.piece.over) == (number, "given up")


def test_an_end_that_is_just_being_written_is_asked_for_again(house: Manager) -> None:
    house.hello()
    house.submit(count=2)
    house.store.full = True
    house.report(house.attempts()[0], Outcome.DONE, 0, stdout=b"x", stdout_bytes=1)
    house.ask(requests.FollowLogs(id="f", job="1", task_id=0))
    house.wait(0.5)
    assert house.failures() == [Busy.code]


def test_a_task_that_never_started_is_cancelled_with_its_job(house: Manager) -> None:
    house.submit()
    house.ask(requests.CancelJobs(id="c", jobs="1"))
    house.wait(0.5)
    found = followed(house)
    assert (found.state, found.piece) == ("cancelled", None)


def test_only_the_owner_may_follow(house: Manager) -> None:
    house.submit()
    stranger = house.stranger()
    house.wait()
    stranger.say(requests.FollowLogs(id="f", job="1", task_id=0), f"jobs@{POOL.partition('@')[2]}")
    house.wait(0.5)
    [refused] = stranger.of(answers.Failed)
    assert refused.code == NotAllowed.code
