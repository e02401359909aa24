"""What polling costs, added up: bytes by second and minute, and how straight growth is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchkit import MACHINE
from cli_fake_pool import FakePool, run

from kestrel_experiments.polls.page import (
    growth_plot,
    network_plot,
    rows,
    sentences,
    write_poll_report,
)
from kestrel_experiments.polls.result import PollResult, PollRun, growth, line_through


def polled(clients: int, *received: int, limit: float | None = None, cpu: float = 0.1) -> PollRun:
    return PollRun(
        clients=clients, reply_bytes=10_000, poll_seconds=10.0, limit_per_second=limit,
        received_bytes=list(received), cpu_ratio=cpu, rss_bytes=50_000_000 + 1000 * clients,
        most_waiting=clients if limit else 0,
    )  # fmt: skip


def test_bytes_are_counted_by_second_and_by_minute() -> None:
    found = polled(300, *[0] * 60, *[100, 300] * 30, 7)
    assert (found.most_in_a_second, found.minutes()) == (300, [0.0, 200.0])
    assert found.mean_in_a_second == pytest.approx((60 * 200 + 7) / 121)


def test_a_line_explains_as_much_as_it_does() -> None:
    straight = line_through([(50, 1.0), (100, 2.0), (300, 6.0)])
    assert straight is not None
    assert (straight.slope, straight.intercept, straight.r2) == pytest.approx((0.02, 0.0, 1.0))
    bent = line_through([(0, 0.0), (1, 1.0), (2, 0.0), (3, 1.0)])
    assert bent is not None
    assert bent.r2 == pytest.approx(0.2)
    assert line_through([(1, 1.0), (2, 2.0)]) is None
    assert line_through([(1, 1.0), (1, 2.0), (1, 3.0)]) is None


def test_growth_is_that_of_runs_without_a_limit_up_to_300_clients() -> None:
    runs = [polled(n, 1, cpu=n / 1000) for n in (50, 100, 300)]
    runs += [polled(1000, 1, cpu=0.0), polled(300, 1, limit=10.0, cpu=0.9)]
    cpu, memory = growth(runs)
    assert cpu is not None
    assert memory is not None
    assert (cpu.slope, cpu.r2) == pytest.approx((0.001, 1.0))
    assert sentences(runs) == [
        "processor: 10.00 % of a core for 100 clients, R² 1.000",
        "memory: 0.10 MB for 100 clients, R² 1.000",
    ]
    assert rows(runs)[-1] == ["300", "10", "10", "0", "0", "300", "90.0", "50"]
    assert "<svg" in network_plot(runs).markup()
    assert growth_plot(runs).markup().count("<use") == 4


def test_what_makes_no_sense_is_refused() -> None:
    for words, said in (
        (("--clients", "many"), "not a number: 'many'"),
        (("--bytes", "0"), "not a number: '0'"),
        (("--limited-only",), "which limit?"),
    ):
        result = run(FakePool(), "bench", "properties", *words)
        assert said in result.stderr
        assert result.exit_code == 2


def test_no_run_is_dropped_from_the_plots(tmp_path: Path) -> None:
    runs = [polled(300, n, limit=float(n)) for n in range(1, 8)]
    written = write_poll_report(tmp_path, PollResult(machine=MACHINE, command="bench", runs=runs))
    plots = [path.read_text() for path in written if path.name.startswith("polls-network")]
    assert [plot.count("300 clients") for plot in plots] == [6, 1]


def test_the_line_of_growth_ends_where_there_are_no_more_clients() -> None:
    drawn = growth_plot([polled(n, 1, cpu=n / 1000) for n in (20, 50, 100)]).markup()
    ends = re.findall(r'd="M [\d.]+ [\d.]+L ([\d.]+) [\d.]+"[^>]*stroke: var\(--s0\)', drawn)
    dots = [float(x) for x in re.findall(r'<use [^>]*x="([\d.]+)"', drawn)]
    assert [float(x) for x in ends] == [max(dots)]
