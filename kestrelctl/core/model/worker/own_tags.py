"""The tags by which workers say of themselves what they can do for tasks, and which jobs want that.

Nobody else can give them: a worker of another version, or of another kind, does not have them, and
gets none of the jobs that it would get wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from kestrelctl.core.model.files import addresses, inputs, outputs, parent_files, workdir
from kestrelctl.core.model.job import (
    channel_rules,
    checkpoint,
    guest,
    placeholders,
    stage,
    task_environment,
)
from kestrelctl.core.model.job.spec import JobSpec


class OwnTag(NamedTuple):
    """A thing that some workers can do.

    Attributes:
        name: of the tag, in lower case.
        does: what workers with the tag do, as words after "workers".
        instead: how to submit a job that does not want it.
        wanted_by: whether a job wants it.
    """

    name: str
    does: str
    instead: str
    wanted_by: Callable[[JobSpec], bool]


def _runs_in(kind: str, spec: JobSpec) -> bool:
    """Whether the tasks of a job run inside environments of a kind."""
    environment = spec.program.environment
    return environment is not None and environment.kind == kind


def _has_other_braces(spec: JobSpec) -> bool:
    """Whether a worker that does not ask the job would fill some braces in its commands."""
    program = spec.program
    words = (word for _, words in program.commands() for word in words)
    return placeholders.read_otherwise_before(words, program.placeholders)


def _reads(protocol: str, spec: JobSpec) -> bool:
    """Whether the tasks of a job have inputs at addresses of a protocol."""
    program = spec.program
    if not program.inputs and program.stdin is None:
        return False
    files = (*program.inputs, *((program.stdin,) if program.stdin else ()))
    found = [each.address for each in files if each.address]
    return protocol in map(addresses.read_as, found)


OWN_TAGS = (
    OwnTag(
        workdir.TAG,
        "let jobs choose a directory",
        "with --workdir scratch",
        lambda spec: bool(spec.program.workdir),
    ),
    OwnTag(
        inputs.TAG,
        "fetch the inputs of tasks",
        "without --input",
        lambda spec: bool(spec.program.inputs or spec.program.stdin),
    ),
    OwnTag(
        parent_files.TAG,
        "fetch what tasks of other jobs left",
        "without --input job:…",
        lambda spec: bool(spec.program.parent_files),
    ),
    OwnTag(
        outputs.TAG,
        "store what tasks leave",
        "without --keep",
        lambda spec: bool(spec.program.outputs),
    ),
    OwnTag(
        outputs.FILE_TAG,
        "write what tasks leave to file: addresses",
        "without --output-to",
        lambda spec: bool(spec.program.output_to),
    ),
    OwnTag(
        guest.TAG,
        "run tasks of other pools as they are handed in",
        "at home",
        lambda spec: spec.guest is not None,
    ),
    OwnTag(
        stage.TAG,
        "run the stages of tasks",
        "without --setup, --stage-in and --stage-out",
        lambda spec: bool(spec.program.stages),
    ),
    OwnTag(
        placeholders.TAG,
        "leave braces in a command as they were typed",
        "without {} in its command",
        _has_other_braces,
    ),
    OwnTag(
        checkpoint.TAG,
        "store the checkpoints of tasks",
        "without --checkpoint",
        lambda spec: bool(spec.program.checkpoints),
    ),
    OwnTag(
        channel_rules.TAG,
        "let a job's owner write to its tasks",
        "without a channel",
        lambda spec: spec.program.channel,
    ),
    *(
        OwnTag(
            f"{addresses.TAG_PREFIX}{protocol}",
            f"read inputs at {protocol}: addresses",
            "with --input FILE",
            partial(_reads, protocol),
        )
        for protocol in (addresses.FILE, addresses.HTTPS, addresses.S3)
    ),
    *(
        OwnTag(
            task_environment.tag_of(kind),
            f"run tasks inside environments of kind {kind}",
            "without --environment",
            partial(_runs_in, kind),
        )
        for kind in task_environment.KINDS
    ),
)


def own_tags_of(spec: JobSpec) -> list[str]:
    """The names of the tags that a job wants."""
    return [each.name for each in OWN_TAGS if each.wanted_by(spec)]


def first_own(tags: Iterable[str]) -> OwnTag | None:
    """The first of some tags, in any case, that workers give themselves; None if none is one."""
    known = {each.name: each for each in OWN_TAGS}
    return next((known[tag.lower()] for tag in tags if tag.lower() in known), None)
