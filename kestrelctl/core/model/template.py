"""What a worker knows of a job, and how a task's command comes out of it."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from kestrelctl.core.model.spec import JobSpec


class Template(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job without its array. Sent to a worker once; later attempts name the job's id."""

    job_id: int
    argv: tuple[str, ...]
    name: str = ""
    count: int = 1
    first: int = 0
    step: int = 1
    with_items: bool = False
    env: dict[str, str] = {}
    cleanup: tuple[str, ...] = ()
    time_limit_seconds: float | None = None

    @classmethod
    def of(cls, job_id: int, spec: JobSpec) -> Template:
        """The template of a submitted job."""
        return cls(
            job_id=job_id,
            argv=spec.argv,
            name=spec.name,
            count=spec.count,
            first=spec.first,
            step=spec.step,
            with_items=spec.items is not None,
            env=spec.env,
            cleanup=spec.cleanup,
            time_limit_seconds=spec.time_limit_seconds,
        )

    def task_id(self, index: int) -> int:
        """The id a user sees for the task at `index`."""
        return self.first + index * self.step


_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)?\}")


def fill(words: tuple[str, ...], task_id: int, index: int, item: str | None) -> tuple[str, ...]:
    """Puts a task's values into the placeholders of a command.

    `{}` is the item, or the task id where there are no items; `{n}` the task id; `{i}` the index;
    `{key}` a field of an item that is a JSON object. Any other braces stay as they are.
    """
    if not any("{" in word for word in words):
        return words
    values: dict[str, Any] = {}
    if item is not None and item.startswith("{"):
        try:
            parsed = json.loads(item)
        except (ValueError, RecursionError):  # no JSON, or nested too deeply to be read
            parsed = None
        if isinstance(parsed, dict):
            values.update(parsed)
    values["n"] = values.get("n", task_id)
    values["i"] = values.get("i", index)
    values[""] = str(task_id) if item is None else item

    def value(match: re.Match[str]) -> str:
        name = match.group(1) or ""
        if name not in values:
            return match.group(0)
        found = values[name]
        return found if isinstance(found, str) else json.dumps(found)

    return tuple(_PLACEHOLDER.sub(value, word) for word in words)
