"""Reasons to refuse a submission that do not count against a job that is there already.

A user who submits can write what he means at once. Nobody can do that for a job that an earlier
version took, when the manager is started.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kestrelctl.core.model.job.placeholders import WordOutline, bytes_in, fields_of, shown
from kestrelctl.core.model.job.shell_text import pasted_item
from kestrelctl.core.model.job.spec import JobSpec

#: The least memory, or disk, that is asked for. Less is a number that lacks its unit.
LEAST_CAPACITY_BYTES = 1 << 20
#: The longest argument, and the longest variable with its name, that Linux hands to a program:
#: MAX_ARG_STRLEN of <linux/binfmts.h> with pages of 4 KiB, less the NUL at its end (execve(2)).
MOST_STRING_BYTES = 131_071
#: The longest item: each task finds it in the variable KESTREL_ITEM.
MOST_ITEM_BYTES = MOST_STRING_BYTES - len("KESTREL_ITEM=")
#: All arguments and variables together: a quarter of the usual stack of 8 MiB (execve(2)), less
#: what a worker adds of its own.
MOST_TOGETHER_BYTES = (2 << 20) - (64 << 10)
#: Beside each string there is a pointer to it, and its NUL.
_BESIDE_BYTES = 9
#: A character of an item becomes at most so many bytes of a command: JSON's `1e15` is written out.
_MOST_GROWTH = 5
_IN_FILES = "put what is long into a file: --input FILE, or --stdin FILE"


class Objection(NamedTuple):
    """The reason why a submission is refused, and what to write instead."""

    cause: str
    hint: str


def objection_to(spec: JobSpec) -> Objection | None:
    """The first thing for which a submission is refused; None if all is well.

    Args:
        spec: a job without a problem (`core.model.validate`), with its items as far as they are
            known.
    """
    return _to_amounts(spec) or _to_pasting(spec) or _to_lengths(spec)


def _to_amounts(spec: JobSpec) -> Objection | None:
    asked = [(name, spec.request.get(name, 0)) for name in ("memory", "disk")]
    asked += [("memory", amount) for amount in spec.retry_memory_bytes]
    for name, amount in asked:
        if 0 < amount < LEAST_CAPACITY_BYTES:
            return Objection(
                f"{amount:,.10g} bytes of {name} are less than 1 MiB, and no task runs in that",
                f"it is in bytes: {amount:.10g} MiB are {round(amount * LEAST_CAPACITY_BYTES)}",
            )
    return None


def _to_pasting(spec: JobSpec) -> Objection | None:
    placeholder = pasted_item(spec)
    if placeholder is None:
        return None
    instead = 'write "$KESTREL_ITEM" there, with the quotes'
    if placeholder != "{}":
        instead = f"give it as an argument: sh -c '… \"$1\" …' sh {placeholder}"
    return Objection(
        f"{placeholder} stands in the text of sh -c, which would run a part of an item as code",
        f"{instead}; or --paste-items, if items are code",
    )


def _to_lengths(spec: JobSpec) -> Objection | None:
    """Objects to what is longer than a program may get."""
    environment_bytes = 0
    for name, value in spec.program.env.items():
        size_bytes = bytes_in(name) + 1 + bytes_in(value)
        environment_bytes += size_bytes + _BESIDE_BYTES
        if size_bytes > MOST_STRING_BYTES:
            return Objection(
                f"the environment variable {name[:40]} takes {size_bytes:,} bytes, "
                f"and a program gets at most {MOST_STRING_BYTES:,} in one",
                _IN_FILES,
            )
    commands = [
        (what, [WordOutline(word, spec.program.placeholders) for word in words])
        for what, words in spec.program.commands()
    ]
    last = spec.count - 1
    ids = max(len(str(spec.task_id(index))) for index in (0, last))
    values = {"n": ids, "i": len(str(last))}
    items = spec.items
    if items is None:
        return _to_filled(commands, values | {"": ids}, environment_bytes, "")
    longest = max(map(len, items), default=0) * _MOST_GROWTH
    names = {name for _, words in commands for word in words for name in word.names}
    at_most = dict.fromkeys(names | {""}, max(longest, ids))
    largest = _to_filled(commands, at_most, environment_bytes + longest, "")
    if longest <= MOST_ITEM_BYTES and largest is None:
        return None  # nearly always: no need to look at each
    indexes: Iterable[int] = range(spec.count)
    if names <= {""}:  # the longest item makes the longest command
        indexes = [max(indexes, key=lambda index: bytes_in(items[index]))]
    for index in indexes:
        item, task = items[index], f" of task {spec.task_id(index)}"
        item_bytes = bytes_in(item)
        if item_bytes > MOST_ITEM_BYTES:
            return Objection(
                f"the item{task} takes {item_bytes:,} bytes, "
                f"and a program gets at most {MOST_ITEM_BYTES:,}",
                "put it into a file that the tasks can read, and its name into the item",
            )
        fields = {name: bytes_in(shown(value)) for name, value in fields_of(item).items()}
        of_task = values | fields | {"": item_bytes}
        objection = _to_filled(commands, of_task, environment_bytes + item_bytes, task)
        if objection is not None:
            return objection
    return None


def _to_filled(
    commands: list[tuple[str, list[WordOutline]]],
    value_bytes: dict[str, int],
    environment_bytes: int,
    task: str,
) -> Objection | None:
    """Objects to what is too long in the commands of a task.

    Args:
        value_bytes: the sizes of its values, by name.
        task: which task, for messages; empty if all are alike.
    """
    for what, words in commands:
        together = environment_bytes
        for place, word in enumerate(words, 1):
            size_bytes = max(word.typed_bytes, word.filled_bytes(value_bytes))
            together += size_bytes + _BESIDE_BYTES
            if size_bytes > MOST_STRING_BYTES:
                return Objection(
                    f"word {place} of the {what}{task} takes {size_bytes:,} bytes, "
                    f"and a program gets at most {MOST_STRING_BYTES:,} in one",
                    _IN_FILES,
                )
        if together > MOST_TOGETHER_BYTES:
            return Objection(
                f"the {what}{task} and its environment take {together:,} bytes, "
                f"and a program gets at most {MOST_TOGETHER_BYTES:,}",
                _IN_FILES,
            )
    return None
