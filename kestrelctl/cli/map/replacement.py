"""The replacement strings of GNU parallel in a command, and what tasks are sent for them.

A command with replacement strings becomes the command of a job, whose placeholders take values that
are made here: a task's item is a JSON object with them, or, if `{}` alone is replaced, the argument
as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from kestrelctl.core.model.job.placeholders import as_typed, has_braces
from kestrelctl.core.model.job.shell_text import texts_for_a_shell
from kestrelctl.errors import UsageError

#: What is taken of an argument; the longest first.
_PARTS = r"//|/\.|/|\.|"
_REPLACED = re.compile(rf"\{{(?:(?P<number>#)|(?P<place>-?\d{{1,18}})?(?P<part>{_PARTS}))\}}")
#: Replacement strings that are refused, and why.
_REFUSED = (
    (
        "{%}",
        "a slot belongs to one machine, and tasks run on many",
        "{#} is the number of an input",
    ),
    ("{=", "no Perl runs here", "compute it in the command: sh -c '… \"$1\" …' sh {}"),
)
#: Characters that mean something to a shell.
_OF_SHELLS = re.compile(r"[\s;&|<>()$`\"'*?\[\]~!\\]")
#: The names of placeholders that every task has, whatever its item is.
_OF_ALL = ("", "n", "i")


class MappedInput(NamedTuple):
    """The arguments of one task, one of each source or column.

    Attributes:
        number: its place among all inputs, from 1.
    """

    number: int
    arguments: tuple[str, ...]


class Replacement(NamedTuple):
    """A replacement string.

    Attributes:
        place: of the argument, from 1, or from -1 for the last; 0 for all of them.
        part: what is taken of it: `.`, `/`, `//`, `/.`, or nothing for all of it; `#` for the
            number of the input.
    """

    place: int
    part: str

    def is_missing(self, count: int) -> bool:
        """Whether it is of none of so many arguments."""
        return self.part != "#" and abs(self.place) > count

    def value(self, task: MappedInput) -> str:
        """Returns the text that stands there for an input; a missing argument is empty."""
        if self.part == "#":
            return str(task.number)
        if self.is_missing(len(task.arguments)):
            return ""
        index = self.place - 1 if self.place > 0 else self.place
        return part_of(task.arguments[index], self.part)


Word: TypeAlias = tuple[str | Replacement, ...]


def part_of(argument: str, part: str) -> str:
    """Returns a part of an argument, as GNU parallel names it.

    Args:
        part: `.` is all but its extension, `/` its last component, `//` the directory, and `/.`
            the last component without its extension.
    """
    if part == "//":
        return _directory(argument)
    if part.startswith("/"):
        argument = re.sub(r".*/", "", argument)
    return re.sub(r"\.[^/.]*$", "", argument) if part.endswith(".") else argument


def _directory(path: str) -> str:
    """The directory of a path, as dirname(1) has it."""
    before, slash, name = path.rpartition("/")
    if not name:
        before, slash, _ = before.rstrip("/").rpartition("/")
    if not slash:
        return "/" if path.startswith("/") else "."
    return before.rstrip("/") or "/"


class MappedCommand:
    """A command with replacement strings; without any, all arguments follow it.

    Args:
        words: as they were typed.

    Raises:
        UsageError: it has replacement strings of GNU parallel that have no meaning here.
    """

    def __init__(self, words: Sequence[str]) -> None:
        for text, cause, hint in _REFUSED:
            if any(text in word for word in words):
                raise UsageError(f"{text} has no meaning here", cause=cause, hint=hint)
        self._words = [_pieces(word) for word in words]
        if not any(isinstance(piece, Replacement) for word in self._words for piece in word):
            self._words.append((Replacement(0, ""),))
        self._shapes: dict[int, MappedShape] = {}

    def shape(self, count: int) -> MappedShape:
        """Returns the command for inputs of so many arguments."""
        found = self._shapes.get(count)
        if found is None:
            words = [
                each
                for word in self._words
                for each in _of_all(word, count)
                if not all(isinstance(p, Replacement) and p.is_missing(count) for p in each)
            ]
            found = self._shapes[count] = MappedShape(words)
        return found


def _pieces(word: str) -> Word:
    """Takes a word apart into text and replacement strings."""
    found: list[str | Replacement] = []
    end = 0
    for match in _REPLACED.finditer(word):
        if match.start() > end:
            found.append(word[end : match.start()])
        end = match.end()
        if match["number"]:
            found.append(Replacement(0, "#"))
        else:
            found.append(Replacement(int(match["place"] or 0), match["part"]))
    if end < len(word) or not found:
        found.append(word[end:])
    return tuple(found)


def _of_all(word: Word, count: int) -> list[Word]:
    """Replaces what stands for all arguments by those, between which words end."""
    words: list[list[str | Replacement]] = [[]]
    for piece in word:
        if isinstance(piece, str) or piece.place or piece.part == "#":
            words[-1].append(piece)
            continue
        words[-1].append(Replacement(1, piece.part))
        words += [[Replacement(place, piece.part)] for place in range(2, count + 1)]
    return [tuple(each) for each in words]


class MappedShape:
    """A command for inputs with one number of arguments.

    Attributes:
        argv: that of a job, with placeholders.
    """

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words
        whole = (Replacement(1, ""),)
        texts = [word for word in words if _is_text(word)]
        self._is_plain = all(_is_text(word) or word == whole for word in words) and not any(
            has_braces(map(str, word)) for word in texts
        )
        replaced = dict.fromkeys(word for word in words if not _is_text(word))
        self._fields = {f"_{number}": word for number, word in enumerate(replaced, 1)}
        names = {word: name for name, word in self._fields.items()}
        taken = {*_OF_ALL, *self._fields}
        self.argv = tuple(
            as_typed(str(word[0]), taken)
            if _is_text(word)
            else "{}"
            if self._is_plain
            else f"{{{names[word]}}}"
            for word in words
        )

    def item(self, task: MappedInput) -> str:
        """Returns the item of an input's task."""
        if self._is_plain:
            return task.arguments[0]
        values = {name: _filled(word, task) for name, word in self._fields.items()}
        return msgspec.json.encode(values).decode()

    def filled(self, task: MappedInput) -> list[str]:
        """Returns the command that runs for an input."""
        return [_filled(word, task) for word in self._words]


def _is_text(word: Word) -> bool:
    return len(word) == 1 and isinstance(word[0], str)


def _filled(word: Word, task: MappedInput) -> str:
    return "".join(piece if isinstance(piece, str) else piece.value(task) for piece in word)


# -- shells ----------------------------------------------------------------------------------------


def refuse_code(words: Sequence[str], *, paste_items: bool) -> None:
    """Passes unless a shell would have to read the command, or would read inputs as code.

    Args:
        paste_items: inputs may stand in the text of `sh -c`.

    Raises:
        UsageError: says how it is written so that inputs are no code.
    """
    if len(words) == 1 and _OF_SHELLS.search(_REPLACED.sub("", words[0])):
        raise UsageError(
            f"no shell reads the command, and {words[0][:80]!r} is one for a shell",
            cause="inputs are no code: the words of a command go to the program as they are",
            hint=_as_line(with_arguments(words[0])),
        )
    if paste_items:
        return
    for text in texts_for_a_shell(words):
        found = _REPLACED.search(text)
        if found is None:
            continue
        spelled = "give it as an argument: sh -c '… \"$1\" …' sh " + found[0]
        if words[-1] == text:
            spelled = _as_line([*words[:-1], *with_arguments(text)[2:]])
        raise UsageError(
            f"{found[0]} stands in the text of sh -c, which would run a part of an input as code",
            hint=f"{spelled}; or --paste-items, if inputs are code",
        )


def with_arguments(line: str) -> list[str]:
    """Returns a command that runs a line for a shell, with what is replaced in it as arguments."""
    places: dict[str, int] = {}
    spelled, quote, at = "", "", 0
    while at < len(line):
        match = _REPLACED.match(line, at)
        if match is not None:
            name = f"${places.setdefault(match[0], len(places) + 1)}"
            spelled += {"": f'"{name}"', '"': name, "'": f"'\"{name}\"'"}[quote]
            at = match.end()
            continue
        character = line[at]
        if character == "\\" and quote != "'":
            spelled += line[at : at + 2]
            at += 2
            continue
        if character in ("'", '"') and quote in ("", character):
            quote = "" if quote else character
        spelled += character
        at += 1
    if not places:
        return ["sh", "-c", f'{line} "$@"', "sh", "{}"]
    return ["sh", "-c", spelled, "sh", *places]


def _as_line(words: Sequence[str]) -> str:
    return " ".join(["kestrelctl map", *map(_quoted, words)])


def _quoted(word: str) -> str:
    """Quotes a word for a shell if it must be; replacement strings need it not."""
    if word and not _OF_SHELLS.search(_REPLACED.sub("", word)):
        return word
    return "'" + word.replace("'", "'\\''") + "'"
