"""Placeholders in the commands of a job: which of them are filled, and with what."""

from __future__ import annotations

import enum
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

#: The tag of workers that read placeholders as the job says. Nobody else can give it.
TAG = "placeholders"


def has_braces(words: Iterable[str]) -> bool:
    """Whether there may be a placeholder in a command."""
    return any("{" in word for word in words)


class Placeholders(enum.StrEnum):
    """The ways to read the placeholders in the commands of a job."""

    #: All words stay as they were typed: the job has no array and no items.
    NONE = "none"
    #: They are filled; doubled braces stand for braces.
    ARRAY = "array"
    #: The same, and items may become part of the text that a shell reads as code.
    PASTE = "paste"
    #: They are filled, without an array, too, and doubled braces mean nothing: clients before
    #: version 0.3 meant that.
    ALWAYS = "always"


#: A name, or none, with all braces around it. It starts where a run of braces does, so that a long
#: run is read once.
_BRACED = re.compile(r"(?<!\{)(\{++)([A-Za-z_][A-Za-z0-9_]*+|)(\}++)")


#: The placeholders that have a value for every task: the item or id, the id, the index.
_OF_ALL = ("", "n", "i")


class _Slot(NamedTuple):
    """A place in a word that may be filled.

    Attributes:
        name: of the value; empty for the item or the id.
        left, right: braces that stay around it.
        takes_value: whether it takes the value; if not, its name stands there, because it was
            written with doubled braces.
    """

    name: str
    left: str
    right: str
    takes_value: bool


def _slot(match: re.Match[str], placeholders: Placeholders) -> _Slot | None:
    """The slot at a match; None for `${name}`, which is a variable of the shell."""
    opening, name, closing = match.groups()
    if name and len(opening) == 1 and match.string[match.start() - 1 : match.start()] == "$":
        return None
    doubles = placeholders is not Placeholders.ALWAYS
    pairs = min(len(opening), len(closing)) if doubles else 1
    stay = pairs // 2
    left = opening[pairs:] + "{" * stay
    return _Slot(name, left, "}" * stay + closing[pairs:], pairs % 2 == 1)


def fill(
    words: tuple[str, ...],
    task_id: int,
    index: int,
    item: str | None,
    placeholders: Placeholders,
) -> tuple[str, ...]:
    """Puts a task's values into the placeholders of a command.

    `{}` is the item, or the task id where there are no items; `{n}` the task id; `{i}` the index;
    `{key}` a field of an item that is a JSON object. `{{n}}` is `{n}`, and `{{{n}}}` the id between
    braces, as in format strings of Python. Any other braces stay as they are, and those of
    `${key}`, which is a variable of the shell.
    """
    if placeholders is Placeholders.NONE or not has_braces(words):
        return words
    values = values_of(task_id, index, item)

    def value(match: re.Match[str]) -> str:
        slot = _slot(match, placeholders)
        if slot is None or slot.name not in values:
            return match[0]
        middle = shown(values[slot.name]) if slot.takes_value else slot.name
        return slot.left + middle + slot.right

    return tuple(_BRACED.sub(value, word) for word in words)


def as_typed(word: str, names: Container[str]) -> str:
    """Writes a word so that `fill` returns it, though values have these names.

    For a job with an array or items: braces of such a name are doubled.
    """

    def doubled(match: re.Match[str]) -> str:
        slot = _slot(match, Placeholders.ARRAY)
        if slot is None or slot.name not in names:
            return match[0]
        pairs = min(len(match[1]), len(match[3]))
        return "{" * pairs + match[0] + "}" * pairs

    return _BRACED.sub(doubled, word)


def values_of(task_id: int, index: int, item: str | None) -> dict[str, Any]:
    """Returns the values of a task's placeholders, by their names."""
    values: dict[str, Any] = {"n": task_id, "i": index}
    values |= fields_of(item) if item is not None else {}
    values[""] = str(task_id) if item is None else item
    return values


def fields_of(item: str) -> dict[str, Any]:
    """The fields of an item that is a JSON object; none of any other."""
    if not item.startswith("{"):
        return {}
    try:
        parsed = json.loads(item)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply to be read
        return {}
    return parsed if isinstance(parsed, dict) else {}


def shown(value: Any) -> str:
    """A value as it stands in a command."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def names_in(words: Iterable[str], placeholders: Placeholders) -> Counter[str]:
    """The names of placeholders that take a value, and how often each does."""
    found: Counter[str] = Counter()
    if placeholders is Placeholders.NONE:
        return found
    for word in words:
        for match in _BRACED.finditer(word):
            slot = _slot(match, placeholders)
            if slot is not None and slot.takes_value:
                found[slot.name] += 1
    return found


def read_otherwise_before(words: Iterable[str], placeholders: Placeholders) -> bool:
    """Whether a worker from before version 0.3 would make other words of these.

    It takes each job for one of `Placeholders.ALWAYS`.
    """
    if placeholders is Placeholders.ALWAYS:
        return False
    braced = (match for word in words for match in _BRACED.finditer(word))
    if placeholders is Placeholders.NONE:
        slots = (_slot(match, Placeholders.ALWAYS) for match in braced)
        return any(slot is not None and slot.name in _OF_ALL for slot in slots)
    return any(len(match[1]) > 1 and len(match[3]) > 1 for match in braced)


class WordOutline:
    """The size of a word when it is filled, found without filling it.

    Args:
        word: of a command.
    """

    def __init__(self, word: str, placeholders: Placeholders) -> None:
        self.typed_bytes = bytes_in(word)
        #: By name: how many more bytes than as typed it takes without values, and how many values.
        self._slots: dict[str, tuple[int, int]] = {}
        if placeholders is Placeholders.NONE or "{" not in word:
            return
        for match in _BRACED.finditer(word):
            slot = _slot(match, placeholders)
            if slot is None:
                continue
            stays = len(slot.left) + len(slot.right) + len(slot.name) * (not slot.takes_value)
            more, count = self._slots.get(slot.name, (0, 0))
            self._slots[slot.name] = more + stays - len(match[0]), count + slot.takes_value

    @property
    def names(self) -> Iterable[str]:
        """The names of its placeholders."""
        return self._slots

    def filled_bytes(self, value_bytes: Mapping[str, int]) -> int:
        """The size of the word with values of such sizes."""
        return self.typed_bytes + sum(
            more + count * value_bytes[name]
            for name, (more, count) in self._slots.items()
            if name in value_bytes
        )


def bytes_in(text: str) -> int:
    """The size of a text as a program gets it."""
    return len(text.encode(errors="surrogatepass"))


#: The places at which a text for a shell is cut, to find its words.
_BETWEEN_WORDS = re.compile(r"[\s;|&<>()`\"']+")
#: A word that is nothing but a placeholder, or a name with one in it.
_PLAIN = re.compile(r"[\w./:=,@%+-]*\{(?:[A-Za-z_]\w*)?\}[\w./:=,@%+{}-]*")
#: Words of commands that fill `{}` themselves.
_FILL_THEMSELVES = frozenset(
    ("-exec", "-execdir", "-ok", "-okdir", "xargs", "parallel", "fd", "fdfind")
)


def left_as_typed(
    words: Iterable[str], placeholders: Placeholders, item: str | None, scripts: Iterable[str] = ()
) -> list[str]:
    """The placeholders that look intended but stay as they are, each once, as they are written.

    Args:
        words: of a command that is filled like this.
        item: of a task; None where there are no items.
        scripts: the words that are texts for a shell.
    """
    if placeholders is not Placeholders.NONE:
        names = names_in(words, placeholders)
        known = values_of(0, 0, item) if any(names) else {"": ""}
        return [f"{{{name}}}" for name in names if name not in known]
    found: dict[str, None] = {}
    whole = list(words)
    for part in (whole, *(_BETWEEN_WORDS.split(script) for script in scripts)):
        if _FILL_THEMSELVES.isdisjoint(word.rpartition("/")[2] for word in part):
            plain = filter(_PLAIN.fullmatch, part)
            found |= dict.fromkeys(names_in(plain, Placeholders.ARRAY))
    return [f"{{{name}}}" for name in found]


#: Placeholders of numbers in names of files, as other systems write them: `%j` and
#: `%A_%a` in Slurm, `%{TASK_ID}` in HyperQueue, `$(Process)` in HTCondor.
IN_FILE_NAMES = re.compile(r"%\d*[aAjJtsnNux]|%\{[A-Z_]+\}|\$\((?:Cluster|Process)(?:Id)?\)")
