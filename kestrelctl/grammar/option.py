"""An option of a command as data.

Parsers of command lines, job files and chats are made from options, and so are help, the JSON
schema of job files, the rows of `job info` and the reference page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import UsageError

#: Asks for the id of the latest job of whoever writes an option.
LastJob: TypeAlias = Callable[[], int]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """The form in which the value of an option is written. The kinds below are all that there are.

    Attributes:
        metavar: stands for it in help.
    """

    metavar: str = ""


class Text(Value, frozen=True, kw_only=True):
    """Any text."""


class Flag(Value, frozen=True, kw_only=True):
    """Nothing follows the option: it is there or not."""


class Whole(Value, frozen=True, kw_only=True):
    """A whole number.

    Attributes:
        least, most: the smallest and the largest that is taken; None for any.
    """

    least: int = 0
    most: int | None = None


class Decimal(Value, frozen=True, kw_only=True):
    """A number that may have a fraction, from `least` up."""

    least: float = 0.0


class Choice(Value, frozen=True, kw_only=True):
    """One of some words.

    Attributes:
        made: what a word becomes.
    """

    words: tuple[str, ...]
    made: Callable[[str], Any] = str


class Parsed(Value, frozen=True, kw_only=True):
    """A text that has a form, such as a time or a size.

    Attributes:
        parse: raises UsageError for a text without it.
    """

    parse: Callable[[object], Any]


class Command(Parsed, frozen=True, kw_only=True):
    """A command: one text quoted as in a shell; in a job file a list of words, or a shell line."""


class Words(Value, frozen=True, kw_only=True):
    """Some words; in a job file a list, or a text with blanks between them."""


class Pairs(Value, frozen=True, kw_only=True):
    """Some `NAME=VALUE`; in a job file a table."""

    @staticmethod
    def pair(name: object, value: object) -> str:
        """Writes an entry of a table as on a command line.

        Raises:
            UsageError: the name has an equals sign, which would end it.
        """
        if "=" in str(name):
            raise UsageError(f"the name {str(name)[:80]!r} has an equals sign")
        return f"{name}={value}"


class File(Value, frozen=True, kw_only=True):
    """A file or a directory; in a job file relative to that.

    Attributes:
        stays: a word that means something else.
    """

    stays: str = ""


class Ranges(Value, frozen=True, kw_only=True):
    """Numbers, written once or several times, which are read together.

    Attributes:
        parse: reads all that was written, with commas between; UsageError if it cannot.
    """

    parse: Callable[[str], Any]


class JobNames(Value, frozen=True, kw_only=True):
    """Jobs of the pool, of which one may be the latest of whoever writes.

    Attributes:
        parse: reads what was written; UsageError if it cannot.
    """

    parse: Callable[[Any, LastJob], Any]


class Row(msgspec.Struct, frozen=True):
    """A line about an option in `job info`.

    Attributes:
        shows: what was asked of a job; an empty text leaves the line out.
        title: that of the line; empty for the name of the option.
    """

    shows: Callable[[JobSpec], str]
    title: str = ""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option.

    Attributes:
        name: as on a command line, without the dashes.
        text: what it does, a sentence that begins with a verb or a noun.
        value: how its value is written.
        lands: the field of a job's spec that it sets as it is: `max_running`, `program.join`;
            empty if it takes part in something that `described_job` puts together.
        default: the value of an option that lands nowhere and is not given.
        says_default: help shows the default.
        repeats: it may be given more than once, and its value is all that was given.
        also: other names.
        row: how it is shown.
        holds_back: what people are told while it holds tasks of a job back, if a feature's gate has
            its name as the reason. `{found}` stands for what the gate has found; without it what is
            wanted and found follows.
        in_file: job files may say it.
        not_in_chat: why it means nothing in a chat; empty if it does.
    """

    name: str
    text: str
    value: Value = Text()
    lands: str = ""
    default: Any = None
    says_default: bool = False
    repeats: bool = False
    also: tuple[str, ...] = ()
    row: Row | None = None
    holds_back: str = ""
    in_file: bool = True
    not_in_chat: str = ""

    @property
    def dest(self) -> str:
        """Its name as a variable of Python."""
        return self.name.replace("-", "_")

    @property
    def unset(self) -> Any:
        """Its value if it is not given; the default of the model, if it lands there."""
        if not self.lands:
            return () if self.repeats and self.default is None else self.default
        part, _, name = self.lands.rpartition(".")
        return _model_default(Program if part else JobSpec, name)


def _model_default(struct: type[msgspec.Struct], name: str) -> Any:
    default = struct.__struct_defaults__[
        struct.__struct_fields__.index(name) - len(struct.__struct_fields__)
    ]
    return default.value if isinstance(default, StrEnum) else default


class Section(msgspec.Struct, frozen=True):
    """Options under one heading of help, the most used first."""

    title: str
    options: Sequence[Option]
