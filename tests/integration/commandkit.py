"""Commands of which a test names some fields, be they the command's or its program's."""

from __future__ import annotations

from typing import Any

from kestrelctl.core.model.job.program import Program
from kestrelctl.worker.run.executor import CommandSpec


def command_spec(number: int, *, env: dict[str, str], **fields: Any) -> CommandSpec:
    """A command with these fields and this whole environment."""
    names = Program.__struct_fields__
    program = {name: value for name, value in fields.items() if name in names}
    others = {name: fields[name] for name in fields if name not in names}
    return CommandSpec(number, Program(**program), env, **others)
