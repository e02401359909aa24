"""A tiny sweep of real pools from the command line, compared and drawn."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from daemons import sleeping_below

from kestrelctl.local.pool_state import read_state

CHECKOUT = Path(__file__).parents[2]


def kestrelctl(*args: str) -> str:
    """What a command line prints; it has to end well."""
    done = subprocess.run(
        [sys.executable, "-m", "kestrelctl", *args],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "KESTREL_POOL": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that a sweep has written."""
    directory = tmp_path_factory.mktemp("bench") / "sweep"
    line = "bench --sweep --workers 4,2 --sleep 0.02,0,0.2,0.1 --jobs 60 --cell-seconds 0.5"
    (directory.parent / "printed.json").write_text(
        kestrelctl(*line.split(), "--report", str(directory), "-o", "json")
    )
    return directory


@pytest.fixture
def found(report: Path) -> dict[str, Any]:
    """The document that it has printed."""
    document = json.loads((report.parent / "printed.json").read_text())
    assert isinstance(document, dict)
    return document


def test_every_length_runs_on_every_number_of_workers(found: dict[str, Any]) -> None:
    lengths = ["0", "0.02", "0.1", "0.2"]
    assert [(run["workers"], run["sleep"]) for run in found["runs"]] == [
        (workers, sleep) for workers in (2, 4) for sleep in lengths
    ]


def test_no_cell_has_more_tasks_than_its_time_and_the_jobs_allow(found: dict[str, Any]) -> None:
    jobs = [run["jobs"] for run in found["runs"]]
    assert max(jobs) <= 60
    assert jobs[3] == 4, "two waves of 0.2 s on two workers"
    assert jobs[6] == 20, "five waves of 0.1 s on four workers"


def test_the_knee_follows_from_the_measured_rate(found: dict[str, Any]) -> None:
    rates = [run["tasks_per_second"] for run in found["runs"] if run["sleep"] == "0"]
    for knee, workers, rate in zip(found["sweep"]["knees"], (2, 4), rates, strict=True):
        assert knee["workers"] == workers
        assert knee["knee_seconds"] == pytest.approx(workers / rate)


def test_no_cell_keeps_its_workers_busier_than_they_can_be(found: dict[str, Any]) -> None:
    for first in (0, 4):
        nothing, *shares = [run["utilisation"] for run in found["runs"][first : first + 4]]
        assert nothing == 0
        assert all(0 < share < 1 for share in shares)


def test_nothing_waits_longer_than_the_run_takes(found: dict[str, Any]) -> None:
    assert found["runs"]
    for run in found["runs"]:
        slowest = run["dispatch_latency_ms"]["p99"]
        assert 0 <= slowest <= run["makespan_seconds"] * 1000, run


def test_a_sweep_can_be_compared_and_drawn(report: Path, tmp_path: Path) -> None:
    printed, page = str(report.parent / "printed.json"), tmp_path / "talk.html"
    table = kestrelctl("bench", "compare", str(report), printed, "--fail-slower", "1%")
    rows = [line.split() for line in table.splitlines()[2:10]]
    for _, _, makespan, rate, *others in rows:
        assert makespan == rate == "1.00"
        assert set(others) <= {"1.00", "-"}, "what came to nothing has no ratio, as sleep 0 is busy"
    kestrelctl("bench", "report", str(report), printed, "--to", str(page))
    assert page.read_text().count("<svg") == 3
    assert (report / "efficiency.pdf").exists()


def test_a_newcomer_s_bench_tells_what_comes_shows_rows_and_ends_with_words(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kestrelctl", *["bench", "--jobs", "200"]],
        env={
            **os.environ, "PYTHONPATH": str(CHECKOUT), "KESTREL_POOL": "",
            "XDG_STATE_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cores = len(os.sched_getaffinity(0))
    headline, _, zero, one, limit, reached = done.stdout.splitlines()[:6]
    assert headline.startswith("Kestrel ")
    assert zero.split()[:3] == ["0", "200", f"{cores}x8"]
    assert one.split()[:2] == ["1", "200"]
    assert limit.startswith("Starting processes limits this machine: ")
    assert reached.startswith("The pool came to ")
    measuring, announced, first, second, curves, following = done.stderr.splitlines()
    assert "this will take about " in announced
    assert [line[:10] for line in (first, second)] == ["run 1 of 2", "run 2 of 2"]
    page = Path(curves.removeprefix("curves: "))
    assert page.parent.parent == tmp_path / "kestrel" / "bench"
    assert "<svg" in page.read_text()
    assert (page.parent / "result.json").exists()
    assert measuring.startswith("measuring ")
    assert following.startswith("next: `kestrelctl up`")


def test_a_bench_that_is_ended_prints_and_saves_its_runs_and_removes_its_pool(
    tmp_path: Path,
) -> None:
    line = f"bench --jobs 30 --sleep 0:2,20:3 --report {tmp_path}/report"
    (tmp_path / "pools").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "kestrelctl", *line.split()],
        env={
            **os.environ, "PYTHONPATH": str(CHECKOUT), "KESTREL_POOL": "",
            "TMPDIR": str(tmp_path / "pools"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == "measuring this machine for some seconds\n"
    assert process.stderr.readline().startswith("a trial came to ")
    told = process.stderr.readline()
    assert told.startswith("run 1 of 2: sleep 0 on 2 workers, 30 tasks in "), told
    (first,) = [*(tmp_path / "pools").glob("kestrel-*")] or [None]
    while not (second := set((tmp_path / "pools").glob("kestrel-*")) - {first}):
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    printed, _ = process.communicate()
    assert process.returncode == 143
    *_, row, note = printed.splitlines()
    assert row.split()[:3] == ["0", "30", "2"]
    assert note == "ended early by SIGTERM after 1 of 2 runs"
    assert len(json.loads((tmp_path / "report" / "result.json").read_text())["runs"]) == 1
    assert list((tmp_path / "pools").iterdir()) == []
    for directory in second:
        assert not any(str(directory).encode() in each for each in command_lines())


def test_a_bench_counts_no_processor_time_once_a_worker_was_killed(tmp_path: Path) -> None:
    line = "bench --jobs 200 --sleep 0.05:2 -o json"
    process = subprocess.Popen(
        [sys.executable, "-m", "kestrelctl", *line.split()],
        env={
            **os.environ, "PYTHONPATH": str(CHECKOUT), "KESTREL_POOL": "",
            "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"),
        },
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    pools: list[Path] = []  # one of a trial, then the one that is measured
    while len(pools) < 2 or not (workers := busy(pools[1])):
        assert process.poll() is None
        time.sleep(0.02)
        pools += [pool for pool in tmp_path.glob("kestrel-*") if pool not in pools]
    workers[0].kill()
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    (run,) = json.loads(printed)["runs"]
    assert (run["lost"], run["worker_cpu_seconds"], run["manager_cpu_seconds"]) == (0, 0, 0)


def busy(pool: Path) -> list[psutil.Process]:
    """The workers of a pool that run the tasks of a bench, which sleep."""
    state = read_state(pool)
    keepers = [psutil.Process(pid) for pid in state.worker_pids if pid] if state else []
    return [worker for keeper in keepers for worker in keeper.children() if sleeping_below(worker)]


def command_lines() -> list[bytes]:
    """Of all processes that run here."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes())
    return found
