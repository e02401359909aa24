"""The command of an environment that is a node of something else, not a worker of this pool."""

from __future__ import annotations

from collections.abc import Sequence

MOST_WORDS = 100
MOST_WORD_CHARACTERS = 900
#: Stands for the environment's own name.
NAME = "{name}"


def node_command(runs: Sequence[str], name: str) -> tuple[str, ...]:
    """The words of a class, with the name of one environment in them.

    Args:
        name: of letters, digits and dashes; no other environment of the pool ever has it.
    """
    return tuple(word.replace(NAME, name) for word in runs)
