"""Finds a statement by the function that it stands in and by what `ast.unparse` prints of it.

Neither a moved module nor another layout of the source changes either of them, and a statement that
means something else is another statement. Nothing here reads a file.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from functools import cache, cached_property
from itertools import takewhile, zip_longest
from typing import Any

#: What stands for the function of statements that are in none, nor in a class.
MODULE_LEVEL = "<module>"

#: A statement, or a part of one that has a body of its own: `except`, `case`.
Node = ast.stmt | ast.excepthandler | ast.match_case
#: What is left out of a compound statement to have its header.
_WITHOUT_BODY: dict[str, list[ast.AST]] = {
    "body": [ast.Pass()],
    "orelse": [],
    "finalbody": [],
    "handlers": [],
    "cases": [],
    "decorator_list": [],
}
_DEFINED = re.compile(r"\b(?:def|class) (\w+)")
#: What is printed of an entry of a table, and the rows and columns where it begins and ends.
Entry = tuple[str, tuple[int, int], tuple[int, int]]
_COLON = re.compile(rb"(?:[^:#]|#[^\n]*)*?:")


class Line:
    """A line of what `ast.unparse` prints of a module: a simple statement or a header.

    Attributes:
        scope: the qualified name of the function or class around it; a header of these is theirs.
        depth: how deep it is indented, in levels.
        node: what it is, or what it is the header of; of `else:` and `finally:` what is before it.
            It has the attributes of its kind.
        word: what it begins with, if its node does not tell: `@`, `elif`, `else`, `except*`, ...
    """

    def __init__(self, scope: str, depth: int, node: Any, word: str = "") -> None:
        self.scope = scope
        self.depth = depth
        self.node: Any = node
        self.word = word

    @property
    def row(self) -> int:
        """The row where it begins in the source; of `else:` and `finally:` the first possible."""
        if self.word in ("else", "finally"):
            return int(self.node.end_lineno) + 1
        return int(getattr(self.node, "pattern", self.node).lineno)

    @cached_property
    def text(self) -> str:
        """As `ast.unparse` prints it, without indentation."""
        if self.word in ("else", "finally"):
            return f"{self.word}:"
        if self.word == "@":
            return f"@{ast.unparse(self.node)}"
        header = copy(self.node)
        for field, nothing in _WITHOUT_BODY.items():
            if hasattr(header, field):
                setattr(header, field, nothing)
        printed = ast.unparse(header).strip().removesuffix("\n    pass")
        return self.word + printed[printed.index(" ") :] if self.word else printed


def _lines(block: Iterable[Node], scope: str, depth: int) -> Iterator[Line]:
    for node in block:
        yield from _lines_of(node, scope, depth)


def _lines_of(node: Node, scope: str, depth: int, word: str = "") -> Iterator[Line]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope = node.name if scope == MODULE_LEVEL else f"{scope}.{node.name}"
        for decorator in node.decorator_list:
            yield Line(scope, depth, decorator, "@")
    yield Line(scope, depth, node, word)
    if isinstance(node, ast.Match):
        yield from _lines(node.cases, scope, depth + 1)
    body: list[Node] = getattr(node, "body", [])
    yield from _lines(body, scope, depth + 1)
    before = body[-1:]
    for handler in getattr(node, "handlers", ()):
        star = "except*" if isinstance(node, ast.TryStar) else ""
        yield from _lines_of(handler, scope, depth, star)
        before = handler.body[-1:]
    for field, name in (("orelse", "else"), ("finalbody", "finally")):
        rest: list[Node] = getattr(node, field, [])
        if isinstance(node, ast.If) and len(rest) == 1 and isinstance(rest[0], ast.If):
            yield from _lines_of(rest[0], scope, depth, "elif")
        elif rest:
            yield Line(scope, depth, before[0], name)
            yield from _lines(rest, scope, depth + 1)
            before = rest[-1:]


class Module:
    """The source of a module, and the lines that `ast.unparse` prints of it.

    Raises:
        SyntaxError: it is not Python.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._bytes = source.encode()
        self._printed: dict[str, dict[str, list[int]]] = {}
        self._tables: dict[int, list[Entry]] = {}
        self.tree = ast.parse(source)

    @cached_property
    def lines(self) -> list[Line]:
        """All of them, in order."""
        return list(_lines(self.tree.body, MODULE_LEVEL, 0))

    @cached_property
    def scopes(self) -> dict[str, list[int]]:
        """By the qualified name of a function or class, the places of its lines in `lines`."""
        found: dict[str, list[int]] = {}
        for place, line in enumerate(self.lines):
            found.setdefault(line.scope, []).append(place)
        return found

    def places(self, function: str, statement: str) -> list[int]:
        """Where in a function a statement stands: the places in `lines` of its beginning.

        Args:
            function: its qualified name, or that of a class, or `MODULE_LEVEL`.
            statement: see `fragment`.

        Raises:
            SyntaxError: the statement is not Python.
        """
        wanted = fragment(statement)
        begins = self._texts(function).get(wanted[0][1], ())
        return [place for place in begins if self._is_at(place, wanted)]

    def _texts(self, function: str) -> dict[str, list[int]]:
        if function not in self._printed:
            found = self._printed[function] = {}
            for place in self.scopes.get(function, ()):
                found.setdefault(self.lines[place].text, []).append(place)
        return self._printed[function]

    def _is_at(self, place: int, wanted: tuple[tuple[int, str], ...]) -> bool:
        lines = self.lines[place : place + len(wanted)]
        scope, outer = lines[0].scope, lines[0].depth - wanted[0][0]
        return len(lines) == len(wanted) and all(
            line.text == text
            and line.depth == outer + depth
            and (line.scope == scope or line.scope.startswith(f"{scope}."))
            for line, (depth, text) in zip(lines, wanted, strict=True)
        )

    def replaced(self, place: int, statement: str, instead: str) -> str:
        """The source with something else in place of a statement; other lines stay where they are.

        Args:
            place: one of `places`.
            statement: what was found there.
            instead: what takes its place; it is indented as the statement is in its own text.
        """
        begin = self.begin(self.lines[place])
        end = self.end(self.lines[place + len(fragment(statement)) - 1])
        margin = self._bytes.rfind(b"\n", 0, begin) + 1
        if statement.startswith("elif ") and self._bytes.startswith(b"if", begin):
            instead = instead.replace("elif ", "if ", 1)  # in the source it is an if in an else
        new = instead.strip("\n")
        if self._bytes[margin:begin].isspace():
            in_text = len(statement) - len(statement.lstrip(" "))
            new = textwrap.indent(new, " " * (begin - margin - in_text))
            begin = margin
        new += "\n" * (self._bytes.count(b"\n", begin, end) - new.count("\n"))
        return (self._bytes[:begin] + new.encode() + self._bytes[end:]).decode()

    def entries(self, function: str, entry: str) -> list[tuple[int, int]]:
        """Where entries of tables stand that are printed so: offsets in the bytes of the source.

        Args:
            function: as of `places`; the tables are in its own statements.
            entry: see `entry_text`.

        Raises:
            SyntaxError: the entry is none.
        """
        wanted = entry_text(entry)
        return [
            (self._offset(*begin), self._offset(*end))
            for place in self.scopes.get(function, ())
            for text, begin, end in self._entries_of(place)
            if text == wanted
        ]

    def _entries_of(self, place: int) -> list[Entry]:
        if place not in self._tables:
            node = self.lines[place].node
            simple = isinstance(node, ast.stmt) and not hasattr(node, "body")
            self._tables[place] = list(_entries(node)) if simple else []
        return self._tables[place]

    def with_entry(self, entry: tuple[int, int], instead: str) -> str:
        """The source with something else in place of an entry; other lines stay where they are."""
        begin, end = entry
        new = instead + "\n" * (self._bytes.count(b"\n", begin, end) - instead.count("\n"))
        return (self._bytes[:begin] + new.encode() + self._bytes[end:]).decode()

    def check_changed(self, changed: str) -> None:
        """Reads what `replaced` or `with_entry` returned.

        Only statements of the module in which something is changed, such as a whole class: all
        others are as they were.

        Raises:
            SyntaxError: it is not Python.
        """
        now, before = changed.splitlines(), self.source.splitlines()
        if now == before:
            return
        first = _equal_rows(zip(now, before, strict=False)) + 1
        last = len(before) - _equal_rows(zip(reversed(now), reversed(before), strict=False))
        some = [
            each
            for each, after in zip_longest(self.tree.body, self.tree.body[1:])
            if (after is None or _first_row(after) > first) and _first_row(each) <= last
        ]
        begin, end = _first_row(some[0]), max(last, some[-1].end_lineno or 0)
        ast.parse("\n".join(now[begin - 1 : end + len(now) - len(before)]))

    # -- where a line is in the source: offsets in its bytes --------------------------------------

    @cached_property
    def _rows(self) -> list[int]:
        rows = [0, 0]
        for row in self._bytes.splitlines(keepends=True):
            rows.append(rows[-1] + len(row))
        return rows

    def _offset(self, row: int, column: int) -> int:
        return self._rows[row] + column

    def begin(self, line: Line) -> int:
        """Where a line begins."""
        node = line.node
        if line.word in ("else", "finally"):
            word = re.compile(rb"^ *(" + line.word.encode() + rb")\b", re.MULTILINE)
            found = word.search(self._bytes, self._rows[line.row])
            assert found is not None
            return found.start(1)
        if isinstance(node, ast.match_case):
            return self._bytes.rfind(b"case", 0, self._offset(line.row, node.pattern.col_offset))
        offset = self._offset(node.lineno, node.col_offset)
        return offset - 1 if line.word == "@" else offset

    def end(self, line: Line) -> int:
        """Where a line ends: a header with its colon."""
        node = line.node
        has_body = hasattr(node, "body") or isinstance(node, ast.Match)
        if line.word == "@" or not (has_body or line.word):
            return self._offset(node.end_lineno, node.end_col_offset)
        begin = self.begin(line)
        if line.word not in ("else", "finally"):
            begin = max((begin, *(self._offset(*end) for end in _ends_in_header(node))))
        found = _COLON.match(self._bytes, begin)
        assert found is not None
        return found.end()


def _equal_rows(pairs: Iterable[tuple[str, str]]) -> int:
    """So many pairs at the beginning are of equal rows."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _first_row(statement: ast.stmt) -> int:
    """The row where a statement begins, with its decorators."""
    decorators = getattr(statement, "decorator_list", [])
    return min(node.lineno for node in (statement, *decorators))


def _entries(statement: ast.stmt) -> Iterator[Entry]:
    """The entries of all tables in a statement: elements, and keys with their values."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            for element in node.elts:
                yield ast.unparse(element), *_ends_of(element, element)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None:
                    text = f"{ast.unparse(key)}: {ast.unparse(value)}"
                    yield text, *_ends_of(key, value)


def _ends_of(first: ast.expr, last: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    end = (last.end_lineno or 0, last.end_col_offset or 0)
    return (first.lineno, first.col_offset), end


def _ends_in_header(node: ast.AST) -> Iterator[tuple[int, int]]:
    """Where the parts of a header end, in rows and columns."""
    for field, value in ast.iter_fields(node):
        if field not in _WITHOUT_BODY:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from _ends(part)


def _ends(part: ast.AST) -> Iterator[tuple[int, int]]:
    if isinstance(part, ast.expr | ast.pattern | ast.arg | ast.keyword):
        yield part.end_lineno or 0, part.end_col_offset or 0
    else:  # arguments of a function, an item of `with`
        for each in ast.iter_child_nodes(part):
            yield from _ends(each)


class Sources:
    """The modules of packages; each is read when something in it is looked for.

    Args:
        sources: what is in each module, by its path.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._modules: dict[str, Module] = {}

    def module(self, path: str) -> Module:
        """One of them, by its path."""
        if path not in self._modules:
            self._modules[path] = Module(self._sources[path])
        return self._modules[path]

    @cached_property
    def _defining(self) -> dict[str, list[str]]:
        """By the name of a function or class, not qualified, the paths of what defines one."""
        found: dict[str, list[str]] = {MODULE_LEVEL: list(self._sources)}
        for path, source in self._sources.items():
            for name in set(_DEFINED.findall(source)):
                found.setdefault(name, []).append(path)
        return found

    def places(self, function: str, statement: str, module: str = "") -> list[tuple[str, int]]:
        """Where a statement stands: paths of modules, and see `Module.places`.

        Args:
            module: how the name of its module ends, by whole words.
        """
        return [
            (path, place)
            for path in self._paths(function, module)
            for place in self.module(path).places(function, statement)
        ]

    def entries(
        self, function: str, entry: str, module: str = ""
    ) -> list[tuple[str, tuple[int, int]]]:
        """The same of an entry of a table: see `Module.entries`."""
        return [
            (path, place)
            for path in self._paths(function, module)
            for place in self.module(path).entries(function, entry)
        ]

    def _paths(self, function: str, module: str) -> list[str]:
        end = f".{module}" if module else ""
        defining = self._defining.get(function.rpartition(".")[2], ())
        return [path for path in defining if f".{dotted(path)}".endswith(end)]


def dotted(path: str) -> str:
    """The name of a module, by its path."""
    return path.removesuffix(".py").replace("/", ".")


@cache
def entry_text(entry: str) -> str:
    """What `ast.unparse` prints of an entry of a table: an element, or a key and its value.

    Raises:
        SyntaxError: it is neither.
    """
    table = ast.parse(f"{{{entry}\n}}", mode="eval").body
    elements = table.elts if isinstance(table, ast.Set) else getattr(table, "keys", [])
    if len(elements) != 1:
        raise SyntaxError(f"this is no entry of a table: {entry}")
    return next(_entries(ast.Expr(table)))[0]


#: What stands before a part of a compound statement for Python to read it, how many lines that are,
#: and how much deeper the part stands then.
_BEFORE = (
    ("", 0, 0),
    ("if _:\n    pass\n", 2, 0),  # elif, else
    ("try:\n    pass\n", 2, 0),  # except, finally
    ("match _:\n", 1, 1),  # case
    ("if _:\n", 1, 0),  # something deeper than what follows
)
#: What stands after it, indented like its last line, and how many lines that are.
_AFTER = (
    ("", 0),
    ("\n    pass", 1),
    ("\n    pass\nfinally:\n    pass", 3),  # try
    ("\n    case _:\n        pass", 2),  # match
    ("\ndef _():\n    pass", 2),  # a decorator
)


@cache
def fragment(statement: str) -> tuple[tuple[int, str], ...]:
    """What a statement looks like as lines of `ast.unparse`: the depth and text of each.

    Args:
        statement: one or several, one after the other; or the header of a compound one, such as
            `if x:`, `else:`, `except OSError:` or a decorator. However it is laid out, Python
            prints it in one way.

    Raises:
        SyntaxError: it is none of these.
    """
    statement = statement.strip("\n")
    last = statement[statement.rfind("\n") + 1 :]
    margin = "\n" + " " * (len(last) - len(last.lstrip()))
    for before, lines_before, deeper in _BEFORE:
        for after, lines_after in _AFTER:
            whole = statement + after.replace("\n", margin)
            try:
                tree = ast.parse(before + textwrap.indent(whole, "    " * deeper))
            except SyntaxError:
                continue
            lines = list(_lines(tree.body, MODULE_LEVEL, 0))
            if own := lines[lines_before : len(lines) - lines_after]:
                return tuple((line.depth, line.text) for line in own)
    raise SyntaxError(f"this is neither a statement nor a header: {statement}")
