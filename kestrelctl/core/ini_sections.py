"""The sections of an INI file in which an operator defines things, one each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kestrelctl.errors import UsageError

#: The most that is shown of what is wrong: a file may be one long line.
MOST_CAUSE_CHARACTERS = 300


#: A number of seconds as it is written; more digits are no time.
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?(e[0-9]{1,2})?", re.IGNORECASE)
#: Words that say yes or no.
SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}

T = TypeVar("T")


class _Wrong(UsageError):
    """A section is wrong, and the message says which."""


class IniSection:
    """One section: its name, and the values of its keys. Each mistake is told with its place.

    Args:
        source: what the text is called in messages: the file.
    """

    def __init__(self, source: str, name: str, fields: Mapping[str, str]) -> None:
        self._source = source
        self.name = name
        self._fields = fields

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def only(self, keys: Sequence[str]) -> None:
        """Refuses a key that is none of these."""
        for key in self._fields:
            if key not in keys:
                raise self.wrong(f"there is no {key[:80]!r}", f"there are {', '.join(keys)}")

    def text(self, key: str) -> str:
        """The value of a key without blanks around it; empty if it is not there."""
        return self._fields.get(key, "").strip()

    def needed(self, key: str, hint: str) -> str:
        """The same of a key that has to have a value."""
        text = self.text(key)
        if not text:
            raise self.wrong(f"{key} is missing", hint)
        return text

    def words(self, key: str) -> tuple[str, ...]:
        """The words of a command, quoted as in a shell; none if the key is not there."""
        try:
            found = tuple(shlex.split(self.text(key)))
        except ValueError as error:
            raise self.wrong(f"{key} cannot be read: {error}", "close each quote") from None
        if not all(word.isprintable() for word in found):
            raise self.wrong(f"{key} has a character that cannot be printed", "remove it")
        return found

    def one_of(self, key: str, words: Sequence[str]) -> str:
        """One of some words."""
        text = self.text(key)
        if text not in words:
            said = f"{key} is {text[:80]!r}" if text else f"{key} is missing"
            raise self.wrong(said, f"one of {', '.join(filter(None, words))}")
        return text

    def seconds(self, key: str, least: float, most: float, usual: float | None = None) -> float:
        """A time in seconds.

        Args:
            least, most: the shortest and the longest that is taken.
            usual: the time if the key is not there; None if it has to be there.
        """
        text = self.text(key)
        if usual is not None and key not in self:
            return usual
        found = float(text) if _SECONDS.fullmatch(text) else -1.0
        if not least <= found <= most:
            said = f"{key} is {text[:80]!r}" if text else f"{key} is missing"
            raise self.wrong(said, f"seconds, from {least:g} to {most:,.0f}")
        return found

    def is_on(self, key: str) -> bool:
        """Whether a key says yes; it does not if it is not there."""
        text = self.text(key) if key in self else "no"
        if text.lower() not in SWITCHES:
            raise self.wrong(f"{key} is {text[:80]!r}", "yes or no")
        return SWITCHES[text.lower()]

    def wrong(self, cause: str, hint: str = "") -> UsageError:
        """The error that says what is wrong with the section, and what to do about it."""
        message = f"{self._source}: [{self.name[:80]}] is wrong"
        return _Wrong(message, cause=cause, hint=hint or None)

    def made(self, make: Callable[[IniSection], T]) -> T:
        """Makes what the section defines.

        Raises:
            UsageError: it cannot be made; the message names the file and the section.
        """
        try:
            return make(self)
        except _Wrong:
            raise
        except UsageError as error:
            cause = ": ".join(filter(None, (error.message, error.cause)))
            raise self.wrong(cause, error.hint or "") from None


def ini_sections(text: str, source: str, most: int) -> list[IniSection]:
    """The keys and values of each section, by its name. Nothing in them is replaced.

    Args:
        source: what the text is called in messages: the file.
        most: sections that it may have.

    Raises:
        UsageError: it is no such file, or has more.
    """
    import configparser  # commands load this module, and read no such file

    parser = configparser.ConfigParser(interpolation=None, default_section="\0")
    try:
        parser.read_string(text.removeprefix("\ufeff"), source)  # as some editors begin a file
    except configparser.Error as error:
        raise UsageError(
            f"{source} cannot be read",
            cause=" ".join(str(error).split())[:MOST_CAUSE_CHARACTERS],
            hint="a section for each: [name], then lines of KEY = VALUE",
        ) from None
    if parser.defaults():  # what stands there would count in every section
        raise UsageError(f"{source} cannot be read", cause="the name of a section is not printable")
    if len(parser.sections()) > most:
        raise UsageError(
            f"{source} has too many sections",
            cause=f"it has {len(parser.sections()):,}, and may have {most:,}",
        )
    return [IniSection(source, name, parser[name]) for name in parser.sections()]
