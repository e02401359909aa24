"""What users are shown of checkpoints."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.checkpoint import Checkpoint
from kestrelctl.core.model.checkpoint_rules import DEFAULT_SECONDS
from kestrelctl.core.model.program import cut_words
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.protocol.checkpoint_views import CheckpointView, JobCheckpoints

#: Characters of globs in an answer about many jobs.
LONGEST_GLOBS = 200


def checkpoint_view(checkpoint: Checkpoint | None, now: float) -> CheckpointView | None:
    """The latest checkpoint of a task, if there is one."""
    if checkpoint is None:
        return None
    return CheckpointView(
        n=checkpoint.n,
        age_seconds=round(max(0.0, now - checkpoint.at), 3),
        size_bytes=checkpoint.stored.size_bytes,
    )


def job_checkpoints(spec: JobSpec, resumed: int) -> JobCheckpoints | None:
    """What a job says of checkpoints, if it does.

    Args:
        resumed: how many attempts were begun from one.
    """
    if not spec.program.checkpoints:
        return None
    return JobCheckpoints(
        globs=list(spec.program.checkpoints),
        every_seconds=spec.program.checkpoint_seconds or DEFAULT_SECONDS,
        exit_code=spec.program.checkpoint_exit,
        resumed=resumed,
    )


def abridged_checkpoints(view: JobCheckpoints | None) -> JobCheckpoints | None:
    """The same with globs that are cut where they become long."""
    if view is None:
        return None
    return msgspec.structs.replace(view, globs=cut_words(view.globs, LONGEST_GLOBS))
