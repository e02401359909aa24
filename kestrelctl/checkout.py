"""The version of this Kestrel, with the state of the repository that it runs from."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from kestrelctl import __version__

#: The package that is installed on hosts is made of these.
_PATHS = ["kestrelctl", "pyproject.toml"]
_CHECKOUT = Path(__file__).parents[1]


@functools.cache
def own_version() -> str:
    """Returns the version of this process: of the checkout as it was when the first caller asked.

    The first call may run git for some milliseconds, so daemons make it before they serve anybody.
    """
    return described_version()


def described_version(checkout: Path = _CHECKOUT) -> str:
    """Returns the version with the state of the checkout, such as 0.3.0.dev0+g1a2b3c4d5.

    1a2b3c4d5 is the commit that is checked out; `.dirty` at the end says that something of the
    package is not committed. The commit of a release has the bare number, 0.2.0. Without a
    checkout, or without git, it is `__version__`.

    According to PEP 440, all builds between two releases come after the first and before the second
    one, as in 0.2.0 < 0.3.0.dev0+g1a2b3c4d5 < 0.3.0, and no tool prefers one to a release unless it
    is told to take development releases. Nothing depends on tags or on commits before this one, so
    a shallow clone says the same.
    """
    # An unpacked source archive has a `+`, and the commit that it was made of.
    if "+" in __version__ or not (checkout / ".git").exists():
        return __version__
    try:
        commit = _git(checkout, "rev-parse", "HEAD")
        dirty = ".dirty" if _git(checkout, "status", "--porcelain", "--", *_PATHS) else ""
    except (OSError, subprocess.CalledProcessError):
        return __version__
    if not dirty and ".dev" not in __version__:
        return __version__
    # Always nine digits: git's own abbreviation is longer in a full clone than in a shallow one.
    return f"{__version__}+g{commit[:9]}{dirty}"


def _git(checkout: Path, *words: str) -> str:
    # Git takes no lock, so that a commit that somebody makes at the same time does not fail.
    command = ["git", "--no-optional-locks", "-C", str(checkout), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
