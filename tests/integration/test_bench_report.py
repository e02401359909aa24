"""The report of a sweep, drawn from a small simulated one."""

from __future__ import annotations

import heapq
import re
import statistics
import sys
from html.parser import HTMLParser
from pathlib import Path
from random import Random

import msgspec
import pytest

from kestrelctl.bench import bounds
from kestrelctl.bench.machine import this_machine
from kestrelctl.bench.report import write_report
from kestrelctl.bench.result import LatencyMs, Result, Run, measured_run
from kestrelctl.errors import MissingTool

SPAWN_LIMIT = 2400.0


def simulated_run(spec: str, tasks: int, workers: int, rate: float = 1900.0, lost: int = 0) -> Run:
    """A sweep in which a manager starts at most about `rate` tasks a second on idle workers."""
    random = Random(f"{spec} {tasks} {workers}")
    sleep = bounds.parse_sleep(spec)
    idle_at = [0.0] * workers
    now, started, finished, latencies = 0.0, [], [], []
    for index in range(tasks):
        now = max(now + random.expovariate(rate), heapq.heappop(idle_at))
        latency = random.gammavariate(2.0, 0.004)
        started.append(now + latency)
        finished.append(started[-1] + sleep.seconds(index) + random.gammavariate(3.0, 0.0004))
        latencies.append(1000 * latency)
        heapq.heappush(idle_at, finished[-1] + 0.002)
    return measured_run(
        sleep=sleep,
        executor="process",
        tasks=tasks,
        workers=workers,
        makespan_seconds=max(finished) + 0.03,
        started_at=started,
        finished_at=finished,
        latency_ms=LatencyMs(p50=statistics.median(latencies), p99=max(latencies)),
        lost=lost,
        duplicates=0,
        manager_rss_mb=140.0,
        server_cpu_seconds=tasks * 0.00008,
        manager_cpu_seconds=tasks * 0.00011,
        worker_cpu_seconds=tasks * 0.0003,
    )


def simulated_sweep(tasks: int, workers: int) -> Result:
    runs = [simulated_run(spec, tasks, workers) for spec in ("0", "1", "0-10", "10")]
    command = f"kestrelctl bench sweep --jobs {tasks} --workers {workers}"
    return Result(this_machine("0.12.3"), SPAWN_LIMIT, runs, command)


class Page(HTMLParser):
    """Collects what a reader or a screen reader meets in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.addresses: list[str] = []
        self.unclosed: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images.append(dict(attributes))
        self.addresses += [
            value or "" for name, value in attributes if name in ("src", "srcset", "href")
        ]
        if tag not in ("img", "meta", "source", "br", "link"):
            self.unclosed.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag


def test_a_report_has_a_page_the_data_and_both_curves_of_every_run(tmp_path: Path) -> None:
    result = simulated_sweep(400, 20)

    written = write_report(tmp_path / "new" / "report", result)

    assert [path.name for path in written] == [
        "report.html",
        "result.json",
        "1-sleep-0-rate.png",
        "1-sleep-0-running.png",
        "2-sleep-1-rate.png",
        "2-sleep-1-running.png",
        "3-sleep-0-10-rate.png",
        "3-sleep-0-10-running.png",
        "4-sleep-10-rate.png",
        "4-sleep-10-running.png",
    ]
    assert msgspec.json.decode(written[1].read_bytes(), type=Result) == result
    for path in written[2:]:
        assert path.read_bytes().startswith(b"\x89PNG")

    text = written[0].read_text()
    page = Page(text)
    assert page.unclosed == []
    assert len(page.images) == 8
    assert all(len(image["alt"] or "") > 60 for image in page.images)
    assert len(page.addresses) == 16
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert re.findall(r"https?://|@import|url\(", text) == []
    assert "prefers-color-scheme: dark" in text
    assert "kestrelctl bench sweep --jobs 400 --workers 20" in text


def test_names_from_outside_cannot_become_markup(tmp_path: Path) -> None:
    result = simulated_sweep(20, 5)
    machine = msgspec.structs.replace(result.machine, cpu_model="<script>x</script>")
    result = msgspec.structs.replace(result, machine=machine, command="sweep && <b>")
    text = write_report(tmp_path, result)[0].read_text()
    assert "<script>" not in text
    assert "sweep &amp;&amp; &lt;b&gt;" in text


def test_lost_tasks_are_not_hidden(tmp_path: Path) -> None:
    result = Result(this_machine("0.12.3"), SPAWN_LIMIT, [simulated_run("0", 100, 5, lost=7)])
    assert "7 tasks lost" in write_report(tmp_path, result)[0].read_text()


def test_a_result_without_curves_still_makes_a_page(tmp_path: Path) -> None:
    run = msgspec.structs.replace(simulated_run("0.5", 20, 5), timeline=None)
    result = Result(this_machine("0.12.3"), SPAWN_LIMIT, [run])
    assert [path.name for path in write_report(tmp_path, result)] == ["report.html", "result.json"]


def test_without_matplotlib_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingTool) as caught:
        write_report(tmp_path / "report", simulated_sweep(20, 5))
    assert caught.value.hint
    assert not (tmp_path / "report").exists()
