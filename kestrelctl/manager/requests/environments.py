"""Gives a job that names an environment what the pool's classes say of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.errors import NotFound


def no_environments(wanted: TaskEnvironment) -> TaskEnvironment:
    """Refuses every environment, as the pool has no classes.

    Raises:
        NotFound: whatever is wanted.
    """
    raise NotFound(
        f"there is no environment {wanted.of[:80]}",
        cause="the pool has no classes of environments",
        hint="its manager is given some with --environments FILE",
    )


def with_environment(
    spec: JobSpec, of_pool: Callable[[TaskEnvironment], TaskEnvironment]
) -> JobSpec:
    """Adds to a job what the pool's classes say now: its user says the name alone.

    Raises:
        NotFound: there is no such class.
        UsageError: tasks cannot run inside.
    """
    if spec.program.environment is None:
        return spec
    return msgspec.structs.replace(
        spec,
        program=msgspec.structs.replace(
            spec.program, environment=of_pool(spec.program.environment)
        ),
    )
