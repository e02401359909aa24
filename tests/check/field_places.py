"""Counts the places in which a field of a job's program is handed on by name.

    python tests/check/field_places.py [CHECKOUT] [FIELD ...]

A place is a function, or the body of a class, of `kestrelctl` that passes a value on under the
field's name as a keyword, or declares it: on its way from the command line to a worker, to a
neighbour, or back to its user. Experiments and simulated worlds are left out.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FIELDS = ("stop_grace_seconds", "workdir", "keep_logs", "success_exits", "output_to")
#: What of the package is on no job's way.
ELSEWHERE = ("simulate", "bench")


def places(package: Path, field: str) -> Iterator[str]:
    """The places of a field, as `module:qualified name`."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[0] not in ELSEWHERE:
            yield from sorted(set(_in(ast.parse(path.read_text()), ".".join(parts) + ":", field)))


def _in(node: ast.AST, where: str, field: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inside = where
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{where}.{child.name}".replace(":.", ":")
        declares = (
            isinstance(node, ast.ClassDef)
            and isinstance(child, ast.AnnAssign)
            and isinstance(child.target, ast.Name)
            and child.target.id == field
        )
        hands_on = (
            isinstance(child, ast.keyword)
            and child.arg == field
            and isinstance(child.value, ast.Attribute | ast.Subscript | ast.BoolOp | ast.Call)
        )
        if declares or hands_on:
            yield where
        yield from _in(child, inside, field)


def main(words: list[str]) -> None:
    """Prints how many places each field has, and which."""
    checkout = Path(words[0]) if words else Path(__file__).parents[2]
    for field in words[1:] or FIELDS:
        found = list(places(checkout / "kestrelctl", field))
        print(f"{field}: {len(found)}")
        for place in found:
            print(f"  {place}")


if __name__ == "__main__":
    main(sys.argv[1:])
