"""What metrics are made of: histograms, clocks, and a worker process's page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metricskit import Page, documented, served

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.counting.stored_totals import StoredTotals
from kestrelctl.core.members.skew import WINDOW_SECONDS, Skew
from kestrelctl.errors import UsageError
from kestrelctl.metrics.endpoint import Endpoint, parse_address
from kestrelctl.metrics.exposition import Exposition
from kestrelctl.metrics.lag import LoopLag
from kestrelctl.metrics.readers import Readers
from kestrelctl.metrics.stanzas import StanzaCounts
from kestrelctl.metrics.worker_families import InputNumbers, WorkerFamilies, WorkerProcessNumbers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol import workers
from kestrelctl.xmpp.xmpp_session import XmppSession

DOCUMENT = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
BOUNDS = (0.1, 1.0, 10.0)
values = st.lists(st.floats(0, 100) | st.sampled_from(BOUNDS))


@given(values)
def test_a_histogram_counts_what_lies_at_or_below_each_bound(found: list[float]) -> None:
    one_by_one, together = Histogram(BOUNDS), Histogram(BOUNDS)
    for value in found:
        one_by_one.observe(value)
    together.observe_all(found)
    assert one_by_one.counts == together.counts
    for number, bound in enumerate(BOUNDS):
        assert sum(together.counts[: number + 1]) == sum(value <= bound for value in found)
    assert together.count == len(found)
    assert together.sum == pytest.approx(sum(found))
    assert one_by_one.sum == pytest.approx(sum(found))


def test_equal_values_can_be_counted_at_once() -> None:
    found = Histogram(BOUNDS)
    found.observe(0.5, 4)
    assert (found.counts, found.sum) == ([0, 4, 0, 0], 2.0)


def test_a_sum_never_goes_down() -> None:
    found = Histogram(BOUNDS)
    found.observe(-0.001)
    found.observe_all([-0.001, -0.001])
    assert (found.count, found.sum) == (3, 0.0)


# -- the event loop --------------------------------------------------------------------------------


class SlowLoop:
    """An event loop whose time is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timer = MagicMock()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, probe: Callable[[], None]) -> MagicMock:
        return self.call_at(self.now + seconds, probe)

    def call_at(self, moment: float, probe: Callable[[], None]) -> MagicMock:
        self.timer = MagicMock(call=probe, **{"when.return_value": moment})
        return self.timer

    def run_timer(self, late_seconds: float) -> None:
        self.now = self.timer.when() + late_seconds
        self.timer.call()


def test_a_loop_is_as_late_as_its_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = SlowLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    lag = LoopLag()
    lag.start()
    for late_seconds in (0.0, 0.5, 0.125):
        loop.run_timer(late_seconds)
    assert (lag.seconds.count, lag.seconds.sum, lag.max_seconds) == (3, 0.625, 0.5)


def test_the_largest_lag_is_forgotten_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = SlowLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    lag = LoopLag()
    lag.start()
    loop.run_timer(0.5)
    while loop.now < 29:
        loop.run_timer(0.125)
    assert lag.max_seconds == 0.5
    while loop.now < 61:
        loop.run_timer(0.125)
    assert lag.max_seconds == 0.125


# -- clocks ----------------------------------------------------------------------------------------


def test_nothing_is_known_of_a_clock_before_it_is_heard_of() -> None:
    assert Skew().seconds is None


def test_a_report_from_the_future_proves_a_clock_ahead() -> None:
    skew = Skew()
    skew.greet(1000.0, 1000.01)
    skew.learn(1100.0, 1050.0)
    assert skew.seconds == 50.0


def test_a_report_that_took_long_proves_nothing() -> None:
    skew = Skew()
    skew.greet(1000.0, 1000.01)
    skew.learn(1000.0, 1000.0 + 3 * WINDOW_SECONDS)
    skew.learn(1000.0, 1000.0 + 6 * WINDOW_SECONDS)
    assert skew.seconds == pytest.approx(-0.01)


def test_a_clock_that_is_behind_from_the_start_is_known() -> None:
    skew = Skew()
    skew.greet(900.0, 1000.0)
    skew.learn(910.0, 1010.2)
    assert skew.seconds == -100.0


def test_a_clock_that_was_put_right_is_believed_again() -> None:
    skew = Skew()
    skew.greet(5000.0, 1000.0)
    for minute in range(1, 20):
        skew.learn(1000.0 + 60 * minute, 1000.1 + 60 * minute)
    assert skew.seconds == pytest.approx(0.0, abs=0.2)


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9437", ("127.0.0.1", 9437)),
        ("[::1]:9437", ("::1", 9437)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["9437", ":9437", "localhost", "::1:9437", "[::1]", "localhost:x", "h:70000", "h:-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_a_port_that_is_too_high_is_told_with_its_address_and_the_highest() -> None:
    with pytest.raises(UsageError) as caught:
        parse_address("[::1]:70000")
    assert caught.value.message == "[::1]:70000 is no address"
    assert caught.value.cause == "the highest port is 65535"


# -- readers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_this_machine_reads_its_own_metrics(peer: str) -> None:
    assert Readers().admit(peer)


@pytest.mark.parametrize(
    ("peer", "admitted"),
    [
        ("192.0.2.31", True),
        ("::ffff:192.0.2.31", True),
        ("192.0.2.32", False),
        ("198.51.100.200", True),
        ("198.51.101.1", False),
        ("2001:db8::31", True),
        ("2001:db8::32", False),
        ("fe80::7%eth0", True),
        ("fe80::8%eth0", False),
    ],
)
def test_others_read_metrics_if_they_are_named(peer: str, admitted: bool) -> None:
    named = ["192.0.2.31", "198.51.100.0/24", "2001:db8::31", "fe80::7"]
    assert Readers(named).admit(peer) is admitted
    assert not Readers().admit(peer)


@pytest.mark.parametrize("text", ["mon.example.org", "192.0.2.31/24", "", "192.0.2.31:9090", "*"])
def test_only_addresses_and_networks_can_be_named(text: str) -> None:
    with pytest.raises(UsageError, match="no address and no network"):
        Readers([text])


@pytest.mark.parametrize(("peer", "status"), [("127.0.0.1", 200), ("192.0.2.99", 403)])
async def test_a_stranger_gets_no_page(peer: str, status: int) -> None:
    endpoint = Endpoint(lambda: b"x 1\n", lambda: "", Readers(["192.0.2.31"]))
    reader = asyncio.StreamReader()
    reader.feed_data(b"GET /metrics HTTP/1.1\r\n\r\n")
    answer = await endpoint.answer(reader, peer)
    assert int(answer.split()[1]) == status
    assert (b"x 1" in answer) is (status == 200)


# -- messages --------------------------------------------------------------------------------------


def test_messages_of_one_name_are_one_series() -> None:
    counts = StanzaCounts()
    counts.received(rq.ListWorkers, 10)
    counts.received("workers", 5)
    counts.sent(workers.Run, 7)
    seen = [entry for entry in counts.counted() if entry[2]]
    assert seen == [("workers", "in", 2, 15), ("run", "out", 1, 7)]


def test_what_is_rare_is_there_before_it_happens() -> None:
    kinds = [kind for kind, _, n, _ in StanzaCounts().counted() if n == 0]
    assert kinds == ["bounce", "busy", "forbidden", "unreadable", "dropped"]


# -- certificates ----------------------------------------------------------------------------------


def test_a_session_knows_when_the_certificate_of_its_server_ends() -> None:
    session = XmppSession(MagicMock(), MagicMock(), "xmpp.example.org", 5222, ca_file=None)
    session._stream = stream = MagicMock()
    stream.transport.get_extra_info.side_effect = {
        "peercert": {"notAfter": "Jan  5 09:34:43 2030 GMT"}
    }.get
    assert session.certificate() == ("xmpp.example.org", 1893836083.0)


@pytest.mark.parametrize("certificate", [None, {}])
def test_without_tls_there_is_no_certificate(certificate: dict[str, str] | None) -> None:
    session = XmppSession(MagicMock(), MagicMock(), "xmpp.example.org", 5222, ca_file=None)
    assert session.certificate() is None
    session._stream = stream = MagicMock()
    stream.transport.get_extra_info.return_value = certificate
    assert session.certificate() is None
    stream.transport = None
    assert session.certificate() is None


# -- a worker process ------------------------------------------------------------------------------


def numbers() -> WorkerProcessNumbers:
    stanzas = StanzaCounts()
    stanzas.sent(workers.Report, 120)
    runs = Histogram(BOUNDS)
    runs.observe_all([0.05, 5.0])
    return WorkerProcessNumbers(
        sessions=3,
        welcomed=2,
        running=4,
        queued=5,
        finished={"done": 1, "failed": 1, "killed": 0, "unable": 0},
        unreported=6,
        spool_bytes=4096,
        spool_degraded=True,
        reconnects=1,
        assets={"cpus": 3.0, "memory": 3 << 30, "fpga": 1.0},
        runs=runs,
        spawns=Histogram(BOUNDS),
        stanzas=stanzas,
        stored=StoredTotals(),
        inputs=InputNumbers(
            uses={"hit": 996, "miss": 4}, fetched_bytes=4096, cache_bytes=1024, limit_bytes=8192
        ),
    )


async def test_the_document_names_what_a_worker_process_serves_and_nothing_else() -> None:
    exposition = Exposition("kestrel_worker_", WorkerFamilies(numbers), LoopLag())
    assert documented(DOCUMENT, "Worker process") == served(exposition.own())


async def test_a_worker_process_tells_of_the_inputs_of_tasks_if_they_have_some() -> None:
    page = Page(Exposition("kestrel_worker_", WorkerFamilies(numbers), LoopLag()).render().decode())
    assert page.by("kestrel_worker_inputs_total", "cache") == {"hit": 996.0, "miss": 4.0}
    assert page.value("kestrel_worker_input_fetched_bytes_total") == 4096.0
    assert page.value("kestrel_worker_input_cache_bytes") == 1024.0
    assert page.value("kestrel_worker_input_cache_limit_bytes") == 8192.0
    without = msgspec.structs.replace(numbers(), inputs=None)
    families = [family.name for family in WorkerFamilies(lambda: without)()]
    assert not [name for name in families if "input" in name]


async def test_a_worker_process_tells_of_all_its_sessions() -> None:
    exposition = Exposition("kestrel_worker_", WorkerFamilies(numbers), LoopLag())
    exposition.render()
    page = Page(exposition.render().decode())
    assert page.by("kestrel_worker_sessions", "state") == {"online": 2, "offline": 1}
    assert page.by("kestrel_worker_offered", "asset") == {"cpus": 3, "memory": 3 << 30, "fpga": 1}
    assert page.value("kestrel_worker_tasks_running") == 4
    assert page.value("kestrel_worker_tasks_queued") == 5
    assert page.by("kestrel_worker_tasks_finished_total", "outcome")["failed"] == 1
    assert page.value("kestrel_worker_task_run_seconds_count") == 2
    assert page.value("kestrel_worker_unreported_results") == 6
    assert page.value("kestrel_worker_spool_degraded") == 1
    assert page.value("kestrel_worker_reconnects_total") == 1
    assert page.value("kestrel_worker_stanzas_total", kind="report", direction="out") == 1
    assert page.value("kestrel_worker_scrape_seconds") > 0
    assert page.value("process_resident_memory_bytes") > 0
    assert page.sum("kestrel_worker_build_info") == 1
