"""The table of a bench: printed row by row, plain in a file and coloured on a terminal."""

from __future__ import annotations

import re
import sys

import pytest
from benchkit import a_result, a_run, a_sweep
from paperkit import Full, Paper

from kestrelctl.bench.report.table import columns, is_beside_2009
from kestrelctl.bench.report.wording import closing
from kestrelctl.bench.result import BenchResult
from kestrelctl.cli.bench import RunTable, _tell
from kestrelctl.cli.show.screen import Mode, Screen


def printed(result: BenchResult, *, color: bool = False) -> list[str]:
    paper = Paper(terminal=color, color=color)
    RunTable(paper, with_2009=is_beside_2009(result)).end(result)
    return paper.text.splitlines()


def test_a_share_above_the_limit_is_explained_where_it_is_shown() -> None:
    fast, slow = a_run("0", makespan_seconds=0.2), a_run("0")
    assert printed(a_result(slow, fast))[-1] == (
        "sleep 0: more tasks a second than the bare rate, so this rate was no limit; something "
        "else used the machine each time that it was measured"
    )
    assert "bare rate" not in printed(a_result(slow))[-1]


def test_the_spread_of_the_bare_rates_is_told() -> None:
    result = a_result(a_run("0"), spawn_rates_per_second=[1200.0, 2000.0, 900.0])
    assert printed(result)[0].endswith("2,000 processes/s bare (best of 3, the lowest 900)")
    assert printed(a_result(a_run("0")))[0].endswith("2,000 processes/s bare")


def test_a_bench_that_ended_early_says_so_under_its_rows() -> None:
    result = a_result(a_run("0"), ended_early="SIGTERM after 1 of 4 runs")
    assert printed(result)[-1] == "ended early by SIGTERM after 1 of 4 runs"


def test_a_sweep_says_where_its_workers_begin_to_wait() -> None:
    assert printed(a_sweep())[-2:] == [
        "10 workers: knee 10 ms; measured: 50% busy at 32 ms, 90% busy at 0.42 s",
        "100 workers: knee 0.1 s; measured: 50% busy at 0.13 s, 90% busy at 0.79 s",
    ]


def test_plain_columns_line_up() -> None:
    headline, *lines = printed(
        a_result(a_run("0"), a_run("10", tasks=50_000, workers=914, makespan_seconds=552.2))
    )[:4]
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 100
    assert headline


def test_a_row_is_printed_when_its_run_has_ended() -> None:
    paper = Paper(terminal=False)
    table = RunTable(paper, with_2009=False)
    table.rows(a_result(a_run("0")))
    assert [line.split()[0] for line in paper.text.splitlines()] == ["Kestrel", "sleep", "0"]
    table.rows(a_result(a_run("0"), a_run("1")))
    table.end(a_result(a_run("0"), a_run("1")))
    lines = paper.text.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["Kestrel", "sleep", "0", "1"]
    assert lines[4:] == closing(a_result(a_run("0"), a_run("1"))), "and no row twice"


@pytest.mark.parametrize("mode", [Mode.TABLE, Mode.JSON])
def test_what_nobody_can_be_told_on_the_way_ends_no_bench(
    monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    _tell(Screen(mode=mode), a_run("0"), 1, 4)


def test_a_file_gets_plain_text() -> None:
    lines = printed(a_result(a_run("0")))
    assert not any("\x1b" in line for line in lines)
    assert "2 cores (Some CPU)" in lines[0]


def test_a_terminal_gets_a_table_that_fits_in_80_columns() -> None:
    lines = printed(a_result(a_run("0"), a_run("1")), color=True)
    assert any("\x1b[" in line for line in lines)
    table = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines[1:4]]
    assert max(map(len, table)) <= 80
    for cell in (*columns(with_2009=False), "50% starts", "50% busy"):
        assert cell in "\n".join(table)


def test_only_lost_or_duplicate_tasks_stand_out() -> None:
    well, wrong = printed(a_result(a_run("0"), a_run("1", lost=3)), color=True)[2:4]
    assert "\x1b[31m" not in well
    assert "\x1b[1m\x1b[31m3\x1b[0m" in wrong
