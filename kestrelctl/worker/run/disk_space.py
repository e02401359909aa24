"""Finds out whether the worker's disk can be written: it is tried, because no figure tells.

statvfs(3) knows neither quotas nor what is reserved for root, and its figures round.
"""

from __future__ import annotations

import contextlib
import errno
import os

from kestrelctl.core.model.end_reason import NO_REASON, EndKind, ReasonText
from kestrelctl.errors import NO_SPACE

PROBE_BYTES = 64 << 10
"""A write that fails for want of space first fills what is left: less than this stays free."""

_PROBE = "probe"
_REASONS = {
    **dict.fromkeys(NO_SPACE, EndKind.NO_SPACE.text("the worker's disk is full")),
    errno.EROFS: EndKind.NO_RESOURCES.text("the worker's disk is mounted read-only"),
}


def why_unwritable(directory: int) -> ReasonText:
    """Tells why nothing can be written to an open directory of the worker; empty if something can.

    Takes about 0.1 ms, so it is asked only after a task has failed.

    Returns:
        A reason that blames the machine.
    """
    with contextlib.suppress(OSError):
        os.unlink(_PROBE, dir_fd=directory)
    try:
        file = os.open(_PROBE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
    except OSError as error:
        return _REASONS.get(error.errno or 0, NO_REASON)
    try:
        os.posix_fallocate(file, 0, PROBE_BYTES)
    except OSError as error:
        return _REASONS.get(error.errno or 0, NO_REASON)
    else:
        return NO_REASON
    finally:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(_PROBE, dir_fd=directory)
