"""The jobs of an account that have not ended are only so large together."""

from __future__ import annotations

import pytest
from flockkit import visit
from msgspec import UNSET, UnsetType
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.files.byte_limit import MOST_STORED_SUM_BYTES, ByteLimit
from kestrelctl.core.model.job.after import After, WantedEnd
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.share_change import ShareChange

#: A job of this is taken where the limit is `LIMIT_BYTES`, and no second one.
LONG = ("echo", "x" * 600)
LIMIT_BYTES = 1_000


def driven(limit: int | None = LIMIT_BYTES) -> PoolDriver:
    return PoolDriver(Config(max_queued_bytes=limit))


def queued(driver: PoolDriver, account: str = "ada") -> int:
    return driver.pool.queued_bytes.of(account)


def refusal(driver: PoolDriver) -> str | None:
    """With what the last request was refused; None if it was not."""
    return driver.answers[-1].error


def set_limit(
    driver: PoolDriver, limit: ByteLimit | UnsetType, name: str = "ada", group: str | None = None
) -> fx.Answer:
    driver.tell(
        ev.SetUser(
            at=driver.now,
            cause="root",
            request="s",
            name=name,
            group=group,
            change=ShareChange(),
            max_queued_bytes=limit,
        )
    )
    return driver.answers[-1]


def test_what_is_too_large_is_refused_with_what_and_cause_and_hint() -> None:
    driver = driven()
    driver.submit(argv=LONG)
    first = queued(driver)
    assert first == encoded_bytes(driver.pool.state.jobs[1].spec)
    driver.submit(argv=LONG)
    answer = driver.answers[-1]
    assert answer.error == "over-quota"
    assert answer.message == "the jobs of ada that have not ended would be too large together"
    assert answer.cause == f"they have {first} bytes and may have 1,000; this would add {first}"
    assert answer.hint.startswith("wait until some have ended, ")
    assert "`kestrelctl user set ada --max-queued-size SIZE`" in answer.hint
    assert queued(driver) == first, "what was refused does not count"
    driver.submit(argv=LONG, owner="bob")
    assert refusal(driver) is None, "bob has room of his own"


@pytest.mark.parametrize(
    "part",
    [
        {"argv": ("echo", *"x" * 400)},
        {"env": {"X": "x" * 1_200}},
        {"items": ("x" * 1_200,)},
        {"cleanup": ("rm", "x" * 1_200)},
        {"outputs": ("x" * 1_200,)},
    ],
)
def test_all_that_a_job_says_counts(part: dict[str, object]) -> None:
    driver = driven()
    driver.submit(**part)  # type: ignore[arg-type]
    assert refusal(driver) == "over-quota"
    assert "submit it as several jobs" in driver.answers[-1].hint, "waiting would not help"


def test_a_million_tasks_of_one_command_count_as_one() -> None:
    driver = driven()
    driver.submit(count=1_000_000)
    assert refusal(driver) is None
    assert queued(driver) < 100


def test_what_has_ended_makes_room_and_tasks_that_end_do_not() -> None:
    driver = driven()
    driver.join("w", cpus=2)
    driver.submit(2, argv=LONG)
    before = queued(driver)
    driver.report("w", driver.held("w")[0])
    assert queued(driver) == before
    driver.report("w", *driver.held("w"))
    assert queued(driver) == 0
    driver.submit(argv=LONG)
    assert refusal(driver) is None


def test_what_is_cancelled_makes_room_and_what_is_held_does_not() -> None:
    driver = driven()
    job_id = driver.submit(argv=LONG, held=True)
    driver.submit(argv=LONG)
    assert refusal(driver) == "over-quota"
    driver.cancel(job_id)
    driver.submit(argv=LONG)
    assert refusal(driver) is None


def test_jobs_that_are_submitted_as_one_are_taken_all_or_none() -> None:
    driver = driven()
    driver.submit_graph((), (After(0, 0, WantedEnd.OK),), env={"X": "x" * 500})
    assert refusal(driver) == "over-quota"
    assert not driver.pool.state.jobs
    driver.submit_graph((), (After(0, 0, WantedEnd.OK),), env={"X": "x" * 300})
    assert refusal(driver) is None
    assert queued(driver) == sum(encoded_bytes(j.spec) for j in driver.pool.state.jobs.values())


def test_a_job_that_is_retried_counts_again() -> None:
    driver = driven()
    driver.join("w")
    job_id = driver.submit(argv=LONG)
    driver.fail("w")
    assert queued(driver) == 0
    other = driver.submit(argv=LONG, held=True)
    driver.retry(job_id)
    assert refusal(driver) == "over-quota"
    driver.cancel(other)
    driver.retry(job_id)
    assert refusal(driver) is None
    assert queued(driver) == encoded_bytes(driver.pool.state.jobs[job_id].spec)


def test_a_restart_counts_what_the_store_has() -> None:
    driver = driven()
    driver.submit(argv=LONG, held=True)
    before = queued(driver)
    driver.restart()
    assert queued(driver) == before
    driver.submit(argv=LONG)
    assert refusal(driver) == "over-quota"


def test_a_submission_that_is_sent_again_is_not_refused() -> None:
    driver = driven()
    spec = JobSpec(program=Program(argv=LONG))
    for _ in range(2):
        driver.submit_under("k", spec)
    assert (refusal(driver), driver.answers[-1].repeated) == (None, True)


def test_a_service_counts_as_it_is_after_it_grew() -> None:
    driver = driven()
    job_id = driver.submit(9, service=True)
    before = queued(driver)
    driver.tell(ev.ScaleService(at=driver.now, request="c", job_id=job_id, copies=10))
    assert queued(driver) == before + 1, "its number of copies has one more digit"


def test_guests_count_for_the_pool_that_they_are_from() -> None:
    driver = driven()
    visit(driver, user="eve@home.example", argv=LONG)
    assert queued(driver, "home.example") > 0
    assert queued(driver, "eve@home.example") == 0
    visit(driver, user="bob@home.example", argv=LONG)
    assert refusal(driver) == "over-quota", "another name there makes no more room"
    set_limit(driver, None, "home.example")
    visit(driver, user="bob@home.example", argv=LONG)
    assert refusal(driver) is None


def test_an_admin_sets_another_limit_for_one_user_and_takes_it_back() -> None:
    driver = driven()
    driver.submit(argv=LONG)
    for limit, found in (
        (None, None),
        ("default", "over-quota"),
        (10_000, None),
        (0, "over-quota"),
    ):
        set_limit(driver, limit)  # type: ignore[arg-type]
        driver.restart()
        driver.submit(argv=LONG)
        assert refusal(driver) == found, limit
    set_limit(driver, UNSET, group=None)
    assert driver.pool.sharers.max_queued_bytes("ada") == 0, "it stays as it was"
    assert driver.pool.state.jobs, "a limit ends nothing"
    answer = set_limit(driver, MOST_STORED_SUM_BYTES + 1)
    assert (answer.error, answer.message[:24]) == ("usage", "max_queued_bytes is 0 to")


def test_an_account_of_which_nothing_is_set_has_a_limit_by_default() -> None:
    assert PoolDriver().pool.sharers.max_queued_bytes("ada") == 16 << 20
