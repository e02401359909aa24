"""Commands that are proposed to users begin as theirs did, with their `--pool`."""

from __future__ import annotations

import re
import shlex

#: The beginning of a command that talks to a pool. These do not, and have no such option or one
#: that means something else, or name the pool themselves.
_TALKS = re.compile(
    r"\bkestrelctl (?=[a-z])"
    r"(?!(?:up|down|manager|fleet|bench|dashboards|worker (?:environment|join|run|service))"
    r"(?![a-z-]))"
)
#: The beginning of any command. These are for another machine, which has no such checkout.
_CALLED = re.compile(r"\bkestrelctl (?=[a-z-])(?!worker (?:environment|join)(?![a-z-]))")


def as_called(text: str, program: str, pool: str) -> str:
    """A text whose commands begin as the user's own did.

    Args:
        program: as what the user called it, quoted for a shell.
        pool: as the user named it; empty for the usual one.
    """
    if pool:
        text = _TALKS.sub(lambda found: f"{found[0]}--pool {shlex.quote(pool)} ", text)
    return _CALLED.sub(lambda _: f"{program} ", text)
