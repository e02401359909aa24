"""Conditions of `--halt` under which nothing more is run, as GNU parallel has them."""

from __future__ import annotations

import math
import re

from kestrelctl.errors import UsageError

#: The statuses for more failures than have a status of their own, and what is added to a signal.
_MANY_FAILED = 101
_SIGNALLED = 128
#: Short forms, and what they mean.
_SHORT = {
    "0": "never",
    "1": "soon,fail=1",
    "2": "now,fail=1",
    "-1": "soon,success=1",
    "-2": "now,success=1",
}
_FORM = re.compile(
    r"(?P<when>now|soon),(?P<what>fail|success|done)=(?P<number>\d{1,18})(?P<percent>%?)"
)


class Halting:
    """Decides when nothing more is run, and with which status all ends.

    Args:
        text: as `--halt` has it.

    Attributes:
        ended: how many tasks have ended, those that an earlier run has done among them.
        is_now: whether running tasks are ended, too; they are waited for otherwise.
        total: how many tasks there are; it must be set before the first if `needs_total`.

    Raises:
        UsageError: the text is no condition.
    """

    def __init__(self, text: str = "never") -> None:
        long = re.sub(r"^(\d+%)$", r"soon,fail=\1", _SHORT.get(text, text))
        match = _FORM.fullmatch(long)
        if match is None and long != "never":
            raise UsageError(
                f"--halt cannot be {text!r}",
                hint="never, now,fail=1 or soon,fail=1; success=1 or done=1; also 10% for a share",
            )
        self._what = match["what"] if match else ""
        self._number = int(match["number"]) if match else 0
        self.needs_total = bool(match and match["percent"])
        self.is_now = bool(match and match["when"] == "now")
        self.total = 0
        self.ended = 0
        self._run = 0
        self._failed = 0
        self._status: int | None = None

    def add(self, exit_value: int, signal: int) -> bool:
        """Notes how a task ended; returns whether nothing more is to be run now."""
        failed = bool(exit_value or signal)
        self._run += 1
        self.ended += 1
        self._failed += failed
        if not self._what or (self._what != "done" and failed != (self._what == "fail")):
            return False
        counts = {"fail": self._failed, "success": self._run - self._failed, "done": self.ended}
        needed = self.total * self._number / 100 if self.needs_total else self._number
        if counts[self._what] < needed:
            return False
        if self._status is None:
            self._status = self._halted_status(needed, exit_value, signal)
        return True

    def _halted_status(self, needed: float, exit_value: int, signal: int) -> int:
        if self._what == "success":
            return 0
        if needed == 1:  # as a shell has it
            return exit_value % 256 or (_SIGNALLED + signal if signal else 0)
        if self.needs_total:
            return math.ceil(self._failed / self.total * 100)
        return min(self._failed, _MANY_FAILED)

    @property
    def status(self) -> int:
        """The exit status for all tasks."""
        if self._status is not None:
            return self._status
        if self.needs_total:
            return math.ceil(self._failed / (self._run or 1) * 100)
        return min(self._failed, _MANY_FAILED)
