"""How much the tasks of a user may have in the file share: who has it all begins nothing more that
stores something, until the share has deleted some of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from poolkit import Attempt, PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.stored_bytes import HOUR_SECONDS, StoredBytes
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.files.byte_limit import MOST_STORED_SUM_BYTES
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.records import StoredRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.share_change import ShareChange

KEPT_SECONDS = 2 * 86_400.0
CONFIG = Config(max_stored_bytes=100, files_kept_seconds=KEPT_SECONDS)
OUTPUTS: dict[str, Any] = {"outputs": ("*.csv",)}
STORING = [
    pytest.param(OUTPUTS, id="outputs"),
    pytest.param({"keep_logs": True}, id="logs"),
    pytest.param({"checkpoints": ("state",)}, id="checkpoints"),
]


def file_of(size_bytes: int) -> StoredFile:
    pieces = (Piece(sha256="0" * 64, size_bytes=size_bytes, url="https://share/1"),)
    return StoredFile(sha256="0" * 64, size_bytes=size_bytes, pieces=pieces)


def driven(config: Config = CONFIG) -> PoolDriver:
    """A pool with a worker for four tasks."""
    driver = PoolDriver(config)
    come(driver, "one")
    return driver


def come(driver: PoolDriver, incarnation: str) -> None:
    driver.join("w", cpus=4, tags=("outputs", "checkpoints"), incarnation=incarnation)


def store(driver: PoolDriver, size_bytes: int, owner: str = "ada", *held: Attempt) -> None:
    """A task of the user leaves a file of so many bytes."""
    if not held:
        driver.submit(1, owner=owner, **OUTPUTS)
        held = (driver.held("w")[-1],)
    driver.report("w", *held, outputs=file_of(size_bytes), output_files=1, stored_seconds=0.5)


def limit(driver: PoolDriver, size_bytes: Any, name: str = "ada") -> fx.Answer:
    driver.tell(
        ev.SetUser(
            at=driver.now,
            cause="root",
            request="s",
            name=name,
            change=ShareChange(),
            max_stored_bytes=size_bytes,
        )
    )
    return driver.answers[-1]


def stored(driver: PoolDriver, owner: str = "ada") -> int:
    return driver.pool.sharers.of(owner).stored.total_bytes


def rejoin(driver: PoolDriver) -> None:
    """The manager dies; another one comes, and the idle worker to it."""
    driver.restart()
    come(driver, "again")


@pytest.mark.parametrize("storing", STORING)
def test_who_has_stored_all_that_he_may_begins_nothing_that_stores(storing: dict[str, Any]) -> None:
    driver = driven()
    store(driver, 99)
    first = driver.submit(1, **storing)
    assert driver.jobs_at("w") == [first]
    store(driver, 1)
    driver.submit(1, **storing)
    assert driver.jobs_at("w") == [first]


def test_what_stores_nothing_goes_on_and_so_does_everybody_else() -> None:
    driver = driven()
    store(driver, 100)
    plain = driver.submit(1)
    his = driver.submit(1, owner="bob", **OUTPUTS)
    assert driver.jobs_at("w") == [plain, his]


def test_what_the_pool_keeps_of_all_tasks_counts_as_their_own() -> None:
    driver = driven(Config(max_stored_bytes=100, keep_logs=True))
    store(driver, 100)
    driver.submit(1)
    assert driver.jobs_at("w") == []


def test_what_runs_goes_on_and_its_results_are_taken() -> None:
    driver = driven()
    job_id = driver.submit(6, **OUTPUTS)
    held = driver.held("w")
    assert len(held) == 4
    store(driver, 100, "ada", held[0])
    assert driver.held("w") == held[1:]
    for attempt in held[1:]:
        store(driver, 100, "ada", attempt)
    assert driver.pool.jobs
    assert driver.pool.job(job_id).counts.done == 4  # type: ignore[union-attr]
    assert stored(driver) == 400
    assert driver.held("w") == []


def test_archives_and_logs_of_failed_attempts_count_as_well() -> None:
    driver = driven()
    driver.submit(1, **OUTPUTS)
    files = {"outputs": file_of(1), "stdout_stored": file_of(20), "stderr_stored": file_of(300)}
    driver.fail("w", stored_seconds=0.5, **files)
    assert stored(driver) == 321


def test_kept_checkpoints_count_and_others_do_not() -> None:
    driver = driven()
    driver.submit(1, checkpoints=("state",), checkpoint_exit=85)
    [attempt] = driver.held("w")
    for n in (2, 1):
        made = MadeCheckpoint(n, file_of(40))
        event = ev.Checkpointed(at=driver.now, worker="w", number=attempt[0], made=made)
        driver.tell(event)
    assert stored(driver) == 40
    made = MadeCheckpoint(3, file_of(50))
    driver.report("w", attempt, outcome=Outcome.GOES_ON, seconds=90.0, checkpoint=made)
    assert stored(driver) == 90


def test_an_hour_counts_until_the_share_has_deleted_its_last_file() -> None:
    driver = driven()
    store(driver, 60)
    driver.wait(HOUR_SECONDS)
    store(driver, 40)
    job_id = driver.submit(1, **OUTPUTS)
    end = HOUR_SECONDS + KEPT_SECONDS
    assert driver.pool.wake_at(driver.now) is not None
    driver.tell(ev.Heard(at=driver.now, worker="w"))
    driver.now = end - 1.0
    come(driver, "two")
    assert (stored(driver), driver.jobs_at("w")) == (100, [])
    driver.wait(1.0)
    assert (stored(driver), driver.jobs_at("w")) == (40, [job_id])
    assert StoredRecord("ada", 0, 0) in driver.records


def test_it_is_looked_at_again_when_the_oldest_hour_ends() -> None:
    driver = driven()
    driver.submit(1, **OUTPUTS)
    store(driver, 100, "ada", *driver.held("w"))
    driver.lose("w")
    driver.wait(CONFIG.forget_worker_seconds + 1.0)
    driver.submit(1, **OUTPUTS)
    assert driver.pool.wake_at(driver.now) == HOUR_SECONDS + KEPT_SECONDS
    driver.wait(KEPT_SECONDS)
    assert driver.pool.wake_at(driver.now) is None


@pytest.mark.parametrize("to", [101, None])
def test_a_limit_that_is_raised_or_removed_lets_his_jobs_go(to: int | None) -> None:
    driver = driven()
    store(driver, 100)
    job_id = driver.submit(1, **OUTPUTS)
    assert limit(driver, to).error is None
    assert driver.jobs_at("w") == [job_id]


def test_a_limit_may_be_nothing_and_may_be_that_of_all_again() -> None:
    driver = driven()
    limit(driver, 0)
    job_id = driver.submit(1, **OUTPUTS)
    assert driver.jobs_at("w") == []
    limit(driver, "default")
    assert driver.jobs_at("w") == [job_id]
    store(driver, 100, "ada", *driver.held("w"))
    driver.submit(1, **OUTPUTS)
    assert driver.jobs_at("w") == []


def test_without_a_limit_what_is_stored_is_only_counted() -> None:
    driver = driven(Config())
    store(driver, 1 << 40)
    job_id = driver.submit(1, **OUTPUTS)
    assert driver.jobs_at("w") == [job_id]
    assert stored(driver) == 1 << 40


@pytest.mark.parametrize("nonsense", [-1, MOST_STORED_SUM_BYTES + 1])
def test_a_limit_that_cannot_be_is_refused(nonsense: int) -> None:
    driver = driven()
    answer = limit(driver, nonsense)
    assert (answer.error, answer.message[:17]) == ("usage", "max_stored is 0 t")
    assert driver.pool.sharers.of("ada").stored.limit_bytes == 100


def test_no_sum_is_more_than_a_store_can_hold() -> None:
    sums = StoredBytes(KEPT_SECONDS)
    assert sums.add(0.0, MOST_STORED_SUM_BYTES - 1) == MOST_STORED_SUM_BYTES - 1
    assert sums.add(1.0, 1 << 48) == MOST_STORED_SUM_BYTES
    assert sums.total_bytes == MOST_STORED_SUM_BYTES


def test_what_is_stored_and_what_is_set_outlast_a_restart() -> None:
    driver = driven()
    store(driver, 60)
    driver.wait(HOUR_SECONDS)
    come(driver, "two")
    store(driver, 40)
    store(driver, 7, "bob")
    limit(driver, None, "bob")
    rejoin(driver)
    assert (stored(driver), stored(driver, "bob")) == (100, 7)
    job_id = driver.submit(1, **OUTPUTS)
    his = driver.submit(1, owner="bob", **OUTPUTS)
    assert driver.jobs_at("w") == [his]
    driver.report("w")
    rejoin(driver)
    assert driver.jobs_at("w") == []
    driver.now = HOUR_SECONDS + KEPT_SECONDS - 1.0
    come(driver, "three")
    driver.wait(1.0)
    assert driver.jobs_at("w") == [job_id]
    driver.restart()
    assert stored(driver) == 40


def test_it_is_written_in_the_commit_of_the_result() -> None:
    driver = driven()
    driver.submit(1, **OUTPUTS)
    store(driver, 60, "ada", *driver.held("w"))
    [first, *_] = driver.of(fx.Persist)
    assert StoredRecord("ada", 0, 60) in first.records


def test_explain_says_how_much_it_is_and_when_less_of_it_counts() -> None:
    config = Config(max_stored_bytes=3 << 20, files_kept_seconds=KEPT_SECONDS)
    driver = driven(config)
    store(driver, 4 << 20)
    job_id = driver.submit(1, **OUTPUTS)
    job = driver.pool.job(job_id)
    assert job is not None
    [why] = driver.pool.explain(job, driver.now).job_reasons
    assert why.reason is Reason.MAX_STORED
    assert why.wanted == "less than 3 MiB"
    assert why.found == "4 MiB stored, less in 48.7 h"
    census = driver.pool.census(driver.now)
    assert census.waiting[Reason.MAX_STORED] == 1


def test_a_job_that_waited_for_that_has_not_starved() -> None:
    driver = driven()
    store(driver, 100)
    job_id = driver.submit(1, cpus=5, **OUTPUTS)
    driver.live(CONFIG.starving_seconds + 5)
    limit(driver, None)
    job = driver.pool.job(job_id)
    assert job is not None
    assert job.waits_since == driver.now
