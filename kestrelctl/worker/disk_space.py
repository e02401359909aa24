"""Whether the worker's disk is full: it is tried, because no figure tells.

statvfs(3) knows neither quotas nor what is reserved for root, and its figures round.
"""

from __future__ import annotations

import contextlib
import errno
import os

PROBE_BYTES = 64 << 10
"""A write that fails for want of space first fills what is left: less than this stays free."""

_PROBE = "probe"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def is_full(directory: int) -> bool:
    """Whether nothing can be written to an open directory of the worker for want of space.

    Takes about 0.1 ms, so it is asked only after a task has failed.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_PROBE, dir_fd=directory)
    try:
        file = os.open(_PROBE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
    except OSError as error:
        return error.errno in _FULL
    try:
        os.posix_fallocate(file, 0, PROBE_BYTES)
    except OSError as error:
        return error.errno in _FULL
    else:
        return False
    finally:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(_PROBE, dir_fd=directory)
