"""`kestrelctl top`: shows a pool while it works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, plain
from kestrelctl.cli.show.grid import line_text, rich_text
from kestrelctl.cli.show.history import History
from kestrelctl.cli.show.screen import Screen
from kestrelctl.cli.top.frame import View, frame, sheet
from kestrelctl.cli.top.keyboard import keys_pressed
from kestrelctl.errors import Busy, TimedOut, Unreachable
from kestrelctl.grammar.click_types import Number
from kestrelctl.protocol.answers import Overview
from kestrelctl.protocol.requests import PoolOverview

ANSWER_SECONDS = 5.0
#: The screen is drawn again after this time even without news, for its clock.
REDRAW_SECONDS = 1.0
#: The shortest pause between two pictures, however fast keys come.
_DRAW_PAUSE_SECONDS = 0.03
_PIPE_COLUMNS = 100
_PAGE = 10
_STDIN = 0
_SCROLL = {"j": 1, "down": 1, "k": -1, "up": -1, "page-down": _PAGE, "page-up": -_PAGE}
#: The exit status for each signal that ends `top`; Ctrl-C is one way to quit.
_STATUS = {signal.SIGINT: 0, signal.SIGTERM: 143, signal.SIGHUP: 129}


@click.command("top", cls=CliCommand)
@click.option(
    "--interval",
    type=Number(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two looks at the pool.",
)
@click.option("--once", is_flag=True, help="Print it once and exit, as without a terminal.")
@pass_invocation
def top(invocation: Invocation, interval: float, once: bool) -> int:
    """Watch the pool: workers, jobs, rates, and why tasks wait.

    Keys: q or Ctrl-C quits, j and k or the arrows scroll jobs, p pauses.
    """
    screen = invocation.screen
    pool = invocation.find_context(invocation.pool).name
    status = 0

    async def work(connection: Connection) -> CommandOutput | None:
        nonlocal status
        if once or not _can_draw(screen):
            return _Sheet(await _look(connection, interval), invocation.now(), pool)
        status = await _Live(invocation, connection, interval, pool).run()
        return None

    invocation.talk(work)
    return status


def _can_draw(screen: Screen) -> bool:
    return screen.is_table and screen.is_terminal and os.environ.get("TERM", "dumb") != "dumb"


async def _overview(connection: Connection, *, waits: bool = True) -> Overview:
    return await ask(connection, PoolOverview(), Overview, ANSWER_SECONDS, waits=waits)


async def _look(connection: Connection, interval: float) -> History:
    """Looks at the pool once; twice if anything is going on, to get rates."""
    history = History(await _overview(connection))
    if history.latest.running or history.latest.queued:
        await asyncio.sleep(interval)
        history.add(await _overview(connection))
    return history


class _Sheet(CommandOutput):
    """The result of one look."""

    def __init__(self, history: History, now: float, pool: str) -> None:
        self._history = history
        self._now = now
        self._pool = pool

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        found, history = self._history.latest, self._history
        data = {name: plain(getattr(found, name)) for name in found.__struct_fields__[1:]}
        data["finished_per_second"] = history.finished.per_second
        data["sent_per_second"] = history.sent.per_second
        yield "store-error" if found.store_error else "ok", data

    async def tabulate(self, screen: Screen) -> None:
        width = shutil.get_terminal_size((_PIPE_COLUMNS, 0)).columns
        for line in sheet(self._history, self._now, width, self._pool):
            screen.write(line_text(line) + "\n")


class _Live:
    """The view on a terminal, from its first picture until the user quits."""

    def __init__(
        self, invocation: Invocation, connection: Connection, interval: float, pool: str
    ) -> None:
        self._invocation = invocation
        self._connection = connection
        self._interval = interval
        self._view = View(pool=pool)
        self._history: History
        self._answered_at = 0.0
        self._changed = asyncio.Event()
        self._status: int | None = None

    async def run(self) -> int:
        """Shows the pool; returns the exit status."""
        from rich.console import Console
        from rich.live import Live

        self._history = History(await _overview(self._connection))
        self._answered_at = self._invocation.now()
        console = Console(no_color=not self._invocation.screen.color, highlight=False)
        with (
            _nothing_logged(),
            self._signals(),
            Live(console=console, screen=True, auto_refresh=False) as live,
            keys_pressed(_STDIN, self._on_key),
        ):
            asking = asyncio.create_task(self._ask_forever())
            asking.add_done_callback(lambda _: self._changed.set())
            try:
                while self._status is None and not asking.done():
                    self._changed.clear()
                    width, height = console.size
                    lines = frame(self._history, self._view, self._invocation.now(), width, height)
                    live.update(rich_text(lines), refresh=True)
                    await asyncio.sleep(_DRAW_PAUSE_SECONDS)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(REDRAW_SECONDS):
                            await self._changed.wait()
            finally:
                asking.cancel()
        if self._status is None:
            await asking  # and raise what ended it
        return self._status or 0

    async def _ask_forever(self) -> None:
        view = self._view
        while True:
            began = time.monotonic()
            if not view.paused:
                try:
                    self._history.add(await _overview(self._connection, waits=False))
                    self._answered_at = self._invocation.now()
                    view.away_since = None
                except (Busy, TimedOut, Unreachable) as error:
                    view.away_since = self._answered_at
                    view.away_why = error.cause or error.message
                self._changed.set()
            await asyncio.sleep(max(0.05, self._interval - (time.monotonic() - began)))

    def _on_key(self, key: str) -> None:
        if key == "q":
            self._status = 0
        elif key == "p":
            self._view.paused = not self._view.paused
        elif key in _SCROLL:
            self._view.scroll += _SCROLL[key]
        else:
            return
        self._changed.set()

    def _on_signal(self, number: signal.Signals) -> None:
        self._status = _STATUS[number]
        self._changed.set()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _STATUS:
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        try:
            yield
        finally:
            for number in (*_STATUS, signal.SIGWINCH):
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def _nothing_logged() -> Iterator[None]:
    """Silences the logs of libraries, which would appear in the middle of the picture."""
    import logging

    if not sys.stderr.isatty():
        yield
        return
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
