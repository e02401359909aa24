"""Makes mutants of what was changed since a commit, and tells which of them no test finds.

    python tests/planted/mutants.py                   of what the last commit changed
    python tests/planted/mutants.py main              of what has changed since then
    python tests/planted/mutants.py main --count 100

A mutant is a statement that is left out, a condition that is turned round, or a constant, a
comparison or an `and` that is another one. Those are tried whose turn it is by the commit, with the
unit tests of the module. It reports and fails nothing: some mutants mean the same as the original,
and what they tell is for a reader. Defects that tell a story are written by hand (`defects.toml`).
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from random import Random

import msgspec

sys.path.append(str(Path(__file__).parents[1] / "check"))  # where a script finds `turns`

from anchors import Line, Module, dotted
from planting import CHECKOUT, TESTS, CannotBePlanted, Defect, copy, plant, run, sources
from turns import commit_number

COUNT = 40
#: Tests of so many files are tried, those first that name the module most often.
MOST_FILES = 6
AT_ONCE = 2
_HUNK = re.compile(r"^@@ [^+]*\+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_OTHER: dict[type, type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


class Mutant(msgspec.Struct, frozen=True):
    """A statement of a function, and what takes its place (see `Defect`)."""

    path: str
    function: str
    statement: str
    instead: str

    @property
    def defect(self) -> Defect:
        """How it is planted."""
        return Defect(
            name=str(self),
            function=self.function,
            statement=self.statement,
            instead=self.instead,
            found_by="",
            module=dotted(self.path),
        )

    def __str__(self) -> str:
        return f"{self.path}: {self.function}: {self.statement} -> {self.instead}"


def changed_rows(base: str) -> dict[str, set[int]]:
    """The rows of modules of the product that are new or other than at a commit."""
    git = ["git", "-C", str(CHECKOUT), "diff", "-U0", "--no-color", base, "--", "kestrelctl"]
    text = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[int]] = {}
    for part in text.split("\n+++ b/")[1:]:
        path, _, hunks = part.partition("\n")
        if path.endswith(".py"):
            for first, count in _HUNK.findall(hunks):
                begin = int(first)
                found.setdefault(path, set()).update(range(begin, begin + int(count or 1)))
    return found


def mutants_of(path: str, module: Module, rows: set[int]) -> list[Mutant]:
    """What can be made of some rows of a module; of a statement that stands twice nothing is."""
    found = []
    for line in module.lines:
        if line.row in rows and not line.word and len(module.places(line.scope, line.text)) == 1:
            found += [Mutant(path, line.scope, line.text, text) for text in changed_texts(line)]
    return found


def changed_texts(line: Line) -> list[str]:
    """What may stand in place of a statement or a header."""
    header = line.text.endswith(":") and not isinstance(line.node, ast.Expr)
    if header and not isinstance(line.node, ast.If | ast.While):
        return []
    found = []
    if header:
        word, _, condition = line.text[:-1].partition(" ")
        found.append(f"{word} not ({condition}):")
    elif _can_be_left_out(line.node):
        found.append("pass")
    if not isinstance(line.node, ast.stmt) or isinstance(line.node, ast.Import | ast.ImportFrom):
        return found
    tree = ast.parse(f"{line.text} pass" if header else line.text)
    for changed in _changed(tree):
        text = ast.unparse(changed)
        found.append(text.removesuffix("\n    pass") if header else text)
    return found


def _can_be_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=function)):
            return not ast.unparse(function).startswith("log.")
        case ast.AugAssign() | ast.Delete() | ast.Raise():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False


def _changed(tree: ast.Module) -> Iterator[ast.Module]:
    """Copies of a statement, each with one thing in it that is otherwise."""
    for place, node in enumerate(ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            other = _other(node, field, value)
            if other is not None:
                changed = deepcopy(tree)
                again = next(each for at, each in enumerate(ast.walk(changed)) if at == place)
                setattr(again, field, other)
                yield changed


def _other(node: ast.AST, field: str, value: object) -> object:
    """What may stand in a field of a node instead; None for nothing."""
    if isinstance(node, ast.Constant) and field == "value":
        if isinstance(value, bool):
            return not value
        return value + 1 if isinstance(value, int | float) else None
    if field == "ops" and isinstance(value, list) and type(value[0]) in _OTHER:
        return [_OTHER[type(value[0])](), *value[1:]]
    if field == "op" and type(value) in _OTHER and not isinstance(node, ast.AugAssign):
        return _OTHER[type(value)]()
    return None


def tests_of(path: str) -> list[str]:
    """The files with unit tests of a module, below `tests`."""
    name = dotted(path)
    package, _, stem = name.rpartition(".")
    naming = re.compile(
        rf"from {re.escape(name)} import|from {re.escape(package)} import [^\n]*\b{stem}\b"
        rf"|import {re.escape(name)}\b"
    )
    found = {
        str(file.relative_to(TESTS)): len(naming.findall(text))
        + text.count(f"{stem}.")  # a module that is imported as a whole
        for file in sorted((TESTS / "unit").rglob("test_*.py"))
        if naming.search(text := file.read_text(encoding="utf-8"))
    }
    return sorted(found, key=lambda file: -found[file])[:MOST_FILES]


def fate(mutant: Mutant, sound: Path, room: Path) -> str:
    """What becomes of a mutant, in a word or two."""
    tests = tests_of(mutant.path)
    if not tests:
        return "no test"
    try:
        found = run(plant(mutant.defect, sound, room), tests)
    except CannotBePlanted as error:
        return f"not planted: {error}"
    if found.broken:
        return "found" if "hangs" in found.broken else "broken"
    return "found" if found.failed else "SURVIVES"


def main(words: list[str] | None = None) -> None:
    """Tries mutants, and prints what became of each that was not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", nargs="?", default="HEAD~1")
    parser.add_argument("--count", type=int, default=COUNT)
    asked = parser.parse_args(words)
    made = [
        mutant
        for path, rows in sorted(changed_rows(asked.base).items())
        if (CHECKOUT / path).is_file()
        for mutant in mutants_of(path, sources().module(path), rows)
    ]
    chosen = Random(commit_number()).sample(made, min(asked.count, len(made)))
    print(f"{len(made)} mutants of what has changed since {asked.base}; {len(chosen)} are tried")
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(AT_ONCE) as pool:
        sound = copy(Path(directory) / "sound")
        fates = pool.map(
            lambda each: fate(each[1], sound, Path(directory) / str(each[0])), enumerate(chosen)
        )
        counted: dict[str, int] = {}
        for mutant, became in zip(chosen, fates, strict=True):
            counted[became] = counted.get(became, 0) + 1
            if became != "found":
                print(f"{became}: {mutant}", flush=True)
    print(", ".join(f"{count} {became}" for became, count in sorted(counted.items())))


if __name__ == "__main__":
    main()
