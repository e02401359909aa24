"""Makes what is made of the table of options: the page of them, and the JSON schema of job files.

.venv/bin/python tests/check/reference.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kestrelctl.core.model.job.stage import COMMANDED
from kestrelctl.grammar.job_options import OPTIONS, SECTIONS
from kestrelctl.grammar.option import (
    Choice,
    Command,
    Decimal,
    File,
    Flag,
    JobNames,
    Option,
    Pairs,
    Parsed,
    Ranges,
    Whole,
    Words,
)

DOCS = Path(__file__).parents[2] / "docs"

_TEXT = {"type": "string"}
_WORDS = {"type": "array", "items": _TEXT}
_SCALAR = {"type": ["string", "number"]}
_COMMAND = {
    "oneOf": [_WORDS, _TEXT],
    "description": "A list of words, or a line for the shell.",
}


def job_file_schema() -> dict[str, Any]:
    """What a TOML file for `submit` may say, of one job or of several (JSON Schema 2020-12)."""
    job = {"command": _COMMAND, **_options(), "stage": _table(COMMANDED, _stage())}
    several = {"type": "object", "additionalProperties": _object(job)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Job file of kestrelctl submit",
        **_object({**job, "job": several}),
        "anyOf": [{"required": ["command"]}, {"required": ["job"]}],
    }


def _options() -> dict[str, Any]:
    return {
        option.name: {**_of(option), "description": option.text}
        for option in OPTIONS
        if option.in_file
    }


def _of(option: Option) -> dict[str, Any]:
    """What the value of an option may be."""
    match option.value:
        case Flag():
            return {"type": "boolean"}
        case Whole(least=least, most=most):
            return {"type": "integer", "minimum": least} | (
                {} if most is None else {"maximum": most}
            )
        case Decimal(least=least):
            return {"type": "number", "minimum": least}
        case Choice(words=words):
            return {"enum": list(words)}
        case Command():
            return dict(_COMMAND)
        case Pairs():
            return {"type": "object", "additionalProperties": _SCALAR}
        case Words():
            return {"oneOf": [_TEXT, _WORDS]}
        case Parsed():
            return dict(_SCALAR)
        case JobNames() | Ranges():
            one: dict[str, Any] = {"type": ["string", "integer"]}
        case _:
            one = _TEXT
    return {"oneOf": [one, {"type": "array", "items": one}]} if option.repeats else dict(one)


def _stage() -> dict[str, Any]:
    tries = {"type": "integer", "minimum": 1}
    return _object({"command": _COMMAND, "time-limit": _SCALAR, "tries": tries})


def _table(names: tuple[str, ...], of: dict[str, Any]) -> dict[str, Any]:
    return _object(dict.fromkeys(names, of))


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


_BEGINNING = """# Options of `submit`

```console
kestrelctl up
kestrelctl submit --name first --array 1-3 --wait -- echo task {n}
kestrelctl job logs last --all
kestrelctl down
```

All that `kestrelctl submit` takes, as `submit --help` has it. [The command line](cli.md#submitting)
explains the parts; [files](files.md), [workflows](workflows.md) and [spanning](spanning.md) have
examples. A TIME is `90` (seconds), `15m`, `1h30m` or `2d`; a SIZE is `512M`, `1.5GiB` (powers of
1024) or bytes.

The last column says how the value is written in a [job file](cli.md#job-files); nothing stands
there where job files have no such key. Stages are tables there, `[stage.in]` with `command`,
`time-limit` and `tries`. Editors that check TOML take
[job-file.schema.json](job-file.schema.json). This page and the schema are made by
`.venv/bin/python tests/check/reference.py`.
"""


def option_page() -> str:
    """The page, as Markdown."""
    return "\n".join([_BEGINNING, *_lines()])


def _lines() -> Iterator[str]:
    for section in SECTIONS:
        yield f"## {section.title}\n"
        yield "| option | what it does | in a job file |"
        yield "|---|---|---|"
        for option in section.options:
            names = " or ".join(f"`--{name}`" for name in (option.name, *option.also))
            value = f" `{_value(option)}`" if _value(option) else ""
            yield f"| {names}{value} | {_text(option)} | {_in_file(option)} |"
        yield ""


def _value(option: Option) -> str:
    match option.value:
        case Choice(words=words):
            value = "|".join(words)
        case Flag():
            value = ""
        case Whole() | Decimal():
            value = option.value.metavar or "N"
        case _:
            value = option.value.metavar or "TEXT"
    return value.replace("|", "\\|")


def _text(option: Option) -> str:
    text, _, default = option.text.partition("  [")
    if option.says_default:
        default = f"default: {option.unset}]"
    return (f"{text} [{default}" if default else text).replace("|", "\\|")


def _in_file(option: Option) -> str:
    if not option.in_file:
        return ""
    match option.value:
        case Flag():
            kind = "`true`"
        case Whole() | Decimal():
            kind = "a number"
        case Choice():
            kind = "text"
        case Command():
            kind = "a list of words, or a shell line"
        case Pairs():
            kind = "a table"
        case Words():
            kind = "a list, or text"
        case Ranges() | JobNames():
            kind = "text, or a number"
        case File():
            kind = "text, relative to the file"
        case _:
            kind = "text"
    return f"{kind}; or a list" if option.repeats and kind.startswith("text") else kind


def made() -> dict[Path, str]:
    """The text of each file that is made."""
    return {
        DOCS / "submit.md": option_page(),
        DOCS / "job-file.schema.json": json.dumps(job_file_schema(), indent=1) + "\n",
    }


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text)
        print(path)
