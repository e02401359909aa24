"""An executor of `concurrent.futures` whose calls run at the workers of a pool.

from kestrelctl.client.executor import KestrelExecutor

with KestrelExecutor() as executor:
    print(sum(executor.map(abs, range(-1000, 0))))
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import itertools
import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for_all
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import psutil

from kestrelctl.client import interpreter
from kestrelctl.client.blocking import Client
from kestrelctl.client.notebook import bar
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import UsageError
from kestrelctl.missing_package import missing_package

try:
    import cloudpickle

    from kestrelctl.client.calls import NOT_DONE, Call, CallFailed, Calls, are_too_many
except ImportError:
    raise missing_package(
        "functions travel by cloudpickle, which is not installed", "cloudpickle"
    ) from None

T = TypeVar("T")

#: An interpreter that has nothing to do ends after so long.
IDLE_SECONDS = 60.0
#: How often a call is tried again that was alone with an interpreter which ended.
RETRIES = 1
#: An interpreter that is idle for less ends before it can be given its first call.
LEAST_IDLE_SECONDS = 0.1
LEAST_CALL_SECONDS = 0.001
#: No timer goes on for much longer.
MOST_SECONDS = 1e9
#: Names of directories for what is large begin so, and go on with the process.
_PREFIX = "kestrel-calls-"
_using = threading.local()
#: The numbers of shared objects, of all executors: none is taken for one of another.
_shares = itertools.count(1)
#: How many executors want a module to travel with functions, by its name.
_travelling: Counter[str] = Counter()


class Shared:
    """An object that interpreters get once, however many calls take it (`KestrelExecutor.share`).

    In a call it is the object itself.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[int], Any], tuple[int]]:
        used: set[int] | None = getattr(_using, "shares", None)
        if used is None:
            raise UsageError("what an executor shares can be sent in its calls only")
        used.add(self._number)
        return interpreter.shared, (self._number,)


def remove_left_over(place: Path) -> None:
    """Removes what executors of this user have left there that were killed: it takes memory."""
    for each in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            if each.lstat().st_uid == os.getuid():
                pid = int(each.name.removeprefix(_PREFIX).partition("-")[0])
                if not psutil.pid_exists(pid):
                    shutil.rmtree(each, ignore_errors=True)


@contextlib.contextmanager
def _travels(module: ModuleType) -> Iterator[None]:
    """Has a module travel with functions; the last executor that wants that ends it."""
    name = module.__name__
    if not _travelling[name]:
        cloudpickle.register_pickle_by_value(module)
    _travelling[name] += 1
    try:
        yield
    finally:
        _travelling[name] -= 1
        if not _travelling[name]:
            cloudpickle.unregister_pickle_by_value(module)


class KestrelExecutor(Executor):
    """Runs calls of Python functions at a pool, in interpreters that are tasks of a job of yours.

    Functions travel with all that they refer to, by cloudpickle; modules are imported there unless
    they are named. A call that ends its interpreter is tried again, and given up after that. What
    comes back is read only if it has the seal of an interpreter of this executor.

    Args:
        max_workers: the most interpreters; None for as many as the pool has room for.
        pool: the name of the pool; empty for the one that commands on this machine talk to.
        python: the program that runs calls, of the same minor version as this one. The default is
            this very program where workers are on this machine, and else `pythonX.Y`.
        by_value: modules of yours that travel with each function, because workers have them not.
        call_seconds: the longest that a call may take; its interpreter is ended then.
        idle_seconds: an interpreter without calls ends after so long.
        retries: how often a call is tried again that was alone with an interpreter which ended.
            With others it is tried again anyway, alone: nobody knows whose fault it was.
        prints: whether what calls print comes back, as `printed` of their futures.
        options: those of `kestrelctl submit` for each interpreter: `cpus=2`, `memory="4G"`.

    Raises:
        UsageError: an option is wrong, or this is a call of an executor itself.
        KestrelError: the pool cannot be reached.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        pool: str = "",
        python: str | Sequence[str] | None = None,
        by_value: Iterable[ModuleType] = (),
        call_seconds: float | None = None,
        idle_seconds: float = IDLE_SECONDS,
        retries: int = RETRIES,
        prints: bool = False,
        **options: Any,
    ) -> None:
        if "KESTREL_CALL" in os.environ:
            raise UsageError(
                "a call cannot make an executor",
                cause="calls would wait for interpreters that wait for them",
                hint="submit from the program that made the first executor",
            )
        if max_workers is not None and not _is_whole(max_workers, 1):
            raise UsageError("an executor has at least one interpreter", hint="max_workers=1")
        if not _is_whole(retries, 0):
            raise UsageError("retries is a whole number, not below 0", hint="retries=1")
        if call_seconds is not None:
            _check_seconds(
                "call_seconds", call_seconds, LEAST_CALL_SECONDS, "leave it out for none"
            )
        _check_seconds("idle_seconds", idle_seconds, LEAST_IDLE_SECONDS, "86400 is a day")
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._shared: set[int] = set()
        self._names: dict[int, tuple[Callable[..., Any], str, bytes, set[int]]] = {}
        self._new: deque[Call] = deque()
        self._told = False
        self._open: set[Future[Any]] = set()
        self._is_shut = False
        self._stack = contextlib.ExitStack()
        try:
            for module in by_value:
                self._stack.enter_context(_travels(module))
            self._client = self._stack.enter_context(Client(pool))
            here = self._client.context.own_directories
            if python is None:
                python = sys.executable if here else "python{}.{}".format(*sys.version_info)
            directory = self._directory() if here else None
            self._calls = self._client.does(
                _make(
                    self._client,
                    (python,) if isinstance(python, str) else tuple(python),
                    {"name": "executor", **options},
                    most=max_workers,
                    call_seconds=call_seconds,
                    idle_seconds=idle_seconds,
                    prints=bool(prints),
                    retries=retries,
                    directory=directory,
                )
            )
        except BaseException:
            self._stack.close()
            raise

    def _directory(self) -> Path:
        """Makes a directory for what is large, in memory if that is possible."""
        memory = Path("/dev/shm")
        place = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
        remove_left_over(place)
        made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))
        self._stack.callback(shutil.rmtree, made, ignore_errors=True)
        return made

    # ---- calls

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Has a function called with these arguments; every keyword is the function's own.

        Raises:
            UsageError: after `shutdown`, or in a copy of the process.
            TypeError: the function or an argument cannot be sent (in the future).
        """
        self._check()
        number = next(self._numbers)
        try:
            name, code, shares = self._name_of(fn)
            arguments, used = _pickled((args, kwargs))
            if not shares | used <= self._shared:
                raise UsageError("what another executor shares is unknown to this one")
        except Exception as error:
            future: Future[T] = Future()
            future.set_exception(_unsendable(error))
            return future
        call = Call(number, name, arguments, tuple(shares | used), code)
        with self._lock:
            if self._is_shut:
                raise RuntimeError("the executor was shut down")
            self._open.add(call.future)
            self._new.append(call)
            if not self._told:  # in this order: an interrupt may come in between
                self._client.soon(self._hand_over)
                self._told = True
        call.future.add_done_callback(self._open.discard)
        return call.future

    def _hand_over(self) -> None:
        """Gives new calls to the loop's side."""
        with self._lock:
            new, self._new, self._told = self._new, deque(), False
        self._calls.add(new)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Returns the results of `fn` for each set of elements, in their order.

        Args:
            timeout: seconds from now, after which a result that is not there raises TimeoutError.
            chunksize: has no effect: short calls travel together by themselves.
            buffersize: the most results that are awaited or not taken at a time; None for all.
        """
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        until = None if timeout is None else time.monotonic() + timeout
        elements = zip(*iterables, strict=False)
        first = itertools.islice(elements, buffersize)
        futures = deque(self.submit(fn, *each) for each in first)

        def results() -> Iterator[T]:
            try:
                while futures:
                    left = None if until is None else until - time.monotonic()
                    found = futures.popleft().result(left)
                    if buffersize is not None and (more := next(elements, None)) is not None:
                        futures.append(self.submit(fn, *more))
                    yield found
                    del found
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def share(self, obj: Any) -> Shared:
        """Makes an object of many calls that each interpreter gets once.

        Returns:
            What is given to calls instead; they find the object itself.
        """
        self._check()
        number = next(_shares)
        pickled, _ = _pickled(obj)
        self._shared.add(number)
        self._client.soon(lambda: self._calls.add_share(number, pickled))
        return Shared(number)

    def _name_of(self, fn: Callable[..., Any]) -> tuple[str, bytes, set[int]]:
        """Returns the name of a function, its pickle, and what it shares; it is pickled once."""
        known = self._names.get(id(fn))
        if known is not None and known[0] is fn:
            return known[1:]
        if are_too_many([len(each[2]) for each in list(self._names.values())]):
            self._names.clear()  # their pickles have the same names again
        used = _using.shares = set()
        try:
            code = cloudpickle.dumps(fn)
        finally:
            del _using.shares
        name = hashlib.sha256(code).hexdigest()[:16]
        self._names[id(fn)] = (fn, name, code, used)
        return name, code, used

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise UsageError(
                "this executor belongs to another process",
                cause="the process was copied by fork, and the connection was not",
                hint="make an executor in the copy",
            )
        if self._is_shut:
            raise RuntimeError("the executor was shut down")

    # ---- about it

    @property
    def _max_workers(self) -> int:
        """The number of calls that run at a time; Dask keeps so many in flight."""
        return self._calls.slots

    @property
    def job_ids(self) -> list[int]:
        """The jobs in which the interpreters run, for `kestrelctl job`."""
        return self._calls.job_ids

    def progress(self) -> dict[str, int]:
        """Returns how many calls are `done` and `waiting`, and how many `interpreters` run."""
        calls = self._calls
        waiting = calls.waiting + len(self._new)
        return {"done": calls.done, "waiting": waiting, "interpreters": calls.interpreters}

    def __repr__(self) -> str:
        found = self.progress()
        at = plural(found["interpreters"], "interpreter")
        return f"<KestrelExecutor: {found['done']:,} done, {found['waiting']:,} waiting, {at}>"

    def _repr_html_(self) -> str:
        found = self.progress()
        whole = found["done"] + found["waiting"]
        return f"{bar(found['done'], whole)} {html.escape(repr(self)[1:-1])}"

    # ---- its end

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the executor and its interpreters.

        Args:
            wait: returns when all calls are done; else at once, and they are done nevertheless.
            cancel_futures: cancels the calls that have not begun.

        Raises:
            UsageError: it would wait for itself: it is called at the end of a call, and waits.
        """
        if wait:
            self._client.may_wait()
        if not self._may_end():
            return
        if cancel_futures:
            self._client.soon(self._calls.cancel_pending)
        if wait:
            self._finish()
        else:
            threading.Thread(target=self._finish, name="kestrel executor").start()

    def _may_end(self) -> bool:
        """Takes no more calls. Returns whether it is the first to say so."""
        with self._lock:
            if self._is_shut or os.getpid() != self._process:
                return False
            self._is_shut = True
        self._client.soon(self._hand_over)
        return True

    def _finish(self) -> None:
        done = False
        try:
            wait_for_all(list(self._open))
            done = True
        finally:
            self._end(kill=not done)

    def _end(self, *, kill: bool) -> None:
        try:
            self._client.does(self._calls.close(kill=kill))
        finally:
            try:
                self._stack.close()
            finally:
                for future in list(self._open):  # whatever came in between: threads wait for them
                    if future.running() or future.set_running_or_notify_cancel():
                        future.set_exception(CallFailed(NOT_DONE))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Ends it: when an exception leaves the block, calls that have not begun are cancelled."""
        if error is None:
            self.shutdown()
        elif self._may_end():
            self._client.soon(self._calls.cancel_pending)
            self._end(kill=True)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and value >= least


def _check_seconds(name: str, value: object, least: float, hint: str) -> None:
    """Raises UsageError if a value is no time that an interpreter could keep to."""
    if not isinstance(value, int | float) or not least <= value <= MOST_SECONDS:
        raise UsageError(f"{name} is a number from {least:g} to {MOST_SECONDS:g}", hint=hint)


async def _make(
    client: Client, argv: tuple[str, ...], options: dict[str, Any], **more: Any
) -> Calls:
    await client.asynchronous.described((*argv, "-c", ""), None, options)  # a wrong option
    calls = Calls(client.asynchronous, argv, options, **more)
    await calls.count_slots()
    return calls


def _pickled(value: Any) -> tuple[bytes, set[int]]:
    """Returns the pickle of a value, and what it has of objects that are shared."""
    used = _using.shares = set()
    try:
        if _is_simple(value):
            return pickle.dumps(value, 5), used
        return cloudpickle.dumps(value, 5), used
    finally:
        del _using.shares


_SIMPLE = (int, float, str, bytes, bool, type(None))


def _is_simple(value: Any) -> bool:
    """Whether arguments are of the simplest types, which need no cloudpickle."""
    arguments, keywords = value if type(value) is tuple and len(value) == 2 else ((value,), {})
    if type(arguments) is not tuple or type(keywords) is not dict:
        return False
    return all(type(each) in _SIMPLE for each in (*arguments, *keywords.values()))


def _unsendable(error: Exception) -> Exception:
    failed = TypeError(f"the call cannot be sent: {error}")
    failed.__cause__ = error
    return failed
