"""The environment, one of the pool's classes, inside which the tasks of a job run without a worker
of its own. (What tasks find in their process's variables is `JobSpec.env`.)
"""

from __future__ import annotations

import msgspec

#: Kinds inside which a worker starts tasks itself: their files are where the host's are.
KINDS = ("venv",)
#: The tag of workers that do so for a kind begins with it.
TAG_PREFIX = "environment:"
#: The longest name of a class, in characters.
MOST_NAME_CHARACTERS = 32
#: Longer recipes do not travel.
MOST_RECIPE_CHARACTERS = 65_536


class TaskEnvironment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The chosen environment. A user names its class; the manager adds what the class says then.

    Attributes:
        of: the name of a class of the pool.
        kind: one of `KINDS`.
        recipe: what is in the recipe of the class; empty if it has none.
    """

    of: str
    kind: str = ""
    recipe: str = ""


def tag_of(kind: str) -> str:
    """The tag of workers that run tasks inside environments of a kind."""
    return f"{TAG_PREFIX}{kind}"


def problem_with_environment(environment: TaskEnvironment | None) -> str | None:
    """Says what is wrong with an environment, in words for its user; None if all is well."""
    if environment is None:
        return None
    if not 1 <= len(environment.of) <= MOST_NAME_CHARACTERS:
        return f"the name of an environment has 1 to {MOST_NAME_CHARACTERS} characters"
    if len(environment.recipe) > MOST_RECIPE_CHARACTERS:
        return f"a recipe has at most {MOST_RECIPE_CHARACTERS:,} characters"
    return None
