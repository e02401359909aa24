"""Runs the works that a daemon depends on beside its main work; they end with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

log = logging.getLogger(__name__)


@asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs works beside the body of a `with`. They are cancelled when the body is over.

    None of them fails in silence: an exception of one ends the body, and is raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None


async def logged(what: str, work: Coroutine[Any, Any, None]) -> None:
    """Runs work that a daemon can go on without: if it fails, the log says so.

    A worker that ends takes its tasks with it, so few failures are worth its end.
    """
    try:
        await work
    except Exception:
        log.exception("%s has failed, and the rest goes on", what)
