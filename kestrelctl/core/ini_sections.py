"""The sections of an INI file in which an operator defines things, one each."""

from __future__ import annotations

import configparser
from collections.abc import Mapping

from kestrelctl.errors import UsageError

#: Of what is wrong so much is shown: a line of a file may be all of it.
MOST_CAUSE_CHARACTERS = 300


def ini_sections(text: str, source: str, most: int) -> dict[str, Mapping[str, str]]:
    """The keys and values of each section, by its name. Nothing in them is replaced.

    Args:
        source: what the text is called in messages: the file.
        most: sections that it may have.

    Raises:
        UsageError: it is no such file, or has more.
    """
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
    return {name: parser[name] for name in parser.sections()}
