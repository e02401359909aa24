"""Hand-outs get what only the store has, and leave in the order in which they were decided."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from kestrelctl.core.effects import Run, Span
from kestrelctl.core.model.job.light_spec import whole_program
from kestrelctl.core.model.job.template import Template
from kestrelctl.errors import KestrelError, StoreFull
from kestrelctl.manager.sending.read_ahead import ReadAhead
from kestrelctl.store.port import CoreStore

log = logging.getLogger(__name__)

#: The pause before something is read again that could not be read.
RETRY_SECONDS = 1.0

T = TypeVar("T")
#: Yields what has to be done before it goes on; its result comes at its end.
Reading: TypeAlias = Generator[asyncio.Future[Any], None, T]
#: The same of something that is sent at the end.
Sending: TypeAlias = Reading[None]


class Handouts:
    """Fills hand-outs up, and keeps a line for each worker while one of it waits for the store.

    A hand-out waits there until its items and programs were read, and everything else for the same
    worker behind it. With a store on this machine nothing ever waits.

    Args:
        send: sends a hand-out that has all it needs; what it needs for some attempts cannot be
            read, for a reason: it is called with these, too.
    """

    def __init__(
        self, store: CoreStore, send: Callable[[Run, list[tuple[Span, str]]], None]
    ) -> None:
        self._ahead = ReadAhead(store)
        self._send = send
        self._lines: dict[str, deque[Sending]] = {}
        #: Jobs whose programs cannot be read, and why. Workers seem to know them, and do not.
        self._lost: dict[int, str] = {}

    def is_waiting(self, worker: str) -> bool:
        """Whether something for a worker waits for the store."""
        return worker in self._lines

    def hand_out(self, effect: Run) -> None:
        """Sends a hand-out as soon as it has all it needs."""
        lacks = effect.items_of or effect.programs_of or self._lost
        if lacks or effect.worker in self._lines:
            self._put(effect.worker, self._filling(effect))
        else:
            self._send(effect, [])

    def behind(self, worker: str, send: Callable[[], None]) -> None:
        """Sends something else to a worker, behind what waits."""
        self._put(worker, _sending(send))

    def drop(self) -> None:
        """Lets go of all that waits: the manager ends. Nobody was told of it."""
        self._lines.clear()

    def _put(self, worker: str, sending: Sending) -> None:
        line = self._lines.get(worker)
        if line is not None:
            line.append(sending)
            return
        reading = _pending(sending)
        if reading is not None:
            line = self._lines[worker] = deque([sending])
            reading.add_done_callback(lambda _: self._advance(worker, line))

    def _advance(self, worker: str, line: deque[Sending]) -> None:
        """Sends what has all it needs, up to the first that has not."""
        if self._lines.get(worker) is not line:
            return  # dropped meanwhile
        while line:
            reading = _pending(line[0])
            if reading is not None:
                reading.add_done_callback(lambda _: self._advance(worker, line))
                return
            line.popleft()
        del self._lines[worker]

    def _filling(self, effect: Run) -> Sending:
        """Puts into a hand-out what it lacks, then sends it."""
        items: list[str] = []
        spans: list[Span] = []
        unreadable: list[tuple[Span, str]] = []
        templates: list[Template] = []
        lost: dict[int, str] = {}  # jobs of which something cannot be read
        for template in effect.templates:
            if template.job_id not in effect.programs_of:
                templates.append(template)
                continue
            try:
                templates.append((yield from self._whole(template)))
            except KestrelError as error:
                self._lost[template.job_id] = error.message
        lost |= self._lost
        for span in effect.spans:
            _, job_id, index, n, _ = span
            if job_id in effect.items_of and job_id not in lost:
                try:
                    items += yield from self._items(job_id, index, n)
                except KestrelError as error:
                    lost[job_id] = error.message
            if job_id in lost:
                unreadable.append((span, lost[job_id]))
            else:
                spans.append(span)
        whole = msgspec.structs.replace(effect, items=items, spans=spans, templates=templates)
        self._send(whole, unreadable)

    def _items(self, job_id: int, index: int, n: int) -> Reading[list[str]]:
        """The items of n tasks from an index on.

        Raises:
            KestrelError: they cannot be read.
        """
        found: list[str] = []
        end = index + n
        while index < end:
            window = self._ahead.window(job_id, index)
            if window is None:
                window = yield from _read(partial(self._ahead.read, job_id, index))
                if window is None:
                    raise KestrelError(f"the store has no item {index} of job {job_id}")
                if not window.covers(index):
                    continue  # it was being read for another hand-out
            found += window.part(index, end)
            index = min(end, window.beyond)
        return found

    def _whole(self, template: Template) -> Reading[Template]:
        """A template with the texts of its program.

        Raises:
            KestrelError: they cannot be read.
        """
        job_id = template.job_id
        program = self._ahead.program(job_id)
        if program is None:
            program = yield from _read(partial(self._ahead.read_program, job_id))
            if program is None:
                raise KestrelError(f"the store has no program of job {job_id}")
        program = whole_program(template.program, program)
        return msgspec.structs.replace(template, program=program)


def _read(begin: Callable[[], asyncio.Future[T]]) -> Reading[T]:
    """Reads something; again after a pause if that does not work now.

    Raises:
        KestrelError: it cannot be read at all.
    """
    while True:
        reading = begin()
        yield reading
        try:
            return reading.result()
        except StoreFull as error:
            log.error("the store cannot be read: %s; work waits for it", error.cause)
        except KestrelError:
            raise
        except Exception as slip:  # it must not hold up all that is for the worker
            log.exception("a read of the store failed")
            raise KestrelError("the manager failed at reading what it needs") from slip
        loop = asyncio.get_running_loop()
        pause: asyncio.Future[None] = loop.create_future()
        loop.call_later(RETRY_SECONDS, pause.set_result, None)
        yield pause


def _pending(sending: Sending) -> asyncio.Future[Any] | None:
    """Goes on with something up to what it has to wait for; None if it is sent."""
    return next((reading for reading in sending if not reading.done()), None)


def _sending(send: Callable[[], None]) -> Sending:
    """Sends something that lacks nothing."""
    send()
    yield from ()
