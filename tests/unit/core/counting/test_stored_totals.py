"""What is counted of files that workers put into the share."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from poolkit import PoolDriver
from store_samples import STORED

from kestrelctl.core.counting.stored_totals import StoredTotals
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.result import TAIL_BYTES, Outcome, Result

DONE = Result(1, 1, 0, Outcome.DONE, 0.0, 0.0, stored_seconds=2.0)
LONG = TAIL_BYTES + 1


def counted(*results: Result, keep_logs: bool = True) -> StoredTotals:
    found = StoredTotals()
    for result in results:
        found.count(result, keep_logs=keep_logs)
    return found


def test_files_and_bytes_are_those_of_outputs_and_of_logs() -> None:
    small = replace(STORED, size_bytes=5)
    found = counted(
        replace(DONE, output_files=3, outputs=STORED),
        replace(DONE, stdout_bytes=LONG, stdout_stored=small),
        replace(
            DONE, output_files=1, outputs=small, stdout_bytes=LONG, stderr_bytes=LONG,
            stdout_stored=small, stderr_stored=small,
        ),
    )  # fmt: skip
    assert found.files == {"outputs": 4, "logs": 3}
    assert found.bytes == {"outputs": STORED.size_bytes + 5, "logs": 15}
    assert (found.seconds.count, found.seconds.sum) == (3, 6.0)
    assert not any(found.failures.values())


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("outputs-missing: no file is 'a'", "outputs-missing"),
        ("outputs-too-large: 20 GB", "outputs-too-large"),
        ("outputs-failed: the share is away", "outputs-failed"),
        ("time-limit", None),
        ("something new: outputs", None),
    ],
)
def test_failures_are_counted_by_their_first_word(reason: str, word: str | None) -> None:
    found = counted(replace(DONE, reason=reason)).failures
    assert {each for each, times in found.items() if times} == ({word} if word else set())


def test_logs_that_were_wanted_and_are_not_there_have_failed() -> None:
    half = replace(DONE, stdout_bytes=LONG, stderr_bytes=LONG, stdout_stored=STORED)
    assert counted(half).failures["logs-failed"] == 1
    assert counted(half, keep_logs=False).failures["logs-failed"] == 0
    assert counted(replace(half, outcome=Outcome.KILLED)).failures["logs-failed"] == 0
    assert counted(replace(DONE, stdout_bytes=TAIL_BYTES)).failures["logs-failed"] == 0


@pytest.mark.parametrize("pools_word", [True, False])
def test_a_pool_counts_what_it_accepts_of_jobs_that_keep_logs(pools_word: bool) -> None:
    driver = PoolDriver(Config(keep_logs=pools_word))
    driver.join("w1", cpus=4)
    driver.submit(2, keep_logs=not pools_word)
    one, other = driver.held("w1")
    driver.report("w1", one, stdout_bytes=LONG, stdout_stored=STORED, stored_seconds=1.0)
    driver.report("w1", other, outcome=Outcome.FAILED, stderr_bytes=LONG, stored_seconds=1.0)
    stored = driver.pool.totals.stored
    assert stored.files == {"outputs": 0, "logs": 1}
    assert stored.failures["logs-failed"] == 1
    assert stored.seconds.count == 2
