"""The story of a job as people read it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from cli_fake_pool import NOW, STORY, FakePool, run
from msgspec.structs import replace

from kestrelctl.cli.job.story import attempts_by_number, offset, sentence
from kestrelctl.core.counting.totals import LOSS_CAUSES
from kestrelctl.core.model.records import HAPPENINGS
from kestrelctl.errors import NotAllowed
from kestrelctl.protocol.answers import Story, StoryEntry
from kestrelctl.protocol.requests import TellStory

W3 = "w3@workers.example.org/x"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is that of Greenwich."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def entry(what: str, **more: object) -> StoryEntry:
    return StoryEntry(at=NOW, task_id=17, what=what, **more)  # type: ignore[arg-type]


def test_a_story_is_a_line_for_each_thing_that_happened() -> None:
    assert run(FakePool(), "job", "story", "7", "17").stdout == (
        "job 7 (sweep), since 1970-01-12 13:45:35\n"
        " +0.00 s  job      submitted by ada@example.org; 1,000 tasks\n"
        " +1.25 s  task 17  attempt 1 lost: worker w3 went away (lease); runs again\n"
        " +1.27 s  task 17  attempt 2 started on w1; waited 0.010 s there\n"
        " +2.77 s  task 17  attempt 2 done on w1; ran 1.500 s; exit code 0\n"
        "+60.00 s  job      done; 1,000 done\n"
    )


def test_the_time_of_day_is_local_and_only_in_wide_lines() -> None:
    lines = run(FakePool(), "job", "story", "7", "-o", "wide").stdout.splitlines()
    assert lines[2].startswith("1970-01-12 13:45:36   +1.25 s  task 17  ")


def test_json_has_what_the_pool_said_numbers_included() -> None:
    found = json.loads(run(FakePool(), "job", "story", "7", "-o", "json").stdout)
    assert (found["job"]["job_id"], found["more"]) == (7, False)
    assert len(found["entries"]) == len(STORY.entries)
    assert found["entries"][1] == {
        "at": NOW - 63.75,
        "task_id": 17,
        "what": "lost",
        "number": (3 << 40) + 16,
        "worker": W3,
        "cause": "lease",
        "detail": "",
    }


@pytest.mark.parametrize(
    ("words", "task_ids"),
    [([], []), (["17"], [17]), (["17", "3", "20-22"], [17, 3, 20, 21, 22]), (["3,5-6"], [3, 5, 6])],
)
def test_any_number_of_tasks_can_be_named(words: list[str], task_ids: list[int]) -> None:
    pool = FakePool()
    assert run(pool, "job", "story", "last", *words).exit_code == 0
    assert pool.last(TellStory) == TellStory(job="last", task_ids=task_ids, limit=200)


def test_the_limit_is_asked_for() -> None:
    pool = FakePool()
    run(pool, "job", "story", "7", "--limit", "5")
    assert pool.last(TellStory).limit == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("all",), "error: not a job: 'all'"),
        (("7", "x"), "error: not a selection of tasks: 'x'"),
        (("7", "--limit", "0"), "error: invalid value for '--limit'"),
    ],
)
def test_what_is_no_job_or_task_is_refused_unasked(words: tuple[str, ...], said: str) -> None:
    pool = FakePool()
    result = run(pool, "job", "story", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith(said)
    assert not pool.asked


def test_whoever_may_not_read_it_is_told_so() -> None:
    result = run(FakePool(TellStory=NotAllowed("job 7 belongs to bob")), "job", "story", "7")
    assert result.exit_code == 4
    assert result.stderr.startswith("error: job 7 belongs to bob\n")
    assert result.stdout == ""


def test_a_cut_story_says_so_and_counts_no_attempts() -> None:
    result = run(FakePool(TellStory=replace(STORY, more=True)), "job", "story", "7")
    assert result.stderr == "some of it is left out; name tasks, or raise --limit\n"
    assert "task 17  lost: worker w3 went away" in result.stdout


def test_what_others_wrote_moves_no_cursor() -> None:
    bad = Story(id="", job=STORY.job, entries=[entry("failed", detail="\x1b[2J\nno")])
    result = run(FakePool(TellStory=bad), "job", "story", "7")
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (entry("cancelled", cause="ada@x"), "cancelled by ada@x"),
        (entry("retried", cause="ada@x/home", detail="it was lost"),
         "retried by ada@x; it was lost"),
        (entry("retried"), "retried"),
        (
            entry("failed", worker=W3, detail="exit code 3"),
            "failed on w3; exit code 3",
        ),
        (entry("lost", worker=W3, cause="bounce"), "lost: worker w3 went away (bounce)"),
        (entry("lost", worker=W3, cause="unable"),
         "lost: worker w3 could not start it (unable)"),
        (entry("found-again", worker=W3), "found again on w3: the attempt had survived"),
        (entry("killed", worker=W3, cause="ada@x"), "killed on w3 (ada@x)"),
        (entry("moved", worker=W3, cause=W3, detail="it was drained by ada@x"),
         "moved away from w3; it was drained by ada@x"),
        (entry("recalled", worker=W3, cause="tick"),
         "taken back from w3 before it started (tick)"),
        (entry("given-back", worker=W3, cause="leaving"),
         "given back by w3 before it started (leaving)"),
        (entry("superseded", worker=W3, cause="w1@x/1"),
         "stopped on w3: an earlier attempt had survived (w1@x)"),
        (entry("killed", worker=W3, cause=W3), "killed on w3"),
        (entry("dropped"), "the story is full: what follows is not told"),
        (entry("ended", cause="cancelled"), "cancelled"),
        (entry("ended", cause="lost", worker=W3, detail="5 losses"), "lost on w3; 5 losses"),
        (entry("waiting", detail="it was never handed out"), "waits; it was never handed out"),
        (entry("sent", worker=W3), "sent to w3"),
        (entry("queued", worker=W3), "waits at w3 behind others"),
        (entry("running", worker=W3), "runs on w3"),
        (entry("of-tomorrow", worker=W3, cause="x", detail="y"), "of-tomorrow on w3 (x); y"),
        (entry("{braces}"), "{braces}"),
    ],
)  # fmt: skip
def test_it_is_told_in_words(told: StoryEntry, said: str) -> None:
    assert sentence(told) == said


@pytest.mark.parametrize("what", HAPPENINGS)
@pytest.mark.parametrize("cause", LOSS_CAUSES)
def test_whatever_can_be_stored_has_words(what: str, cause: str) -> None:
    said = sentence(entry(what, worker=W3, cause=cause))
    assert cause in said
    assert "{" not in said


@pytest.mark.parametrize("what", ["lost", "failed", "refused"])
@pytest.mark.parametrize(
    ("following", "again"),
    [
        (entry("started"), True),
        (entry("waiting"), True),
        (entry("lost"), True),
        (entry("ended", cause="lost"), False),
        (entry("ended", cause="cancelled"), False),
        (entry("found-again"), False),
        (entry("retried"), False),
    ],
)
def test_what_came_to_nothing_says_whether_the_task_runs_again(
    what: str, following: StoryEntry, again: bool
) -> None:
    assert says_that_it_runs_again(entry(what), following) == again


@pytest.mark.parametrize(("what", "again"), [("failed", True), ("refused", True), ("lost", False)])
def test_the_last_that_is_told_of_a_task(what: str, again: bool) -> None:
    """A failure or refusal is told only if its task runs again; a loss always, and an end only when
    asked.
    """
    assert says_that_it_runs_again(entry(what)) == again


def says_that_it_runs_again(first: StoryEntry, *following: StoryEntry) -> bool:
    other = replace(entry("started"), task_id=18)
    told = Story(id="", job=STORY.job, entries=[first, other, *following])
    lines = run(FakePool(TellStory=told), "job", "story", "7").stdout.splitlines()
    return lines[1].endswith("; runs again")


def test_attempts_are_counted_in_the_order_of_their_numbers() -> None:
    entries = [
        entry("found-again", number=33),
        entry("lost", number=10),
        entry("killed", number=10),
        entry("retried"),
        replace(entry("started", number=30), task_id=18),
    ]
    assert attempts_by_number(entries) == {(17, 10): 1, (17, 33): 2}
    assert attempts_by_number([*entries, entry("dropped")]) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "+0.00 s"),
        (1.25, "+1.25 s"),
        (-0.001, "+0.00 s"),
        (-2.5, "-2.50 s"),
        (99.99, "+99.99 s"),
        (100.0, "+1m 40s"),
        (725.4, "+12m 05s"),
        (3600.0, "+1h 00m 00s"),
        (40_000.0, "+11h 06m 40s"),
        (2 * 86400 + 5.0, "+2d 00h 00m 05s"),
    ],
)
def test_times_count_from_the_submission(seconds: float, text: str) -> None:
    assert offset(seconds) == text


def test_a_hold_is_told_with_its_reason_and_the_pool_is_called_so() -> None:
    by_user = entry("held", cause="ada@example.org/1", detail="disk full")
    assert sentence(by_user) == "put on hold by ada@example.org; disk full"
    by_pool = entry("held", cause="pool", detail="3 attempts in a row failed")
    assert sentence(by_pool) == "put on hold by the pool; 3 attempts in a row failed"
    assert sentence(entry("released", cause="ada@example.org/1")) == "released by ada@example.org"


def test_it_says_which_items_the_tasks_that_were_asked_about_have() -> None:
    pool = FakePool(TellStory=replace(STORY, items={17: "beta.csv"}))
    lines = run(pool, "job", "story", "7", "17").stdout.splitlines()
    assert lines[1] == "task 17 has the item beta.csv"
    found = json.loads(run(pool, "job", "story", "7", "17", "-o", "json").stdout)
    assert found["items"] == {"17": "beta.csv"}
