"""The far end of a `KestrelExecutor`: an interpreter that runs calls for the owner of its job.

This file is sent as it is to the interpreter of the user's choice, which has its standard library
and nothing else of Kestrel's. It is run by `BOOTSTRAP`, which connects the task's channel. What
travels there is described in `kestrelctl.client.frames`.

Calls come from the owner of the task, who may run anything here. What goes back is sealed with the
key of the executor, because others than this interpreter might write to the owner.
"""

from __future__ import annotations

import faulthandler
import hashlib
import hmac
import io
import json
import os
import pickle
import socket
import sys
import threading
import time
import traceback
import types
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, BinaryIO, Dict, Tuple  # noqa: UP035

NAME = "kestrelctl.client.interpreter"
MOST_CHUNK_BYTES = 192 * 1024
#: Results go back together that end within this time of each other.
TOGETHER_SECONDS = 0.002
#: Larger ones go by file, where owner and interpreter see the same directory.
FILE_BYTES = 128 * 1024
#: Elsewhere they go by the pool's file share, if it can be used: an answer is awaited so long.
SHARE_SECONDS = 30.0
#: Text that a call printed, the most that is kept.
MOST_PRINTED_CHARACTERS = 65536
#: Results that nobody took are kept so long after the last word of the owner.
ABANDONED_SECONDS = 600.0
#: The time that a call which is over its limit has to let the interpreter end by itself.
GRACE_SECONDS = 1.0
TIMED_OUT = 75
#: The exit status of one that cannot go on, for want of memory, say: its calls go elsewhere.
BROKEN = 70

VALUE, PICKLED, RAISED = 0, 1, 2

#: Python of a task that connects its channel, a socket of the name `%r`, and runs the first frame.
BOOTSTRAP = """import os, socket, time
here = os.getcwd()
os.chdir(os.environ["KESTREL_SCRATCH"])
channel = socket.socket(socket.AF_UNIX)
for wait in range(5000):
    try:
        channel.connect(%r)
        break
    except OSError:
        time.sleep(0.002)
else:
    raise SystemExit("the worker opened no channel")
os.chdir(here)
frames = channel.makefile("rb")
first = frames.read(int.from_bytes(frames.read(4), "big"))
size = int.from_bytes(first[1:5], "big")
code = compile(first[5 + size:], "<kestrel>", "exec")
space = {"__name__": "kestrelctl.client.interpreter"}
exec(code, space)
space["serve"](space, channel, frames, first[5:5 + size])
"""

_shared: dict[int, Any] = {}
#: What makes objects that are loaded when they are used for the first time.
_coming: dict[int, Callable[[], Any]] = {}


class Unfetched(Exception):
    """The pool's file share does not give what the owner has put there."""


def shared(number: int) -> Any:
    """Returns the object that the owner shares under a number."""
    if number not in _shared:
        _shared[number] = _coming[number]()
        _coming.pop(number, None)
    return _shared[number]


class ShareByHttp:
    """The pool's file share, by HTTP; a connection is kept while it works.

    Args:
        authorities: certificates (PEM) of the only authorities to trust; empty for the system's.
    """

    def __init__(self, authorities: str) -> None:
        self._authorities = authorities
        self._to: tuple[str, str] | None = None
        self._connection: Any = None

    def get(self, stored: dict[str, Any]) -> bytes:
        """Returns what lies there.

        Args:
            stored: its pieces and its hash, as `core.model.files.stored_file` has them.

        Raises:
            Unfetched: it cannot be had, or is something else.
        """
        parts = [self._ask("GET", str(piece["url"]), None, {}) for piece in stored["pieces"]]
        data = b"".join(parts)
        if hashlib.sha256(data).hexdigest() != stored["sha256"]:
            raise Unfetched("what came is not what was sent")
        return data

    def put(self, url: str, data: bytes, headers: dict[str, str]) -> None:
        """Sends something to a place. Unfetched if that does not succeed."""
        self._ask("PUT", url, data, {"Content-Type": "application/octet-stream", **headers})

    def _ask(self, method: str, url: str, data: bytes | None, headers: dict[str, str]) -> bytes:
        from http.client import HTTPException
        from urllib.parse import urlsplit

        split = urlsplit(url)
        path = split.path + (f"?{split.query}" if split.query else "")
        kept = self._to == (split.scheme, split.netloc)
        try:
            if not kept:
                self._connect(split.scheme, split.netloc)
            try:
                return self._answer(method, path, data, headers)
            except (OSError, HTTPException):
                if not kept:
                    raise
                self._connect(split.scheme, split.netloc)  # it was closed meanwhile
                return self._answer(method, path, data, headers)
        except (OSError, HTTPException, ValueError) as error:
            self._to = None
            raise Unfetched(f"{split.netloc}: {error!r}") from None

    def _connect(self, scheme: str, netloc: str) -> None:
        import http.client
        import ssl

        self._to = None
        if scheme == "https":
            trusted = ssl.create_default_context(cadata=self._authorities or None)
            made = http.client.HTTPSConnection(netloc, timeout=SHARE_SECONDS, context=trusted)
            self._connection = made
        else:
            self._connection = http.client.HTTPConnection(netloc, timeout=SHARE_SECONDS)
        self._to = (scheme, netloc)

    def _answer(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> bytes:
        self._connection.request(method, path, body=data, headers=headers)
        answer = self._connection.getresponse()
        found: bytes = answer.read()
        if answer.status not in (200, 201, 204):
            self._to = None
            raise Unfetched(f"it answered {answer.status} {answer.reason}")
        return found


def is_plain(value: Any, depth: int = 3) -> bool:
    """Whether a value is the same when it is written as JSON and read again."""
    kind = type(value)
    if kind is str:
        return len(value) <= 65536
    if kind is int:
        return -(1 << 63) <= value < 1 << 63
    if value is None or kind is bool or kind is float:
        return True
    if kind is list:
        return depth > 0 and len(value) <= 1000 and all(is_plain(each, depth - 1) for each in value)
    if kind is dict:
        return (
            depth > 0
            and len(value) <= 1000
            and all(type(key) is str for key in value)
            and all(is_plain(each, depth - 1) for each in value.values())
        )
    return False


def _with_cloudpickle(source: str) -> Any:
    """Makes the owner's cloudpickle importable here: both ends have to have the same."""
    package = types.ModuleType("cloudpickle")
    package.__path__ = []
    module = types.ModuleType("cloudpickle.cloudpickle")
    module.__package__ = "cloudpickle"
    sys.modules["cloudpickle"] = package
    sys.modules["cloudpickle.cloudpickle"] = module
    exec(compile(source, "<cloudpickle>", "exec"), module.__dict__)
    package.cloudpickle = module  # type: ignore[attr-defined]
    for name in ("dumps", "loads", "dump", "load", "register_pickle_by_value"):
        setattr(package, name, getattr(module, name))
    return module


class _Printed(io.StringIO):
    """Text up to a limit."""

    def write(self, text: str) -> int:
        room = MOST_PRINTED_CHARACTERS - self.tell()
        super().write(text[: max(0, room)])
        return len(text)


#: A call's id, what is told of its end, and the pickle that goes with that.
Result = Tuple[int, Dict[str, Any], bytes]  # noqa: UP006 - an older Python has to say what it is


class Interpreter:
    """Runs calls one after another, and keeps each result until the owner has it."""

    def __init__(self, channel: socket.socket, frames: BinaryIO, options: dict[str, Any]) -> None:
        self.pid = os.getpid()
        self._channel = channel
        self._frames = frames
        self._key = bytes.fromhex(options["key"])
        self._limit_seconds = options["call_seconds"]
        self._idle_seconds = options["idle_seconds"]
        self._prints = options["prints"]
        self._cloudpickle = _with_cloudpickle(options["cloudpickle"])
        self._share = ShareByHttp(options["authorities"])
        self._piece_bytes = options["piece_bytes"]
        self._places: dict[int, dict[str, Any]] = {}
        self._place = 0
        self._has_share = True
        self._is_done = False
        self._directory = options["directory"]
        if not os.path.exists(os.path.join(self._directory or "/nowhere", options["token"])):
            self._directory = ""
        else:
            sys.path[1:1] = [each for each in options["path"] if each not in sys.path]
        self._lock = threading.Condition()
        self._functions: dict[str, Any] = {}  # bytes until it is called for the first time
        #: id, function, its arguments, the file that has them: its name, or its pieces in the share
        self._queue: deque[tuple[int, str, bytes, Any]] = deque()
        self._kept: dict[int, Result] = {}  # what the owner has not taken yet
        self._unsent: list[Result] = []
        self._sent_at = 0.0
        self._heard_at = time.monotonic()
        self._running: int | None = None
        self._called = ""  # the function of the call that runs
        self._began_at = 0.0
        self._spent_seconds = 0.0
        self._ended = False
        self._sending = threading.Lock()
        self._messages = 0
        self._message = b""  # the number of the one that is being read
        self._parts: list[bytes] = []

    # ---- words of the owner

    def listen(self) -> None:
        """Takes in what the owner says, until the channel is closed."""
        while True:
            head = self._frames.read(4)
            if len(head) < 4:
                break
            frame = self._frames.read(int.from_bytes(head, "big"))
            if frame[:1] != b"M":
                self.greet()  # the first one again: the owner has not heard of this
                continue
            number = frame[1:9]
            chunk, last = int.from_bytes(frame[9:13], "big"), frame[13:14] == b"1"
            if chunk == 0:
                self._message, self._parts = number, []
            if number != self._message or chunk != len(self._parts):
                self._message = b""  # a part is missing: the rest is of no use
                continue
            self._parts.append(frame[14:])
            if last:
                body, self._parts = b"".join(self._parts), []
                self._take(body)
        os._exit(0)  # the worker is gone, or the task is over

    def _take(self, body: bytes) -> None:
        size = int.from_bytes(body[:4], "big")
        header = json.loads(body[4 : 4 + size])
        blobs, at = [], 4 + size
        for each in header.get("sizes", ()):
            blobs.append(body[at : at + each])
            at += each
        with self._lock:
            self._heard_at = time.monotonic()
            for number in header.get("ack", ()):
                self._kept.pop(number, None)
            getattr(self, "_on_" + header["op"])(header, blobs)
            self._lock.notify_all()

    def _on_calls(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        """Takes calls in; without what they need they are as good as lost, and asked about."""
        here = [number in _shared or number in _coming for number in header["shares"]]
        if header["function"] not in self._functions or not all(here):
            return
        known = set(self._kept) | {each[0] for each in self._queue} | {self._running}
        for number, blob, file in zip(header["ids"], blobs, header["files"], strict=True):
            if number not in known:
                self._queue.append((number, header["function"], blob, file))

    def _on_function(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        self._functions[header["function"]] = blobs[0]

    def _on_forget(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        """Forgets functions, but for those of calls that are here."""
        wanted = {each[1] for each in self._queue} | {self._called}
        self._functions = {name: each for name, each in self._functions.items() if name in wanted}

    def _on_share(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        """Notes an object; if it cannot be loaded, the calls that use it fail."""
        blob, file = blobs[0], header["file"]
        _coming[header["share"]] = lambda: self._cloudpickle.loads(self._read(blob, file))

    def _on_return(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        """Gives calls back that have not begun."""
        wanted = set(header["ids"])
        back = [each[0] for each in self._queue if each[0] in wanted]
        self._queue = deque(each for each in self._queue if each[0] not in wanted)
        self._say({"op": "returned", "ids": back})

    def _on_sync(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        """Says again what the owner has not heard, and which calls never came."""
        here = {each[0] for each in self._queue} | {self._running}
        again = [number for number in header["ids"] if number in self._kept]
        unsent = {each[0] for each in self._unsent}
        self._unsent += [self._kept[number] for number in again if number not in unsent]
        missing = [n for n in header["ids"] if n not in here and n not in self._kept]
        if missing:
            self._say({"op": "missing", "ids": missing})
        self._flush()

    def _on_place(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        self._places[header["place"]] = header  # whoever asked for it is told by the lock

    def _on_ack(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        pass  # which every message may carry

    def _on_end(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        self._ended = True

    # ---- calls

    def run(self) -> None:
        """Runs calls until the owner ends that, or leaves it idle."""
        while True:
            with self._lock:
                while not self._queue:
                    if self._unsent:
                        self._flush()
                    quiet = time.monotonic() - self._heard_at
                    limit = ABANDONED_SECONDS if self._kept else self._idle_seconds
                    if self._ended or quiet >= limit:
                        self._say({"op": "bye"})
                        return
                    self._lock.wait(max(0.01, limit - quiet))
                number, function, blob, file = self._queue.popleft()
                self._running, self._called, self._began_at = number, function, time.monotonic()
                if self._limit_seconds:
                    self._lock.notify_all()  # its time is watched
            if self._limit_seconds:
                faulthandler.dump_traceback_later(self._limit_seconds + GRACE_SECONDS, exit=True)
            found: tuple[dict[str, Any], bytes] | None = None
            try:
                found = self._result(function, blob, file)
            except Unfetched as error:
                why = str(error)
            if self._limit_seconds:
                faulthandler.cancel_dump_traceback_later()
            if os.getpid() != self.pid:
                os._exit(0)  # a copy that the call has made
            if found is None:
                with self._lock:  # before it can be asked what it has
                    self._running = None
                    self._say({"op": "unfetched", "ids": [number], "why": why})
                continue
            entry, data = found
            if len(data) > FILE_BYTES:
                self._is_done = True  # in its time: what follows is no part of the call
                data = self._apart(number, entry, data)
                self._is_done = False
            self._keep(number, entry, data)

    def _apart(self, number: int, entry: dict[str, Any], data: bytes) -> bytes:
        """Writes a large result where the owner finds it, once; returns what goes in messages."""
        if self._directory:
            if not (name := self._write(number, data)):
                return data
            entry["file"], entry["sha256"] = name, hashlib.sha256(data).hexdigest()
            return b""
        if not self._has_share or (stored := self._put(data)) is None:
            return data
        entry["stored"] = stored
        return b""

    def _write(self, number: int, data: bytes) -> str:
        """Writes a file that the owner reads. Returns its name; empty if there is no room."""
        name = f"{os.urandom(8).hex()}-{number}"
        path = os.path.join(self._directory, name)
        try:
            with open(path, "xb") as file:
                file.write(data)
        except OSError:
            if os.path.exists(path):
                os.unlink(path)
            return ""
        return name

    def _put(self, data: bytes) -> dict[str, Any] | None:
        """Puts a result into the pool's file share; returns where, or None if that cannot be."""
        pieces = []
        try:
            for first in range(0, len(data), self._piece_bytes):
                piece = data[first : first + self._piece_bytes]
                place = self._new_place(len(piece))
                self._share.put(place["put"], piece, place["headers"])
                digest = hashlib.sha256(piece).hexdigest()
                pieces.append({"url": place["get"], "sha256": digest, "size_bytes": len(piece)})
        except Unfetched:
            self._has_share = False  # what is large goes through messages from now on
            return None
        whole = hashlib.sha256(data).hexdigest()
        return {"sha256": whole, "size_bytes": len(data), "pieces": pieces}

    def _new_place(self, size_bytes: int) -> dict[str, Any]:
        """Asks the owner for a place in the share. Unfetched if there is none, or none in time."""
        until = time.monotonic() + SHARE_SECONDS
        self._place += 1
        self._say({"op": "place", "place": self._place, "size": size_bytes})
        with self._lock:
            while (found := self._places.pop(self._place, None)) is None:
                left = until - time.monotonic()
                if left <= 0:
                    raise Unfetched("nobody gave a place in time")
                self._lock.wait(left)
        if not found["put"]:
            raise Unfetched("there is no place in the file share")
        return found

    def _keep(self, number: int, entry: dict[str, Any], blob: bytes) -> None:
        with self._lock:
            now = time.monotonic()
            self._spent_seconds += now - self._began_at
            self._running = None
            self._kept[number] = result = (number, entry, blob)
            self._unsent.append(result)
            if not self._queue or now - self._sent_at >= TOGETHER_SECONDS:
                self._flush()
            else:
                self._lock.notify_all()

    def _result(self, function: str, blob: bytes, file: Any) -> tuple[dict[str, Any], bytes]:
        printed = _Printed() if self._prints else None
        try:
            found = self._functions[function]
            if isinstance(found, bytes):
                found = self._functions[function] = self._cloudpickle.loads(found)
            blob = self._read(blob, file)
            if isinstance(file, str) and file:
                os.unlink(os.path.join(self._directory, file))
            arguments, keywords = pickle.loads(blob)
            del blob
            if printed is None:
                value = found(*arguments, **keywords)
            else:
                with redirect_stdout(printed), redirect_stderr(printed):
                    value = found(*arguments, **keywords)
            entry, data = self._told(value)
        except Unfetched:
            raise
        except BaseException as error:  # also SystemExit: the interpreter goes on
            entry, data = self._raised(error)
        if printed is not None:
            entry["printed"] = printed.getvalue()
        return entry, data

    def _read(self, blob: bytes, file: Any) -> bytes:
        """Returns what came in a message, or lies in a file or in the file share."""
        if isinstance(file, dict):
            return self._share.get(file)
        if file:
            with open(os.path.join(self._directory, file), "rb") as opened:
                return opened.read()
        return blob

    def _told(self, value: Any) -> tuple[dict[str, Any], bytes]:
        if is_plain(value):
            return {"kind": VALUE, "value": value}, b""
        try:
            try:
                data = pickle.dumps(value, 5)
            except Exception:
                data = self._cloudpickle.dumps(value)
        except Exception as error:
            kind = type(value).__name__
            raise TypeError(f"the result, a {kind}, cannot be sent back: {error}") from None
        return {"kind": PICKLED}, data

    def _raised(self, error: BaseException) -> tuple[dict[str, Any], bytes]:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        own = [n for n, line in enumerate(lines) if 'File "<kestrel>"' in line]
        text = "".join(line for n, line in enumerate(lines) if n not in own)[-65536:]
        try:
            data = self._cloudpickle.dumps(error)
            self._cloudpickle.loads(data)
        except BaseException:
            data = b""
        entry = {"kind": RAISED, "type": type(error).__name__, "traceback": text}
        try:
            entry["message"] = str(error)[:65536]
        except BaseException:
            entry["message"] = ""
        return entry, data

    # ---- to the owner

    def watch(self) -> None:
        """Sends results that wait while a call runs, and ends one that takes too long."""
        while True:
            with self._lock:
                pause = None
                if self._unsent:
                    pause = TOGETHER_SECONDS
                elif self._running is not None and self._limit_seconds and not self._is_done:
                    pause = max(0.0, self._began_at + self._limit_seconds - time.monotonic())
                self._lock.wait(pause)
                if self._unsent and time.monotonic() - self._sent_at >= TOGETHER_SECONDS:
                    self._flush()
                limit, running = self._limit_seconds, None if self._is_done else self._running
                if limit and running is not None and time.monotonic() - self._began_at >= limit:
                    error = TimeoutError(f"the call took longer than {limit:g} s")
                    entry, data = self._raised(error)
                    self._say({"op": "ending", "ids": [each[0] for each in self._queue]})
                    self._unsent.append((running, entry, data))
                    self._flush()
                    os._exit(TIMED_OUT)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not unsent:
            return
        self._sent_at = time.monotonic()
        entries, blobs = [], []
        for number, entry, data in unsent:
            entries.append(dict(entry, id=number))
            blobs.append(data)
        header = {"op": "results", "results": entries, "seconds": self._spent_seconds}
        self._spent_seconds = 0.0
        self._say(header, blobs)

    def _say(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        header["sizes"] = [len(each) for each in blobs]
        text = json.dumps(header).encode()
        body = b"".join((len(text).to_bytes(4, "big"), text, *blobs))
        body = hmac.new(self._key, body, "sha256").digest() + body
        with self._sending:
            self._messages += 1
            place = 0
            number = self._messages.to_bytes(8, "big")
            while True:
                part = body[place * MOST_CHUNK_BYTES : (place + 1) * MOST_CHUNK_BYTES]
                last = (place + 1) * MOST_CHUNK_BYTES >= len(body)
                frame = b"M" + number + place.to_bytes(4, "big") + (b"1" if last else b"0") + part
                self._channel.sendall(len(frame).to_bytes(4, "big") + frame)
                place += 1
                if last:
                    return

    def greet(self) -> None:
        """Tells the owner what this is."""
        self._say(
            {
                "op": "hello",
                "python": list(sys.version_info[:3]),
                "executable": sys.executable,
                "files": bool(self._directory),
            }
        )


def _to_the_end(work: Callable[[], None]) -> None:
    """Does the work of a thread without which the interpreter cannot go on."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(BROKEN)


def serve(space: dict[str, Any], channel: socket.socket, frames: BinaryIO, options: bytes) -> None:
    """Runs calls that come through a channel, as the main program of a task.

    Args:
        space: the namespace of this module.
        frames: reads from the channel.
        options: JSON of the owner's wishes.
    """
    module = types.ModuleType(NAME)
    module.__dict__.update(space)
    sys.modules[NAME] = module
    told = json.loads(options)
    os.environ["KESTREL_CALL"] = "1"
    interpreter = Interpreter(channel, frames, told)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # of what calls print, the owner gets what it asks for
    interpreter.greet()
    if list(sys.version_info[:2]) != told["python"]:
        return  # what the owner sends might end this process, or be something else here
    for work in (interpreter.listen, interpreter.watch):
        threading.Thread(target=_to_the_end, args=(work,), daemon=True).start()
    interpreter.run()
    os._exit(0)
