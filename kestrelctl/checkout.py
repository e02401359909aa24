"""Which state of the repository this is. Runs git: not for daemons."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kestrelctl import __version__

#: What is installed on hosts is made of these.
_PATHS = ["kestrelctl", "pyproject.toml"]
_DEVELOPMENT = ".dev0"


def described_version(checkout: Path = Path(__file__).parents[1]) -> str:
    """Return the version with the state of the checkout, such as 0.2.0.dev37+g1a2b3c4d5.

    37 commits have changed the package, the last of them is 1a2b3c4d5; `.dirty` at the end says
    that something is not committed. A release, and what is no checkout or has no git, says what
    `__version__` says (PEP 440, "Developmental releases" and "Local version identifiers").
    """
    if not __version__.endswith(_DEVELOPMENT) or not (checkout / ".git").exists():
        return __version__
    try:
        count = _git(checkout, "rev-list", "--count", "HEAD")
        last = _git(checkout, "log", "-1", "--format=%h", "--abbrev=9")
        dirty = ".dirty" if _git(checkout, "status", "--porcelain") else ""
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__.removesuffix('0')}{count}+g{last}{dirty}"


def _git(checkout: Path, *words: str) -> str:
    # Without its lock a commit that somebody makes at the same time does not fail.
    command = ["git", "--no-optional-locks", "-C", str(checkout), *words, "--", *_PATHS]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
