"""The bar of jobs: what it says, and that it fits."""

from __future__ import annotations

import msgspec
import pytest
from cli_fake_pool import FAILED_JOB, JOB, FakePool, run

from kestrelctl.cli.show import progress as module
from kestrelctl.cli.show.grid import line_text, text_width
from kestrelctl.cli.show.progress import JobsProgress, now_and_then
from kestrelctl.cli.show.screen import Screen
from kestrelctl.protocol import answers as an


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def job(job_id: int = 7, done: int = 0, state: str = "active", **fields: int) -> an.JobView:
    return msgspec.structs.replace(JOB, job_id=job_id, done=done, state=state, **fields)


def lines_after(seconds: float, *views: list[an.JobView], width: int = 80) -> list[str]:
    clock = Clock()
    progress = JobsProgress(clock)
    for each in views[:-1]:
        progress.lines(each, width)
        clock.now += seconds
    return [line_text(line) for line in progress.lines(views[-1], width)]


def test_time_left_is_unknown_at_first() -> None:
    assert lines_after(0, [job(done=250, running=4)]) == [
        "job 7  ███████░░░░░░░░░░░░░░░░░░░░░░  25 %  250/1,000 done  4 running  —  — left"
    ]


def test_then_it_follows_from_the_rate() -> None:
    (line,) = lines_after(10, [job(done=0)], [job(done=200, failed=50, running=4)], width=100)
    assert line == (
        "job 7  ████████░░░░░░░░░░░░░░░░░░░░░░  25 %  "
        "200/1,000 done  4 running  50 failed  25.0/s  30 s left"
    )


def test_what_is_cancelled_is_neither_failed_nor_fast() -> None:
    before = [job(3, done=0), job(5, done=0)]
    after = [job(3, done=100), job(5, done=0, cancelled=1000, state="cancelled")]
    whole, _ = lines_after(10, before, after, width=120)
    assert whole.endswith(" running  1,000 cancelled  10.0/s  1m 30s left")
    assert "failed" not in whole


def test_where_nothing_runs_any_more_nothing_is_foretold() -> None:
    stuck = [job(done=990, running=0)]
    (line,) = lines_after(20, [job(done=980, running=4)], stuck, stuck, stuck)
    assert line.endswith("990/1,000 done  0 running  0/s  — left")


def test_a_job_that_has_ended_has_no_rate() -> None:
    (line,) = lines_after(10, [job(done=0)], [job(done=1000, state="done", running=0)])
    assert line.endswith("100 %  1,000/1,000 done")


def test_of_several_jobs_the_one_at_work_has_a_line_of_its_own() -> None:
    views = [
        job(3, done=1000, state="done", running=0),
        job(5, done=0, running=0),
        job(6, done=100, running=4),
    ]
    whole, current = lines_after(10, views, views)
    assert whole.startswith("3 jobs  ")
    assert "1,100/3,000 done" in whole
    assert current.startswith("job 6  ")
    assert "100/1,000 done" in current


@pytest.mark.parametrize("width", [200, 80, 60, 40, 20, 5, 1])
def test_it_fits_any_width(width: int) -> None:
    views = [job(done=123, failed=4, running=4), job(8, done=10, running=4)]
    lines = lines_after(10, views, views, width=width)
    assert lines
    for line in lines:
        assert text_width(line) <= width


def test_where_nobody_looks_there_is_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    show = now_and_then(Screen(), clock)
    for done in range(0, 250, 10):
        show([job(done=done, running=4)])
        clock.now += 1
    assert capsys.readouterr().err == (
        "job 7: 100/1,000 done, 4 running, 10.0/s, 1m 30s left\n"
        "job 7: 200/1,000 done, 4 running, 10.0/s, 1m 20s left\n"
    )


@pytest.mark.parametrize(
    ("line", "asking"),
    [
        ("job wait 7", "job wait 7 --progress"),
        ("submit --wait -- ls", "submit --wait --progress -- ls"),
    ],
)
def test_unasked_nothing_is_shown_where_nobody_looks(
    line: str, asking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    pool = FakePool(Watch=an.Jobs(id="", jobs=[FAILED_JOB]))
    assert "998/1,000 done" not in run(pool, *line.split()).stderr
    assert "job 7: 998/1,000 done, 2 failed\n" in run(pool, *asking.split()).stderr


def test_programs_are_not_bothered_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    for option in ("-q", "-ojson"):
        assert "998" not in run(FakePool(), option, "job", "wait", "7", "--progress").stderr
