"""Logging of daemons: one line an entry on stderr, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable

#: Lines of one kind about one account that pass in a minute.
FREE_LINES = 5
MINUTE_SECONDS = 60.0
#: Kinds and accounts that are told apart in a minute; all later ones count as one.
MOST_KINDS = 200
_OTHERS = "(others)"
_MOST_CHARACTERS = 100

_Kind = tuple[str, int, str]


def _one_line(text: str) -> str:
    """Escapes what would begin a new line, or tell a terminal to do something."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class TextFormatter(logging.Formatter):
    """One line an entry, for people; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Makes the line; `record.message` may hold what strangers have sent."""
        record.message = _one_line(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class Repeats(logging.Filter):
    """Lets a few warnings of one kind about one account pass, and counts the others of a minute.

    A kind is a place in the source; the account is the first thing that the line names. So nothing
    that strangers make up can fill the log or this table.

    Args:
        now: seconds, steady.

    Attributes:
        left_out: lines that were not written, by logger.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._seen: dict[_Kind, _Seen] = {}
        self.left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is to be written."""
        if record.levelno < logging.WARNING or getattr(record, "is_summary", False):
            return True
        moment = self._now()
        self.say(moment)
        kind = (record.name, record.lineno, _about(record))
        if kind not in self._seen and len(self._seen) >= MOST_KINDS:
            kind = (record.name, record.lineno, _OTHERS)
        seen = self._seen.get(kind)
        if seen is None:
            seen = self._seen[kind] = _Seen(moment)
        seen.count += 1
        seen.last = record
        if seen.count <= FREE_LINES:
            return True
        self.left_out[record.name] = self.left_out.get(record.name, 0) + 1
        return False

    def say(self, now: float | None = None) -> None:
        """Writes how many lines of each kind were left out, of minutes that are over."""
        moment = self._now() if now is None else now
        over = [kind for kind, seen in self._seen.items() if seen.since + MINUTE_SECONDS <= moment]
        for kind in over:
            seen = self._seen.pop(kind)
            if seen.count > FREE_LINES and seen.last is not None:
                _write_summary(seen.last, seen.count - FREE_LINES)


class _Seen:
    """Lines of one kind since the first of them."""

    __slots__ = ("count", "last", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.last: logging.LogRecord | None = None


def _about(record: logging.LogRecord) -> str:
    """Names what a line is about: an account, whichever session of it."""
    args = record.args
    first = args[0] if isinstance(args, tuple) and args else ""
    return str(first).partition("/")[0][:_MOST_CHARACTERS]


def _write_summary(last: logging.LogRecord, count: int) -> None:
    text = f"and {count:,} more like it in {MINUTE_SECONDS:g} s; the last: {last.getMessage()}"
    logging.getLogger(last.name).log(last.levelno, "%s", text, extra={"is_summary": True})


#: The filter of this process; it knows the lines that were left out.
repeats = Repeats()


def set_up(log_format: str, *, verbose: bool) -> None:
    """Sets up logging for a daemon.

    Args:
        log_format: `text` or `json`.
        verbose: whether to log what is only of interest when something is being looked into.
    """
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter())
    handler.addFilter(repeats)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
