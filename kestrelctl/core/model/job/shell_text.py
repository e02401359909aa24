"""The words of a command that a shell reads as code, and what becomes of placeholders in them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from kestrelctl.core.model.job.placeholders import (
    Placeholders,
    fields_of,
    has_braces,
    left_as_typed,
    names_in,
)
from kestrelctl.core.model.job.spec import JobSpec

SHELL = ("/bin/sh", "-c")

_WITH_NUMBER = ' "$KESTREL_TASK_ID"'


def numbered(line: str) -> tuple[str, ...]:
    """A shell line with the id of the task as its last argument; nothing for an empty line."""
    line = line.strip()
    return (*SHELL, line + _WITH_NUMBER) if line else ()


def as_line(words: Sequence[str], task_id: int) -> str:
    """The line for the shell that runs a command; the inverse of `numbered`."""
    if len(words) == 3 and tuple(words[:2]) == SHELL and words[2].endswith(_WITH_NUMBER):
        return f"{words[2].removesuffix(_WITH_NUMBER)} {task_id}"
    return shlex.join(words)


#: Shells that take a text to run after `-c`.
_SHELLS = frozenset(
    ("sh", "ash", "bash", "dash", "fish", "ksh", "ksh93", "mksh", "rbash", "yash", "zsh", "csh",
     "tcsh"),
)  # fmt: skip
#: Long options of bash that take a word.
_WITH_A_WORD = ("--rcfile", "--init-file")


def texts_for_a_shell(words: Sequence[str]) -> list[str]:
    """The words of a command that are texts for a shell: what follows `sh -c`, wherever it stands.

    So it finds that of `env A=1 /bin/bash -euo pipefail -c TEXT`, too.
    """
    return [
        words[place]
        for at, word in enumerate(words)
        if word.rpartition("/")[2] in _SHELLS
        and (place := _place_of_text(words, at + 1)) is not None
    ]


def _place_of_text(words: Sequence[str], at: int) -> int | None:
    """Finds the text for a shell whose options begin at a place; None if it has none."""
    takes_text = False
    while at < len(words) and words[at][:1] in ("-", "+") and len(words[at]) > 1:
        option = words[at]
        at += 1
        if option == "--":
            break
        if option.startswith("--"):
            at += option in _WITH_A_WORD
            continue
        takes_text = takes_text or (option[0] == "-" and "c" in option)
        at += option.count("o") + option.count("O")  # each takes the name of a setting
    return at if takes_text and at < len(words) else None


def left_in(spec: JobSpec, item: str | None) -> list[str]:
    """The placeholders of a job that look intended but stay as they are, each once.

    Args:
        item: of one of its tasks; None where there are no items.
    """
    found: dict[str, None] = {}
    for _, words in spec.program.commands():
        if has_braces(words):
            texts = texts_for_a_shell(words)
            found |= dict.fromkeys(left_as_typed(words, spec.program.placeholders, item, texts))
    return list(found)


def pasted_item(spec: JobSpec) -> str | None:
    """The first placeholder by which an item would become code; None if none would.

    A task's id or index is a number, and no code.
    """
    if spec.items is None or spec.program.placeholders is not Placeholders.ARRAY:
        return None
    texts = [text for _, words in spec.program.commands() for text in texts_for_a_shell(words)]
    names = names_in(texts, spec.program.placeholders)
    if "" in names:
        return "{}"
    for name in names:
        if any(_has_field(item, name) for item in spec.items):
            return f"{{{name}}}"
    return None


def _has_field(item: str, name: str) -> bool:
    """Whether an item is a JSON object with a field of this name, which is one word."""
    if not item.startswith("{") or not (f'"{name}"' in item or "\\u" in item):
        return False  # most items: there is no need to read them
    return name in fields_of(item)
