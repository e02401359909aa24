"""What a mutation tool would make of a change is made, and a script of its own tries it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mutants
from anchors import Module

SOURCE = """
def price(n: int, free: bool) -> int:
    if n < 3 and free:
        return 0
    log.info("not free")
    book(n)
    return n * 2
"""


def made(rows: set[int]) -> set[str]:
    found = mutants.mutants_of("kestrelctl/shop.py", Module(SOURCE), rows)
    return {each.instead for each in found}


def test_conditions_constants_and_statements_are_changed_one_at_a_time() -> None:
    assert made({3}) == {
        "if not (n < 3 and free):", "if n <= 3 and free:", "if n < 4 and free:",
        "if n < 3 or free:",
    }  # fmt: skip
    assert made({6}) == {"pass"}
    assert made({7}) == {"return n * 3"}


def test_what_did_not_change_and_what_is_only_logged_has_no_mutants() -> None:
    assert made({5}) == set()
    assert made(set()) == set()


def test_the_command_of_the_page_runs() -> None:
    script = Path(mutants.__file__)
    command = [sys.executable, str(script), "HEAD", "--count", "0"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "0 are tried" in said
