"""The log has the columns of GNU parallel, and a run goes on by it."""

from __future__ import annotations

import pytest

from kestrelctl.cli.map.joblog import HEADER, LogLine, numbers_in
from kestrelctl.errors import UsageError

LINE = LogLine(3, "w1", 1795950564.282, 0.0211, 2, 0, 0, "echo a")


def test_a_line_is_as_parallel_writes_it() -> None:
    assert LINE.text() == "3\tw1\t1795950564.282\t     0.021\t0\t2\t0\t0\techo a\n"
    assert len(HEADER.split("\t")) == len(LINE.text().split("\t")) == 9


def test_a_newline_in_a_command_does_not_end_the_line() -> None:
    assert LINE._replace(command="a\nb").text().count("\n") == 1


def test_inputs_with_a_line_are_done_and_those_that_failed_on_demand() -> None:
    lines = [
        HEADER,
        LINE.text(),
        LINE._replace(number=4, exit_value=1).text(),
        LINE._replace(number=5, signal=9).text(),
        LINE._replace(number=6, exit_value=-1).text(),
        LINE._replace(number=7, exit_value=1).text(),
        LINE._replace(number=7).text(),
        "8\t:\t1795950564.432\t     0.011\t0\t0\t0\t9\tkill -9 $$; echo 'it'\"'\"'s'\n",
    ]
    assert numbers_in(lines, only_done=False) == {3, 4, 5, 6, 7, 8}
    assert numbers_in(lines, only_done=True) == {3, 7}


def test_a_line_that_was_cut_off_is_none() -> None:
    assert numbers_in([HEADER, LINE.text()[:-1]], only_done=False) == set()


@pytest.mark.parametrize("line", ["hello\n", LINE.text().replace("3", "9" * 5000, 1)])
def test_what_is_no_log_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="line 2 of --joblog"):
        numbers_in([HEADER, line], only_done=False)
