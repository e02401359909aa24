"""The channel that a job's owner may have to each of its running tasks.

Not every worker opens channels: a worker that does advertises a tag, and a job with channels asks
for it like for any other.
"""

from __future__ import annotations

from kestrelctl.core.model.job.program import Program

#: The tag of workers that open channels. Nobody else can give it.
TAG = "channels"

#: The name of the socket in a task's scratch directory at which its worker listens.
SOCKET = "kestrel-channel"

#: The most bytes of one frame, either way: it fits into a message.
MOST_FRAME_BYTES = 256 * 1024


def problem_with_channel(program: Program) -> str | None:
    """The first thing that keeps tasks from a channel, in words for a user; None if all is well."""
    if program.channel and program.stages:
        return "a task with a channel has no stages"
    return None
