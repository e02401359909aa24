"""What is tried in turn, because all of it takes too long: the commit says whose turn it is.

The same commit always tries the same, on whatever day and in a clone without history.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


@cache
def commit_number(checkout: Path = CHECKOUT) -> int:
    """A number made of the commit that is checked out; 0 where there is no git."""
    try:
        asked = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "--verify", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return 0
    return int(asked.stdout[:12] or "0", 16)


def rotated(names: list[str], turn: int) -> list[str]:
    """The same names, from another one on with each turn."""
    if not names:
        return []
    first = turn % len(names)
    return names[first:] + names[:first]
