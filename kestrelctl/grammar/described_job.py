"""The job that the values of its options describe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kestrelctl.core.model.job.after import IfParentFails
from kestrelctl.core.model.job.placeholders import Placeholders, has_braces
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_array import TaskArray
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.core.model.objection import objection_to
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.isolation import tag
from kestrelctl.errors import UsageError
from kestrelctl.grammar.job_options import NAMED_ASSETS, OPTIONS
from kestrelctl.grammar.quantities import split_words
from kestrelctl.grammar.stage_words import stages_of
from kestrelctl.protocol.job_requests import MAX_KEY_CHARACTERS


def job_of(
    argv: tuple[str, ...],
    options: Mapping[str, Any],
    *,
    items: tuple[str, ...] | None = None,
    paste_items: bool = False,
) -> JobSpec:
    """The job that a command and the values of options describe. It is not checked yet, because
    more of it may follow (see `checked_job`).

    Placeholders in its commands are filled if it has an array or items, and stay as they were typed
    otherwise.

    Args:
        options: by `Option.dest`, as they were read.
        items: one for each task; None for the tasks of `--array`, or one.
        paste_items: items may become part of the text for a shell.

    Raises:
        UsageError: they describe none.
    """
    differ = options["array"] is not None or items is not None
    span = options["span"] or 1
    environment = options["environment"]
    if "=" in environment:
        raise UsageError(
            f"--environment names a class of environments, and {environment!r} is none",
            hint=f"--env {environment} sets a variable",
        )
    isolation = (tag(options["isolation"]),) if options["isolation"] else ()
    program = Program(
        argv=argv, env=_variables(options["env"]), stages=stages_of(options),
        environment=TaskEnvironment(environment) if environment else None,
        **_landing(options, "program"),
    )  # fmt: skip
    commands = [words for _, words in program.commands()]
    filled = _placeholders(commands, differ=differ, paste_items=paste_items)
    array = _array(options, span, items)
    deadline = options["deadline"]
    return JobSpec(
        program=msgspec.structs.replace(program, placeholders=filled),
        items=items, count=array.count, first=array.first, step=array.step, further=array.further,
        span=span,
        request=_request(options),
        requires=_tags(options["requires"]) + isolation,
        requirements=options["requirements"].strip(),
        rank=options["rank"].strip(),
        deadline_at=deadline and deadline.at, deadline_seconds=deadline and deadline.seconds,
        **_landing(options, ""),
    )  # fmt: skip


def _tags(given: Sequence[str]) -> tuple[str, ...]:
    """The tags; a word without any, as a shell makes of a variable that is not set, is refused."""
    if not all(split_words([word]) for word in given):
        raise UsageError("--requires names no tag", hint="write --requires LINUX, or leave it out")
    return split_words(given)


def _landing(options: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """The fields that options set as they are.

    Args:
        wanted: `program` for those of the program, or nothing for the rest of the spec.
    """
    found = {}
    for option in OPTIONS:
        part, _, name = option.lands.rpartition(".")
        if name and part == wanted:
            found[name] = options[option.dest]
    return found


def _array(options: Mapping[str, Any], span: int, items: tuple[str, ...] | None) -> TaskArray:
    """The tasks: those of an array, one for each item, or as many as there are copies or members.

    Raises:
        UsageError: more than one of these is said.
    """
    array: TaskArray | None = options["array"]
    copies = options["copies"]
    if copies is not None and (not options["service"] or array or items is not None):
        raise UsageError(
            "--copies says how many tasks a service has, and nothing else does",
            hint="write --service --copies 3, or --array",
        )
    if span > 1 and (array or items is not None):
        raise UsageError(
            f"a job that spans {span} workers has a task for each of them, and no array",
            hint="submit a job for each line or number",
        )
    return array or TaskArray(count=copies or span if items is None else len(items))


def _request(options: Mapping[str, Any]) -> dict[str, float]:
    asked: dict[str, float] = {}
    if options["asset"]:
        from kestrelctl.grammar.asset_words import asked_assets

        asked = asked_assets(options["asset"])
    for name in asked.keys() & set(NAMED_ASSETS):
        raise UsageError(f"{name} has an option of its own", hint=f"--{name} instead of --asset")
    named = {name: options[name] for name in NAMED_ASSETS if options[name] or name == "cpus"}
    return named | asked


def _placeholders(
    commands: Iterable[tuple[str, ...]], *, differ: bool, paste_items: bool
) -> Placeholders:
    """Chooses how the placeholders of a job are read; the usual way if its commands have none.

    Args:
        differ: it has an array or items, by which its tasks differ.
    """
    if not any(has_braces(words) for words in commands):
        return Placeholders.ALWAYS
    if not differ:
        return Placeholders.NONE
    return Placeholders.PASTE if paste_items else Placeholders.ARRAY


def _variables(given: Iterable[str]) -> dict[str, str]:
    variables = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise UsageError(
                f"not a variable: {each!r}", hint=f"write --env {name or 'NAME'}=VALUE"
            )
        variables[name] = value
    return variables


def checked_job(spec: JobSpec) -> JobSpec:
    """A job that the pool would take.

    Raises:
        UsageError: it would not.
    """
    problem = problem_with_job(spec)
    if problem is not None:
        raise UsageError("the pool would not take this job", cause=problem)
    objection = objection_to(spec)
    if objection is not None:
        raise UsageError(
            "the pool would not take this job", cause=objection.cause, hint=objection.hint
        )
    return spec


def checked_alone(spec: JobSpec) -> JobSpec:
    """A job that the pool would take, and that no jobs are submitted with.

    Raises:
        UsageError: it would not, or the job says what becomes of it when none of those fails for
            which it waits.
    """
    if spec.if_parent_fails is not IfParentFails.CANCEL and not (spec.after or spec.after_each):
        raise UsageError(
            "--if-parent-fails is for a job that waits for others, and this one waits for none",
            hint="--after JOB, or --after-each JOB, says for which it waits",
        )
    return checked_job(spec)


def checked_key(key: str | None) -> str | None:
    """A key for a submission.

    Raises:
        UsageError: it is empty or too long.
    """
    if key is not None and not 0 < len(key) <= MAX_KEY_CHARACTERS:
        raise UsageError(f"a key has 1 to {MAX_KEY_CHARACTERS} characters, not {len(key)}")
    return key
