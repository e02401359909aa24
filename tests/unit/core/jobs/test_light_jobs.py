"""The core holds the texts of a job until the store has them, and counts them all the time."""

from __future__ import annotations

from jobkit import job_spec
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.light_spec import lightened
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.pool import Pool

WORDS = ("word",) * 1_000
ITEMS = tuple(f"item {n}" for n in range(300))
WHOLE = job_spec(argv=("run", "{}", *WORDS), items=ITEMS, count=300, request={"cpus": 1.0})


def test_a_job_is_light_as_soon_as_it_is_stored_and_not_before() -> None:
    pool = Pool(PoolDriver().store().open(), Config())
    effects = pool.handle(ev.Submit(at=1.0, request="r", owner="ada", spec=WHOLE))
    [job] = pool.jobs
    assert job.spec == WHOLE
    [record] = [each for e in effects if isinstance(e, fx.Persist) for each in e.records]
    assert isinstance(record, JobRecord)
    assert record.spec == WHOLE
    pool.handle(ev.JobStored(at=1.0, job_id=1))
    assert job.spec == lightened(WHOLE)
    assert (job.has_items, job.is_long) == (True, True)


def test_a_light_job_counts_as_it_was_submitted() -> None:
    driver = PoolDriver()
    driver.submit(300, argv=WHOLE.program.argv, items=ITEMS)
    counted = driver.pool.state.queued_bytes.of("ada")
    assert counted == encoded_bytes(WHOLE)
    driver.restart()
    assert driver.pool.state.queued_bytes.of("ada") == counted


def test_a_hand_out_says_which_programs_it_lacks_where_it_brings_a_template() -> None:
    driver = PoolDriver()
    driver.submit(3, argv=("run", *WORDS))
    driver.join("w", cpus=1)
    [run] = driver.of(fx.Run)
    assert run.programs_of == {1}
    driver.report("w")
    [run] = driver.of(fx.Run)
    assert (run.templates, run.programs_of) == ([], set())


def test_a_task_that_asks_for_more_memory_keeps_its_item() -> None:
    driver = PoolDriver()
    driver.submit(1, items=("a",), memory_bytes=1 << 30, retry_memory_bytes=(2 << 30,))
    driver.join("w", memory_bytes=4 << 30)
    driver.fail("w", reason="memory-limit: killed by the kernel", signal=9)
    [run] = driver.of(fx.Run)
    assert run.items_of == {1}


def test_a_service_that_grows_counts_its_whole_program() -> None:
    driver = PoolDriver()
    driver.submit(2, argv=("run", *WORDS), service=True)
    driver.tell(ev.ScaleService(at=driver.now, request="s", job_id=1, copies=30))
    spec = job_spec(argv=("run", *WORDS), service=True, count=30, request={"cpus": 1.0})
    assert driver.pool.state.queued_bytes.of("ada") == encoded_bytes(spec)
    stored = driver.store().job(1)
    assert stored is not None
    assert stored.spec == spec
