"""The channel between a job's owner and its running tasks. `docs/protocol.md` shows one of each.

The pool carries frames in the order in which they were written, and keeps none: one that does not
arrive is lost, and both ends notice and say it again.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.model.job.channel_rules import MOST_FRAME_BYTES
from kestrelctl.core.model.numbers import Count, Whole
from kestrelctl.protocol.message import Message
from kestrelctl.protocol.request import JobRequest, Reply

#: In JSON a frame is base64.
Frame = Annotated[bytes, msgspec.Meta(max_length=MOST_FRAME_BYTES)]


class ToTask(Message, frozen=True, kw_only=True, tag="to_task"):
    """A frame for an attempt that runs at this worker. It is dropped if that has no channel."""

    number: Count
    data: Frame


class FromTask(Message, frozen=True, kw_only=True, tag="from_task"):
    """A frame of an attempt that runs at this worker; a sign of life, too.

    Attributes:
        data: empty for the first, which says that the attempt has opened its end.
    """

    number: Count
    job: Count
    index: Count
    data: Frame = b""


class Channels(Reply, frozen=True, kw_only=True, tag="channels"):
    """(task, number of its attempt) of all tasks of the job that are at workers."""

    tasks: list[tuple[int, int]]


class Written(Reply, frozen=True, kw_only=True, tag="written"):
    """Tells whether the frame went on to a worker; from there on nothing is told."""

    went_on: bool


class TaskWrote(Reply, frozen=True, kw_only=True, tag="task_wrote"):
    """A frame of a task, to the session that opened the channels of its job; its `id` is empty."""

    job: int
    task_id: int
    attempt: int
    data: bytes = b""


class OpenChannels(JobRequest, frozen=True, kw_only=True, tag="open_channels"):
    """Send what tasks of a job write to this session from now on. Answered by `channels`."""

    answered_by = (Channels, TaskWrote)
    repeats = True


class WriteToTask(JobRequest, frozen=True, kw_only=True, tag="write_to_task"):
    """Write a frame to a task. Answered by `written`.

    Attributes:
        attempt: the number of the attempt that it is for: no later one gets it.
    """

    answered_by = (Written,)

    task_id: Whole
    attempt: Count
    data: Frame


ChannelRequest: TypeAlias = OpenChannels | WriteToTask
ChannelAnswer: TypeAlias = Channels | Written | TaskWrote
