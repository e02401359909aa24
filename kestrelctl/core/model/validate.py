"""Tells what makes a submitted job unacceptable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kestrelctl.core.model.files.inputs import problem_with_inputs, problem_with_stdin
from kestrelctl.core.model.files.outputs import problem_with_output_address, problem_with_outputs
from kestrelctl.core.model.files.parent_files import not_waited_for, problem_with_parent_files
from kestrelctl.core.model.files.workdir import problem_with_workdir
from kestrelctl.core.model.job.after import problem_with_parents
from kestrelctl.core.model.job.channel_rules import problem_with_channel
from kestrelctl.core.model.job.checkpoint import problem_with_checkpoints
from kestrelctl.core.model.job.ending_rules import problem_with_endings, problem_with_program_ends
from kestrelctl.core.model.job.guest import problem_with_guest
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.span import problem_with_span
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import problem_with_stages
from kestrelctl.core.model.job.task_array import problem_with_ids
from kestrelctl.core.model.job.task_environment import problem_with_environment
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.assets import problem_with_assets

if TYPE_CHECKING:
    from kestrelctl.core.model.job.template import Template

MAX_TASKS = 1_000_000_000
MAX_PRIORITY = 255


def problem_with_job(spec: JobSpec, *, home: str = "") -> str | None:
    """The first thing wrong with a job, in words for its user; None if all is well.

    Every job passes this check before it becomes one of the pool's, whoever has sent it.

    Args:
        home: the domain of the neighbour that has handed it in; empty for one of the pool's own.
    """
    guest = spec.guest
    if (guest.pool if guest is not None else "") != home:
        return "no user can say that a job is a guest of the pool"
    checks = (
        (
            spec.items is None or len(spec.items) == spec.count,
            f"{plural(len(spec.items or ()), 'item')} for {plural(spec.count, 'task')}",
        ),
        (
            0 <= spec.priority <= MAX_PRIORITY,
            f"priorities go from 0 to {MAX_PRIORITY}, not {spec.priority}",
        ),
        (spec.max_running is None or spec.max_running >= 1, "max_running is at least 1"),
        (spec.max_failures >= 1, "max_failures is at least 1"),
        (spec.max_losses >= 1, "max_losses is at least 1"),
    )
    return (
        (problem_with_guest(guest) if guest is not None else None)
        or next((text for fine, text in checks if not fine), None)
        or problem_with_assets(spec.request, "a task needs")
        or _problem_with_expression("requirements", spec.requirements)
        or _problem_with_expression("rank", spec.rank)
        or _problem_with_task(spec)
        or problem_with_endings(spec)
        or _problem_with_service(spec)
        or problem_with_span(spec)
        or problem_with_parents(spec.after)
        or _problem_with_order(spec)
        or _problem_with_pair(spec)
    )


def problem_with_template(template: Template) -> str | None:
    """The first thing wrong with what a worker is told of a job; None if all is well.

    A worker checks for itself whatever its manager hands it: names of files are put below its
    scratch directories, outside of what isolates tasks.
    """
    return _problem_with_task(template)


def _problem_with_task(told: JobSpec | Template) -> str | None:
    """The first thing wrong with the parts of a job that a worker acts on; None if all is well."""
    if not 1 <= told.count <= MAX_TASKS:
        return f"an array has 1 to {MAX_TASKS:,} tasks, not {told.count}"
    if len(told.name) > 200:
        return "a name has at most 200 characters"
    return problem_with_ids(told) or problem_with_program(told.program)


def problem_with_program(program: Program) -> str | None:
    """The first thing wrong with what is to be run, in words for its user; None if all is well.

    Manager, worker and neighbour all check this.
    """
    limit = program.time_limit_seconds
    texts = (*program.argv, *program.cleanup, *program.env, *program.env.values())
    checks = (
        (bool(program.argv) and bool(program.argv[0]), "the command is empty"),
        (
            limit is None or (math.isfinite(limit) and limit > 0),
            "a time limit is more than 0 seconds",
        ),
        (
            all(name and "=" not in name for name in program.env),
            "names of environment variables are not empty and hold no '='",
        ),
        (
            not any("\0" in text for text in texts),
            "commands and environment cannot hold a NUL character",
        ),
    )
    return (
        next((text for fine, text in checks if not fine), None)
        or problem_with_workdir(program.workdir)
        or problem_with_inputs(program.inputs, program.workdir)
        or problem_with_parent_files(program.parent_files, program.inputs, program.workdir)
        or problem_with_stdin(program.stdin)
        or problem_with_environment(program.environment)
        or problem_with_program_ends(program)
        or problem_with_outputs(program)
        or problem_with_output_address(program)
        or problem_with_stages(program.stages)
        or problem_with_checkpoints(program)
        or problem_with_channel(program)
    )


def _problem_with_service(spec: JobSpec) -> str | None:
    """The first thing that a copy of a service cannot do; None if all is well."""
    program = spec.program
    if spec.service and program.outputs:
        return "a copy of a service is started again whenever it ends: it leaves no outputs"
    if spec.service and program.stages:
        return "a copy of a service is started again whenever it ends: it has no stages"
    if spec.service and program.checkpoints:
        return "a copy of a service is started anew whenever it ends: it goes on from nothing"
    return None


def _problem_with_pair(spec: JobSpec) -> str | None:
    """The first thing wrong with how its tasks wait for another job's; None if all is well."""
    parent = spec.after_each
    if not parent:
        return None
    if parent < 0:
        return f"there is no job {parent}"
    if problem := problem_with_waiting_each(spec):
        return problem
    if any(each.first <= parent <= each.last for each in spec.after):
        return f"it waits for all of job {parent}, so not for each task of it as well"
    return None


def problem_with_waiting_each(spec: JobSpec) -> str | None:
    """Says why tasks of a job cannot wait for those of another, one for one; None if they can."""
    if spec.service:
        return "tasks of a service do not wait for those of another job, one for one"
    if spec.span > 1:
        return "a job that spans workers starts all its tasks together, none behind another's"
    return None


def _problem_with_order(spec: JobSpec) -> str | None:
    there = [each for each in spec.program.parent_files if not each.placed]
    early = not_waited_for(there, spec.after, spec.after_each)
    if early is None:
        return None
    return f"files of job {early} are wanted, and that it ends well is not waited for"


def _problem_with_expression(name: str, text: str) -> str | None:
    if not text:
        return None
    from kestrelctl.core.classad.rules import shown  # most jobs have none: submit is lean
    from kestrelctl.core.model.worker.significance import problem_with_expression

    mistake = problem_with_expression(text)
    return None if mistake is None else f"{name}: {shown(text, mistake)}"
