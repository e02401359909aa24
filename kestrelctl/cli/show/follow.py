"""`kestrelctl job logs -f`: the output of tasks while they run, attempt after attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.show.screen import Screen
from kestrelctl.cli.show.terminal_text import TerminalText
from kestrelctl.client.logs import LogReader
from kestrelctl.core.model.job.task_state import FINAL_STATES
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import Busy, Incomplete, KestrelError, TimedOut, Unreachable
from kestrelctl.grammar.quantities import short_address
from kestrelctl.protocol.job_answers import AttemptOutput, FollowedLog, Log
from kestrelctl.protocol.job_requests import FollowLogs, Logs

#: The pause between two requests for a task, and what each further task adds to it.
INTERVAL_SECONDS = 0.5
_MORE_SECONDS = 0.1
#: The longest silence of a pool before it is given up.
PATIENCE_SECONDS = 120.0
_ASK_SECONDS = 60.0
#: A line that is longer than this is written although it has not ended.
_LONGEST_LINE_BYTES = 65_536


async def follow(
    connection: Connection,
    reader: LogReader,
    screen: Screen,
    job_id: int,
    task_ids: Sequence[int],
    stream: str,
) -> None:
    """Writes the output of tasks until all of them have ended; line by line if there are several.

    Args:
        reader: reads the output that their workers do not give any more.

    Raises:
        Incomplete: some of it could not be had.
        KestrelError: the pool refused it, or was silent for two minutes.
    """
    several = len(task_ids) > 1
    pause_seconds = INTERVAL_SECONDS + _MORE_SECONDS * (len(task_ids) - 1)
    followed = [
        _Followed(
            connection,
            reader,
            screen,
            FollowLogs(job=str(job_id), task_id=task_id, stream=stream),
            _Sheet(screen, f"[{task_id}] " if several else ""),
            pause_seconds,
        )
        for task_id in task_ids
    ]
    running = [asyncio.create_task(each.until_ended()) for each in followed]
    try:
        await asyncio.gather(*running)
    finally:
        for each in running:
            each.cancel()
    missing_bytes = sum(each.missing_bytes for each in followed)
    if missing_bytes:
        raise Incomplete(
            f"{plural(missing_bytes, 'byte')} of the output cannot be had",
            cause=next(each.why_missing for each in followed if each.why_missing),
            hint="let tasks write what must last into a file of their own",
        )


class _Sheet:
    """Writes the output of one task as it is, or with a prefix before each line."""

    def __init__(self, screen: Screen, prefix: str) -> None:
        self._screen = screen
        self._prefix = prefix.encode()
        self._text = TerminalText() if screen.is_terminal else None
        self._line = b""
        self._at_start = True

    def add(self, data: bytes) -> None:
        """Writes the next piece."""
        self._write(data if self._text is None else self._text.add(data).encode())

    def end(self) -> None:
        """Ends the output of an attempt: what follows begins a line of its own."""
        if self._text is not None:
            self._write(self._text.end().encode())
            self._text = TerminalText()
        if self._line:
            self._write(b"\n")
        elif not self._prefix and not self._at_start and self._screen.is_terminal:
            self._screen.write_bytes(b"\n")
        self._at_start = True

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if not self._prefix:
            self._at_start = data.endswith(b"\n")
            self._screen.write_bytes(data)
            return
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _LONGEST_LINE_BYTES:
            lines.append(self._line)
            self._line = b""
        if lines:
            self._screen.write_bytes(b"".join(self._prefix + line + b"\n" for line in lines))


class _Followed:
    """One task, from attempt to attempt.

    Args:
        first: asks for its output from the beginning.

    Attributes:
        missing_bytes, why_missing: how much of its output could not be had, and why.
    """

    def __init__(
        self,
        connection: Connection,
        reader: LogReader,
        screen: Screen,
        first: FollowLogs,
        sheet: _Sheet,
        pause_seconds: float,
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._screen = screen
        self._first = first
        self._sheet = sheet
        self._pause_seconds = pause_seconds
        self._task = f"task {first.task_id}"
        self._reading = 0  # the attempt that is read; 0 for none
        self._besides = 0  # the attempt before it, which was read to its end
        self._offsets: dict[int, int] = {}
        self._worker = ""
        self._told_that_it_waits = False
        self.missing_bytes = 0
        self.why_missing = ""

    async def until_ended(self) -> None:
        """Writes the output of the task until it has a final state and all was read."""
        while True:
            answer = await self._ask()
            piece = answer.piece
            if piece is not None and piece.attempt != self._reading:
                known = piece.attempt in self._offsets
                self._turn_to(piece)
                if known:
                    continue  # this piece is its beginning, which was read before
            if piece is not None:
                self._read(await self._with_what_is_stored(piece))
                if piece.more:
                    await self._read_on_this_machine(piece)
                    continue
                if piece.over:
                    self._close(piece, answer.state)
            if answer.state in FINAL_STATES and not self._reading:
                return
            if piece is None and not self._offsets and not self._told_that_it_waits:
                self._told_that_it_waits = True
                self._screen.say(f"{self._task} waits: nothing of it has run yet")
            await asyncio.sleep(self._pause_seconds)

    def _turn_to(self, piece: AttemptOutput) -> None:
        worker = short_address(piece.worker)
        if piece.attempt in self._offsets:
            self._screen.say(f"{self._task}: the earlier attempt on {worker} goes on after all")
        elif self._offsets:
            count = f"attempt {piece.count}" if piece.count else "another attempt"
            self._screen.say(f"{self._task}: {count} runs on {worker}, from its beginning:")
        self._reading = piece.attempt
        self._worker = worker
        self._offsets.setdefault(piece.attempt, 0)

    async def _with_what_is_stored(self, piece: AttemptOutput) -> AttemptOutput:
        """Writes what is missing before a piece if the file share has it; returns what is left."""
        if not (piece.skipped_bytes and piece.over):
            return piece
        first = self._first
        request = Logs(job=first.job, task_id=first.task_id, stream=first.stream, stored=True)
        to_pass = self._offsets[piece.attempt]
        left_bytes = piece.skipped_bytes
        try:
            log = await ask(self._connection, request, Log, _ASK_SECONDS)
            if log.stored is not None:
                async for data in self._reader.stored(log.stored):
                    wanted = data[to_pass : to_pass + left_bytes]
                    to_pass = max(0, to_pass - len(data))
                    left_bytes -= len(wanted)
                    self._sheet.add(wanted)
        except KestrelError as error:  # before the first piece
            return replace(piece, why_missing=f"{error.message}; {piece.why_missing}")
        self._offsets[piece.attempt] += piece.skipped_bytes - left_bytes
        return replace(piece, skipped_bytes=left_bytes)

    async def _read_on_this_machine(self, piece: AttemptOutput) -> None:
        """Writes what follows the first piece of an attempt that is over, if its file is here."""
        number = piece.attempt
        if self._offsets[number] != len(piece.data):
            return
        async for data in self._reader.after_first(number, self._first.stream, piece.data):
            self._offsets[number] += len(data)
            self._sheet.add(data)

    def _read(self, piece: AttemptOutput) -> None:
        missing_bytes = piece.skipped_bytes + piece.cut_bytes
        if missing_bytes:
            self.missing_bytes += missing_bytes
            self.why_missing = self.why_missing or piece.why_missing
            are = "is" if missing_bytes == 1 else "are"
            self._screen.warn(f"{plural(missing_bytes, 'byte')} of {self._task} {are} missing here")
        self._offsets[piece.attempt] += piece.skipped_bytes + len(piece.data)
        self._sheet.add(piece.data)

    def _close(self, piece: AttemptOutput, state: str) -> None:
        self._sheet.end()
        if state not in FINAL_STATES:
            self._screen.say(f"{self._task}: the attempt on {self._worker} is over: {piece.over}")
        elif state != "done":
            self._screen.say(f"{self._task} {state}: {piece.over}")
        self._besides, self._reading = self._reading, 0

    async def _ask(self) -> FollowedLog:
        """Asks for what there is now; a pool that is away is given time to come back."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE_SECONDS
        request = FollowLogs(
            job=self._first.job,
            task_id=self._first.task_id,
            stream=self._first.stream,
            attempt=self._reading,
            offset=self._offsets.get(self._reading, 0),
            besides=self._besides,
        )
        while True:
            try:
                return await ask(self._connection, request, FollowedLog, _ASK_SECONDS)
            except (Busy, TimedOut, Unreachable) as error:
                if clock() >= deadline:
                    raise
                self._screen.detail(f"no answer ({error.message}); asking again")
                await asyncio.sleep(self._pause_seconds)
