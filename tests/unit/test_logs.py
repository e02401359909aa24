"""One entry of a daemon's log is one line, whatever strangers put into it."""

from __future__ import annotations

import json
import logging

import pytest

from kestrelctl import logs
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


class Log:
    """What a handler with a filter for repeats writes, by a clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 0.0
        self.lines: list[str] = []
        self.repeats = logs.Repeats(lambda: self.at)
        self._handler = logging.Handler()
        self._handler.addFilter(self.repeats)
        self._handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]

    def __enter__(self) -> Log:
        logging.getLogger("kestrelctl").addHandler(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("kestrelctl").removeHandler(self._handler)

    def refuse(self, who: str, why: str = "no request") -> None:
        logging.getLogger("kestrelctl.manager.listener").warning("refused %s: %s", who, why)


def test_what_repeats_itself_is_counted_and_said_once() -> None:
    with Log() as log:
        for number in range(1239):
            log.refuse(f"eve@pool/{number}", f"reason {number}")
        log.refuse("bob@pool/1")
        assert log.lines[-1] == "refused bob@pool/1: no request"
        assert len(log.lines) == logs.FREE_LINES + 1
        log.at = logs.MINUTE_SECONDS
        log.repeats.say()
        assert log.lines[-1] == (
            "and 1,234 more like it in 60 s; the last: refused eve@pool/1238: reason 1238"
        )
        assert log.repeats.left_out == {"kestrelctl.manager.listener": 1234}
        log.refuse("eve@pool/1")
        assert log.lines[-1] == "refused eve@pool/1: no request"


def test_accounts_that_are_made_up_cannot_fill_the_log() -> None:
    with Log() as log:
        for number in range(20_000):
            log.refuse(f"eve{number}@pool")
        assert len(log.lines) <= logs.MOST_KINDS + logs.FREE_LINES
        assert len(log.repeats._seen) <= logs.MOST_KINDS + 1


def test_what_is_no_warning_is_always_written() -> None:
    with Log() as log:
        news = logging.getLogger("kestrelctl.manager.service")
        news.setLevel(logging.INFO)
        for _ in range(20):
            news.info("job %s", "1")
        assert len(log.lines) == 20
