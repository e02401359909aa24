"""The store's statements in PostgreSQL's words.

They are written once, in SQLite's (`store.reading`, `store.writing` and their neighbours), and most
of their words mean the same to both. What does not is translated here, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from kestrelctl.store.postgresql.schema import TABLES
from kestrelctl.store.reading import NAME_FITS

#: Stands for a `?` whose value is a glob, until all values are numbered.
_GLOB = "\0"

#: What SQLite says -> what PostgreSQL says instead, in this order.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"%", "%%"),
    (r" INDEXED BY \w+", ""),
    (re.escape(NAME_FITS), rf"coalesce(name_in(head), '') ~ {_GLOB}"),
    (r"\bIS \?", "IS NOT DISTINCT FROM ?"),
    # The greater of two, not the greatest of a column.
    (r"\bmax\((?=[^()]*,)", "greatest("),
    (r"\bstate IN \(SELECT value FROM json_each\(\?\)\)", "state = ANY ({}::text[])"),
    (r"\b(\w+) IN \(SELECT value FROM json_each\(\?\)\)", r"\1 = ANY ({}::bigint[])"),
    (r"\{\}", "ARRAY(SELECT json_array_elements_text(?::json))"),
    (
        r"INSERT OR IGNORE (INTO \w+ \([^)]*\)\s+VALUES \([^)]*\))",
        r"INSERT \1 ON CONFLICT DO NOTHING",
    ),
)
_REPLACE = re.compile(r"INSERT OR REPLACE (INTO (\w+) \(([^)]*)\)\s+VALUES \([^)]*\))")
_INSERT = re.compile(r"\s*INSERT INTO (\w+) \(([^)]*)\)\s+VALUES \([^)]*\)(.*)", re.DOTALL)
_NAMED = re.compile(r"(?<![:\w]):(\w+)")
_VALUE = re.compile(rf"\?|{_GLOB}")


class Translated(NamedTuple):
    """A statement as psycopg takes it.

    Attributes:
        globs: which of its values are globs, which PostgreSQL does not have: regular expressions.
    """

    text: str
    globs: frozenset[int]

    def values(self, values: Any) -> Any:
        """The values as they go with the text."""
        if not self.globs:
            return values
        return [
            glob_as_regex(each) if place in self.globs else each
            for place, each in enumerate(values)
        ]


class ManyRows(NamedTuple):
    """A statement that inserts any number of rows, of which it is given each column as an array.

    Attributes:
        types: of the columns.
        key: the places of the columns by which a row replaces an earlier one; empty if none does.
            One statement may not do that twice to one row.
    """

    text: str
    types: tuple[str, ...]
    key: tuple[int, ...]


@cache
def translated(statement: str) -> Translated:
    """Translates a statement."""
    text = _in_its_words(statement)
    globs = frozenset(place for place, found in enumerate(_VALUE.findall(text)) if found == _GLOB)
    return Translated(_VALUE.sub("%s", _NAMED.sub(r"%(\1)s", text)), globs)


@cache
def for_many_rows(statement: str) -> ManyRows | None:
    """Translates an insertion of one row into that of many; None if the statement is none."""
    found = _INSERT.fullmatch(_in_its_words(statement))
    if found is None:
        return None
    table, columns, on_conflict = found.groups()
    names = _names(columns)
    types = tuple(_array_type(TABLES[table].columns[name]) for name in names)
    arrays = ", ".join(f"%s::{each}[]" for each in types)
    replaces = "DO UPDATE" in on_conflict
    return ManyRows(
        f"INSERT INTO {table} ({columns}) SELECT * FROM unnest({arrays}){on_conflict}",
        types,
        tuple(names.index(name) for name in TABLES[table].key) if replaces else (),
    )


def _in_its_words(statement: str) -> str:
    for words, instead in _WORDS:
        statement = re.sub(words, instead, statement)
    return _REPLACE.sub(_or_replace, statement)


def _or_replace(found: re.Match[str]) -> str:
    """An insertion that replaces the row with the same key."""
    into, table, columns = found.groups()
    key = TABLES[table].key
    others = [name for name in _names(columns) if name not in key]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f"INSERT {into} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"


def _names(columns: str) -> list[str]:
    return [name.strip() for name in columns.split(",")]


def _array_type(kind: str) -> str:
    return re.split(" COLLATE| GENERATED", kind)[0]


def array(column: Sequence[Any], kind: str) -> str:
    """A column of rows as an array, as PostgreSQL reads it.

    https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
    """
    if kind == "TEXT":
        parts = ["NULL" if each is None else _quoted(each) for each in column]
    elif kind == "BYTEA":
        parts = ["NULL" if each is None else f'"\\\\x{each.hex()}"' for each in column]
    else:
        parts = ["NULL" if each is None else str(each) for each in column]
    return f"{{{','.join(parts)}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def glob_as_regex(glob: str) -> str:
    """A regular expression of PostgreSQL that fits what a glob of SQLite does.

    https://www.sqlite.org/lang_expr.html#like
    """
    parts: list[str] = []
    rest = glob
    while rest:
        first, rest = rest[0], rest[1:]
        if first == "*":
            parts.append(".*")
        elif first == "?":
            parts.append(".")
        elif first == "[":
            found = re.match(r"(\^?)(\]?[^\]]*)\]", rest, re.DOTALL)
            if found is None:
                return _FITS_NOTHING
            parts.append(_one_of(found[2], other=bool(found[1])))
            rest = rest[found.end() :]
        else:
            parts.append(re.escape(first))
    return f"^{''.join(parts)}$"


_FITS_NOTHING = "(?!a)a"


def _one_of(characters: str, *, other: bool) -> str:
    """One of these characters and ranges of them; or, with `other`, any other.

    Of a range that runs backwards, SQLite takes the first character.
    """
    ranges = re.findall(r"(.)-(.)|(.)", characters, re.DOTALL)
    parts = [
        f"{re.escape(first)}-{re.escape(last)}"
        if first and first <= last
        else re.escape(first or single)
        for first, last, single in ranges
    ]
    return f"[{'^' if other else ''}{''.join(parts)}]"
