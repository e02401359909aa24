"""What `kestrelctl top` shows: every frame fits, and says what the pool said."""

from __future__ import annotations

import json
import re
import time

import msgspec
import pytest
from cli_fake_pool import NOW, OVERVIEW, FakePool, run

from kestrelctl.cli.show.grid import Column, Grid, bar, crop, line_text, spread, text_width
from kestrelctl.cli.show.history import History
from kestrelctl.cli.top.frame import View, frame
from kestrelctl.cli.top.keyboard import split_keys
from kestrelctl.errors import KestrelError, Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq


def job(job_id: int, **fields: object) -> an.JobLine:
    known = {
        "name": f"job number {job_id}", "owner": "ada@example.org", "state": "active",
        "tasks": 10_000, "submitted_at": NOW - 65, "waiting": 9_000, "running": 90, "done": 908,
        "failed": 1, "lost": 1,
    }  # fmt: skip
    return an.JobLine(job_id=job_id, **{**known, **fields})  # type: ignore[arg-type]


WORKERS = [
    an.WorkerLine(
        worker="bad@workers.example.org/1", state="quarantined", failed=12, failures=12,
        until=NOW + 42,
    ),
    an.WorkerLine(worker="odd@workers.example.org/1", state="busy", running=1, failures=4),
    an.WorkerLine(worker="gone@workers.example.org/1", state="offline", done=812, since=NOW - 90),
    *(
        an.WorkerLine(worker=f"w{n}@workers.example.org/1", state="busy", running=8, done=1234)
        for n in range(15)
    ),
]  # fmt: skip
BUSY = msgspec.structs.replace(
    OVERVIEW,
    workers={"busy": 900, "idle": 12, "quarantined": 3, "offline": 2},
    capacity={"cpus": 3660.0, "memory": float(7 << 40)},
    free={"cpus": 60.0, "memory": float(1 << 40)},
    waiting={"busy": 8_000, "too-small": 1_000},
    running=900,
    queued=90,
    totals={"tasks_done": 50_080, "tasks_failed": 6, "tasks_sent": 51_000},
    jobs_active=30,
    jobs=[job(n) for n in range(1, 31)],
    notable=WORKERS,
)


def later(seconds: float, overview: an.Overview = BUSY, **fields: object) -> an.Overview:
    return msgspec.structs.replace(overview, at=overview.at + seconds, **fields)


def working(minutes: int = 1) -> History:
    """A pool that has finished 100 tasks a second, each tenth of them one of the first job's."""
    history = History(BUSY)
    for second in range(1, minutes * 60 + 1):
        first = job(1, done=908 + second * 10, waiting=9_000 - second * 10)
        totals = {"tasks_done": 50_080 + second * 100, "tasks_sent": 51_000 + second * 100}
        history.add(later(second, totals=totals, jobs=[first, *BUSY.jobs[1:]]))
    return history


def drawn(history: History, width: int, height: int, view: View | None = None) -> list[str]:
    lines = frame(history, view or View(), NOW, width, height)
    return [line_text(line) for line in lines]


def columns_of(lines: list[str], heading: str) -> list[str]:
    """The cells under a right-aligned heading, as far as the table goes."""
    top = next(number for number, line in enumerate(lines) if f" {heading}" in line)
    end = lines[top].index(f" {heading}") + 1 + len(heading)
    found = []
    for line in lines[top + 1 :]:
        if len(line) < end or line[end - 1] == " ":
            break
        assert line[end : end + 1] in ("", " "), "numbers end where their heading ends"
        found.append(line[:end].rpartition(" ")[2])
    return found


# -- frames ----------------------------------------------------------------------------------------

CLOCK = time.strftime("%H:%M:%S", time.localtime(NOW))

FRAME_80 = f"""\
pool.example.org  manager 0.1.0, up 1h 00m, epoch 3                     {CLOCK}
workers   917: 900 busy, 12 idle, 3 quarantined, 2 offline
in use    cpus ████████ 3,600 of 3,660   memory ███████░ 6 TiB of 7 TiB
tasks     9,000 waiting, 900 running, 90 queued at workers
why wait  8,000 busy, 1,000 too-small
finished      100/s                                 ████████████  peak 100/s
sent          100/s                                 ████████████  peak 100/s

JOB  NAME          OWNER  STATE     %    DONE  RUN   WAIT  FAIL    RATE     LEFT
  1  job number 1  ada    active   15   1,508   90  8,400     2  10.0/s  14m 09s
  2  job number 2  ada    active    9     908   90  9,000     2     0/s        —
  3  job number 3  ada    active    9     908   90  9,000     2     0/s        —
  4  job number 4  ada    active    9     908   90  9,000     2     0/s        —
  5  job number 5  ada    active    9     908   90  9,000     2     0/s        —
  6  job number 6  ada    active    9     908   90  9,000     2     0/s        —
  7  job number 7  ada    active    9     908   90  9,000     2     0/s        —
  8  job number 8  ada    active    9     908   90  9,000     2     0/s        —
  9  job number 9  ada    active    9     908   90  9,000     2     0/s        —

WORKER    STATE        RUN  QUEUED    DONE  FAIL  NOTE
bad/1     quarantined    0       0       0    12  1.0 s more
odd/1     busy           1       0       0     0  4 fast failures in a row
gone/1    offline        0       0     812     0  for 2m 30s
q quit  p pause  j/k scroll                                       jobs 1-9 of 31\
"""


def test_a_screen_of_80_by_24() -> None:
    assert drawn(working(), 80, 24) == FRAME_80.splitlines()


@pytest.mark.parametrize(
    ("width", "height"),
    [(80, 24), (60, 15), (200, 50), (100, 30), (40, 10), (20, 5), (8, 3), (1, 1), (500, 200)],
)
@pytest.mark.parametrize("history", [History(OVERVIEW), working()], ids=["idle", "working"])
@pytest.mark.parametrize("away", [False, True])
def test_a_frame_fills_the_screen_and_no_more(
    width: int, height: int, history: History, away: bool
) -> None:
    view = View(away_since=NOW - 100, away_why="x" * 300) if away else View()
    lines = drawn(history, width, height, view)
    assert len(lines) == height
    assert max(map(text_width, lines)) <= width


def test_a_line_of_100_columns_has_room_for_processors_memory_and_disk() -> None:
    more = {"cpus": 12.0, "memory": 23.5 * 2**30, "disk": 98.5 * 2**30}
    lines = drawn(History(later(0, capacity=more, free=more)), 100, 24)
    (in_use,) = [line for line in lines if line.startswith("in use")]
    assert in_use.rstrip().endswith("disk ░░░░░░ 0 B of 98.5 GiB")


def test_a_small_screen_keeps_what_matters() -> None:
    text = "\n".join(drawn(working(), 60, 15))
    for words in ("917: 900 busy", "9,000 waiting", "8,000 busy", "100/s", "job number 1", "LEFT"):
        assert words in text
    assert "in use" not in text


def test_a_large_screen_shows_all_jobs_and_workers() -> None:
    lines = drawn(working(), 200, 70)
    text = "\n".join(lines)
    assert all(f"job number {n} " in text for n in range(1, 31))
    assert all(f"w{n}/1 " in text for n in range(15))
    assert "so far    56,080 done, 57,000 sent" in text
    assert "PROGRESS      %" in text
    assert "██░░░░░░░░   15  " in text
    assert "OWNER" in text
    assert lines[-1] == "q quit  p pause  j/k scroll"


def test_numbers_line_up_at_their_right_ends() -> None:
    lines = drawn(working(), 200, 70)
    assert columns_of(lines, "DONE")[:3] == ["1,508", "908", "908"]
    assert len(columns_of(lines, "WAIT")) == 31
    assert columns_of(lines, "RATE")[:2] == ["10.0/s", "0/s"]


def test_time_left_is_a_dash_until_it_is_known() -> None:
    line = next(line for line in drawn(History(BUSY), 100, 30) if "job number 1 " in line)
    assert line.endswith("—       —")


def test_jobs_scroll_and_stop_at_the_last() -> None:
    view = View(scroll=5)
    lines = drawn(working(), 80, 24, view)
    assert "job number 6" in lines[9]
    view.scroll = 10_000
    lines = drawn(working(), 80, 24, view)
    assert lines[-1].endswith("of 31")
    assert "sweep" in "\n".join(lines), "the ended job comes last"
    assert view.scroll == 31 - 9
    view.scroll = -3
    drawn(working(), 80, 24, view)
    assert view.scroll == 0


def test_jobs_that_were_left_out_are_counted() -> None:
    history = History(later(0, jobs_active=530))
    assert drawn(history, 80, 24)[-1].endswith("jobs 1-9 of 531")


def test_a_pool_that_is_away_says_since_when_and_why() -> None:
    view = View(away_since=NOW - 90, away_why="the server returned the request")
    since = time.strftime("%H:%M:%S", time.localtime(NOW - 90))
    lines = drawn(working(), 80, 24, view)
    assert lines[1] == f"AWAY since {since} (1m 30s): the server returned the request"
    assert "917: 900 busy" in lines[2]


def test_a_store_that_fails_is_the_first_thing_one_sees() -> None:
    full = later(
        0,
        store_error="disk is full",
        store_error_since=time.mktime((2026, 1, 2, 3, 4, 5, 0, 0, -1)),
    )
    assert drawn(History(full), 80, 24)[1] == (
        "STORE FAILING since 03:04:05: disk is full; nothing is handed out"
    )


def test_the_pool_is_called_as_the_user_names_it() -> None:
    title, *_ = drawn(working(), 80, 24, View(pool="lab"))
    assert title.startswith("lab  manager 0.1.0, up 1h 00m")
    same, *_ = drawn(working(), 80, 24, View(pool="pool.example.org"))
    assert same.startswith("pool.example.org  manager")


def test_a_pause_is_shown() -> None:
    assert "paused" in drawn(working(), 80, 24, View(paused=True))[0]


def test_an_empty_pool_is_no_trouble() -> None:
    nothing = msgspec.structs.replace(
        OVERVIEW, workers={}, capacity={}, free={}, ended=[], notable=[], totals={}
    )
    lines = drawn(History(nothing), 80, 24)
    assert "no jobs" in lines
    assert "workers   0" in lines


def test_names_of_others_cannot_move_the_cursor() -> None:
    history = History(later(0, jobs=[job(1, name="\x1b[2J", owner="\r\n@x")]))
    assert not any("\x1b" in line or "\r" in line for line in drawn(history, 80, 24))


def test_jobs_of_others_have_no_name() -> None:
    lines = drawn(History(later(0, jobs=[job(1, name="")])), 80, 24)
    assert any("  1  (private) " in line for line in lines)


def test_of_a_guest_it_says_whose_it_is_as_a_list_of_jobs_does() -> None:
    guest = job(1, name="", owner="ada@users.b.test", guest_of="b.test")
    lines = drawn(History(later(0, jobs=[guest])), 160, 24)
    assert any("  1  guest of b.test: ada " in line for line in lines)


# -- rates -----------------------------------------------------------------------------------------


def test_rates_stay_positive_over_a_restart_of_the_manager() -> None:
    history = working()
    anew = later(70, epoch=4, totals={"tasks_done": 30, "tasks_sent": 40}, jobs=[job(1, done=1500)])
    history.add(anew)
    for series in (history.finished, history.sent):
        assert series.per_second is not None
        assert 0 <= series.per_second < 100
    history.add(later(1, anew, totals={"tasks_done": 130, "tasks_sent": 140}))
    history.add(later(4, anew, totals={"tasks_done": 430, "tasks_sent": 440}))
    assert history.finished.per_second == pytest.approx(100)


def test_a_clock_that_goes_back_starts_the_rates_anew() -> None:
    history = working()
    history.add(later(-3600, totals={"tasks_done": 10}))
    assert history.finished.per_second is None
    history.add(later(-3599, totals={"tasks_done": 20}))
    assert history.finished.per_second == pytest.approx(10)


def test_an_answer_that_the_manager_had_kept_counts_once() -> None:
    history = working()
    before = history.finished.per_second
    history.add(history.latest)
    assert history.finished.per_second == before


def test_jobs_that_are_gone_are_forgotten() -> None:
    history = working()
    history.add(later(61, jobs=[job(2)]))
    assert history.job(job(1)) is None
    assert history.job(job(2)) is not None


def test_of_a_job_of_which_nothing_runs_nothing_is_foretold() -> None:
    history = working()
    stuck = job(1, done=1_508, running=0, waiting=8_490)
    for second in range(61, 90):
        history.add(later(second, jobs=[stuck, *BUSY.jobs[1:]]))
    line = next(line for line in drawn(history, 80, 24) if "job number 1 " in line)
    assert line.endswith("    0/s       —")


def test_tasks_that_are_cancelled_are_no_work_done() -> None:
    history = working()
    before = history.finished.per_second
    totals = {**history.latest.totals, "tasks_cancelled": 9_000_000}
    totals["tasks_done"] += 100
    cancelled = job(1, state="cancelling", cancelled=8_000, done=1_518, waiting=0)
    history.add(later(61, totals=totals, jobs=[cancelled, *BUSY.jobs[1:]]))
    assert history.finished.per_second == before
    series = history.job(cancelled)
    assert series is not None
    assert series.per_second == pytest.approx(10)


# -- once ------------------------------------------------------------------------------------------


def busy_pool() -> FakePool:
    answers = iter([BUSY, later(2, totals={"tasks_done": 50_480, "tasks_sent": 51_400})])
    return FakePool(PoolOverview=lambda _: next(answers))


def test_in_a_pipe_it_is_printed_once() -> None:
    result = run(busy_pool(), "top", "--interval", "0.1")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "finished      197/s" in lines
    assert sum("job number" in line for line in lines) == 30
    assert sum(re.match(r"w\d+/1 ", line) is not None for line in lines) == 15
    assert not any("\x1b" in line or line != line.rstrip() for line in lines)


def test_an_idle_pool_is_asked_once() -> None:
    pool = FakePool()
    run(pool, "top", "--once")
    assert pool.count(rq.PoolOverview) == 1


def test_json_has_what_the_pool_said_and_the_rates() -> None:
    found = json.loads(run(busy_pool(), "top", "--interval", "0.1", "-o", "json").stdout)
    assert set(found) == {
        *(name for name in an.Overview.__struct_fields__ if name != "id"),
        "finished_per_second",
        "sent_per_second",
    }
    assert found["finished_per_second"] == pytest.approx(197)
    assert found["jobs"][0]["job_id"] == 1
    assert found["waiting"] == {"busy": 8000, "too-small": 1000}


def test_a_pool_that_is_away_is_an_error_as_anywhere() -> None:
    assert run(FakePool(PoolOverview=Unreachable("gone")), "top").exit_code == 5


def test_an_older_pool_does_not_know_the_question() -> None:
    assert run(FakePool(PoolOverview=KestrelError("no request")), "top").exit_code == 1


# -- lines -----------------------------------------------------------------------------------------


def test_a_line_that_is_too_long_ends_in_an_ellipsis() -> None:
    line = [("abc", ""), ("def", "red"), ("ghi", "")]
    assert [line_text(crop(line, width)) for width in (9, 7, 6, 3, 1, 0)] == [
        "abcdefghi", "abcdef…", "abcde…", "ab…", "…", "",
    ]  # fmt: skip


def test_two_ends_of_a_line() -> None:
    assert line_text(spread([("left", "")], [("right", "")], 12)) == "left   right"
    assert line_text(spread([("left", "")], [("right", "")], 9)) == "l…  right"


def test_wide_characters_take_two_columns() -> None:
    assert text_width(line_text(crop([("漢字漢字", "")], 5))) <= 5


def test_a_table_gives_way_where_it_may() -> None:
    columns: list[Column[str]] = [
        Column("NAME", lambda w: w, width=4),
        Column("N", lambda w: str(len(w)), right=True),
        Column("MORE", lambda w: "more", gives=False, drop=1),
    ]

    def table(width: int) -> list[str]:
        return [line_text(line) for line in Grid(columns).lines(["abcdefgh", "xy"], width)]

    assert table(18) == ["NAME      N  MORE", "abcdefgh  8  more", "xy        2  more"]
    assert table(14)[1] == "abcd…  8  more"
    assert table(10)[1] == "abcdef…  8"
    assert table(3)[1] == "abc…  8", "a screen crops what can give way no more"


def test_a_bar_is_as_full_as_it_says() -> None:
    assert [bar(share, 4) for share in (-1, 0, 0.5, 1, 2)] == [
        "░░░░",
        "░░░░",
        "██░░",
        "████",
        "████",
    ]


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "keys", "rest"),
    [
        (b"qjk", ["q", "j", "k"], b""),
        (b"\x1b[A\x1bOB\x1b[5~", ["up", "down", "page-up"], b""),
        (b"j\x1b[", ["j"], b"\x1b["),
        (b"\x1b", [], b"\x1b"),
        (b"\x1b[1;5C\x1b[200~q", ["q"], b""),
        (b"\x03\xff\x00p", ["p"], b""),
    ],
)
def test_keys_are_told_apart(data: bytes, keys: list[str], rest: bytes) -> None:
    assert split_keys(data) == (keys, rest)


def test_a_key_that_comes_in_two_pieces_is_one() -> None:
    _, rest = split_keys(b"\x1b[")
    assert split_keys(rest + b"B") == (["down"], b"")


def test_help_names_the_keys() -> None:
    text = run(FakePool(), "top", "--help").stdout
    assert re.search(r"q or Ctrl-C quits", text)


def test_a_cancelled_job_has_no_full_bar() -> None:
    over = job(9, state="cancelled", waiting=0, running=0, done=2_500, failed=0, lost=0)
    over = msgspec.structs.replace(over, cancelled=7_500)
    overview = later(0.0, jobs=[], ended=[over])
    [line] = [text for text in drawn(History(overview), 120, 30) if "cancelled" in text]
    assert bar(0.25, 10) in line
    assert " 25 " in line


def test_lost_attempts_are_told_as_by_the_status_of_the_pool() -> None:
    totals = {"tasks_done": 3, "tasks_lost": 0, "attempts_lost": 1}
    text = "\n".join(drawn(History(later(0.0, totals=totals)), 120, 40))
    assert "so far    3 done, 1 attempts lost" in text


def test_a_table_leaves_out_what_is_empty_before_it_cuts_a_name() -> None:
    columns: list[Column[str]] = [
        Column("NAME", lambda t: t, width=4),
        Column("NOTE", lambda t: "", width=10, drop=1),
    ]
    heading, line = Grid(columns).lines(["x" * 20], 20)
    assert (line_text(heading).strip(), line_text(line).strip()) == ("NAME", "x" * 20)
