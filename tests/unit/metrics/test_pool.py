"""The manager's page: it says what the pool is, adds up, and its series do not pile up."""

from __future__ import annotations

from pathlib import Path

import pytest
from metricskit import Page, documented, served
from msgspec.structs import replace
from poolkit import PoolDriver
from stepcount import steps

from kestrelctl.core import events as ev
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.job.stage import Stage, StageRun
from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.metrics.exposition import Exposition, written
from kestrelctl.metrics.lag import LoopLag
from kestrelctl.metrics.pool_families import (
    MOST_LACKING,
    MOST_OWNERS,
    MOST_SHARES,
    EnvironmentNumbers,
    ManagerProcessNumbers,
    PoolFamilies,
    leadership_families,
)
from kestrelctl.metrics.stanzas import BOUNCE, StanzaCounts
from kestrelctl.protocol.workers import Heartbeat, Hello, Report, Run
from kestrelctl.store.port import Statistics

DOCUMENT = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()


class Board:
    """The families of a pool driven by hand."""

    def __init__(self, driver: PoolDriver) -> None:
        self.stanzas = StanzaCounts()
        self.store_error = ""
        self.certificate: tuple[str, float] | None = None
        self.environments: dict[str, EnvironmentNumbers] = {}
        self.properties: list[tuple[str, str, PropertySummary]] = []
        self.managers: list[ManagerSeen] = []
        self.commits = Histogram((0.01, 0.1))
        self._driver = driver
        self.families = PoolFamilies(driver.pool, self.stanzas, self._numbers, lambda: driver.now)

    def _numbers(self) -> ManagerProcessNumbers:
        return ManagerProcessNumbers(
            connected=self._driver.pool.state.connected,
            store=Statistics(commits=2, commit_seconds=0.1, records=7, bytes_on_disk=4096),
            store_error=self.store_error,
            commits=self.commits,
            certificate=self.certificate,
            conflicts=3,
            properties=self.properties,
            environments=self.environments,
            managers=self.managers,
        )

    def render(self) -> str:
        return written(self.families()).decode()

    def page(self) -> Page:
        return Page(self.render())


def must_add_up(page: Page) -> None:
    """Every task is counted once, wherever one looks."""
    came = page.value("kestrel_tasks_submitted_total") + page.value("kestrel_tasks_restored")
    there = page.sum("kestrel_tasks")
    assert came == page.sum("kestrel_tasks_finished_total") + there
    waiting = page.value("kestrel_tasks", state="waiting")
    assert page.sum("kestrel_unmatched_tasks") == waiting
    assert page.sum("kestrel_owner_tasks") == there
    assert min(page.by("kestrel_unmatched_tasks", "reason").values()) >= 0
    submitted = page.value("kestrel_jobs_submitted_total")
    ended = page.sum("kestrel_jobs_finished_total")
    assert submitted == ended + page.sum("kestrel_jobs")
    for asset in ("cpus", "memory"):
        used = page.value("kestrel_asset_used", asset=asset)
        free = page.value("kestrel_asset_free", asset=asset)
        assert page.value("kestrel_asset_capacity", asset=asset) == used + free


# -- the document ----------------------------------------------------------------------------------


async def test_the_document_names_what_is_served_and_nothing_else() -> None:
    board = Board(PoolDriver())
    board.managers = [ManagerSeen(host="a", version="1", leads=True)]
    exposition = Exposition("kestrel_", board.families, LoopLag())
    assert documented(DOCUMENT, "Manager") == served(exposition.own())
    assert documented(DOCUMENT, "Every process") == served(exposition.of_any_process())


def test_names_follow_the_conventions() -> None:
    families = list(Board(PoolDriver()).families())
    assert families
    for family in families:
        assert family.name.startswith("kestrel_")
        assert family.documentation.endswith(".")
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))


def test_a_page_has_every_family_even_in_an_empty_pool() -> None:
    board = Board(PoolDriver())
    assert set(board.page().families) == {family.name for family in board.families()}


# -- what it says ----------------------------------------------------------------------------------


def test_shares_are_those_of_who_runs_or_waits() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1@x/a", cpus=4)
    driver.submit(3, owner="ada")
    driver.submit(5, owner="bob", cpus=0.5)
    page = board.page()
    shares = page.by("kestrel_owner_share_ratio", "owner")
    assert set(shares) == {"ada", "bob"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert page.by("kestrel_owner_charged", "owner") == {"ada": 3.0, "bob": 1.0}


def test_shares_of_many_owners_have_a_bounded_number_of_series() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1@x/a", cpus=30)
    driver.submit(5, owner="zoe")
    for n in range(50):
        driver.submit(1, owner=f"user{n}")
    page = board.page()
    shares = page.by("kestrel_owner_share_ratio", "owner")
    charged = page.by("kestrel_owner_charged", "owner")
    assert len(shares) == len(charged) == MOST_SHARES + 1
    assert sum(shares.values()) == pytest.approx(1.0)
    assert sum(charged.values()) == 30.0
    assert charged["zoe"] == 5.0


def test_tasks_are_counted_where_they_are() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1@x/a", cpus=2, memory_bytes=4 << 30, fpga=3)
    driver.submit(5, memory_bytes=1 << 30, fpga=0.5)
    page = board.page()
    assert page.by("kestrel_tasks", "state") == {"waiting": 3, "queued": 0, "running": 2}
    assert page.value("kestrel_owner_tasks", owner="ada", state="waiting") == 3
    assert page.value("kestrel_owner_tasks", owner="ada", state="running") == 2
    assert page.by("kestrel_workers", "state")["busy"] == 1
    assert page.by("kestrel_asset_used", "asset") == {"cpus": 2, "memory": 2 << 30, "fpga": 1}
    assert page.by("kestrel_asset_free", "asset") == {"cpus": 0, "memory": 2 << 30, "fpga": 2}
    offered = {"cpus": 2, "memory": 4 << 30, "fpga": 3}
    assert page.by("kestrel_asset_capacity", "asset") == offered
    assert page.by("kestrel_worker_capacity", "asset") == offered
    assert page.value("kestrel_worker_capacity", worker="w1/a", asset="fpga") == 3
    assert page.value("kestrel_worker_running", worker="w1/a") == 2
    assert page.value("kestrel_last_dispatch_timestamp_seconds") == driver.now
    must_add_up(page)


def test_an_asset_that_nobody_online_has_is_none_and_not_gone() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1@x/a", fpga=3)
    driver.lose("w1@x/a")
    page = board.page()
    for name in ("capacity", "used", "free"):
        assert page.by(f"kestrel_asset_{name}", "asset") == {"cpus": 0, "memory": 0, "fpga": 0}
    assert page.value("kestrel_worker_capacity", worker="w1/a", asset="fpga") == 3


def test_every_end_of_a_task_is_counted_once() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1", cpus=4)
    driver.submit(4, max_losses=1)
    driver.report("w1")
    driver.fail("w1")
    must_add_up(board.page())
    driver.lose("w1")
    driver.submit(3)
    driver.cancel(2)
    page = board.page()
    assert page.by("kestrel_tasks_finished_total", "outcome") == {
        "done": 1, "failed": 1, "lost": 2, "cancelled": 3,
    }  # fmt: skip
    assert page.by("kestrel_jobs_finished_total", "outcome") == {
        "done": 0, "failed": 1, "cancelled": 1,
    }  # fmt: skip
    must_add_up(page)


def test_losses_are_counted_by_cause_and_retries_by_reason() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1", "w2")
    driver.submit(2, max_failures=2)
    driver.fail("w1")
    driver.lose("w2")
    driver.tell(ev.Bounced(at=driver.now, worker="w1"))
    driver.wait(1.5)
    driver.join("w3", "w4")
    driver.join("w3", incarnation="another")
    for _ in range(20):
        driver.wait(1)
    page = board.page()
    assert page.by("kestrel_losses_total", "cause") == {
        "unavailable": 1, "lease": 2, "bounce": 1, "restarted": 1, "away": 0, "unable": 0,
            "revoked": 0,
    }  # fmt: skip
    assert page.by("kestrel_retries_total", "reason") == {
        "failure": 1,
        "loss": 5,
        "memory": 0,
        "refusal": 0,
        "service": 0,
        "checkpoint": 0,
    }
    assert page.value("kestrel_leases_expired_total") == 2
    assert page.value("kestrel_worker_joins_total") == 5
    must_add_up(page)


def test_a_loss_that_proves_wrong_is_counted_as_found_again() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1")
    driver.submit()
    held = driver.held("w1")
    driver.lose("w1")
    driver.join("w1", holds=held)
    page = board.page()
    assert page.sum("kestrel_losses_total") == page.value("kestrel_losses_found_again_total") == 1


def test_a_retry_counts_what_it_brings_back_as_submitted() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1", cpus=3)
    job_id = driver.submit(3)
    driver.fail("w1", *driver.held("w1")[:2])
    driver.finish_all()
    driver.retry(job_id)
    page = board.page()
    assert page.value("kestrel_tasks_submitted_total") == 5
    assert page.value("kestrel_jobs_submitted_total") == 2
    must_add_up(page)


def test_what_a_restart_found_is_counted_apart() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.submit(5)
    driver.report("w1")
    driver.restart()
    page = Board(driver).page()
    assert page.value("kestrel_tasks_restored") == 4
    assert page.value("kestrel_tasks_submitted_total") == 0
    reasons = page.by("kestrel_unmatched_tasks", "reason")
    assert (reasons["recovering"], reasons["no-workers"]) == (1, 3)
    assert page.sum("kestrel_tasks") == 4


def test_while_nobody_knows_what_runs_of_a_job_its_limit_is_not_what_it_waits_for() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    driver.submit(5, max_running=1)
    driver.restart()
    driver.join("w2")
    reasons = Board(driver).page().by("kestrel_unmatched_tasks", "reason")
    assert (reasons["recovering"], reasons["max-running"]) == (5, 0)


def test_times_go_into_their_histograms() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.submit(2)
    driver.wait(30)
    driver.join("w1", cpus=2)
    driver.now += 2.5
    driver.report("w1", *driver.held("w1"), seconds=2.0)
    page = board.page()
    for name, buckets in (
        ("wait", {"15.0": 0, "60.0": 2}),
        ("run", {"1.0": 0, "5.0": 2}),
        ("dispatch", {"0.25": 0, "0.5": 2}),
    ):
        found = page.by(f"kestrel_task_{name}_seconds_bucket", "le")
        assert {bound: found[bound] for bound in buckets} == buckets
        assert found["+Inf"] == page.value(f"kestrel_task_{name}_seconds_count") == 2
    assert page.value("kestrel_task_wait_seconds_sum") == 60
    assert page.value("kestrel_task_run_seconds_sum") == 4


def test_stages_have_their_times_and_failures() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1", cpus=2, tags=("stages",))
    driver.submit(2, stages=(Stage(name="in", argv=("get",)),))
    driver.report("w1", stages=(StageRun("in", 2.0), StageRun("run", 0.25)))
    driver.fail("w1", stages=(StageRun("in", 7.0),), reason="stage in: time-limit")
    page = board.page()
    assert page.by("kestrel_stage_seconds_sum", "stage") == {
        "setup": 0.0, "in": 9.0, "run": 0.25, "out": 0.0,
    }  # fmt: skip
    assert page.by("kestrel_stage_seconds_count", "stage") == {
        "setup": 0, "in": 2, "run": 1, "out": 0,
    }  # fmt: skip
    assert page.by("kestrel_stage_failures_total", "stage") == {
        "setup": 0, "in": 1, "run": 0, "out": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "spec", "ads"),
    [
        ("no-workers", {}, []),
        ("missing-tags", {"requires": ("GPU",)}, [{}]),
        ("missing-asset", {"fpga": 1}, [{}]),
        ("too-small", {"cpus": 8}, [{}]),
        ("requirements", {"requirements": "Cpus > 8"}, [{}]),
        ("undefined", {"requirements": "Rack == 1"}, [{}]),
        ("error", {"requirements": "1 / 0 == 1"}, [{}]),
        ("start", {}, [{"start": "RequestCpus > 8"}]),
        ("busy", {}, [{}]),
        ("max-running", {"max_running": 1}, [{"cpus": 4}]),
    ],
)
def test_waiting_tasks_have_a_reason(
    reason: str, spec: dict[str, object], ads: list[dict[str, object]]
) -> None:
    driver = PoolDriver()
    for number, ad in enumerate(ads):
        driver.join(f"w{number}", **ad)  # type: ignore[arg-type]
    driver.submit(3, **spec)
    page = Board(driver).page()
    waiting = page.value("kestrel_tasks", state="waiting")
    assert waiting > 0
    assert page.value("kestrel_unmatched_tasks", reason=reason) == waiting
    must_add_up(page)


def test_what_the_whole_pool_has_is_counted() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=4)
    board = Board(driver)
    assert not board.page().by("kestrel_tokens", "asset")
    driver.own("matlab", 3)
    driver.own("seats", 7)
    driver.submit(5, matlab=1)
    driver.own("matlab", 2)
    page = board.page()
    assert page.by("kestrel_tokens", "asset") == {"matlab": 2, "seats": 7}
    assert page.by("kestrel_tokens_held", "asset") == {"matlab": 3, "seats": 0}
    assert page.value("kestrel_unmatched_tasks", reason="tokens") == 2
    must_add_up(page)


def test_a_failed_task_waits_for_its_back_off() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.submit(1, max_failures=2)
    driver.fail("w1")
    page = Board(driver).page()
    assert page.value("kestrel_unmatched_tasks", reason="backoff") == 1
    must_add_up(page)


def test_drained_and_quarantined_workers_are_told_apart() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1")
    driver.tell(ev.Drain(at=driver.now, worker="w1", by="root"))
    driver.submit(2)
    assert board.page().value("kestrel_unmatched_tasks", reason="draining") == 2
    driver.tell(ev.Resume(at=driver.now, worker="w1"))
    driver.join("too-small", cpus=0.5)
    driver.report("w1", outcome=Outcome.UNABLE, reason="no-space: /")
    page = board.page()
    assert page.value("kestrel_unmatched_tasks", reason="quarantined") == 2
    assert page.value("kestrel_quarantines_total", cause="unable") == 1
    assert page.by("kestrel_losses_total", "cause")["unable"] == 1


def test_what_a_lost_worker_may_bring_back_counts_as_running() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1")
    driver.submit(2, on_worker_lost=OnWorkerLost.WAIT)
    driver.lose("w1")
    page = board.page()
    assert page.by("kestrel_tasks", "state") == {"waiting": 1, "queued": 0, "running": 1}
    must_add_up(page)
    driver.wait(601)
    page = board.page()
    assert page.by("kestrel_losses_total", "cause")["away"] == 1
    must_add_up(page)


def test_counters_never_go_down() -> None:
    driver = PoolDriver()
    board = Board(driver)
    before = board.page().counters

    def step() -> None:
        nonlocal before
        page = board.page()
        must_add_up(page)
        after = page.counters
        assert {key: (before[key], after[key]) for key in before if after[key] < before[key]} == {}
        before = after

    driver.join("w1", "w2", "w3", cpus=4)
    first = driver.submit(60, max_failures=2)
    second = driver.submit(40, owner="grace", max_losses=2)
    for round_number in range(12):
        driver.now += 0.5
        for name in ("w1", "w2", "w3"):
            held = driver.held(name)
            driver.fail(name, *held[:1])
            driver.report(name, *held[1:3], seconds=0.05)
            driver.report(name, *held[1:2])
            step()
        lost = f"w{round_number % 3 + 1}"
        held = driver.held(lost)
        driver.lose(lost)
        step()
        driver.join(lost, cpus=4, holds=held if round_number % 2 else ())
        step()
        driver.wait(3)
        step()
    driver.cancel(second)
    step()
    driver.finish_all()
    driver.wait(100)
    driver.finish_all()
    driver.retry(first)
    step()
    driver.finish_all()
    step()
    assert board.page().sum("kestrel_tasks") == 0


# -- series ----------------------------------------------------------------------------------------


def test_the_series_of_a_worker_go_when_it_is_forgotten() -> None:
    driver = PoolDriver()
    board = Board(driver)
    driver.join("w1@x/a", "w2@x/a")
    driver.lose("w1@x/a")
    page = board.page()
    assert page.by("kestrel_worker_up", "worker") == {"w1/a": 0, "w2/a": 1}
    driver.live(driver.pool.state.config.forget_worker_seconds + 10, step=3)
    page = board.page()
    for name in ("up", "running", "capacity"):
        assert set(page.by(f"kestrel_worker_{name}", "worker")) == {"w2/a"}


def test_two_workers_never_share_a_series() -> None:
    driver = PoolDriver()
    driver.join("w1@x/a", "w1@y/a", "w1@x/b", "w2")
    labels = Board(driver).page().by("kestrel_worker_up", "worker")
    assert set(labels) == {"w1/a", "w1@y/a", "w1/b", "w2"}


def test_owners_beyond_the_first_are_one_series() -> None:
    driver = PoolDriver()
    for number in range(MOST_OWNERS + 10):
        driver.submit(1 + number, owner=f"user{number}")
    page = Board(driver).page()
    waiting = {
        dict(labels)["owner"]: value
        for (name, labels), value in page.samples.items()
        if name == "kestrel_owner_tasks" and ("state", "waiting") in labels
    }
    assert len(waiting) == MOST_OWNERS + 1
    assert waiting["other"] == sum(range(1, 11))
    must_add_up(page)


def test_unmet_demand_is_told_by_shape_and_saturated_workers_by_class() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", cpus=2)
    driver.submit(7)
    driver.submit(1, cpus=3)
    page = Board(driver).page()
    assert page.by("kestrel_unmet_tasks", "shape") == {"1 cpu": 3, "3 cpus": 1}
    assert page.value("kestrel_saturated_workers", worker_class="2 cpus", asset="cpus") == 2


def test_shapes_beyond_the_first_are_one_series() -> None:
    driver = PoolDriver()
    for number in range(MOST_LACKING + 5):
        driver.submit(100 - number, cpus=1 + number)
    unmet = Board(driver).page().by("kestrel_unmet_tasks", "shape")
    assert len(unmet) == MOST_LACKING + 1
    assert unmet["other"] == sum(100 - MOST_LACKING - each for each in range(5))


def test_shapes_that_differ_in_tags_of_nobody_are_one_series() -> None:
    driver = PoolDriver()
    driver.submit(2, requires=("a",))
    driver.submit(3, requires=("b",))
    unmet = Board(driver).page().by("kestrel_unmet_tasks", "shape")
    assert unmet == {"1 cpu, tags that no worker has": 5}


def test_a_name_cannot_break_the_page() -> None:
    driver = PoolDriver()
    driver.join('w"1\\@x/a\nb')
    assert Board(driver).page().by("kestrel_worker_up", "worker") == {'w"1\\/a\nb': 1}


# -- around the core -------------------------------------------------------------------------------


def test_messages_are_counted_by_kind() -> None:
    board = Board(PoolDriver())
    board.stanzas.received(Hello, 300)
    board.stanzas.received(Heartbeat, 15)
    board.stanzas.received(Heartbeat, 15)
    board.stanzas.received(Report, 1000)
    board.stanzas.received(BOUNCE)
    board.stanzas.sent(Run, 500)
    page = board.page()
    assert page.value("kestrel_stanzas_total", kind="heartbeat", direction="in") == 2
    assert page.value("kestrel_stanza_bytes_total", kind="run", direction="out") == 500
    assert page.value("kestrel_stanzas_total", kind="bounce", direction="in") == 1
    assert page.by("kestrel_ads_total", "kind") == {"full": 1, "heartbeat": 2}
    assert page.by("kestrel_ad_bytes_total", "kind") == {"full": 300, "heartbeat": 30}


def test_the_surroundings_are_told() -> None:
    driver = PoolDriver()
    board = Board(driver)
    board.commits.observe(0.05)
    page = board.page()
    assert page.value("kestrel_commit_seconds_bucket", le="0.1") == 1
    assert page.value("kestrel_commit_records_total") == 7
    assert page.value("kestrel_store_bytes") == 4096
    assert page.value("kestrel_store_error") == 0
    assert page.value("kestrel_server_connected") == 1
    assert page.value("kestrel_server_conflicts_total") == 3
    assert not page.by("kestrel_certificate_expiry_timestamp_seconds", "host")
    board.store_error = "full"
    board.certificate = ("xmpp.example.org", 2e9)
    driver.tell(ev.Disconnected(at=driver.now))
    page = board.page()
    assert page.value("kestrel_store_error") == 1
    assert page.value("kestrel_server_connected") == 0
    expiry = page.by("kestrel_certificate_expiry_timestamp_seconds", "host")
    assert expiry == {"xmpp.example.org": 2e9}


def test_the_worst_clock_is_told() -> None:
    driver = PoolDriver()
    for name, off in (("w1", 0.01), ("w2", -40.0), ("w3", 3.0)):
        driver.tell(
            ev.Joined(
                at=driver.now,
                worker=name,
                incarnation="one",
                said_at=driver.now + off,
                ad=WorkerAd(),
                holds=[],
            )
        )
    board = Board(driver)
    assert board.page().value("kestrel_worker_clock_skew_seconds_max") == 40.0
    driver.lose("w2")
    assert board.page().value("kestrel_worker_clock_skew_seconds_max") == 3.0


# -- what it costs ---------------------------------------------------------------------------------


def busy_board(workers: int) -> Board:
    """Of a pool whose workers all run what they can, with twenty jobs."""
    driver = PoolDriver()
    state = driver.pool.state
    for number in range(workers):
        jid = f"w{number}@workers.example.org/machine-{number}"
        driver.pool.handle(
            ev.Joined(
                at=driver.now,
                worker=jid,
                incarnation="one",
                ad=WorkerAd(assets={"cpus": 4, "memory": 8 << 30}),
                holds=[],
            )
        )
        driver.pool.handle(ev.WorkerStored(at=driver.now, worker=jid))
    for number in range(20):
        driver.pool.handle(
            ev.Submit(at=driver.now, request="r", owner=f"u{number}", spec=_spec(number))
        )
    for job_id in list(state.jobs):
        driver.pool.handle(ev.JobStored(at=driver.now, job_id=job_id))
    driver.pool.schedule(driver.now)
    return Board(driver)


def test_a_page_tells_of_every_worker_for_few_steps_each() -> None:
    """What this comes to in milliseconds is measured by tests/bench/scrape.py."""
    few, many = busy_board(50), busy_board(250)
    page = many.render()
    assert page.count("kestrel_worker_up{") == 250
    assert Page(page).value("kestrel_tasks", state="running") == 1000
    for_each = (steps(many.render) - steps(few.render)) / 200
    assert for_each < 60


def _spec(number: int) -> ev.JobSpec:
    return ev.JobSpec(program=Program(argv=("true",)), count=1000, priority=number)


def test_properties_that_were_chosen_are_shown_for_all_and_for_each_group() -> None:
    board = Board(PoolDriver())
    assert "kestrel_property{" not in board.render()
    board.properties = [
        ("load", "", PropertySummary(2, 1, 0.5, 1.0, 1.5)),
        ("site", "gpu", PropertySummary(3, 0)),
    ]
    page = board.page()
    assert page.value("kestrel_property_workers", property="load", group="", state="told") == 2
    assert page.value("kestrel_property_workers", property="load", group="", state="missing") == 1
    assert page.value("kestrel_property_workers", property="site", group="gpu", state="told") == 3
    assert page.by("kestrel_property", "statistic") == {"min": 0.5, "mean": 1.0, "max": 1.5}


def test_environments_are_counted_by_class() -> None:
    board = Board(PoolDriver())
    assert "kestrel_environments{" not in board.render()
    board.environments = {
        "venv": EnvironmentNumbers(
            phases={"starting": 1, "ready": 2, "stopping": 0},
            waiting=7,
            failing_hosts=1,
            started=9,
            failed=3,
        )
    }
    page = board.page()
    assert page.by("kestrel_environments", "phase") == {"starting": 1, "ready": 2, "stopping": 0}
    assert page.value("kestrel_environment_waiting_tasks", **{"class": "venv"}) == 7
    assert page.value("kestrel_environment_failing_hosts", **{"class": "venv"}) == 1
    assert page.value("kestrel_environments_started_total", **{"class": "venv"}) == 9
    assert page.value("kestrel_environment_failed_starts_total", **{"class": "venv"}) == 3


def test_the_managers_that_could_take_over_are_counted() -> None:
    """One that could not is none of them, and a pool that can have one manager counts none."""
    driver = PoolDriver()
    board = Board(driver)
    assert "kestrel_leads" not in board.render()
    leads = ManagerSeen(host="a", version="1", leads=True)
    ready = ManagerSeen(host="b", version="1", leads=False)
    board.managers = [leads, ready, replace(ready, problem="it is asleep")]
    page = board.page()
    assert (page.value("kestrel_leads"), page.value("kestrel_managers_standing_by")) == (1, 1)
    board.managers = [leads]
    assert board.page().value("kestrel_managers_standing_by") == 0
    alone = Page(written(leadership_families((), leads=False)).decode())
    assert alone.value("kestrel_leads") == 0
