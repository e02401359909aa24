"""A process beside the worker's that talks over pipes and ends with the worker."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

#: Descriptors of the helpers that nobody has waited for: a number could be another process's.
_helpers: set[int] = set()


def start_helper(words: tuple[str, ...]) -> tuple[int, int]:
    """Starts a process that shares this one's standard error, group and session.

    The caller closes both ends. The next call waits for those that have ended.

    Returns:
        The end of its input to write to, and that of its output to read from.

    Raises:
        OSError: it cannot be started.
    """
    _wait_for_the_ended()
    theirs, ours = os.pipe()
    output, its_output = os.pipe()
    above = max(theirs, its_output) + 1
    try:
        # No group and no session of its own: it ends with the worker.
        pid = os.posix_spawn(
            words[0],
            words,
            dict(os.environ),
            file_actions=(
                (os.POSIX_SPAWN_DUP2, theirs, above),
                (os.POSIX_SPAWN_DUP2, its_output, above + 1),
                (os.POSIX_SPAWN_DUP2, above, 0),
                (os.POSIX_SPAWN_DUP2, above + 1, 1),
                (os.POSIX_SPAWN_CLOSE, above),
                (os.POSIX_SPAWN_CLOSE, above + 1),
            ),
            setsigmask=(),  # the worker has some blocked
        )
    except OSError:
        os.close(ours)
        os.close(output)
        raise
    finally:
        os.close(theirs)
        os.close(its_output)
    if sys.platform == "linux":
        with suppress(OSError):  # an old kernel, or a container's filter
            _helpers.add(os.pidfd_open(pid))
    return ours, output


def _wait_for_the_ended() -> None:
    for helper in list(_helpers):
        try:
            runs = os.waitid(os.P_PIDFD, helper, os.WEXITED | os.WNOHANG) is None
        except ChildProcessError:  # a launcher in this process has waited for it
            runs = False
        if not runs:
            _helpers.discard(helper)
            os.close(helper)
