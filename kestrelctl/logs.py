"""How daemons log: one line an entry on stderr, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time


def _one_line(text: str) -> str:
    """With escapes for what would begin a new line, or tell a terminal to do something."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class TextFormatter(logging.Formatter):
    """One line an entry, for people; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line; `record.message` may hold what strangers have sent."""
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
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
