"""A statement is found by its function and what it says, not by where and how it is written."""

from __future__ import annotations

import ast

import pytest
from anchors import MODULE_LEVEL, Module, Sources, entry_text, fragment

SOURCE = """\
LIMIT = 3


class Queue:
    size: int = 0

    @property
    def is_full(self) -> bool:
        if (
            self.size  # a comment: with a colon
            >= LIMIT
        ):
            return True  # why
        elif self.size < 0:
            raise ValueError("é", self.size)
        else:
            return False

    def clear(self) -> None:
        def told() -> None:
            self.size = 0

        for each in range(3):
            print(each)
        told()
        self.size = 0
"""


def planted(function: str, statement: str, instead: str, source: str = SOURCE) -> str:
    module = Module(source)
    [place] = module.places(function, statement)
    return module.replaced(place, statement, instead)


@pytest.mark.parametrize(
    ("function", "statement", "instead", "text", "becomes"),
    [
        (MODULE_LEVEL, "LIMIT = 3", "LIMIT = 4", "LIMIT = 3", "LIMIT = 4"),
        ("Queue", "size: int = 0", "size: int = 1", "size: int = 0", "size: int = 1"),
        ("Queue.is_full", "@property", "", "    @property", ""),
        ("Queue.is_full", "elif self.size < 0:", "elif True:", "elif self.size < 0", "elif True"),
        ("Queue.is_full", "return True", "return 1", "return True ", "return 1 "),
        (
            "Queue.is_full",
            "else:\n    return False",
            "else:\n    return True",
            "return False",
            "return True",
        ),
        (
            "Queue.clear",
            "for each in range(3):\n    print(each)",
            "print(3)",
            "for each in range(3):\n            print(each)",
            "print(3)\n",
        ),
        ("Queue.clear.told", "self.size = 0", "pass", "self.size = 0\n\n", "pass\n\n"),
    ],
)
def test_only_the_statement_is_replaced(
    function: str, statement: str, instead: str, text: str, becomes: str
) -> None:
    assert planted(function, statement, instead) == SOURCE.replace(text, becomes)


def test_a_header_in_several_lines_is_replaced_and_all_other_lines_stay_where_they_are() -> None:
    found = planted("Queue.is_full", "if self.size >= LIMIT:", "if False:")
    assert found.splitlines().index("            return True  # why") == 12
    assert "if False:" in found


def test_neither_the_layout_of_the_source_nor_that_of_the_entry_counts() -> None:
    printed = ast.unparse(ast.parse(SOURCE))
    assert Module(printed).places("Queue.is_full", "raise ValueError('é', self.size)")
    assert Module(SOURCE).places("Queue.is_full", 'raise ValueError(\n  "é",\n  self.size)')


@pytest.mark.parametrize("statement", ["self.size = 1", "if self.size >= LIMIT - 1:"])
def test_a_statement_that_was_changed_is_not_found(statement: str) -> None:
    assert Module(SOURCE).places("Queue.clear", statement) == []


def test_a_statement_of_an_inner_function_is_not_one_of_the_outer() -> None:
    assert len(Module(SOURCE).places("Queue.clear", "self.size = 0")) == 1


def test_a_statement_that_stands_twice_is_found_twice() -> None:
    assert len(Module("x()\ny()\nx()\n").places(MODULE_LEVEL, "x()")) == 2


def test_a_module_is_told_by_the_end_of_its_name() -> None:
    package = Sources({"core/a.py": SOURCE, "core/aa.py": SOURCE})
    assert len(package.places("Queue", "size: int = 0")) == 2
    assert [path for path, _ in package.places("Queue", "size: int = 0", "a")] == ["core/a.py"]


@pytest.mark.parametrize(
    "header",
    ["try:", "finally:", "except OSError as error:", "match x:", "case [a, *_] if a:", "else:"],
)
def test_each_header_can_be_named(header: str) -> None:
    assert [text for _, text in fragment(header)] == [header]


TABLE = """\
ROWS = (
    Row("a", 1),
    Row(
        "b",  # the second
        2,
    ),
)
BY_NAME = {"a": 1, "b": (2, 3)}
"""


@pytest.mark.parametrize(
    ("entry", "instead", "text", "becomes"),
    [
        (
            "Row('b', 2)",
            "None",
            'Row(\n        "b",  # the second\n        2,\n    )',
            "None\n\n\n",
        ),
        ("'b': (2, 3)", "**{}", '"b": (2, 3)', "**{}"),
        ("3", "4", "(2, 3)", "(2, 4)"),
    ],
)
def test_an_entry_of_a_table_is_replaced_alone(
    entry: str, instead: str, text: str, becomes: str
) -> None:
    module = Module(TABLE)
    [place] = module.entries(MODULE_LEVEL, entry)
    assert module.with_entry(place, instead) == TABLE.replace(text, becomes)


def test_an_entry_is_found_when_others_have_come() -> None:
    grown = TABLE.replace("ROWS = (", 'ROWS = (Row("c", 3),')
    assert len(Module(grown).entries(MODULE_LEVEL, 'Row("b", 2)')) == 1
    assert Module(grown).entries(MODULE_LEVEL, 'Row("b", 3)') == []


def test_an_entry_of_a_table_in_a_function_belongs_to_that_function() -> None:
    inner = Module("def f():\n    return [1, 2]\n")
    assert len(inner.entries("f", "2")) == 1
    assert inner.entries(MODULE_LEVEL, "2") == []


@pytest.mark.parametrize("entry", ["", "a, b", "a = 1", "a: 1, b: 2"])
def test_what_is_no_entry_is_refused(entry: str) -> None:
    with pytest.raises(SyntaxError):
        entry_text(entry)


@pytest.mark.parametrize("instead", ["x = (", "x = 2\n)", "x = 2\n  y = 3", "return 2 +"])
@pytest.mark.parametrize("name", ["first", "second", "C.third"])
def test_what_is_not_python_any_more_is_found_wherever_it_stands(name: str, instead: str) -> None:
    source = """
@print
def first():
    x = 1
def second():
    x = 1
class C:
    y = 1
    @print
    def third(self):
        x = 1
z = 1
"""
    module = Module(source)
    [place] = module.places(name, "x = 1")
    module.check_changed(module.replaced(place, "x = 1", "x = 2\nx = 3"))
    module.check_changed(source)
    with pytest.raises(SyntaxError):
        module.check_changed(module.replaced(place, "x = 1", instead))
