"""Jobs that span workers: what they may ask for, and what their members are told of each other."""

from __future__ import annotations

import re

from kestrelctl.core.model.job.spec import JobSpec

MOST_SPAN = 1_000
#: The longest name of a machine that members are told.
MOST_HOST_CHARACTERS = 64
_HOST = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{MOST_HOST_CHARACTERS - 1}}}")


def told_host(host: str) -> str:
    """The name of a member's machine as the others are told.

    It goes into variables and files of somebody's tasks, so anything else is replaced.

    Args:
        host: as its worker says.
    """
    return host if _HOST.fullmatch(host) else "unknown-host"


def problem_with_span(spec: JobSpec) -> str | None:
    """Says why the tasks of a job cannot start together; None if they can, or need not."""
    span = spec.span
    if not 1 <= span <= MOST_SPAN:
        return f"a job spans 1 to {MOST_SPAN:,} workers, not {span:,}"
    if span == 1:
        return None
    checks = (
        (
            spec.count == span and spec.items is None,
            f"a job that spans {span} workers has a task for each of them, and no others",
        ),
        (not spec.service, "a service spans no workers"),
        (
            not spec.retry_memory_bytes,
            "a job that spans workers cannot ask for more memory for one of them",
        ),
        (
            not spec.program.checkpoints,
            "members of a job that spans workers start together, and not each from a checkpoint",
        ),
        (
            span <= (spec.max_running or span),
            f"{span} tasks that run together are more than max_running, {spec.max_running}",
        ),
    )
    return next((text for fine, text in checks if not fine), None)
