"""Sizes, durations, selections and arrays, as people write and read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from cli_fake_pool import FakePool, run
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.cli.job.view import memory_time
from kestrelctl.cli.manager.commands import parse_keep_number
from kestrelctl.core.model.job.task_array import TaskArray
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import UsageError
from kestrelctl.grammar.asset_words import limited_assets, offered_assets
from kestrelctl.grammar.click_types import Number, WholeNumber
from kestrelctl.grammar.flock_words import round_trip
from kestrelctl.grammar.id_ranges import parse_array, parse_job, parse_jobs, parse_tasks
from kestrelctl.grammar.nearest import did_you_mean
from kestrelctl.grammar.quantities import (
    MOST_WHOLE,
    ago,
    duration,
    parse_capacities,
    parse_capacity,
    parse_digits,
    parse_duration,
    parse_percent,
    parse_size,
    short_address,
    short_number,
    size,
    split_words,
    told_apart,
)
from kestrelctl.metrics.endpoint import parse_address

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("100B", 100),
        ("512M", 512 << 20),
        ("512 MB", 512 << 20),
        ("2g", 2 << 30),
        ("1.5GiB", 3 << 29),
        ("1T", 1 << 40),
    ],
)
def test_a_size_is_read(text: str, n: int) -> None:
    assert parse_size(text) == n


@pytest.mark.parametrize("text", ["2048", "1", 500, "0.5", "1048575", " 64 "])
def test_a_small_number_without_its_unit_is_no_size(text: object) -> None:
    """It may be mebibytes: `Memory` of an expression is."""
    for parse in (parse_size, parse_capacity):
        with pytest.raises(UsageError) as caught:
            parse(text)
        words = str(text).strip()
        assert caught.value.hint == f"did you mean {words}MiB or {words}GiB? {words}B is bytes"
        assert f"{float(words):,.10g} bytes" in str(caught.value.cause)


@pytest.mark.parametrize("text", ["2048B", "512K", "0.0001K", "1000 KB"])
def test_memory_and_disk_have_at_least_a_mebibyte(text: str) -> None:
    parse_size(text)
    with pytest.raises(UsageError, match="is less than 1 MiB"):
        parse_capacity(text)


def test_no_memory_and_a_mebibyte_are_capacities() -> None:
    assert (parse_capacity("0"), parse_capacity("1M"), parse_capacity("1048576")) == (0, MIB, MIB)
    assert parse_capacities("2G,4G") == (2 << 30, 4 << 30)
    with pytest.raises(UsageError, match="4 lacks its unit"):
        parse_capacities("2G,4")


def test_amounts_of_memory_and_disk_are_capacities_everywhere() -> None:
    assert limited_assets(["memory=200G", "fpga=4"]) == {"memory": 200 << 30, "fpga": 4}
    for words in (["memory=2048"], ["disk=500"]):
        for read in (limited_assets, offered_assets):
            with pytest.raises(UsageError, match="lacks its unit"):
                read(words)


@pytest.mark.parametrize(("text", "share"), [("10%", 0.1), ("2.5 %", 0.025), ("0", 0), (100, 1)])
def test_a_percentage_is_read(text: object, share: float) -> None:
    assert parse_percent(text) == share


def test_a_share_below_one_needs_its_sign() -> None:
    assert parse_percent("0.5%") == 0.005
    with pytest.raises(UsageError) as caught:
        parse_percent("0.05")
    assert caught.value.hint == "write 5% or 0.05%"


@pytest.mark.parametrize("text", ["", "%", "x%", "-1%", "101%", "1e1", "nan"])
def test_what_is_no_percentage_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_percent(text)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "x", "-1", "1P", "1G2", "1e3", "inf", "1,5G", "9" * 400])
def test_what_is_no_size_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("15m", 900),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1h5s", 3605),
        ("02:03:04", 7384),
        ("1-02:03:04", 93_784),
        ("1-02:03", 93_780),
        ("7-00", 604_800),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "x", "1h30", "30m1h", "-5", "500ms", "1 h", "inf"])
def test_what_is_no_duration_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("90:00", "write 90h00m, or 90m00s"),
        ("1:30", "write 1h30m, or 1m30s"),
        ("2 hours", "write 2h"),
        ("1h 30m", "write 1h30m"),
        ("15days 2min 2s", "write 15d2m2s"),
        ("soon", "write 90 (seconds), 15m or 1h30m"),
    ],
)
def test_a_duration_of_another_form_is_answered_with_the_form_that_is_taken(
    text: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.04, "40 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (2.54, "2.5 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1m 00s"),
        (65, "1m 05s"),
        (7800, "2h 10m"),
        (273_600, "3d 4h"),
    ],
)
def test_durations_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, ""),
        (100, "100 B"),
        (1 << 20, "1 MiB"),
        (1_023_590, "1000 KiB"),  # 999.6 of them
        (1023 << 10, "1023 KiB"),
    ],
)
def test_sizes_for_people(n: int, text: str) -> None:
    assert size(n) == text


def test_no_number_for_people_has_an_exponent() -> None:
    amounts = (0.012, 40.0, 999.4, 999.6, 12_345.6)
    assert [*map(short_number, amounts)] == ["0.012", "40", "999", "1,000", "12,346"]
    assert round_trip(1.5) == "1,500 ms"
    assert memory_time(5000 * 3600.0 * (1 << 30)) == "5,000 GiB h"


def test_times_and_counts_for_people() -> None:
    assert ago(40.0, 100.0) == "1m 00s ago"
    assert ago(None, 100.0) == ""
    assert plural(1, "task") == "1 task"
    assert plural(1000, "task") == "1,000 tasks"


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("w7@workers.example.org/k3bW0", "w7"),
        ("w7@workers.example.org/2", "w7/2"),
        ("w7@workers.example.org", "w7"),
        ("7", "7"),
        ("", ""),
    ],
)
def test_addresses_for_people(address: str, text: str) -> None:
    assert short_address(address) == text


def test_sessions_of_one_account_are_told_apart() -> None:
    addresses = ["w7@x/core1", "w7@x/core2", "w8@x/core1", "w9@x/1", "w9@x/2"]
    assert list(told_apart(addresses).values()) == [
        *("w7/core1", "w7/core2"),
        *("w8", "w9/1", "w9/2"),
    ]


def test_words_may_be_repeated_or_have_commas() -> None:
    assert split_words(["A,B", " C ", "A D", ""]) == ("A", "B", "C", "D")


@pytest.mark.parametrize(
    "text", ["last", "all", "7", "3,5-9", "3, 5-9", "1-1", "all,3", "last, 5-9, all"]
)
def test_a_selection_of_jobs_passes_on_to_the_pool(text: str) -> None:
    assert parse_jobs(text) == text.replace(" ", "")


def test_a_blank_stands_for_a_comma_and_joins_no_numbers() -> None:
    assert parse_jobs("1 2  5-9") == "1,2,5-9"
    assert parse_tasks("1 2") == [1, 2]
    assert parse_array("1 2") == parse_array("1,2")


@pytest.mark.parametrize("text", ["", "x", "9-5", "1-", "-3", "1,,2", "all,x", "3:5", "1 - 3"])
def test_what_selects_no_jobs_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_jobs(text)
    assert caught.value.hint


def test_a_single_job_is_an_id_or_the_last() -> None:
    assert parse_job("7") == "7"
    assert parse_job("last") == "last"
    for text in ("all", "3,5", "", "1-2"):
        with pytest.raises(UsageError):
            parse_job(text)


def test_tasks_are_selected_by_id() -> None:
    assert parse_tasks("3,5-7") == [3, 5, 6, 7]
    assert parse_tasks("0") == [0]
    with pytest.raises(UsageError, match="100,000"):
        parse_tasks("1-10000000000")
    with pytest.raises(UsageError, match="no task 99999999999999999999"):
        parse_tasks("99999999999999999999")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("1-5", [1, 2, 3, 4, 5]),
        ("0-9:3", [0, 3, 6, 9]),
        ("0-8:3", [0, 3, 6]),
        ("5", [5]),
        ("5-5", [5]),
        (7, [7]),
        ("1-3,5-7", [1, 2, 3, 5, 6, 7]),
        ("10-20:5, 3, 5-6", [3, 5, 6, 10, 15, 20]),
        ("1,3,7", [1, 3, 7]),
    ],
)
def test_an_array_is_read(text: object, ids: list[int]) -> None:
    found = parse_array(text)
    assert [found.task_id(index) for index in range(found.count)] == ids
    assert found.indexes_of(ids) == list(range(found.count))
    others = [task_id for task_id in range(min(ids) - 2, max(ids) + 3) if task_id not in ids]
    assert found.indexes_of(others) == [None] * len(others)
    assert parse_array(found.ids()) == found


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**6))
def test_an_array_is_a_range(first: int, length: int, step: int) -> None:
    ids = range(first, first + length + 1, step)
    assert parse_array(f"{first}-{first + length}:{step}") == TaskArray(
        first=first, count=len(ids), step=step if len(ids) > 1 else 1
    )


def test_ten_million_tasks_are_a_range() -> None:
    assert parse_array("1-10000000") == TaskArray(first=1, count=10_000_000)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("9-1", "write --array 1-9 instead"),
        ("1-9:0", "the step after `:` is 1 or more"),
        ("1:10", "write --array 1-10; a step comes after it: 1-9:2"),
        ("1-3,7:2", "write --array 1-10; a step comes after it: 1-9:2"),
        ("x", "write 1-1000, 0-9:3 for every third, or 1-3,5-7; for a list: --each-line FILE"),
    ],
)
def test_what_is_no_array_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_array(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"0-{2**60}", "task ids go up to 1,000,000,000,000"),
        ("1-5,3", "the ranges of an array do not rise: 3 comes after 5"),
        ("2,2", "the ranges of an array do not rise: 2 comes after 2"),
        (",".join(map(str, range(1001))), "an array has at most 1,000 ranges, not 1,001"),
    ],
)
def test_ids_stay_exact_in_json_and_none_is_there_twice(text: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_array(text)
    assert caught.value.cause == cause


def test_a_word_that_was_probably_meant_is_named_unless_it_is_very_long() -> None:
    assert did_you_mean("cancle", ["cancel", "jobs"]) == "did you mean cancel?"
    assert did_you_mean("c" * 101, ["c" * 101]) is None


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--lsit", "--list"),
        ("jbo", "job"),
        ("--mem", "--memory"),
        ("Memory", "memory"),
        ("--since", None),
        ("--key", None),
        ("--limit", None),
        ("", None),
    ],
)
def test_only_a_typing_error_or_a_beginning_is_taken_for_a_word(
    word: str, meant: str | None
) -> None:
    known = ["--name", "--list", "--memory", "--retry-memory", "job", "--quiet", "memory"]
    known += ["--time-limit", "--send-limit"]
    if word == "--mem":
        known.remove("memory")
    assert did_you_mean(word, known) == (f"did you mean {meant}?" if meant else None)


def test_a_beginning_of_two_words_means_neither() -> None:
    assert did_you_mean("stop", ["stop-after", "stop-signal"]) is None


def test_a_word_of_another_system_is_not_taken_for_one_that_looks_like_it(tmp_path: Path) -> None:
    """HyperQueue stops a job when more tasks have failed than `max_fails`."""
    for word in ("--max-fails", "max_fails", "max-fails"):
        meant = did_you_mean(word, ["max-failures"])
        assert meant is not None
        assert "write stop-after with N + 1" in meant
    file = tmp_path / "job.toml"
    file.write_text("command = 'x'\nmax_fails = 3\n")
    said = run(FakePool(), "submit", str(file)).stderr
    assert "unknown key max_fails\nhint: HyperQueue's max_fails N stops" in said


def test_a_number_that_no_message_holds_is_refused_where_it_is_typed() -> None:
    assert WholeNumber(0).convert(str(MOST_WHOLE), None, None) == MOST_WHOLE
    with pytest.raises(click.BadParameter, match="the largest number"):
        WholeNumber(0).convert(str(MOST_WHOLE + 1), None, None)


#: Python makes no number of so many digits.
ENDLESS = "9" * 5_000


@pytest.mark.parametrize(
    "parse",
    [
        lambda text: parse_address(f"127.0.0.1:{text}"),
        lambda text: offered_assets([f"db=?:{text}"]),
        parse_keep_number,
        parse_array,
        parse_tasks,
        parse_duration,
        parse_percent,
        parse_size,
    ],
)
def test_a_number_of_thousands_of_digits_is_a_wrong_word_like_any_other(
    parse: Callable[[str], object],
) -> None:
    with pytest.raises(UsageError) as caught:
        parse(ENDLESS)
    assert len(caught.value.message) < 10_000


def test_digits_are_a_number_up_to_the_largest() -> None:
    assert parse_digits("007") == 7
    assert parse_digits(str(MOST_WHOLE)) == MOST_WHOLE
    for text in (str(MOST_WHOLE + 1), ENDLESS, "", "-1", "1.5", "\u0663", "\u00b2"):
        assert parse_digits(text) is None
    assert parse_digits("65536", 65535) is None


@pytest.mark.parametrize(
    "words", ["worker enroll --server host:{}", "bench --workers {}", "manager run --keep-jobs {}"]
)
def test_a_command_with_a_number_of_thousands_of_digits_is_refused(words: str) -> None:
    result = run(FakePool(), *words.format(ENDLESS).split())
    assert result.exit_code == 2
    assert "should not have happened" not in result.stderr


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "9" * 400])
def test_what_is_no_number_is_in_no_range(text: str) -> None:
    for accepts in (Number(), Number(0, min_open=True), Number(0.1, 3600)):
        with pytest.raises(click.BadParameter):
            accepts.convert(text, None, None)
    assert Number(0).convert("1.5", None, None) == 1.5
