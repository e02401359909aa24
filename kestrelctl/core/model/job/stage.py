"""The stages of a task: what is done before its command and after it, each with its own limits."""

from __future__ import annotations

import msgspec

#: The stages in their order. `run` is the command of the job; files are fetched before, and stored
#: after.
SETUP, IN, RUN, OUT = "setup", "in", "run", "out"
STAGES = (SETUP, IN, RUN, OUT)


class Stage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command beside that of the job.

    Attributes:
        name: `setup`, `in` or `out`.
        argv: with the placeholders of the job's command.
        time_limit_seconds: of one try; None for no limit.
        tries: how often it is tried at a worker before it has failed.
    """

    name: str
    argv: tuple[str, ...]
    time_limit_seconds: float | None = None
    tries: int = 1


class StageRun(msgspec.Struct, frozen=True, array_like=True):
    """The course of one stage of an attempt.

    Attributes:
        wall_seconds: of all its tries, with the pauses between.
        tries: how many there were.
    """

    name: str
    wall_seconds: float
    tries: int = 1
