"""Jobs of one file come parents first, and what cannot be is refused with the path."""

from __future__ import annotations

import pytest

from kestrelctl.client.graph_order import Placed, arrange
from kestrelctl.core.model.job.after import After, WantedEnd
from kestrelctl.errors import UsageError
from kestrelctl.grammar.after_words import in_ranges, parse_after

LAST_JOB = 41
OK, ENDED, FAILED = WantedEnd.OK, WantedEnd.ENDED, WantedEnd.FAILED


def last() -> int:
    return LAST_JOB


def nobody_asks() -> int:
    raise AssertionError("no word means the latest job")


def test_the_latest_job_has_a_word() -> None:
    assert parse_after(["last:ended", "50", "3"], last) == (
        After(3, 3), After(LAST_JOB, LAST_JOB, ENDED), After(50, 50),
    )  # fmt: skip
    assert parse_after(["3"], nobody_asks) == (After(3, 3),)
    with pytest.raises(UsageError, match="cannot be waited for"):
        parse_after(["last", str(LAST_JOB)], last)


def test_a_job_of_the_file_that_is_called_last_comes_before_the_latest_job() -> None:
    [first, second] = arrange({"a": ["last:failed"], "b": ["a"]}, last)
    assert (first.outside, second.outside) == ((After(LAST_JOB, LAST_JOB, FAILED),), ())
    [_, second] = arrange({"last": [], "b": ["last"]}, nobody_asks)
    assert (second.after, second.outside) == ((After(0, 0),), ())


def test_jobs_are_named_by_id_range_and_end() -> None:
    assert parse_after(["12:failed", " 3-9:ended", "1"], last) == (
        After(1, 1),
        After(3, 9, ENDED),
        After(12, 12, FAILED),
    )


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("x", "not a job to wait for: 'x'"),
        ("3:done", "not a way to end: 'done'"),
        ("9-3", "these jobs cannot be waited for"),
        ("0", "these jobs cannot be waited for"),
        ("3-4,4", "not a job to wait for"),
    ],
)
def test_what_names_no_job_is_refused(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_after([word], last)


def test_a_job_comes_after_the_one_for_whose_tasks_it_waits() -> None:
    first, second, third = arrange({"c": ["a"], "b": [], "a": ["7"]}, last, {"c": "b", "b": "12"})
    assert [first.name, second.name, third.name] == ["b", "a", "c"]
    assert (first.after_each, first.outside_each) == (None, 12)
    assert (third.after, third.after_each, third.outside_each) == ((After(1, 1),), 0, 0)


def test_jobs_whose_tasks_wait_for_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="a → b → a"):
        arrange({"a": [], "b": ["a"]}, last, {"a": "b"})
    with pytest.raises(UsageError, match="waits for all of job a and for each of its tasks"):
        arrange({"a": [], "b": ["a:ended"]}, last, {"b": "a"})


def test_a_job_that_is_named_twice_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        parse_after(["3-5", "4:failed"], last)
    assert (
        refused.value.cause == "the jobs that one waits for rise, and each comes once: 4 does not"
    )


def test_numbers_in_a_row_with_one_end_are_one_range() -> None:
    assert in_ranges([(3, OK), (1, OK), (2, OK), (4, FAILED), (6, OK)]) == (
        After(1, 3),
        After(4, 4, FAILED),
        After(6, 6),
    )


def test_parents_come_first_and_otherwise_the_order_stays() -> None:
    assert arrange({"last": ["mid"], "a": [], "mid": ["a", "b:ended"], "b": [], "c": []}, last) == [
        Placed("a", (), ()),
        Placed("b", (), ()),
        Placed("mid", (After(0, 0), After(1, 1, ENDED)), ()),
        Placed("last", (After(2, 2),), ()),
        Placed("c", (), ()),
    ]


def test_a_glob_names_all_that_it_fits() -> None:
    placed = arrange({"fit-1": [], "fit-2": [], "x": [], "sum": ["fit-*"]}, last)
    assert placed[3].after == (After(0, 1),)


def test_jobs_that_are_there_already_are_named_by_id() -> None:
    [first, second] = arrange({"a": ["12", "20-22:failed"], "b": ["a", "7"]}, last)
    assert (first.after, first.outside) == ((), (After(12, 12), After(20, 22, FAILED)))
    assert (second.after, second.outside) == ((After(0, 0),), (After(7, 7),))


@pytest.mark.parametrize(
    ("after", "path"),
    [
        ({"a": ["c"], "b": ["a"], "c": ["b"]}, "a → b → c → a"),
        ({"a": ["a"]}, "a → a"),
        ({"free": [], "b": ["c", "free"], "c": ["b"], "d": ["b"]}, "b → c → b"),
    ],
)
def test_a_cycle_is_refused_with_its_path(after: dict[str, list[str]], path: str) -> None:
    with pytest.raises(UsageError) as refused:
        arrange(after, last)
    assert refused.value.message == f"jobs wait for each other: {path}"


def test_a_long_cycle_is_named_in_part() -> None:
    ring = {f"j{n}": [f"j{(n + 1) % 500}"] for n in range(500)}
    with pytest.raises(UsageError) as refused:
        arrange(ring, last)
    assert len(refused.value.message) < 300
    assert "…" in refused.value.message


@pytest.mark.parametrize("word", ["nobody", "fit-*", "nobody:failed"])
def test_a_name_of_no_job_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match=r"job b is after .*, which is no job"):
        arrange({"a": [], "b": [word]}, last)


def test_one_job_that_shall_end_in_two_ways_is_refused() -> None:
    with pytest.raises(UsageError, match="job b wants two ends of job a"):
        arrange({"a": [], "b": ["a", "a:failed"]}, last)


def test_a_large_graph_is_looked_at_once_for_each_layer() -> None:
    layers = {f"l{n}-{k}": [f"l{n - 1}-*"] if n else [] for n in range(20) for k in range(20)}
    placed = arrange(layers, last)
    assert placed[-1].after == (After(360, 379),)
    assert placed[-1].after is placed[-2].after


def test_the_latest_job_that_is_there_may_be_waited_for_task_by_task() -> None:
    [placed] = arrange({"a": []}, last, {"a": "last"})
    assert (placed.after_each, placed.outside_each) == (None, last())
