"""Which of Molecule's scenarios are due: first those that have changed since all of them passed.

What a scenario plays is its own files, the lab, and the roles, playbooks and locks that these lead
to. `green.json` keeps a digest of that for each scenario as it was when all of them passed in the
last `./kestrel test --full`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from turns import CHECKOUT, rotated

SCENARIOS = CHECKOUT / "tests/molecule"
GREEN = SCENARIOS / "green.json"
#: So many are played after an ordinary check; the longest is alone, it takes as long as all others.
AT_MOST = 2
LONGEST = "pool"
#: What all scenarios stand on, below the checkout.
COMMON = ("tests/molecule/shared", "tests/lab", "ansible.cfg", "requirements-*.lock")
#: Made by playing, or by Python.
MADE = re.compile(r"(vault|flock_authority)\.yml$|__pycache__|/\.state/")

_ROLE = re.compile(r"(?:\brole: |(?:include|import)_role:\s+name: )(\w+)")
_IMPORTED = re.compile(r"import_playbook: \S*?([\w-]+)\.yml")
#: What a scenario itself names, if it is a playbook; other texts name some in hints and comments.
_NAMED = re.compile(r"[\w-]+(?=\.yml\b)|(?<=\")[\w-]+(?=\")")


def names() -> list[str]:
    """All scenarios."""
    return sorted(file.parent.name for file in SCENARIOS.glob("*/molecule.yml"))


def digest(scenario: str) -> str:
    """What stands for all that a scenario plays."""
    found = hashlib.sha256()
    for file in sorted(_files(scenario)):
        found.update(f"{file.relative_to(CHECKOUT)}\0".encode())
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def changed() -> list[str]:
    """Those that play something else than when all of them passed."""
    passed = json.loads(GREEN.read_text(encoding="utf-8")) if GREEN.exists() else {}
    return [name for name in names() if passed.get(name) != digest(name)]


def due(scenarios: list[str], differing: list[str], turn: int) -> list[str]:
    """Those that are played after an ordinary check, each kind in turn.

    Args:
        differing: those of the scenarios that have changed; they come first.
        turn: the number of the commit.
    """
    others = [name for name in scenarios if name not in differing]
    first, *rest = rotated(differing, turn) + rotated(others, turn)
    if first == LONGEST:
        return [first]
    return [first, *(name for name in rest if name != LONGEST)][:AT_MOST]


def record_green() -> None:
    """Keeps what each scenario plays now: all of them have passed."""
    passed = {name: digest(name) for name in names()}
    GREEN.write_text(json.dumps(passed, indent=2) + "\n", encoding="utf-8")


def _files(scenario: str) -> set[Path]:
    found: set[Path] = set()
    waiting = [SCENARIOS / scenario, *(each for name in COMMON for each in CHECKOUT.glob(name))]
    while waiting:
        path = waiting.pop()
        for file in path.rglob("*") if path.is_dir() else [path]:
            if not file.is_file() or file in found or MADE.search(str(file)):
                continue
            found.add(file)
            waiting.extend(_named_in(file))
    return found


def _named_in(file: Path) -> Iterator[Path]:
    """Roles and playbooks that a file leads to."""
    if file.suffix not in (".yml", ".py"):
        return
    text = file.read_text(encoding="utf-8")
    for role in _ROLE.findall(text):
        if (CHECKOUT / "roles" / role).is_dir():
            yield CHECKOUT / "roles" / role
    playbook_names = _NAMED if file.is_relative_to(SCENARIOS) else _IMPORTED
    for playbook in playbook_names.findall(text):
        for place in ("playbooks", "."):
            if (named := CHECKOUT / place / f"{playbook}.yml").is_file():
                yield named
