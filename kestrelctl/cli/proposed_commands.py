"""Commands that are proposed to a user ask the pool that he asked: `--pool` stands in them, too."""

from __future__ import annotations

import re
import shlex

#: The beginning of a command that talks to a pool. These do not, and have no such option or one
#: that means something else.
_TALKS = re.compile(
    r"\bkestrelctl (?=[a-z])"
    r"(?!(?:up|down|manager|fleet|bench|dashboards|worker (?:environment|join|run))(?![a-z-]))"
)


def of_pool(text: str, pool: str) -> str:
    """A text with the pool's name in each command that talks to one.

    Args:
        pool: as the user named it; empty for the usual one.
    """
    return (
        _TALKS.sub(lambda found: f"{found[0]}--pool {shlex.quote(pool)} ", text) if pool else text
    )
