"""Jobs of which a test names some fields, be they the job's or its program's."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec


def job_spec(**fields: Any) -> JobSpec:
    """A job with these fields; its command is `true` unless they say otherwise."""
    of_program, of_job = _parted(fields)
    return JobSpec(program=Program(**({"argv": ("true",)} | of_program)), **of_job)


def changed(spec: JobSpec, **fields: Any) -> JobSpec:
    """The same job with other values in these fields."""
    of_program, of_job = _parted(fields)
    return replace(spec, program=replace(spec.program, **of_program), **of_job)


def _parted(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = Program.__struct_fields__
    of_program = {name: value for name, value in fields.items() if name in names}
    return of_program, {name: fields[name] for name in fields if name not in names}
