"""The log of GNU parallel: a line for each task that has ended, by which a run is resumed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kestrelctl.errors import UsageError

#: The columns, which tabs divide.
HEADER = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"
_LINE = re.compile(r"(\d{1,18})(?:\t[^\t]*){5}\t(-?\d+)\t(\d+)\t")


class LogLine(NamedTuple):
    """A line of the log.

    Attributes:
        number: that of the input.
        host: the worker that ran it.
        start: seconds since the epoch.
        output_bytes: how much it wrote to standard output.
        exit_value: 0 for one that a signal ended, and -1 for one that did not come to its end.
    """

    number: int
    host: str
    start: float
    run_seconds: float
    output_bytes: int
    exit_value: int
    signal: int
    command: str

    def text(self) -> str:
        """Returns the line with its end; a newline in the command is a NUL, as parallel has it."""
        command = self.command.replace("\n", "\0")
        return (
            f"{self.number}\t{self.host}\t{self.start:.3f}\t{self.run_seconds:10.3f}\t0"
            f"\t{self.output_bytes}\t{self.exit_value}\t{self.signal}\t{command}\n"
        )


def numbers_in(lines: Iterable[str], *, only_done: bool) -> set[int]:
    """Returns the numbers of inputs that a log has lines of.

    A line that was cut off when its writer died is as good as none.

    Args:
        lines: with their ends.
        only_done: only of those that have not failed.

    Raises:
        UsageError: it is no such log.
    """
    found: set[int] = set()
    for place, line in enumerate(lines):
        match = _LINE.match(line)
        if not line.endswith("\n") or (place == 0 and line == HEADER):
            continue
        if match is None:
            raise UsageError(
                f"line {place + 1} of --joblog is none of such a log", hint=repr(HEADER.strip())
            )
        if not only_done or match[2] == match[3] == "0":
            found.add(int(match[1]))
    return found
