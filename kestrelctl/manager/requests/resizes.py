"""Asks workers to offer more or less, for admins who want it."""

from __future__ import annotations

import asyncio
import itertools

from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.protocol import workers

#: The time that a worker may take to answer.
ANSWER_SECONDS = 10.0


class Resizes:
    """Requests for another capacity that workers have yet to answer."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._pending: dict[str, tuple[str, asyncio.Future[workers.Resized]]] = {}

    def ask(
        self, worker: str, change: AssetChange
    ) -> tuple[workers.Resize, asyncio.Future[workers.Resized]]:
        """Makes a message for the worker, and the future of its answer."""
        request = str(next(self._ids))
        future: asyncio.Future[workers.Resized] = asyncio.get_running_loop().create_future()
        self._pending[request] = (worker, future)
        future.add_done_callback(lambda _: self._pending.pop(request, None))
        return workers.Resize(request=request, change=change), future

    def on_resized(self, sender: str, message: workers.Resized) -> None:
        """Takes in what a worker has; an answer from anybody but who was asked is dropped."""
        worker, future = self._pending.get(message.request, ("", None))
        if future is not None and worker == sender and not future.done():
            future.set_result(message)
