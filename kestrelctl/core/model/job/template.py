"""A job as a worker knows it, and how a task's command comes out of that."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kestrelctl.core.model.files.outputs import place_of
from kestrelctl.core.model.job.placeholders import (
    Placeholders,
    fill,
    has_braces,
    names_in,
    shown,
    values_of,
)
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_array import TaskArray
from kestrelctl.core.model.numbers import Count


class Template(TaskArray, frozen=True, kw_only=True, omit_defaults=True):
    """A job without its items. Sent to a worker once; later attempts name the job's id.

    Attributes:
        owner: set for a job with files: what is kept or written for one owner is nobody else's. A
            neighbour is sent the owner of every job, so that it can say whose tasks it runs.
        group: of the owner; sent to neighbours alone.
        filled: whether it is a guest's: command and environment are those of its only task, and
            nothing is filled in or added.
    """

    job_id: Count
    program: Program
    name: str = ""
    with_items: bool = False
    owner: str = ""
    group: str = ""
    filled: bool = False

    @classmethod
    def of(
        cls, job_id: int, spec: JobSpec, owner: str = "", *, keep_logs: bool = False
    ) -> Template:
        """The template of a submitted job.

        Args:
            keep_logs: whether the pool keeps what tasks of all jobs print.
        """
        program = spec.program
        if keep_logs and not program.keep_logs:
            program = msgspec.structs.replace(program, keep_logs=True)
        files = program.inputs or program.parent_files or program.stdin or program.output_to
        return cls(
            job_id=job_id,
            program=program,
            name=spec.name,
            count=spec.count,
            first=spec.first,
            step=spec.step,
            further=spec.further,
            with_items=spec.items is not None,
            filled=spec.guest is not None,
            owner=owner if files else "",
        )


def job_variables(template: Template) -> dict[str, str]:
    """Returns the variables in the environment of tasks that are the same for a whole job."""
    if template.filled:
        return template.program.env
    return {
        **template.program.env,
        "KESTREL_JOB_ID": str(template.job_id),
        "KESTREL_JOB_NAME": template.name,
        "KESTREL_TASK_COUNT": str(template.count),
    }


def task_variables(
    template: Template, index: int, item: str | None, count: int, hosts: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the other variables, which tell tasks apart. `docs/cli.md` lists all.

    Args:
        count: which attempt of the task it is, from 1.
        hosts: the machines of all members of a job that spans workers; empty for other jobs.
    """
    if template.filled:
        return {}
    found = {
        "KESTREL_TASK_ID": str(template.task_id(index)),
        "KESTREL_TASK_INDEX": str(index),
        "KESTREL_ATTEMPT": str(count),
    }
    if item is not None:
        found["KESTREL_ITEM"] = item
    if hosts:
        found["KESTREL_RANK"] = str(index)
        found["KESTREL_SPAN"] = str(len(hosts))
        found["KESTREL_HOSTS"] = ",".join(hosts)
    return found


def variables(
    template: Template, index: int, item: str | None, count: int, hosts: Sequence[str] = ()
) -> dict[str, str]:
    """All that a task finds in its environment from its job and from Kestrel."""
    return job_variables(template) | task_variables(template, index, item, count, hosts)


#: A command that is longer when it is filled in starts nowhere: Linux takes a quarter of its stack
#: (execve(2), with the usual 8 MiB).
MOST_FILLED_CHARACTERS = 2 << 20


def fill_for(
    template: Template, words: tuple[str, ...], index: int, item: str | None
) -> tuple[str, ...]:
    """A command of a task of the pool's own, with its values in the placeholders."""
    return fill(words, template.task_id(index), index, item, template.program.placeholders)


def is_alike_for_all(template: Template) -> bool:
    """Whether all tasks run the program of their job as it is: there is nothing to fill in."""
    program = template.program
    if template.filled:
        return True
    if program.output_to:
        return False
    if program.placeholders is Placeholders.NONE:
        return True
    return not any(has_braces(words) for _, words in program.commands())


def filled(template: Template, index: int, item: str | None) -> Program:
    """Returns what is run for a task of a job whose tasks are not alike (`is_alike_for_all`).

    That is the program of the job, with the task's values in it.
    """
    program = template.program
    return msgspec.structs.replace(
        program,
        argv=fill_for(template, program.argv, index, item),
        cleanup=fill_for(template, program.cleanup, index, item),
        stages=tuple(
            msgspec.structs.replace(stage, argv=fill_for(template, stage.argv, index, item))
            for stage in program.stages
        ),
        output_to=program.output_to and place_of(program.output_to, template.task_id(index)),
    )


def problem_with_filling(template: Template, index: int, item: str | None) -> str | None:
    """Says why no command comes out of a template for a task; None if one does.

    Args:
        index: of the task. One beyond the first copies of a service is right.
    """
    if template.further and index >= template.count:
        return f"the job has no task {index}"
    if template.filled or item is None:
        return None
    program = template.program
    commands = (program.argv, program.cleanup, *(stage.argv for stage in program.stages))
    braces = max(sum(word.count("{") for word in words) for words in commands)
    if braces * len(item) <= MOST_FILLED_CHARACTERS:  # nearly all: no need to look for them
        return None
    values = values_of(template.task_id(index), index, item)
    characters = {name: len(shown(value)) for name, value in values.items()}
    names = names_in((word for words in commands for word in words), program.placeholders)
    if sum(characters.get(name, 0) * n for name, n in names.items()) > MOST_FILLED_CHARACTERS:
        return f"the command would have more than {MOST_FILLED_CHARACTERS:,} characters"
    return None
