"""The memory that workers take: a pool may have fifty thousand sessions of them."""

from __future__ import annotations

import tracemalloc

from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool


def test_sessions_of_an_account_keep_one_copy_of_what_they_say_of_their_machine() -> None:
    driver = PoolDriver()
    for session in ("w@h/1", "w@h/2", "other@h/1"):
        driver.join(session, host="lab7")
    driver.join("w@h/3", host="lab8")
    ads = {name: driver.worker(name).ad for name in ("w@h/1", "w@h/2", "w@h/3", "other@h/1")}
    assert ads["w@h/2"] is ads["w@h/1"]
    assert ads["w@h/3"].host == "lab8"
    assert ads["other@h/1"] is not ads["w@h/1"], "who says the same elsewhere may change by himself"


def test_a_worker_where_nothing_waits_any_more_has_no_line() -> None:
    driver = PoolDriver()
    driver.join("w")
    assert driver.worker("w").backlog is None
    driver.submit(200)
    for _ in range(3):
        driver.report("w", seconds=0.01)
    assert driver.worker("w").backlog, "some wait there"
    while driver.pool.state.jobs:
        driver.report("w", seconds=0.01)
    assert driver.worker("w").backlog is None


def test_an_idle_session_takes_two_kilobytes_of_the_core() -> None:
    pool = Pool(Snapshot(epoch=1, secret=bytes(32), next_job_id=1, jobs=[], workers=[]))

    def join(machine: int, session: int) -> None:
        pool.handle(
            ev.Joined(
                at=1000.0,
                worker=f"w{machine}@h/{session}",
                incarnation="one",
                ad=WorkerAd(assets={"cpus": 1.0}, host=f"lab{machine}", os="Linux", arch="x86_64"),
                holds=[],
            )
        )

    for machine in range(20):
        join(machine, 0)
    tracemalloc.start()
    try:
        for machine in range(20):
            for session in range(1, 100):
                join(machine, session)
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes / (20 * 99) < 2_000
