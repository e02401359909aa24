"""Runs a command of a moment without an event loop: loading one takes longer than the answer.

Nothing in it may wait but for the pool, over a connection that blocks. What turns out to need more
begins anew, with a loop and the usual connection, which has the patience and the words for whatever
does not go well. So it prints nothing before it has asked all that it asks.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_is_running = False


class TakesLonger(Exception):
    """The command begins anew, with an event loop; what it has asked so far may be asked again."""


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in which only calls that block make it wait, and returns its result.

    Raises:
        TakesLonger: it needs an event loop.
    """
    global _is_running
    _is_running = True
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        _is_running = False
        work.close()
    raise AssertionError("a command of a moment waits for an event loop")


def needs_loop() -> None:
    """Says that what follows waits for several things, or prints before it asks again.

    Raises:
        TakesLonger: there is no event loop.
    """
    if _is_running:
        raise TakesLonger
