"""Counts of what workers have put into the file share, by results: for pool and worker alike."""

from __future__ import annotations

from collections import Counter

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import EndKind, EndReason
from kestrelctl.core.model.result import TAIL_BYTES, Outcome, Result

#: From the end of a task until all of it was stored, in seconds.
STORE_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0)
#: What tasks leave, and what they print.
KINDS = ("outputs", "logs")
LOGS_FAILED = "logs-failed"
#: The reasons why outputs were not stored, and a word for logs, which fail no task.
FAILURES = (
    EndKind.OUTPUTS_MISSING.value,
    EndKind.OUTPUTS_TOO_LARGE.value,
    EndKind.OUTPUTS_FAILED.value,
    LOGS_FAILED,
)


class StoredTotals:
    """Counts attempts of which something was stored, or was to be.

    Attributes:
        files: by kind: of outputs those in archives, of logs each stream.
        bytes: by kind, as they lie in the share.
        failures: attempts by why something of them was not stored.
        seconds: how long storing took, of attempts that tried.
    """

    __slots__ = ("bytes", "failures", "files", "seconds")

    def __init__(self) -> None:
        self.files = Counter(dict.fromkeys(KINDS, 0))
        self.bytes = Counter(dict.fromkeys(KINDS, 0))
        self.failures = Counter(dict.fromkeys(FAILURES, 0))
        self.seconds = Histogram(STORE_BOUNDS)

    def count(self, result: Result, *, keep_logs: bool) -> None:
        """Counts an attempt whose `stored_seconds` say that its worker tried.

        Args:
            keep_logs: whether what it printed was to be stored, if it is long.
        """
        self.seconds.observe(result.stored_seconds)
        if result.outputs is not None:
            self.files["outputs"] += result.output_files
            self.bytes["outputs"] += result.outputs.size_bytes
        kind = EndReason.of(result.reason).kind
        if kind in FAILURES:
            self.failures[kind] += 1
        missing = False
        for size_bytes, stored in (
            (result.stdout_bytes, result.stdout_stored),
            (result.stderr_bytes, result.stderr_stored),
        ):
            if stored is not None:
                self.files["logs"] += 1
                self.bytes["logs"] += stored.size_bytes
            elif size_bytes > TAIL_BYTES:
                missing = True
        if keep_logs and missing and result.outcome != Outcome.KILLED:
            self.failures[LOGS_FAILED] += 1
