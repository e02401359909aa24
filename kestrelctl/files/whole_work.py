"""Work in a thread that nobody leaves while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Done = TypeVar("Done")


async def to_its_end(
    work: Callable[Given, Done], *given: Given.args, **named: Given.kwargs
) -> Done:
    """Does work in a thread. It has ended when this returns, also by a cancel.

    So whoever tidies up then finds all that it has written.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work, *given, **named))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        working.exception()  # Else asyncio complains that nobody has looked at it.
        raise
