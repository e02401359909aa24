"""One entry of a daemon's log is one line, whatever strangers put into it."""

from __future__ import annotations

import json
import logging

import pytest

from kestrelctl.logs import JsonFormatter, TextFormatter


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_nobody_can_write_a_line_of_his_own(formatter: logging.Formatter) -> None:
    said = "Invalid value 'x\n12:00:00 INFO all is well\r\x1b[2J\u2028'"
    record = logging.LogRecord("k", logging.WARNING, __file__, 1, "refused: %s", (said,), None)
    line = formatter.format(record)
    assert "\n" not in line
    assert "\r" not in line
    assert "\x1b" not in line


def test_what_people_write_stays_as_it_is() -> None:
    record = logging.LogRecord("k", logging.INFO, __file__, 1, "é ß … 東 %d", (3,), None)
    assert TextFormatter().format(record).endswith("é ß … 東 3")
    assert json.loads(JsonFormatter().format(record))["message"] == "é ß … 東 3"
