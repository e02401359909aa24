"""Answers of stores that need not be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def at_hand(read: Callable[[], T]) -> asyncio.Future[T]:
    """Returns a future that is done: with what is read, or with the error of that."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(read())
    except Exception as error:
        future.set_exception(error)
    return future
