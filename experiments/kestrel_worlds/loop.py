"""An event loop inside the simulated world: the life of one process.

Everything that a process does is a callback of its loop, and all loops take their turns from the
world's one clock. A process that is stopped takes no turns; one that is killed never does again.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import events
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

from kestrel_worlds.simulation_clock import MOST_AT_ONCE, SimulationClock, StandsStill

#: The longest time until what arrives is taken up, together with all that arrived meanwhile.
TURN_SECONDS = 0.002
#: The most `finally` blocks, one in the other, in which a coroutine may wait.
MOST_WAYS_OUT = 4


class Handle(asyncio.TimerHandle):
    """A callback to come. The base class would copy a context that nobody uses."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True


class Loop:
    """The part of an `asyncio.AbstractEventLoop` that the shells use; also a `Clock` for them.

    Args:
        random: decides when turns are taken.
        on_error: called with an exception that a callback or a task left to the loop.
    """

    def __init__(
        self, clock: SimulationClock, random: Random, on_error: Callable[[BaseException], None]
    ) -> None:
        self._as_loop = cast(asyncio.AbstractEventLoop, self)
        self._clock = clock
        self._draw = random.random
        self._on_error = on_error
        self._ready: deque[Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._planned = False
        self._stopped = False
        self._dead = False
        self._callbacks_left: int | None = None
        self._last_breath: Callable[[], None] | None = None
        self.wall_ahead_seconds = 0.0

    # -- time --------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._clock.now

    def now(self) -> float:
        """Returns the world's time, in seconds since the epoch."""
        return self._clock.now

    def wall(self) -> float:
        """Returns the same, unless somebody has set the machine's clock."""
        return self._clock.now + self.wall_ahead_seconds

    # -- what is to come ---------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Handle:
        handle = Handle(0.0, callback, args)
        self._ready.append(handle)
        if not (self._planned or self._stopped):
            self._planned = True
            self._clock.after(self._draw() * TURN_SECONDS, self._turn)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Handle:
        return self.call_at(self._clock.now + delay, callback, *args)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Handle:
        handle = Handle(when, callback, args)
        self._clock.at(when, self._due, handle)
        return handle

    def _due(self, handle: Handle) -> None:
        if handle._cancelled or self._dead:
            return
        self._ready.append(handle)
        if not (self._planned or self._stopped):
            self._planned = True
            self._turn()

    def _turn(self) -> None:
        """Runs what is ready, and what becomes ready by that."""
        if self._stopped or self._dead:
            self._planned = False
            return
        outer = events._get_running_loop()
        events._set_running_loop(self._as_loop)
        ready = self._ready
        done = 0
        try:
            while ready:
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                done += 1
                try:
                    handle._callback(*handle._args)
                except Exception as error:
                    self._on_error(error)
                if self._callbacks_left is not None and self._breathes_its_last():
                    return
                if done > MOST_AT_ONCE:
                    raise StandsStill(f"{done:,} callbacks in one turn")
        finally:
            events._set_running_loop(outer)
            self._planned = False
            self._clock.actions += done

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self._as_loop, name=name or "task")
        setattr(task, "_log_destroy_pending", False)  # noqa: B010  (no attribute to mypy)
        self._tasks.append(task)
        if len(self._tasks) > 100:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not self._dead:
            self._on_error(error)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._dead

    def is_closed(self) -> bool:
        return self._dead

    # -- life --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stops, as by SIGSTOP: what becomes ready waits."""
        self._stopped = True

    def go_on(self) -> None:
        """Goes on, as by SIGCONT."""
        self._stopped = False
        if self._ready and not self._planned:
            self._planned = True
            self._turn()

    def die_after(self, callbacks: int, then: Callable[[], None]) -> None:
        """Lets the process end in the middle of a turn, after this many callbacks."""
        self._callbacks_left = callbacks
        self._last_breath = then

    def _breathes_its_last(self) -> bool:
        assert self._callbacks_left is not None
        self._callbacks_left -= 1
        if self._callbacks_left > 0:
            return False
        self._dead = True
        if self._last_breath is not None:
            self._clock.at(self._clock.now, self._last_breath)
        return True

    def kill(self) -> None:
        """Takes no turn any more, and closes what is under way.

        Closing a coroutine runs its `finally` up to the next `await`, which raises. A real process
        would not do that, but nobody can tell: the connection is gone, what is planned there never
        happens, and nothing there writes to a disk. It may begin tasks, which are closed too.
        """
        self._dead = True
        outer = events._get_running_loop()
        events._set_running_loop(self._as_loop)
        try:
            while self._tasks:
                task = self._tasks.pop(0)
                if not task.done():
                    _close(task.get_coro())
        finally:
            events._set_running_loop(outer)
        self._ready.clear()


def _close(coro: Any) -> None:
    """Closes a coroutine, also one that waits for more on its way out."""
    for _ in range(MOST_WAYS_OUT):
        with contextlib.suppress(RuntimeError):  # It waits again.
            coro.close()
            return
