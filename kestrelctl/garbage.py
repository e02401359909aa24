"""How often a daemon looks for objects that hold each other alive.

Almost all that a message or a task needs is freed without that. What is not yet free at such a
moment is what is under way, and the more of it there is, the longer each look takes.
"""

from __future__ import annotations

import gc

#: Objects made and not yet freed before the youngest are looked at. With Python's 700 the manager
#: spends an eighth of its time on that under load.
YOUNG_OBJECTS = 20_000


def settle() -> None:
    """Call when a daemon has made what it keeps: this is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
