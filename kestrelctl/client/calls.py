"""Hands calls of functions to interpreters that run as tasks of a pool, and takes their results.

An interpreter is a task of a job with channels (`protocol.channels`). The pool carries frames and
keeps none, so both ends repeat what did not arrive: a call is known by its number, an interpreter
runs each number once, and keeps its result until that was taken. A call whose interpreter is gone
goes to another one; a call that was alone with several that died is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import math
import os
import pickle
import secrets
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
from msgspec.structs import replace

from kestrelctl.client.frames import Forged, Messages, first_frame, frames_of
from kestrelctl.client.interpreter import BOOTSTRAP, FILE_BYTES, PICKLED, RAISED, VALUE
from kestrelctl.client.parcels import Key, Parcels
from kestrelctl.client.pool import AsyncClient, AsyncJob
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.channel_rules import SOCKET
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.files.share import PIECE_BYTES
from kestrelctl.protocol.channels import Channels, OpenChannels, TaskWrote, WriteToTask, Written
from kestrelctl.timer import Timer

log = logging.getLogger(__name__)

#: Calls that are handed to an interpreter at once take about so long there.
BATCH_SECONDS = 0.02
MOST_IN_BATCH = 500
BATCH_BYTES = 120_000
#: An interpreter has more than one call in hand if its calls take no longer than this.
SHORT_SECONDS = 0.05
#: The time between two looks whether interpreters are still there.
LOOK_SECONDS = 1.0
#: The time between two looks at how much room the pool has.
COUNT_SECONDS = 5.0
#: A job that has been without an interpreter for so long is asked whether it can ever have one.
PATIENCE_SECONDS = 3.0
#: No interpreter has begun, and one has failed so often: it will not.
FUTILE_STARTS = 2
#: An interpreter that has said nothing for so long is asked what it has.
SILENT_SECONDS = 2.0
#: One that has not greeted for so long is told again who its owner is: that may have been lost.
GREETING_SECONDS = 30.0
#: Results that were taken are forgotten by their interpreter after so long.
ACK_SECONDS = 0.1
#: Calls at the head of the line whose large arguments are sent to the file share before their turn.
MOST_AHEAD = 8
#: The most functions that are remembered for later calls, here and by an interpreter, and the most
#: bytes of their pickles.
MOST_FUNCTIONS, MOST_FUNCTION_BYTES = 1000, 64 << 20
#: Frames that are on their way to the pool at once.
MOST_UNDER_WAY = 16
NOT_DONE = "the executor was shut down before the call was done"
#: Tasks of an executor's job are started again after failures: each call says how often it is.
MOST_STARTS = 1000
#: The pause before that, and the longest: what ends interpreters is given up soon by itself.
BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.1, 2.0


class CallFailed(KestrelError):
    """A call was not done, and its function is not to blame for it with an exception."""

    default = "the call was not done"


class RemoteError(Exception):
    """An exception of a call that cannot be brought here: its type, its text, its traceback."""


class RemoteTraceback(Exception):
    """The traceback of an exception where it was raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class Call:
    """A function that is to be called with its arguments, once.

    Attributes:
        function: a name for it.
        code: its pickle.
        arguments: their pickle.
        shares: the objects among them that are sent once.
        losses: how many interpreters ended while they had nothing but this call.
        suspect: it was with one that ended, so it is given to the next one alone.
    """

    __slots__ = ("arguments", "code", "function", "future", "losses", "number", "shares", "suspect")

    def __init__(
        self,
        number: int,
        function: str,
        arguments: bytes,
        shares: tuple[int, ...],
        code: bytes = b"",
    ) -> None:
        self.number = number
        self.function = function
        self.code = code
        self.arguments = arguments
        self.shares = shares
        self.future: Future[Any] = Future()
        self.losses = 0
        self.suspect = False


def are_too_many(sizes_bytes: Collection[int]) -> bool:
    """Whether functions of these sizes are more than are remembered with another one."""
    return len(sizes_bytes) >= MOST_FUNCTIONS or sum(sizes_bytes) > MOST_FUNCTION_BYTES


class _Job:
    """A job whose tasks are interpreters.

    Attributes:
        count: how many tasks it has that may still be interpreters.
        greeted: whether one of them has begun.
    """

    def __init__(self, job: AsyncJob, count: int) -> None:
        self.job = job
        self.count = count
        self.since = time.monotonic()
        self.greeted = False


class _Interpreter:
    """An interpreter, as its owner knows it."""

    def __init__(self, job: _Job, task_id: int, attempt: int, key: bytes) -> None:
        self.job = job
        self.task_id = task_id
        self.attempt = attempt
        self.turn = asyncio.Lock()  # the frames of a message follow each other
        self.ready = False
        self.sees_files = False
        self.fetches = True  # from the pool's file share
        self.messages = Messages(key)
        self.numbers = itertools.count(1)
        self.functions: dict[str, int] = {}  # that it has, and their bytes
        self.shares: set[int] = set()
        self.has: dict[int, Call] = {}
        self.asked: set[int] = set()  # calls of which it may say that they never came
        self.taken: list[int] = []
        self.call_seconds = 0.0
        self.heard_at = time.monotonic()
        self.returning = False

    def room(self) -> int:
        """Returns the number of calls that it should have beside those it has."""
        if not self.ready or self.returning:
            return 0
        if self.call_seconds > SHORT_SECONDS:
            return 0 if self.has else 1
        if not self.call_seconds:  # nothing is known of them yet
            return max(0, 2 - len(self.has))
        most = min(MOST_IN_BATCH, max(1, int(BATCH_SECONDS / max(self.call_seconds, 1e-6))))
        return 2 * most - len(self.has)

    def learn(self, calls: int, seconds: float) -> None:
        """Notes how long calls took."""
        each = max(seconds / calls, 1e-6)
        self.call_seconds = each if not self.call_seconds else (self.call_seconds + each) / 2


class Calls:
    """The calls of one executor.

    Args:
        client: the session with the pool.
        argv: what starts an interpreter, before `-c`.
        options: those of `submit` for its job.
        most: the most interpreters; None for as many as the pool has room for.
        call_seconds: the longest that a call may take; None for no limit.
        idle_seconds: an interpreter without calls ends after so long.
        prints: whether the text that calls print is wanted.
        retries: how often a call is tried again that was alone with an interpreter which ended.
        directory: one for what is large, which interpreters see that are on this machine; None for
            none.
    """

    def __init__(
        self,
        client: AsyncClient,
        argv: tuple[str, ...],
        options: dict[str, Any],
        *,
        most: int | None,
        call_seconds: float | None,
        idle_seconds: float,
        prints: bool,
        retries: int,
        directory: Path | None,
    ) -> None:
        self._client = client
        self._argv = argv
        self._options = options
        self._most = most
        self._retries = retries
        self._directory = directory
        self._key = secrets.token_bytes(32)
        token = secrets.token_hex(8)
        if directory is not None:
            (directory / token).touch()
        self._wishes = {
            "key": self._key.hex(),
            "call_seconds": call_seconds,
            "idle_seconds": idle_seconds,
            "prints": prints,
            "python": list(sys.version_info[:2]),
            "cloudpickle": Path(cloudpickle.cloudpickle.__file__).read_text(),
            "directory": str(directory or ""),
            "token": token,
            "authorities": ca_file.read_text() if (ca_file := client.context.ca_file) else "",
            "piece_bytes": PIECE_BYTES,
            "path": [os.path.abspath(each) for each in sys.path],
        }
        self._loop = asyncio.get_running_loop()
        self._pending: deque[Call] = deque()
        self._interpreters: dict[tuple[int, int], _Interpreter] = {}  # by job and task
        self._shares: dict[int, bytes] = {}
        self._share_files: dict[int, str] = {}
        self._parcels = Parcels(lambda: self._client.share, self._plan_pump)
        self._jobs: dict[int, _Job] = {}
        self._starting = False
        self._closing = False
        self._slots = most or 1
        self._counted_at = 0.0
        self._pump_planned = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = asyncio.Semaphore(MOST_UNDER_WAY)
        self._ack = Timer(self._acknowledge)
        self._look_now = asyncio.Event()
        self._looking = self._spawn(self._look())
        self.done = 0

    # ---- for the executor

    @property
    def waiting(self) -> int:
        """The number of calls that are not done."""
        return len(self._pending) + sum(len(each.has) for each in list(self._interpreters.values()))

    @property
    def interpreters(self) -> int:
        """The number of interpreters that run."""
        return sum(each.ready for each in list(self._interpreters.values()))

    @property
    def slots(self) -> int:
        """The most interpreters that there may be now."""
        return self._slots

    @property
    def job_ids(self) -> list[int]:
        """The jobs whose tasks the interpreters are."""
        return sorted(self._jobs)

    def add_share(self, number: int, pickled: bytes) -> None:
        """Makes an object known that interpreters get once."""
        self._shares[number] = pickled

    def add(self, calls: Iterable[Call]) -> None:
        """Takes calls in."""
        self._pending.extend(calls)
        self._plan_pump()

    def cancel_pending(self) -> None:
        """Cancels all that no interpreter has. What was with one that ended has begun: it fails."""
        while self._pending:
            future = self._pending.popleft().future
            if future.running():
                future.set_exception(CallFailed(NOT_DONE))
            else:
                future.cancel()
                future.set_running_or_notify_cancel()

    async def close(self, *, kill: bool) -> None:
        """Ends the interpreters; calls that are not done fail.

        Args:
            kill: at once, whatever runs; else each ends by itself, having nothing to do.
        """
        self._closing = True
        self._looking.cancel()
        self._ack.stop()
        if not kill:
            for each in self._interpreters.values():
                self._say(each, {"op": "end"})
        self._tasks.discard(self._looking)
        await self._parcels.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for of in self._jobs.values():
            self._client.hears.pop(of.job.id, None)
            with contextlib.suppress(KestrelError):
                await of.job.cancel()
        self._fail_all(CallFailed(NOT_DONE))
        while self._tasks:  # they settle calls that are with nobody any more
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- handing out

    def _plan_pump(self) -> None:
        if not self._pump_planned:
            self._pump_planned = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Hands calls to interpreters that have room, and has more started if there are none."""
        self._pump_planned = False
        if self._pending:
            for each in sorted(self._interpreters.values(), key=lambda one: len(one.has)):
                room = each.room()
                if room > 0 and not self._give(each, room):
                    break
        if not self._interpreters and not self._coming():
            self._want_more()

    def _coming(self) -> int:
        """Returns the number of interpreters that there are, or will be by themselves."""
        return sum(each.count for each in self._jobs.values())

    def _want_more(self) -> None:
        """Has interpreters started, if calls wait for one."""
        if self._pending and not self._starting and not self._closing:
            self._starting = True
            self._spawn(self._start())

    def _give(self, interpreter: _Interpreter, room: int) -> bool:
        """Hands calls to an interpreter. Returns whether more are pending."""
        batch: list[Call] = []
        size = 0
        while self._pending and len(batch) < room and size < BATCH_BYTES:
            call = self._pending[0]
            alone = call.suspect or any(one.suspect for one in interpreter.has.values())
            if alone and (interpreter.has or batch):
                break
            if batch and call.function != batch[0].function:
                break
            if not self._is_within_reach(interpreter, call):
                break
            self._pending.popleft()
            if not call.future.running() and not call.future.set_running_or_notify_cancel():
                continue
            batch.append(call)
            size += len(call.arguments)
            if call.suspect:
                break
        if batch:
            self._hand_over(interpreter, batch)
        return bool(self._pending)

    def _is_within_reach(self, interpreter: _Interpreter, call: Call) -> bool:
        """Whether an interpreter can have what is large of a call; if not, that is sent to the file
        share, and that of the next calls.
        """
        if interpreter.sees_files or not interpreter.fetches:
            return True
        if all(self._parcels.is_settled(key) for key, _ in self._large_of(call)):
            return True
        for each in itertools.islice(self._pending, MOST_AHEAD):
            for key, blob in self._large_of(each):
                self._parcels.send(key, blob)
        return False

    def _large_of(self, call: Call) -> list[tuple[Key, bytes]]:
        """Returns what of a call is too large for messages."""
        found: list[tuple[Key, bytes]] = [(("call", call.number), call.arguments)]
        found += [(("share", number), self._shares[number]) for number in call.shares]
        return [(key, blob) for key, blob in found if len(blob) > FILE_BYTES]

    def _hand_over(self, interpreter: _Interpreter, batch: list[Call]) -> None:
        function = batch[0].function
        if function not in interpreter.functions:
            if are_too_many(interpreter.functions.values()):
                interpreter.functions.clear()
                self._say(interpreter, {"op": "forget"})
            code = batch[0].code
            interpreter.functions[function] = len(code)
            self._say(interpreter, {"op": "function", "function": function}, [code])
        shares = {share for call in batch for share in call.shares}
        for number in shares - interpreter.shares:
            interpreter.shares.add(number)
            self._send_share(interpreter, number)
        files, blobs = [], []
        for call in batch:
            file, blob = self._where(interpreter, ("call", call.number), call.arguments)
            files.append(file)
            blobs.append(blob)
            interpreter.has[call.number] = call
            interpreter.asked.discard(call.number)
        ids = [call.number for call in batch]
        header: dict[str, Any] = {"op": "calls", "function": function, "ids": ids, "files": files}
        header["shares"] = sorted(shares)
        if len(interpreter.has) == len(batch):
            interpreter.heard_at = time.monotonic()  # it had nothing to say before
        self._say(interpreter, header, blobs)

    def _send_share(self, interpreter: _Interpreter, number: int) -> None:
        file, blob = self._where(interpreter, ("share", number), self._shares[number])
        self._say(interpreter, {"op": "share", "share": number, "file": file}, [blob])

    def _where(self, interpreter: _Interpreter, key: Key, blob: bytes) -> tuple[Any, bytes]:
        """Returns where an interpreter finds something, and what of it goes with the message.

        Returns:
            The name of a file, what the file share says of one, or nothing if all goes with it.
        """
        if len(blob) <= FILE_BYTES:
            return "", blob
        if interpreter.sees_files:
            name = self._file(key, blob)
            return name, b"" if name else blob
        stored = self._parcels.stored(key) if interpreter.fetches else None
        return ("", blob) if stored is None else (msgspec.to_builtins(stored), b"")

    def _file(self, key: Key, data: bytes) -> str:
        """Writes a file that interpreters on this machine read, one for all of what is shared.

        Returns:
            Its name; empty if there is no room for it.
        """
        assert self._directory is not None
        kind, number = key
        if kind == "share" and number in self._share_files:
            return self._share_files[number]
        name = secrets.token_hex(12)
        path = self._directory / name
        try:
            path.write_bytes(data)
        except OSError as error:
            log.warning("something large goes through messages: %s", error)
            with contextlib.suppress(OSError):
                path.unlink()
            return ""
        if kind == "share":
            self._share_files[number] = name
        return name

    # ---- starting

    async def _start(self) -> None:
        """Submits a job whose tasks are interpreters, as many as are wanted and there is room."""
        try:
            await self.count_slots()
            count = min(self._slots - self._coming(), len(self._pending))
            if count < 1:
                return
            argv = (*self._argv, "-c", BOOTSTRAP % SOCKET)
            spec = await self._client.described(argv, None, self._options | {"array": f"1-{count}"})
            program = replace(spec.program, channel=True)
            spec = replace(
                spec,
                program=program,
                max_failures=MOST_STARTS,
                max_losses=MOST_STARTS,
                backoff_seconds=BACKOFF_SECONDS,
                max_backoff_seconds=MOST_BACKOFF_SECONDS,
            )
            job = await self._client.submit_spec(spec, secrets.token_hex(16))
            self._jobs[job.id] = _Job(job, count)
            self._client.hears[job.id] = self._hear
            await self._open(job)
        except KestrelError as error:
            if self._coming():  # those can do the calls, and the next look tries again
                log.debug("no more interpreters just now: %s", error)
            else:
                self._fail_all(error)
        except Exception as error:  # the next try would end the same
            log.exception("interpreters cannot be asked for")
            failed = CallFailed("no interpreter could be asked for", cause=repr(error)[:500])
            failed.__cause__ = error
            self._fail_all(failed)
        finally:
            self._starting = False

    async def count_slots(self) -> None:
        """Learns how many interpreters the pool has room for, if nobody said how many."""
        if self._most is not None:
            return
        self._counted_at = time.monotonic()
        status = await self._client.status()
        cpus = float(self._options.get("cpus") or 1)
        self._slots = max(1, math.floor(status.capacity.get("cpus", 0.0) / cpus))

    async def _open(self, job: AsyncJob) -> list[tuple[int, int]]:
        request = OpenChannels(job=str(job.id))
        found = await self._client.ask(request, Channels)
        return found.tasks

    async def _look(self) -> None:
        """Finds interpreters that are gone, and asks silent ones what they have."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._look_now.wait()
            self._look_now.clear()
            try:
                if time.monotonic() - self._counted_at > COUNT_SECONDS:
                    await self.count_slots()
                for each in list(self._jobs.values()):
                    await self._look_at(each)
                self._want_more()
            except KestrelError as error:
                log.debug("the pool cannot be asked just now: %s", error)
            except Exception:
                log.exception("a look at the interpreters failed")

    async def _look_at(self, of: _Job) -> None:
        mine = [each for each in self._interpreters.values() if each.job is of]
        if not (self._pending or mine):
            return
        tasks: dict[int, int] = {}
        with contextlib.suppress(NotFound):  # it ended so long ago that the pool has forgotten it
            tasks = dict(await self._open(of.job))
        now = time.monotonic()
        for each in mine:
            if tasks.get(each.task_id) != each.attempt:
                self._gone(each)
                continue
            if not each.ready and now - each.heard_at > GREETING_SECONDS:
                each.heard_at = now
                self._send_first(each)
            if each.has and now - each.heard_at <= SILENT_SECONDS:
                continue
            each.returning = False  # the question, or its answer, may be lost
            if each.has:
                each.asked = set(each.has)
                self._say(each, {"op": "sync", "ids": list(each.has)})
                each.heard_at = now
        for task_id, attempt in tasks.items():
            if (of.job.id, task_id) not in self._interpreters:
                self._greet(of, task_id, attempt)
        self._take_back()
        if not tasks or not of.greeted:
            await self._settle_job(of)
        self._plan_pump()

    async def _settle_job(self, of: _Job) -> None:
        """Forgets a job that has ended; fails all if its interpreters could not begin."""
        state, job = "done", of.job
        with contextlib.suppress(NotFound):
            state = (await job.info()).state
        if state in ("active", "cancelling"):
            if not of.greeted and time.monotonic() - of.since > PATIENCE_SECONDS:
                await self._check_start(of)
            return
        del self._jobs[job.id]
        self._client.hears.pop(job.id, None)
        if state == "done" or of.greeted:
            return
        self._no_start(job, f"job {job.id} ended as {state}")

    async def _check_start(self, of: _Job) -> None:
        """Fails all calls if no interpreter can begin, or no worker could ever run one."""
        of.since = time.monotonic()
        job = of.job
        for task in await job.tasks():
            if task.failures >= FUTILE_STARTS:
                self._no_start(job, await self._last_end(job, task.task_id))
                await job.cancel()
                return
        if not (await self._client.status()).capacity:
            return  # nobody is there yet
        if (await job.explain()).is_hopeless:
            await job.cancel()
            self._fail_all(
                CallFailed(
                    "no worker could ever run an interpreter of this executor",
                    cause="its options ask for more than any worker has, or for something else",
                    hint=f"`kestrelctl job info {job.id}` shows what it asked for, and "
                    "`kestrelctl worker list` what there is",
                )
            )

    def _no_start(self, job: AsyncJob, why: str) -> None:
        self._fail_all(
            CallFailed(
                "no interpreter could be started",
                cause=why or None,
                hint=f"the executor ran {' '.join(self._argv)}; python= names another one, and "
                f"`kestrelctl job story {job.id}` tells more",
            )
        )

    async def _last_end(self, job: AsyncJob, task_id: int, attempt: int = 0) -> str:
        """Tells how an attempt of a task ended; empty if nobody knows.

        Args:
            attempt: its number; 0 for the last.
        """
        story = await job.story([task_id])
        ends = [each for each in story.entries if each.detail and each.number]
        ends = [each for each in ends if attempt in (0, each.number)]
        return ends[-1].detail if ends else ""

    def _take_back(self) -> None:
        """Has calls returned that wait behind a long one, if others have nothing to do."""
        idle = any(each.ready and not each.has for each in self._interpreters.values())
        if self._pending or not idle:
            return
        now = time.monotonic()
        for each in self._interpreters.values():
            if len(each.has) > 1 and now - each.heard_at > LOOK_SECONDS / 2 and not each.returning:
                each.returning = True
                self._say(each, {"op": "return", "ids": list(each.has)[1:]})

    # ---- words of interpreters

    def _hear(self, frame: TaskWrote) -> None:
        of = self._jobs.get(frame.job)
        if of is None:
            return
        known = self._interpreters.get((frame.job, frame.task_id))
        if known is None or known.attempt != frame.attempt:
            if known is not None:
                self._gone(known)
            self._greet(of, frame.task_id, frame.attempt)
            return
        if not frame.data:
            self._send_first(known)
            return
        try:
            message = known.messages.take(frame.data)
        except (Forged, ValueError, KeyError, TypeError) as error:
            self._forged(known, str(error))
            return
        if message is None:
            return
        known.heard_at = time.monotonic()
        header, blobs = message
        try:
            getattr(self, f"_on_{header['op']}")(known, header, blobs)
        except (ValueError, KeyError, TypeError, OSError, AttributeError) as error:
            self._forged(known, repr(error))

    def _forged(self, interpreter: _Interpreter, why: str) -> None:
        """Believes nothing of an interpreter any more; what it had fails."""
        log.warning("task %d of the executor's job said what is not its own", interpreter.task_id)
        error = CallFailed("an answer to the call was forged, and not read", cause=why)
        calls, interpreter.has = list(interpreter.has.values()), {}
        for call in calls:
            call.future.set_exception(error)

    def _greet(self, of: _Job, task_id: int, attempt: int) -> None:
        interpreter = _Interpreter(of, task_id, attempt, self._key)
        self._interpreters[of.job.id, task_id] = interpreter
        self._send_first(interpreter)

    def _send_first(self, interpreter: _Interpreter) -> None:
        self._send_frames(interpreter, [first_frame(self._wishes)])

    def _on_hello(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes]
    ) -> None:
        version = header["python"]
        interpreter.job.greeted = True
        if list(version[:2]) != list(sys.version_info[:2]):
            there = ".".join(str(int(part)) for part in version)
            here = ".".join(map(str, sys.version_info[:3]))
            self._fail_all(
                CallFailed(
                    f"calls need Python {sys.version_info[0]}.{sys.version_info[1]}, as here",
                    cause=f"{str(header['executable'])[:200]} of the worker is Python {there}, "
                    f"and this is {here}: functions of one mean something else to the other",
                    hint="KestrelExecutor(python=...) names another interpreter",
                )
            )
            return
        interpreter.ready = True
        interpreter.sees_files = bool(header["files"]) and self._directory is not None
        self._plan_pump()

    def _on_results(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes]
    ) -> None:
        results = header["results"]
        interpreter.learn(max(1, len(results)), float(header["seconds"]))
        for entry, blob in zip(results, blobs, strict=True):
            number = entry["id"]
            interpreter.taken.append(number)
            call = interpreter.has.pop(number, None)
            if call is None:
                continue  # it was said twice
            self.done += 1
            self._parcels.forget(("call", number))
            if "stored" in entry:
                self._spawn(self._settle_from_share(call, entry))
            else:
                self._settle(call, entry, blob)
        self._ack.set_once(ACK_SECONDS)
        self._plan_pump()

    def _settle(self, call: Call, entry: dict[str, Any], blob: bytes) -> None:
        future = call.future
        future.printed = entry.get("printed", "")  # type: ignore[attr-defined]
        try:
            if entry["kind"] == VALUE:
                future.set_result(entry["value"])
                return
            if "file" in entry:
                blob = self._read(entry["file"], entry["sha256"])
            if entry["kind"] == PICKLED:
                future.set_result(pickle.loads(blob))
                return
            assert entry["kind"] == RAISED
            future.set_exception(_exception(entry, blob))
        except Exception as error:
            failed = CallFailed("the result of the call cannot be read", cause=repr(error)[:500])
            failed.__cause__ = error
            future.set_exception(failed)

    async def _settle_from_share(self, call: Call, entry: dict[str, Any]) -> None:
        """Settles a call whose result lies in the pool's file share; its hash came with a seal."""
        try:
            stored = msgspec.convert(entry["stored"], StoredFile)
            blob = await self._parcels.fetched(stored)
        except Exception as error:
            failed = CallFailed("the result of the call cannot be read", cause=str(error)[:500])
            failed.__cause__ = error
            call.future.set_exception(failed)
        else:
            self._settle(call, entry, blob)

    def _on_place(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes]
    ) -> None:
        """It asks for a place in the file share, for a result."""
        self._spawn(self._find_place(interpreter, int(header["place"]), int(header["size"])))

    async def _find_place(self, interpreter: _Interpreter, place: int, size_bytes: int) -> None:
        told: dict[str, Any] = {"op": "place", "place": place, "put": ""}
        try:
            slot = await self._client.place_in_share(size_bytes)
        except KestrelError as error:
            log.info("a result goes through messages: %s", error)
        else:
            told |= {"put": slot.put_url, "get": slot.get_url, "headers": dict(slot.headers)}
        self._say(interpreter, told)

    def _read(self, name: str, digest: str) -> bytes:
        assert self._directory is not None
        path = self._directory / Path(name).name
        data = path.read_bytes()
        path.unlink()
        if hashlib.sha256(data).hexdigest() != digest:
            raise Forged("a result that came as a file was changed on the way")
        return data

    def _on_returned(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes]
    ) -> None:
        interpreter.returning = False
        found = [interpreter.has.pop(number, None) for number in header["ids"]]
        self._again([call for call in found if call is not None])

    def _on_ending(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes]
    ) -> None:
        """It ends by itself after the result that follows, and begins no call any more."""
        interpreter.ready = False
        self._on_returned(interpreter, header, blobs)

    def _on_missing(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes]
    ) -> None:
        """Sends again what never came; with it, perhaps, a function that did not."""
        interpreter.functions.clear()
        interpreter.shares.clear()
        ids = interpreter.asked.intersection(header["ids"])  # not those that were given again since
        self._on_returned(interpreter, {"ids": sorted(ids)}, blobs)

    def _on_unfetched(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes]
    ) -> None:
        """It cannot read from the file share: from now on all goes there through messages."""
        log.warning("an interpreter cannot use the file share: %s", str(header["why"])[:500])
        interpreter.fetches = False
        interpreter.shares.clear()
        self._on_returned(interpreter, header, blobs)

    def _on_bye(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes]
    ) -> None:
        """It has ended, having had nothing to do: it has not begun what it was given since."""
        interpreter.job.count -= 1
        self._again(self._forget(interpreter))

    def _forget(self, interpreter: _Interpreter) -> list[Call]:
        """Returns the calls that it had. It has none from now on: its end may be seen twice."""
        key = (interpreter.job.job.id, interpreter.task_id)
        if self._interpreters.get(key) is interpreter:
            del self._interpreters[key]
        calls, interpreter.has = list(interpreter.has.values()), {}
        return calls

    def _gone(self, interpreter: _Interpreter) -> None:
        """Deals with an interpreter that ended, whoever is to blame."""
        calls = self._forget(interpreter)
        alone = len(calls) == 1
        for call in calls:
            call.losses += alone
            call.suspect = True
        for call in [call for call in calls if call.losses > self._retries]:
            calls.remove(call)
            self._spawn(self._lost(call, interpreter))
        self._again(calls)

    async def _lost(self, call: Call, interpreter: _Interpreter) -> None:
        job, why = interpreter.job.job, ""
        with contextlib.suppress(KestrelError):
            why = await self._last_end(job, interpreter.task_id, interpreter.attempt)
        call.future.set_exception(
            CallFailed(
                f"{plural(call.losses, 'interpreter')} ended while running this call",
                cause=why or None,
                hint=f"`kestrelctl job story {job.id} {interpreter.task_id}` tells how",
            )
        )

    def _again(self, calls: Iterable[Call]) -> None:
        self._pending.extendleft(reversed(list(calls)))
        self._plan_pump()

    def _fail_all(self, error: KestrelError) -> None:
        calls = list(self._pending)
        self._pending.clear()
        for each in self._interpreters.values():
            calls += each.has.values()
            each.has = {}
        for call in calls:
            if call.future.running() or call.future.set_running_or_notify_cancel():
                call.future.set_exception(error)

    # ---- to interpreters

    def _acknowledge(self) -> None:
        for each in self._interpreters.values():
            if each.taken:
                self._say(each, {"op": "ack"})

    def _say(
        self, interpreter: _Interpreter, header: dict[str, Any], blobs: list[bytes] | None = None
    ) -> None:
        if interpreter.taken:
            header["ack"], interpreter.taken = interpreter.taken, []
        self._send_frames(
            interpreter, list(frames_of(next(interpreter.numbers), header, blobs or []))
        )

    def _send_frames(self, interpreter: _Interpreter, frames: list[bytes]) -> None:
        self._spawn(self._write_message(interpreter, frames))

    async def _write_message(self, interpreter: _Interpreter, frames: list[bytes]) -> None:
        """Has all frames of a message sent, one behind the other; others may follow at once."""
        async with interpreter.turn:
            for frame in frames:
                await self._under_way.acquire()
                self._spawn(self._write_frame(interpreter, frame))

    async def _write_frame(self, interpreter: _Interpreter, frame: bytes) -> None:
        request = WriteToTask(
            job=str(interpreter.job.job.id),
            task_id=interpreter.task_id,
            attempt=interpreter.attempt,
            data=frame,
        )
        try:
            if not (await self._client.ask(request, Written)).went_on:
                self._look_now.set()  # it has ended
        except KestrelError as error:  # what does not arrive is asked for again
            log.debug("task %d was not told something: %s", interpreter.task_id, error)
        finally:
            self._under_way.release()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _exception(entry: dict[str, Any], blob: bytes) -> BaseException:
    """Makes the exception of a call, with the traceback that it had there."""
    error: BaseException | None = None
    if blob:
        with contextlib.suppress(Exception):
            error = pickle.loads(blob)
    if not isinstance(error, BaseException):
        error = RemoteError(f"{entry['type']}: {entry['message']}")
    error.__cause__ = RemoteTraceback(str(entry["traceback"]))
    return error
