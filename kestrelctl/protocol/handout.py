"""From the core's decision to run attempts to the message that says so."""

from __future__ import annotations

from collections.abc import Mapping

from kestrelctl.core.effects import Run
from kestrelctl.core.job import Job
from kestrelctl.core.template import Template
from kestrelctl.protocol import work


def run_message(effect: Run, jobs: Mapping[int, Job], ack: list[int]) -> work.Run:
    """The message for a worker: spans, with the templates and items that go with them.

    Args:
        jobs: the active jobs, by id.
        ack: results of that worker that are safe.
    """
    items: list[str] = []
    for _, job_id, index, n in effect.spans:
        lines = jobs[job_id].spec.items
        if lines is not None:
            items.extend(lines[index : index + n])
    return work.Run(
        spans=effect.spans,
        jobs=[Template.of(job_id, jobs[job_id].spec) for job_id in effect.new_jobs],
        items=items,
        forget=effect.ended_jobs,
        ack=ack,
    )
