"""An executor on its own machine."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from cli_fake_pool import FakeShare

from kestrelctl.client.calls import Call, CallFailed, Calls, _Interpreter, _Job
from kestrelctl.client.executor import KestrelExecutor, remove_left_over
from kestrelctl.client.interpreter import RAISED
from kestrelctl.client.parcels import Parcels
from kestrelctl.errors import NotFound, Unreachable, UsageError
from kestrelctl.protocol.channels import TaskWrote
from kestrelctl.timer import Timer


def test_what_a_killed_program_has_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    gone = tmp_path / "kestrel-calls-999999999-abc"
    alive = tmp_path / f"kestrel-calls-{os.getpid()}-abc"
    others = tmp_path / "kestrel-calls-strange"
    for each in (gone, alive, others, tmp_path / "data"):
        each.mkdir()
        (each / "file").touch()
    (tmp_path / "kestrel-calls-999999999-link").symlink_to(tmp_path / "data")
    remove_left_over(tmp_path)
    assert not gone.exists()
    assert (alive / "file").exists()
    assert (others / "file").exists()
    assert (tmp_path / "data" / "file").exists(), "a link leads nowhere"


def test_what_has_begun_fails_when_all_is_cancelled_and_the_rest_is_cancelled() -> None:
    """A call has begun that was with an interpreter which ended, and waits for another one."""
    calls = object.__new__(Calls)
    begun, new = Call(1, "f", b"", ()), Call(2, "f", b"", ())
    assert begun.future.set_running_or_notify_cancel()
    calls._pending = deque([begun, new])
    calls.cancel_pending()
    assert isinstance(begun.future.exception(), CallFailed)
    assert new.future.cancelled()


class Looked(Calls):
    """Calls whose only interpreter is at a worker; what it is told is lost."""

    def __init__(self) -> None:
        job: Any = SimpleNamespace(id=3)
        self.of = _Job(job, 1)
        self.of.greeted = True
        self.interpreter = _Interpreter(self.of, 1, 5, b"key")
        self.interpreter.ready = True
        self._pending = deque()
        self._interpreters = {(3, 1): self.interpreter}
        self.said: list[str] = []
        self.greeted: list[int] = []
        self.tasks = [(1, 5)]
        self.meanwhile: Callable[[], None] = lambda: None
        self._jobs = {3: self.of}
        self._retries, self._key = 1, b"key"
        self._tasks = set()
        self._starting = self._closing = False

    async def _open(self, job: Any) -> list[tuple[int, int]]:
        self.meanwhile()
        return self.tasks

    def _send_first(self, interpreter: Any) -> None:
        self.greeted.append(interpreter.attempt)

    def _say(self, interpreter: Any, header: dict[str, Any], blobs: Any = None) -> None:
        self.said.append(header["op"])

    def _plan_pump(self) -> None:
        """Nothing is handed out here."""


async def test_an_interpreter_whose_word_was_lost_gets_calls_again() -> None:
    """It was asked to give calls back, and the manager took the question along."""
    calls = Looked()
    calls.interpreter.returning = True
    calls.interpreter.has = {1: Call(1, "f", b"", ()), 2: Call(2, "f", b"", ())}
    await calls._look_at(calls.of)
    assert calls.interpreter.returning, "it may yet answer"
    calls.interpreter.heard_at -= 60.0
    await calls._look_at(calls.of)
    assert not calls.interpreter.returning
    assert calls.said == ["sync"]
    calls.interpreter.returning, calls.interpreter.has = True, {}
    await calls._look_at(calls.of)
    assert calls.interpreter.room() > 0


@pytest.mark.parametrize("says_farewell", [False, True])
async def test_an_interpreter_that_goes_while_it_is_asked_about_is_lost_once(
    says_farewell: bool,
) -> None:
    """The next attempt is heard while the manager is asked which interpreters there are."""
    calls = Looked()
    call = Call(1, "f", b"", ())
    calls.interpreter.has = {1: call}

    def meanwhile() -> None:
        if says_farewell:
            calls._on_bye(calls.interpreter, {}, [])
        calls._hear(TaskWrote(id="", job=3, task_id=1, attempt=6, data=b""))

    calls.meanwhile, calls.tasks = meanwhile, [(1, 6)]
    await calls._look_at(calls.of)
    assert call.losses == (0 if says_farewell else 1)
    assert list(calls._pending) == [call], "it would run twice"


async def test_an_interpreter_that_never_greeted_is_told_again_who_its_owner_is() -> None:
    """What made it one, or its greeting, was lost while the manager was away."""
    calls = Looked()
    calls.interpreter.ready = False
    await calls._look_at(calls.of)
    assert not calls.greeted, "it may yet come"
    calls.interpreter.heard_at -= 60.0
    for _ in range(2):
        await calls._look_at(calls.of)
        assert calls.greeted == [5]


async def test_a_job_that_the_pool_has_forgotten_is_forgotten_here() -> None:
    """An executor may be idle for longer than the pool keeps jobs."""
    calls = Looked()
    call = Call(1, "f", b"", ())
    calls.interpreter.has = {1: call}

    def forgotten() -> None:
        raise NotFound("there is no job 3")

    async def info() -> None:
        forgotten()

    calls.meanwhile = forgotten
    calls.of.job = SimpleNamespace(id=3, info=info)  # type: ignore[assignment]
    client: Any = SimpleNamespace(hears={3: calls._hear})
    calls._client = client
    await calls._look_at(calls.of)
    assert not calls._jobs
    assert not client.hears
    assert list(calls._pending) == [call]


async def test_what_follows_a_call_that_took_too_long_is_not_given_to_the_interpreter_that_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would count as lost there, and be given up if that happens again."""
    calls = Looked()
    slow, queued, waits = (Call(number, "f", b"", ()) for number in (1, 2, 3))
    calls.interpreter.has = {1: slow, 2: queued}
    calls.add([waits])
    calls._ack = Timer(lambda: None)
    calls._parcels = Parcels(lambda: FakeShare(), lambda: None)
    calls.done = 0
    entry = {"id": 1, "kind": RAISED, "type": "TimeoutError", "message": "", "traceback": ""}
    for header in (
        {"op": "ending", "ids": [2]},
        {"op": "results", "results": [entry], "seconds": 1.0},
    ):
        monkeypatch.setattr(calls.interpreter.messages, "take", lambda _, h=header: (h, [b""]))
        calls._hear(TaskWrote(id="", job=3, task_id=1, attempt=5, data=b"sealed"))
        calls._pump()
    calls._ack.stop()
    assert slow.future.done()
    assert list(calls._pending) == [queued, waits]
    calls._hear(TaskWrote(id="", job=3, task_id=1, attempt=6))
    assert queued.losses == waits.losses == 0


async def test_a_late_answer_takes_no_call_back_that_was_given_again() -> None:
    """It was asked twice what it has, and both answers come at once."""
    calls = Looked()
    calls.interpreter.has = {1: Call(1, "f", b"", ())}
    for _ in range(2):
        calls.interpreter.heard_at -= 60.0
        await calls._look_at(calls.of)
    assert calls.said == ["sync", "sync"]
    calls._on_missing(calls.interpreter, {"ids": [1]}, [])
    assert len(calls._pending) == 1
    calls._give(calls.interpreter, 1)
    calls._on_missing(calls.interpreter, {"ids": [1]}, [])
    assert not calls._pending, "it would run twice"
    assert list(calls.interpreter.has) == [1]


async def test_where_no_more_interpreters_can_be_had_those_that_there_are_go_on() -> None:
    calls = Looked()
    running, waits = Call(1, "f", b"", ()), Call(2, "f", b"", ())
    calls.interpreter.has[1] = running
    calls.add([waits])

    async def status() -> None:
        raise Unreachable("the manager restarts")

    client: Any = SimpleNamespace(status=status)
    calls._client, calls._most = client, None
    await calls._start()
    assert list(calls._pending) == [waits]
    assert not running.future.done()
    calls.of.count = 0
    await calls._start()
    assert isinstance(waits.future.exception(0), Unreachable)


class Closed(Looked):
    """Calls that hear something while they close."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.told = asyncio.Event()
        self.started = 0
        self.of.job = SimpleNamespace(id=3, cancel=self._cancel, story=self._story)  # type: ignore[assignment]
        self._client: Any = SimpleNamespace(hears={})
        self._ack: Any = SimpleNamespace(stop=lambda: None)
        self._parcels = Parcels(lambda: FakeShare(), lambda: None)
        self._looking = self._loop.create_task(self.told.wait())  # type: ignore[assignment]

        async def hear() -> None:
            meanwhile()

        self._spawn(hear())

    async def _cancel(self) -> None:
        self.told.set()

    async def _story(self, _tasks: list[int]) -> Any:
        await self.told.wait()
        return SimpleNamespace(entries=[])

    async def _start(self) -> None:
        self.started += 1


async def test_a_call_that_is_being_given_up_when_all_ends_is_not_forgotten() -> None:
    call = Call(1, "f", b"", ())
    calls = Closed(lambda: calls._gone(calls.interpreter))
    call.losses = 1
    calls.interpreter.has = {1: call}
    await calls.close(kill=True)
    assert isinstance(call.future.exception(0), CallFailed)


async def test_nothing_is_started_when_all_ends() -> None:
    call = Call(1, "f", b"", ())

    def farewell() -> None:
        calls._on_bye(calls.interpreter, {}, [])
        calls._pump()

    calls = Closed(farewell)
    calls.interpreter.has = {1: call}
    await calls.close(kill=True)
    assert not calls.started
    assert isinstance(call.future.exception(0), CallFailed)


def unconnected() -> tuple[KestrelExecutor, list[Any]]:
    """An executor without a pool, and what its loop is asked to do."""
    made = object.__new__(KestrelExecutor)
    told: list[Any] = []
    made._process, made._is_shut, made._told = os.getpid(), False, False
    made._lock = threading.Lock()
    made._numbers = itertools.count(1)
    made._names, made._new, made._open = {}, deque(), set()
    made._shared = set()
    client: Any = SimpleNamespace(soon=told.append)
    made._client = client
    return made, told


def test_functions_with_large_data_are_not_remembered_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program may make a new function for each call, around the data of that call."""
    monkeypatch.setattr("kestrelctl.client.calls.MOST_FUNCTION_BYTES", 10_000)
    executor, told = unconnected()
    for number in range(5):
        executor.submit(functools.partial(len, bytes([number]) * 6_000))
    assert len(executor._names) <= 2
    assert told == [executor._hand_over], "a function travels with its calls"


async def test_an_interpreter_forgets_functions_before_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kestrelctl.client.calls.MOST_FUNCTIONS", 2)
    calls = Looked()
    calls._parcels = Parcels(lambda: FakeShare(), lambda: None)
    for number, name in enumerate(("f", "g", "f", "h", "f")):
        calls._hand_over(calls.interpreter, [Call(number, name, b"", (), b"code")])
    assert calls.said == [
        *("function", "calls") * 2,
        "calls",
        *("forget", "function", "calls"),
        *("function", "calls"),
    ]


def test_what_another_executor_shares_is_no_object_of_this_one() -> None:
    """A call would find another object, or wait for one that never comes."""
    first, _ = unconnected()
    second, told = unconnected()
    theirs, ours = first.share([1]), second.share([2])
    told.clear()
    assert isinstance(second.submit(len, theirs).exception(0), TypeError)
    assert not told
    assert not second.submit(len, ours).done()


def test_an_interrupt_while_a_call_is_told_of_keeps_no_later_one_back() -> None:
    executor, told = unconnected()

    def interrupted(_call: Any) -> None:
        raise KeyboardInterrupt

    client: Any = executor._client
    client.soon = interrupted
    with pytest.raises(KeyboardInterrupt):
        executor.submit(abs, 1)
    client.soon = told.append
    for number in (2, 3):
        executor.submit(abs, number)
    assert told == [executor._hand_over]
    assert len(executor._new) == 3


def test_an_interrupt_while_calls_are_waited_for_ends_the_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor, _ = unconnected()
    ended: list[bool] = []

    def interrupted(_calls: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kestrelctl.client.executor.wait_for_all", interrupted)
    monkeypatch.setattr(executor, "_end", lambda kill: ended.append(kill))
    with pytest.raises(KeyboardInterrupt):
        executor._finish()
    assert ended == [True]


def test_what_is_done_at_the_end_of_a_call_may_shut_the_executor_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is done by the loop's thread, which must not wait for itself."""
    executor, told = unconnected()
    calls: Any = SimpleNamespace(cancel_pending=lambda: None)
    executor._calls = calls
    waits = threading.Event()
    monkeypatch.setattr(executor, "_finish", waits.set)
    executor.shutdown(wait=False, cancel_futures=True)
    assert told == [executor._hand_over, calls.cancel_pending]
    waits.wait()


def test_a_shutdown_that_would_wait_for_itself_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the end of a call it stood still for ever, with all calls that were not done."""
    executor, told = unconnected()

    def refused() -> None:
        raise UsageError("this would wait for itself")

    monkeypatch.setattr(executor._client, "may_wait", refused, raising=False)
    with pytest.raises(UsageError, match="wait for itself"):
        executor.shutdown()
    assert not executor._is_shut
    assert told == []


async def test_progress_is_asked_while_interpreters_come() -> None:
    """The program's thread asks; the loop's thread hears of another one meanwhile."""
    calls = Looked()

    class Counted(dict[int, Call]):
        def __len__(self) -> int:
            calls._interpreters[3, 2] = _Interpreter(calls.of, 2, 5, b"key")
            return 1

    calls.interpreter.has = Counted()
    assert calls.waiting == 1


class NoPool(contextlib.AbstractContextManager["NoPool"]):
    """A client whose pool does nothing, or is away."""

    is_away = False
    context = SimpleNamespace(own_directories=False)

    def __init__(self, _name: str) -> None:
        if self.is_away:
            raise Unreachable("the pool is away")

    def __exit__(self, *_error: object) -> None:
        """There is nothing to close."""

    def does(self, work: Any) -> Any:
        work.close()
        return self

    def soon(self, _call: object) -> None:
        """There is no loop."""

    def may_wait(self) -> None:
        """There is no thread."""

    async def close(self, *, kill: bool) -> None:
        """There are no calls."""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("kestrelctl.client.executor.Client", NoPool)
    made = ModuleType("of_the_program_alone")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def travels(module: ModuleType) -> bool:
    return module.__name__ in cloudpickle.list_registry_pickle_by_value()


def test_a_module_travels_until_the_last_executor_that_names_it_has_ended(
    module: ModuleType,
) -> None:
    first, second = KestrelExecutor(by_value=[module]), KestrelExecutor(by_value=[module])
    first.shutdown()
    assert travels(module)
    second.shutdown()
    assert not travels(module)


def test_no_module_travels_for_an_executor_that_could_not_be_made(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NoPool, "is_away", True)
    with pytest.raises(Unreachable):
        KestrelExecutor(by_value=[module])
    assert not travels(module)


@pytest.mark.parametrize(
    "given",
    [
        {"max_workers": 0},
        {"max_workers": 2.5},
        {"retries": -1},
        {"retries": None},
        {"call_seconds": 0},
        {"call_seconds": -1.0},
        {"call_seconds": float("inf")},
        {"call_seconds": "60"},
        {"idle_seconds": 0},
        {"idle_seconds": None},
        {"idle_seconds": float("nan")},
        {"idle_seconds": float("inf")},
    ],
)
@pytest.mark.usefixtures("module")
def test_numbers_with_which_no_interpreter_could_work_are_refused(given: dict[str, Any]) -> None:
    """Interpreters would end again and again before they have done a call."""
    with pytest.raises(UsageError):
        KestrelExecutor(**given)


def test_whatever_comes_in_between_at_the_end_leaves_no_call_unanswered() -> None:
    """Another thread may wait for one."""
    executor, _ = unconnected()
    new, begun = Future[Any](), Future[Any]()
    assert begun.set_running_or_notify_cancel()
    executor._open = {new, begun}
    executor._stack = contextlib.ExitStack()
    calls: Any = SimpleNamespace(close=lambda kill: None)
    executor._calls = calls

    def interrupted(_work: Any) -> None:
        raise KeyboardInterrupt

    client: Any = SimpleNamespace(does=interrupted)
    executor._client = client
    with pytest.raises(KeyboardInterrupt):
        executor._end(kill=True)
    for future in (new, begun):
        assert isinstance(future.exception(0), CallFailed)


async def test_a_result_that_cannot_be_fetched_for_any_reason_is_answered() -> None:
    calls, call = Looked(), Call(1, "f", b"", ())
    assert call.future.set_running_or_notify_cancel()

    async def fetched(_stored: Any) -> bytes:
        raise RuntimeError("no thread can be started")

    parcels: Any = SimpleNamespace(fetched=fetched)
    calls._parcels = parcels
    stored = {"sha256": "0" * 64, "size_bytes": 0, "pieces": []}
    await calls._settle_from_share(call, {"id": 1, "kind": 1, "stored": stored})
    assert isinstance(call.future.exception(0), CallFailed)


async def test_what_keeps_interpreters_from_being_asked_for_is_told_to_each_call() -> None:
    calls, call = Looked(), Call(1, "f", b"", ())
    calls.of.count = 0
    calls.add([call])

    async def described(*_of: Any) -> None:
        raise RuntimeError("a mistake")

    client: Any = SimpleNamespace(described=described)
    calls._client, calls._most, calls._slots = client, 1, 1
    calls._argv, calls._options = (), {}
    await calls._start()
    assert isinstance(call.future.exception(0), CallFailed)
