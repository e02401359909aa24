"""Sets how often a program looks for objects that hold each other alive.

Almost all objects of a message or a task are freed without such a look. Those that are not yet free
belong to work under way, and the more of them there are, the longer each look takes.
"""

from __future__ import annotations

import gc

#: Objects made and not yet freed before the youngest are looked at. With Python's 700 the manager
#: spends an eighth of its time on that under load.
YOUNG_OBJECTS = 20_000


def seldom() -> None:
    """Looks at the youngest objects seldom; call it when a program begins."""
    gc.set_threshold(YOUNG_OBJECTS)


def forgo() -> None:
    """Spares a program that ends the last look, a fifth of what a short command takes.

    The interpreter looks at all that was ever imported before it ends. What is registered to be
    done at the end is done as always.
    """
    gc.freeze()


def settle() -> None:
    """Keeps objects made so far from later looks; call it when a daemon has made what it keeps."""
    gc.collect()
    gc.freeze()
    seldom()
