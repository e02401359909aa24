"""The stages of a task: what is done before its command and after it, each with its own limits.

Not every worker runs stages: a worker that does advertises a tag, and a job with stages asks for it
like for any other.
"""

from __future__ import annotations

import math
from collections.abc import Collection

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


#: The tag of workers that run stages. Nobody else can give it.
TAG = "stages"

#: The stages that have a command of their own.
COMMANDED = (SETUP, IN, OUT)
MOST_TRIES = 100


def problem_with_stages(stages: tuple[Stage, ...]) -> str | None:
    """The first thing wrong with stages, in words for their user; None if all is well."""
    names = [stage.name for stage in stages]
    for stage in stages:
        if stage.name not in COMMANDED:
            return f"stages are {', '.join(COMMANDED)}, not {stage.name[:20]!r}"
        if names.count(stage.name) > 1:
            return f"there are two commands for the stage {stage.name}"
        problem = _problem_with_one(stage)
        if problem:
            return f"stage {stage.name}: {problem}"
    return None


def _problem_with_one(stage: Stage) -> str | None:
    if not stage.argv or not stage.argv[0]:
        return "the command is empty"
    if any("\0" in word for word in stage.argv):
        return "a command cannot hold a NUL character"
    limit = stage.time_limit_seconds
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        return "a time limit is more than 0 seconds"
    if not 1 <= stage.tries <= MOST_TRIES:
        return f"it is tried 1 to {MOST_TRIES} times, not {stage.tries}"
    return None


def can_be_in(stages: Collection[Stage], name: str) -> bool:
    """Whether a task of a job can be in the stage of that name.

    Args:
        stages: of the job.
    """
    return bool(stages) and (name == RUN or any(stage.name == name for stage in stages))


def possible_runs(runs: tuple[StageRun, ...], longest_seconds: float) -> tuple[StageRun, ...]:
    """Limits what was reported of stages to what is possible: each stage once, in their order.

    Args:
        longest_seconds: no stage took longer.
    """
    found = {run.name: run for run in runs if run.name in STAGES}
    return tuple(
        StageRun(
            name,
            max(0.0, min(found[name].wall_seconds, longest_seconds)),
            max(1, min(found[name].tries, MOST_TRIES)),
        )
        for name in STAGES
        if name in found
    )
